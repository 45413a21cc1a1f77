"""Members that leave a consumer group or are given up, and the records that remove them.

Pure. Invariant: a member goes with all of its records, and the group's epoch grows with the same
batch. So the next target assignment gives its partitions to others.

Source: Apache Kafka's group coordinator.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from txn.coordinator.group.consumer.beat import (
    Beat,
    BeatAnswer,
    Outcome,
    Refusal,
    require_holder,
    unknown_member,
)
from txn.coordinator.group.consumer.group import (
    LEFT_FOR_A_WHILE,
    OWNS_NOTHING,
    ConsumerGroup,
    ConsumerMember,
    next_epoch,
)
from txn.coordinator.group.consumer.records import ConsumerRecord, Kind, Records, record
from txn.coordinator.group.consumer.topics import Topics, metadata_hash
from txn.wire.error_codes import ErrorCode

KEY_BYTES: Final = 16
"""Upper limit of a record's key without its names."""

TOMBSTONES: Final = 3
"""Records that remove a member."""


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
        epoch=next_epoch(group), metadata_hash=metadata_hash(names, topics)
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


def leave(group: ConsumerGroup, beat: Beat) -> Outcome:
    """Remove a member, or let a static member go for a while (epoch -2)."""
    try:
        member = _leaver(group, beat)
    except Refusal as refusal:
        return Outcome(refusal.answer)
    answer = BeatAnswer(ErrorCode.NONE, None, beat.member_id, beat.epoch)
    if beat.epoch == LEFT_FOR_A_WHILE and beat.instance_id is not None:
        current = member.current._replace(epoch=LEFT_FOR_A_WHILE, revoking=OWNS_NOTHING)
        return Outcome(answer, (record(Kind.CURRENT, group.group_id, current, beat.member_id),))
    return Outcome(answer, gone=(member.member_id,))


def _leaver(group: ConsumerGroup, beat: Beat) -> ConsumerMember:
    if beat.instance_id is None:
        known = group.members.get(beat.member_id)
        if known is None:
            raise unknown_member(beat.member_id, group.group_id)
        return known
    holder = group.static_member(beat.instance_id)
    if holder is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {beat.instance_id} is unknown.")
    require_holder(holder, beat.member_id, beat.instance_id)
    return holder
