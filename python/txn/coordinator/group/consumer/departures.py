"""The members of a consumer group to remove, and the records that remove members and groups.

Pure. Source: Apache Kafka's group coordinator.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.consumer.records import ConsumerRecord, Kind, record
from txn.coordinator.group.consumer.topics import Topics, metadata_hash

KEY_BYTES: Final = 16
"""Upper limit of a record's key without its names."""

TOMBSTONES: Final = 3
"""Records that remove a member."""

Records = tuple[ConsumerRecord, ...]


def fence(group: ConsumerGroup, member_ids: Iterable[str], *, topics: Topics) -> Records:
    """The records that remove members; the others get their partitions in the next epoch."""
    gone = [group.members[member_id] for member_id in member_ids]
    if not gone:
        return ()
    records = [each for one in gone for each in tombstones(group.group_id, one.member_id)]
    left = Counter(each.pattern for each in gone if each.pattern)
    for pattern, count in left.items():
        if count == group.members_of_pattern(pattern) and pattern in group.patterns:
            records.append(record(Kind.PATTERN, group.group_id, None, pattern))
    names = group.subscribed_topics([each.subscription for each in gone])
    value = group.epoch_value._replace(
        epoch=group.epoch + 1, metadata_hash=metadata_hash(names, topics)
    )
    records.append(record(Kind.EPOCH, group.group_id, value))
    if len(gone) == len(group.members):  # nobody is left: the next member is assigned at once
        target = group.target_value._replace(epoch=value.epoch, timestamp_ms=0)
        records.append(record(Kind.TARGET, group.group_id, target))
    return tuple(records)


def overdue(
    group: ConsumerGroup, *, now_ms: int, session_timeout_ms: int, bytes_max: int
) -> list[str]:
    """The members to remove: silent ones, and those whose next step is late.

    A call that comes too early gives none. Members whose tombstones are more than half a batch
    stay for the next call.

    Args:
        group: The group.
        now_ms: A time of the monotonic clock.
        session_timeout_ms: The silence after which a member is given up.
        bytes_max: The largest batch.
    """
    return _first_part(group, group.overdue(now_ms, session_timeout_ms), bytes_max // 2)


def _first_part(group: ConsumerGroup, member_ids: list[str], bytes_max: int) -> list[str]:
    """The first members whose tombstones are together no larger than this; at least one member."""
    key_bytes = KEY_BYTES + len(group.group_id.encode())
    patterns: set[str] = set()
    size = 0
    for count, member_id in enumerate(member_ids):
        pattern = group.members[member_id].pattern
        size += TOMBSTONES * (key_bytes + len(member_id.encode()))
        if pattern not in patterns:
            patterns.add(pattern)
            size += key_bytes + len(pattern.encode())
        if count and size > bytes_max:
            return member_ids[:count]
    return member_ids


def dissolve(group_id: str, member_ids: Collection[str], patterns: Iterable[str]) -> Records:
    """The tombstones of a group with these members and patterns, in Kafka's order."""
    return (
        *(record(Kind.CURRENT, group_id, None, member_id) for member_id in member_ids),
        *(record(Kind.TARGET_MEMBER, group_id, None, member_id) for member_id in member_ids),
        record(Kind.TARGET, group_id, None),
        *(record(Kind.MEMBER, group_id, None, member_id) for member_id in member_ids),
        *(record(Kind.PATTERN, group_id, None, pattern) for pattern in patterns),
        record(Kind.PARTITIONS, group_id, None),
        record(Kind.EPOCH, group_id, None),
    )


def tombstones(group_id: str, member_id: str) -> list[ConsumerRecord]:
    """The records that remove a member."""
    kinds = (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER)
    return [record(kind, group_id, None, member_id) for kind in kinds]
