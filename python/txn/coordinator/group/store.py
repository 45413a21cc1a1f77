"""The groups and committed offsets of one shard: the fold of its log.

A record changes them only by `replay`, both a record just appended and a record that a start reads.
So a start restores everything that was recorded (P8). A live group also has state in memory alone:
requests that wait, sessions, an unfinished round. `take` puts that over the recorded group, after
the group's record was replayed.

Pure.
"""

from txn.coordinator.group.classic import Group, restore
from txn.coordinator.group.offsets import OffsetTable
from txn.coordinator.group.records import GroupRecord, OffsetRecord


class GroupStore:
    """Groups by name, and the offsets that they committed."""

    __slots__ = ("groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetTable()

    def replay(
        self, record: OffsetRecord | GroupRecord, *, record_offset: int, now_ms: int
    ) -> None:
        """Fold in a record that is in the log; `now_ms` begins the sessions of its members."""
        group_id = record.key.group_id
        if isinstance(record, GroupRecord):
            if record.value is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = restore(group_id, record.value, now_ms=now_ms)
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

    def take(self, group: Group) -> None:
        """Put a group's state in memory over the recorded one."""
        self.groups[group.group_id] = group
