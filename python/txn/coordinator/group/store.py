"""The groups and committed offsets of one shard: the fold of its log.

A record changes them only by `replay`, both a record just appended and a record that a start reads.
So a start restores everything that was recorded (P8). A live group also has state in memory alone.
Of a classic group that is requests that wait, sessions, an unfinished round. `put_live` puts this
over the recorded group, after the group's record was replayed. A consumer group keeps its own.

A group is of one protocol. The first record of the other one ends it. A classic group with members
whose record follows the end of a consumer group was downgraded, and its members have to join again.
The record says that it is Stable, so only the order of the records shows a round that was lost.

Pure.
"""

from txn.coordinator.group.classic.group import Group, restore
from txn.coordinator.group.classic.membership import begin_round
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.consumer.records import ConsumerRecord, Kind
from txn.coordinator.group.offsets import OffsetTable
from txn.coordinator.group.records import GroupRecord, OffsetRecord

AnyGroup = Group | ConsumerGroup
"""A group of any protocol."""

GroupLogRecord = OffsetRecord | GroupRecord | ConsumerRecord


class GroupStore:
    """Groups by name, and the offsets that they committed."""

    __slots__ = ("_ended", "groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, AnyGroup] = {}
        self.offsets = OffsetTable()
        self._ended: str | None = None
        """The consumer group that the last record ended."""

    def replay(self, record: GroupLogRecord, *, record_offset: int, now_ms: int) -> None:
        """Fold in a record that is in the log; `now_ms` begins the sessions of its members."""
        group_id = record.key.group_id
        ended, self._ended = self._ended, None
        if isinstance(record, ConsumerRecord):
            self._replay_consumer(record, now_ms)
        elif isinstance(record, GroupRecord):
            if record.value is not None:
                group = restore(group_id, record.value, now_ms=now_ms)
                if ended == group_id and group.members:
                    group = begin_round(group, now_ms=now_ms)
                self.groups[group_id] = group
            elif isinstance(self.groups.get(group_id), Group):
                del self.groups[group_id]
        elif record.value is None:
            self.offsets.delete(record.key)
        else:
            # A group of which nothing else is known begins with its first offset.
            self.groups.setdefault(group_id, Group(group_id))
            self.offsets.put(
                record.key,
                record.value,
                record_offset=record_offset,
                producer_id=record.producer_id,
            )

    def _replay_consumer(self, record: ConsumerRecord, now_ms: int) -> None:
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if record.value is None and record.key.kind is Kind.EPOCH:
            del self.groups[group_id]
            self._ended = group_id
        else:
            group.replay(record, now_ms)

    def put_live(self, group: Group) -> None:
        """Put a classic group's state in memory over the recorded one."""
        self.groups[group.group_id] = group
