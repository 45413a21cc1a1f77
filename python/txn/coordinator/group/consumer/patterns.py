"""The patterns of a consumer group: the records of their topics.

Pure. Invariant: topics of a pattern count for an epoch whose assignment has yet to be computed. So
no assignment misses them.
"""

from typing import Final

from txn.coordinator.group.consumer.group import ConsumerGroup, next_epoch
from txn.coordinator.group.consumer.records import Kind, PatternValue, Records, record
from txn.coordinator.group.consumer.topics import Topics, metadata_hash

PATTERNS_MAX: Final = 100
"""Different patterns in one group: each is matched with every topic, and stored with its topics."""


def pattern_resolved(group: ConsumerGroup, pattern: str, found: PatternValue) -> Records:
    """The records of a pattern that was resolved: its topics, and the epoch for which they count.

    There are none if nobody has the pattern any longer, or its topics did not change. An epoch that
    waits for its assignment serves for these topics too.
    """
    before = group.patterns.get(pattern)
    changes = found.topics != (frozenset() if before is None else before.topics)
    if not group.members_of_pattern(pattern) or not (changes or before is None):
        return ()
    if before is not None:
        found = found._replace(tags=before.tags)
    written = record(Kind.PATTERN, group.group_id, found, pattern)
    if not changes or group.has_newer_epoch:
        return (written,)
    value = group.epoch_value._replace(epoch=next_epoch(group))
    return written, record(Kind.EPOCH, group.group_id, value)


def patterns_checked(group: ConsumerGroup, *, topics: Topics) -> Records:
    """The epoch with the hash of the topics, behind the records of resolved patterns."""
    hashed = metadata_hash(group.subscribed_topics(), topics)
    if not group.subscribed_patterns or hashed == group.metadata_hash:
        return ()
    epoch = group.epoch if group.has_newer_epoch else next_epoch(group)
    value = group.epoch_value._replace(epoch=epoch, metadata_hash=hashed)
    return (record(Kind.EPOCH, group.group_id, value),)
