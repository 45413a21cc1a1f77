"""The topics that the members of a classic group consume, read from their subscriptions. Pure."""

import struct
from typing import Final

from txn.coordinator.group.classic.group import Group

SUBSCRIBED_MAX: Final = 100_000
"""Topic names that are read in the different subscriptions of a group."""

VERSION_BYTES: Final = 2

COUNT_BYTES: Final = 4
"""Beginning of a subscription: its version, and the number of topics."""

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that members consume, as far as their subscriptions can be read.

    None stands for every topic: a subscription cannot be read, or they name too many. Equal lists
    of topics count once, as most groups have one. Cost: that of `SUBSCRIBED_MAX` names.
    """
    topics: set[str] = set()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return frozenset()
    left, known = SUBSCRIBED_MAX, b""
    for member in group.members.values():
        subscription = member.metadata(group.protocol)
        if known and subscription.startswith(known, VERSION_BYTES):
            continue
        try:
            names, end = _subscribed_topics(subscription, left)
        except ValueError:
            return None
        known = subscription[VERSION_BYTES:end]
        left -= len(names)
        topics.update(names)
    return frozenset(topics)


def _subscribed_topics(subscription: bytes, names_max: int) -> tuple[list[str], int]:
    """The topics of a consumer's subscription, and the end of their list.

    Every version begins with the version (int16) and the topics (an array of strings); the rest
    is of no interest here. Raises ValueError. Source: ConsumerProtocolSubscription.
    """
    try:
        _, count = struct.unpack_from(">hi", subscription)
        if count > names_max:
            raise ValueError(f"a subscription has {count} topics, more than {names_max}")
        position, topics = VERSION_BYTES + COUNT_BYTES, []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", subscription, position)
            start, position = position + 2, position + 2 + size
            if size < 0 or position > len(subscription):
                raise ValueError(f"a topic name of {size} bytes does not fit the subscription")
            topics.append(subscription[start:position].decode())
    except struct.error as error:
        raise ValueError(f"a subscription of {len(subscription)} bytes ends early") from error
    return topics, position
