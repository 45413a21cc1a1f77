"""The clean-up of groups: offsets whose retention is over, and groups that have nothing left.

Invariant: only an empty group is deleted, and only when it has no offsets. Groups are cleaned up in
turns, so that a clean-up of many holds up no request.

Sources: KIP-211; Apache Kafka's group coordinator.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from txn.broker.audit import short
from txn.broker.group_shards import GroupShards, delete_offsets
from txn.broker.host import Host
from txn.broker.turns import Turns
from txn.coordinator.group.classic.group import Group, GroupState
from txn.coordinator.group.consumer.group import ConsumerGroupState
from txn.coordinator.group.offsets import expired_offsets
from txn.coordinator.group.store import AnyGroup
from txn.errors import StorageError
from txn.logs import log

MINUTE_MS: Final = 60_000

CLEANED_ITEMS: Final = 10
"""Cost of a group that is cleaned up, in the items of `Turns`."""

EMPTY_STATES: Final = frozenset({GroupState.EMPTY, ConsumerGroupState.EMPTY})


class GroupCleanUp:
    """Cleans up the groups of this node at an interval."""

    def __init__(
        self,
        host: Host,
        shards: GroupShards,
        delete_empty: Callable[[AnyGroup], None],
        log_event: Callable[..., None],
    ) -> None:
        """Clean up the groups of these shards.

        Args:
            host: The broker.
            shards: The loaded groups.
            delete_empty: Deletes a group without members and its offsets. Raises StorageError.
            log_event: Writes a line of the log: event, group, facts.
        """
        self._host = host
        self._shards = shards
        self._delete_empty = delete_empty
        self._log_event = log_event

    def schedule(self) -> None:
        """Begin the next clean-up when the interval is over; each one schedules the next."""
        interval_ms = self._host.setting("offsets.retention.check.interval.ms")
        self._host.call_at(self._host.monotonic_ms() + interval_ms, self._clean_up)

    def _clean_up(self) -> None:
        """Drop offsets that are over, and groups that have nothing left."""
        self.schedule()
        retention_ms = self._host.setting("offsets.retention.minutes") * MINUTE_MS
        group_ids = [name for shard in self._shards.shards for name in shard.state.groups]
        self._clean_up_some(iter(group_ids), retention_ms)

    def _clean_up_some(self, group_ids: Iterator[str], retention_ms: int) -> None:
        """Clean up groups for a turn, and the others in a turn of their own."""
        turns = Turns()
        for group_id in group_ids:
            group = self._shards.of(group_id).state.groups.get(group_id)
            if group is None:
                continue  # it is gone since the last turn
            try:
                self._clean_up_group(group, retention_ms)
            except StorageError as error:
                named = short(group_id)
                log.error("group.not_cleaned", group_id=named, reason=short(str(error)))
            if turns.are_over(CLEANED_ITEMS):
                again = partial(self._clean_up_some, group_ids, retention_ms)
                self._host.call_at(self._host.monotonic_ms(), again)
                return

    def _clean_up_group(self, group: AnyGroup, retention_ms: int) -> None:
        shard = self._shards.of(group.group_id)
        table = shard.state.offsets
        now_ms = self._host.now_ms()
        over = expired_offsets(group, table, now_ms=now_ms, retention_ms=retention_ms)
        delete_offsets(shard, over)
        if over:
            self._log_event("group.offsets_expired", group.group_id, offsets=len(over))
        is_awaited = isinstance(group, Group) and group.pending
        is_left_alone = group.state in EMPTY_STATES and not is_awaited
        if is_left_alone and not table.keys_of_group(group.group_id):
            self._delete_empty(group)
