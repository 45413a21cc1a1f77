"""The consumer protocol that members of the classic protocol embed: subscription and assignment.

Pure. To a classic group these bytes are opaque. A consumer group reads the subscriptions of its
classic members, and writes their assignments. A later version than those known here has the same
first fields. Nothing here is flexible, and an array may be null.

    subscription  version, topics, user data, 1+: owned partitions, 2+: generation, 3+: rack
    assignment    version, partitions by topic, user data

Sources: the message schemas ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

import struct
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from txn.coordinator.group.members import Protocols
from txn.coordinator.group.record_bytes import RecordReader, RecordWriter

HIGHEST_VERSION: Final = 3
OWNED_FROM: Final = 1
GENERATION_FROM: Final = 2
RACK_FROM: Final = 3

NAMES_MAX: Final = 100_000
"""Topic names of one subscription."""

Partitions = Mapping[str, Collection[int]]
"""Topic → partitions."""


class Subscription(NamedTuple):
    """The data of a classic member that a consumer group understands.

    `generation` is that of the partitions it owns; -1: it did not say.
    """

    topics: tuple[str, ...]
    owned: Partitions
    rack_id: str | None
    generation: int = -1


class Assigned(NamedTuple):
    """An assignment that the leader of a classic group computed."""

    partitions: Partitions
    user_data: bytes


def decode_subscription(data: bytes) -> Subscription:
    """Decode a subscription.

    Raises:
        ValueError, struct.error: the bytes do not follow the schema.
    """
    reader = RecordReader(data, is_flexible=False)
    count = reader.count()
    if count > NAMES_MAX:
        raise ValueError(f"a subscription has {count} topics, more than {NAMES_MAX}")
    topics = tuple(reader.string() for _ in range(count))
    reader.nullable_blob()
    owned = _partitions(reader) if reader.version >= OWNED_FROM else {}
    generation = reader.int32() if reader.version >= GENERATION_FROM else -1
    rack_id = reader.nullable_string() if reader.version >= RACK_FROM else None
    return Subscription(topics, owned, rack_id or None, generation)


def are_readable(protocols: Protocols) -> bool:
    """Say whether the metadata of every protocol of a member is a subscription."""
    try:
        for _, metadata in protocols:
            decode_subscription(metadata)
    except (ValueError, struct.error):
        return False
    return True


def decode_assignment(data: bytes) -> Assigned:
    """Decode an assignment; no bytes are one without partitions.

    Raises:
        ValueError, struct.error: the bytes do not follow the schema.
    """
    if not data:
        return Assigned({}, b"")
    reader = RecordReader(data, is_flexible=False)
    return Assigned(_partitions(reader), reader.nullable_blob() or b"")


def encode_assignment(partitions: Partitions, subscription: bytes) -> bytes:
    """Encode an assignment, in the version of the member's subscription.

    Raises:
        ValueError: the subscription has no version.
    """
    version = RecordReader(subscription, is_flexible=False).version
    writer = RecordWriter(min(version, HIGHEST_VERSION), is_flexible=False)
    writer.count(len(partitions))
    for topic, numbers in sorted(partitions.items()):
        writer.string(topic)
        writer.int32s(sorted(numbers))
    writer.nullable_blob(None)
    return writer.done()


def _partitions(reader: RecordReader) -> dict[str, tuple[int, ...]]:
    return {reader.string(): reader.int32s() for _ in range(reader.count())}
