"""The records of one step of a group, in batches that fit.

Records that may be written before the others go first, and the epoch before all of them. So a crash
between two batches leaves a group that its members can go on with.
"""

from collections.abc import (
    Iterable,
    Iterator,
)

from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.consumer.records import (
    ConsumerRecord,
    Kind,
)
from txn.coordinator.group.records import encode_record
from txn.coordinator.group.store import GroupLogRecord


def split_early(
    records: Iterable[GroupLogRecord], group: ConsumerGroup
) -> tuple[list[ConsumerRecord], list[GroupLogRecord]]:
    """The records that may be written before the others, with the group's epoch first."""
    early: list[ConsumerRecord] = []
    late: list[GroupLogRecord] = []
    for each in records:
        if not isinstance(each, ConsumerRecord) or each.value is None:
            late.append(each)
        elif each.key.kind is Kind.EPOCH:
            early.insert(0, each)
        elif each.key.kind is Kind.TARGET_MEMBER and each.key.name in group.members:
            early.append(each)
        else:
            late.append(each)
    return early, late


def bytes_of(each: GroupLogRecord) -> int:
    """The size of a record\'s key and value."""
    key, value = encode_record(each)
    return len(key) + len(value or b"")


def in_batches(records: Iterable[ConsumerRecord], bytes_max: int) -> Iterator[list[GroupLogRecord]]:
    """The records in batches, in order."""
    part: list[GroupLogRecord] = []
    size = 0
    for each in records:
        size += bytes_of(each)
        if part and size > bytes_max:
            yield part
            part, size = [], bytes_of(each)
        part.append(each)
    yield part
