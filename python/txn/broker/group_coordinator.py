"""Groups and committed offsets: the decisions of the pure rules, written, applied and answered.

Everything the group coordinator knows is in `__consumer_offsets`; a group's partition is found by
its name, and is a shard (`broker.runtime`). The order is always the same: decide, append, replay,
answer. An append either happens or raises StorageError, and then nothing has changed: the group
stays and the request is refused.

    JoinGroup, SyncGroup, …   `coordinator/group/classic/` → a transition: record, group, answers
    ConsumerGroupHeartbeat    `broker/consumer_groups.py`
    OffsetCommit, TxnOffsetCommit, OffsetFetch   `broker/committed_offsets.py`
    marker                    appended by the transactions   → `on_offsets_marker`
    live and at a start       every record goes through `GroupStore.replay`

Each group has one timer, for its next deadline. A heartbeat moves deadlines back, not the timer:
when it rings too early it is set again. Deadlines are times of the monotonic clock, so that a time
of day that is set ends no session. When a group came to its state is stored, so that is a time of
day (`_stamped`), as are the times of offsets.

Source: Apache Kafka's group coordinator.
"""

import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from txn.broker.audit import Allowance, short
from txn.broker.classic_members import ClassicMembers
from txn.broker.committed_offsets import CommittedOffsets, OffsetTransactions
from txn.broker.consumer_groups import ConsumerGroups
from txn.broker.group_clean_up import EMPTY_STATES, GroupCleanUp
from txn.broker.group_shards import GroupShard, GroupShards, delete_offsets
from txn.broker.host import RETRY_MS, Host
from txn.broker.turns import ITEMS_PER_TURN
from txn.broker.txn_verifier import TransactionVerifier
from txn.coordinator.group.classic.group import Group, Limits
from txn.coordinator.group.classic.joining import join
from txn.coordinator.group.classic.membership import expire, heartbeat, leave, next_deadline, sync
from txn.coordinator.group.classic.refusals import leave_refusal
from txn.coordinator.group.classic.requests import (
    GroupTransition,
    Join,
    JoinAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from txn.coordinator.group.consumer.departures import dissolve
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.records import (
    GroupKey,
    GroupRecord,
)
from txn.coordinator.group.store import AnyGroup, GroupLogRecord
from txn.coordinator.operations import Later, Reply, Request, in_parts
from txn.errors import StorageError
from txn.logs import log
from txn.wire.error_codes import ErrorCode

GROUP_BATCHES: Final = 8
"""Limit of the members of one group, in largest batches. The record of a generation is a batch of
its own and holds one of each member's protocols."""

HELD_BYTES_MAX: Final = 256 << 20
"""Limit of all groups and their members together. Committed offsets do not count."""


class GroupCoordinator:
    """All groups of this node. Used from one thread."""

    def __init__(
        self,
        host: Host,
        shards: GroupShards,
        transactions: OffsetTransactions,
        verifier: TransactionVerifier,
        *,
        make_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """Serve groups that were loaded: their members' sessions and the clean-up begin.

        Args:
            host: The broker.
            shards: The loaded groups.
            transactions: Knows the transactions in which offsets are committed.
            verifier: Makes a partition of offsets part of a transaction.
            make_id: Makes the ids of new members.
        """
        self.host = host
        self.make_id = make_id
        self._shards = shards
        self._tickets = itertools.count(1)
        self._allowances: dict[str, Allowance] = {}
        self.consumer = ConsumerGroups(
            host,
            shards,
            group_bytes_max=lambda: GROUP_BATCHES * self.batch_bytes_max,
            held_bytes_max=HELD_BYTES_MAX,
            set_timer=self._set_timer,
            error_code=group_error,
            log_event=self._log_event,
        )
        """The groups of the consumer protocol."""
        self.offsets = CommittedOffsets(
            host, shards, self.consumer, transactions, verifier, self._prolong
        )
        """The committed offsets."""
        self._classic_members = ClassicMembers(host, shards, self.consumer, group_error)
        for shard in shards.shards:
            self._set_timers(shard)
        shards.on_loaded = self._set_timers
        shards.on_round = self._set_timer
        GroupCleanUp(host, shards, self._delete_empty, self._log_event).schedule()

    # ------------------------------------------------------------ what the broker asks of it

    def group_partition(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps a group."""
        return self._shards.index_of(group_id)

    @property
    def failed_count(self) -> int:
        """Number of partitions of the coordinator that could not be read."""
        return len(self._shards.unread())

    def refusal(self, group_id: str) -> ErrorCode:
        """Why a group is not served: its shard loads, or could not be read; or NONE."""
        return self._shard_of(group_id).refusal

    def resign(self, index: int) -> None:
        """Leave the groups of a partition to another broker.

        Waiting members and committers are answered with NOT_COORDINATOR.
        """
        self._shards.resign(index)

    async def elect(self, index: int) -> None:
        """Coordinate the groups of a partition again; their members' sessions begin anew."""
        await self._shards.elect(index)

    def _set_timers(self, shard: GroupShard) -> None:
        for group in shard.state.groups.values():
            if isinstance(group, ConsumerGroup):
                group.begin_sessions(self.host.monotonic_ms())
            self._set_timer(group)

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch of `__consumer_offsets`: no generation and no commit is larger."""
        return self._shards.batch_bytes_max()

    # ------------------------------------------------------------ members

    async def join(self, group_id: str, request: Join, owner: str = "") -> JoinAnswer:
        """Let a member join; returns when the round is complete, or at once with a refusal.

        Where it needs a large assignment, that takes the turns of `owner` on the side thread.
        """
        if (refusal := self.refusal(group_id)) is not ErrorCode.NONE:
            return JoinAnswer(refusal, request.member_id)
        room_bytes = max(0, HELD_BYTES_MAX - self._held_bytes)
        of_consumers = self.consumer.get(group_id)
        if of_consumers is not None and of_consumers.members:
            return self._classic_members.join(
                of_consumers, request, room_bytes=room_bytes, owner=owner
            )
        if self._added_bytes(group_id, request) > room_bytes:
            return JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        member_id = request.member_id
        joining = self._shard_of(group_id).run_or_wait(
            self._join(group_id, request), lambda code: JoinAnswer(code, member_id)
        )
        del request  # the wait may be long
        return await joining

    @property
    def _held_bytes(self) -> int:
        return sum(shard.state.held_bytes for shard in self._shards.shards)

    def _added_bytes(self, group_id: str, request: Join) -> int:
        """The bytes by which a member's JoinGroup lets its classic group grow."""
        group = self.group(group_id)
        if group is None:
            return Group(group_id).size_bytes + request.size_bytes
        before = group.members.get(request.member_id)
        if before is None and request.instance_id is not None:
            before = group.static_member(request.instance_id)
        return request.size_bytes - (0 if before is None else before.size_bytes)

    def _join(self, group_id: str, request: Join) -> Request[JoinAnswer | Later]:
        ticket = next(self._tickets)
        limits = Limits(
            self.host.setting("group.initial.rebalance.delay.ms"),
            self.host.setting("group.max.size"),
            GROUP_BATCHES * self.batch_bytes_max,
        )
        transition = join(
            self.group(group_id),
            request._replace(ticket=ticket),
            group_id=group_id,
            now_ms=self.host.monotonic_ms(),
            limits=limits,
        )
        try:
            yield from self._carry_out(group_id, transition, ticket)
        except StorageError as error:
            return JoinAnswer(group_error(error), request.member_id)
        return Later(ticket)

    async def sync(self, group_id: str, request: Sync) -> SyncAnswer:
        """Give a member its assignment; returns once the leader has handed all of them in."""
        if (refusal := self.refusal(group_id)) is not ErrorCode.NONE:
            return SyncAnswer(refusal)
        of_consumers = self.consumer.get(group_id)
        if of_consumers is not None:
            return self._classic_members.sync(of_consumers, request)
        syncing = self._shard_of(group_id).run_or_wait(self._sync(group_id, request), SyncAnswer)
        del request  # the wait may be long
        return await syncing

    def _sync(self, group_id: str, request: Sync) -> Request[SyncAnswer | Later]:
        ticket = next(self._tickets)
        transition = sync(
            self.group(group_id),
            request._replace(ticket=ticket),
            now_ms=self.host.monotonic_ms(),
        )
        try:
            yield from self._carry_out(group_id, transition, ticket)
        except StorageError as error:
            return SyncAnswer(group_error(error))
        return Later(ticket)

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Prolong a member's session; the code says if it has to join again."""
        if (refusal := self.refusal(group_id)) is not ErrorCode.NONE:
            return refusal
        of_consumers = self.consumer.get(group_id)
        if of_consumers is not None:
            return self._classic_members.heartbeat(of_consumers, member_id, instance_id, generation)
        now_ms = self.host.monotonic_ms()
        group = self.group(group_id)
        group, error = heartbeat(group, member_id, instance_id, generation, now_ms=now_ms)
        if group is not None:
            self._prolong(group, member_id)
        return error

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[ErrorCode, ...]:
        """Remove members; one code for each, in order. Raises StorageError: none was removed.

        The members are removed in one step. Before it the names are looked up, with turns for
        others.
        """
        return await self._shard_of(group_id).run(
            None, self._leave(group_id, leavers), lambda code: (code,) * len(leavers)
        )

    def _leave(self, group_id: str, leavers: Sequence[Leaver]) -> Request[tuple[ErrorCode, ...]]:
        codes: list[ErrorCode] = []
        leaving: dict[Leaver, int] = {}

        of_consumers = self.consumer.get(group_id)
        if of_consumers is not None:
            self._shards.require_loaded(group_id)
            return self._classic_members.leave(of_consumers, leavers)

        def look_up(part: Sequence[Leaver]) -> None:
            for leaver in part:
                code = leave_refusal(self.group(group_id), leaver)
                if code is ErrorCode.NONE:
                    leaving.setdefault(leaver, len(codes))
                    code = ErrorCode.UNKNOWN_MEMBER_ID  # if it is named again
                codes.append(code)

        yield from in_parts(look_up, leavers, ITEMS_PER_TURN)
        self._shards.require_loaded(group_id)
        now_ms = self.host.monotonic_ms()
        transition, left = leave(self.group(group_id), tuple(leaving), now_ms=now_ms)
        yield from self._carry_out(group_id, transition)
        for position, code in zip(leaving.values(), left, strict=True):
            codes[position] = code
        return tuple(codes)

    # ------------------------------------------------------------ groups

    def any_group(self, group_id: str) -> AnyGroup | None:
        """A group of any protocol as it is, or None."""
        return self._shards.any_group(group_id)

    def group(self, group_id: str) -> Group | None:
        """A group of the classic protocol as it is, or None."""
        return self._shards.classic_group(group_id)

    def groups(self) -> Iterable[AnyGroup]:
        """Every group."""
        return [
            group
            for shard in self._shards.shards
            for group in list(shard.state.groups.values())  # one step: a scrape asks from a thread
        ]

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group without members and all its offsets. Raises StorageError."""
        self._shards.require_loaded(group_id)
        group = self.any_group(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state not in EMPTY_STATES:
            return ErrorCode.NON_EMPTY_GROUP
        self._delete_empty(group)
        return ErrorCode.NONE

    def _delete_empty(self, group: AnyGroup) -> None:
        """Delete a group without members and all its offsets. Raises StorageError."""
        group_id = group.group_id
        shard = self._shard_of(group_id)
        delete_offsets(shard, shard.state.offsets.keys_of_group(group_id))
        shard.append(_tombstones(group))
        self.consumer.forget([group_id])
        self._log_event("group.deleted", group_id)

    # ------------------------------------------------------------ one change

    def _carry_out(
        self, group_id: str, transition: GroupTransition, own: int | None = None
    ) -> Request[None]:
        """Record a transition, put the group's new state in memory, answer. Raises StorageError.

        Args:
            group_id: Whose.
            transition: Decided on the group as it is.
            own: The ticket of the request that brought it about.
        """
        before = self.group(group_id)
        group, answers, record = self._stamped(before, transition)
        if record is not None:
            ended = self.consumer.get(group_id)
            ending = () if ended is None else _tombstones(ended)
            self._shard_of(group_id).append([*ending, GroupRecord(GroupKey(group_id), record)])
        if group is not None:
            self._log_move(before, group)
            self._shard_of(group_id).state.note_size(group)
            self._update(group)
        for ticket, answer in answers:
            yield Reply(answer, None if ticket == own else ticket)

    def _update(self, group: Group) -> None:
        """Put the new state of a classic group over the recorded one, and set its timer."""
        self._shard_of(group.group_id).state.put_live(group)
        self._set_timer(group)

    def _prolong(self, group: Group, member_id: str) -> None:
        """Put a group in which one session was prolonged, without a look at all the others."""
        state = self._shard_of(group.group_id).state
        armed = state.timers.get(group.group_id)
        member = group.members.get(member_id)
        if armed is None or (member is not None and member.session_deadline_ms < armed[0]):
            self._update(group)
        else:
            state.put_live(group)

    def _stamped(self, before: Group | None, outcome: GroupTransition) -> GroupTransition:
        """An outcome with the time of day at which the group came to its state, if it just did."""
        after, record = outcome.group, outcome.record
        if after is None or (
            before is not None and before.state_timestamp_ms == after.state_timestamp_ms
        ):
            return outcome
        at_ms = self.host.now_ms()
        return outcome._replace(
            group=after._replace(state_timestamp_ms=at_ms),
            record=None if record is None else record._replace(state_timestamp_ms=at_ms),
        )

    # ------------------------------------------------------------ shards

    def _shard_of(self, group_id: str) -> GroupShard:
        """The shard that keeps a group."""
        return self._shards.of(group_id)

    # ------------------------------------------------------------ time

    def _set_timer(self, group: AnyGroup) -> None:
        group_id = group.group_id
        deadline_ms = (
            next_deadline(group) if isinstance(group, Group) else self.consumer.next_deadline(group)
        )
        armed = self._shard_of(group_id).state.timers.get(group_id)
        if deadline_ms is None or (armed is not None and armed[0] <= deadline_ms):
            return
        self._arm(group_id, deadline_ms)

    def _arm(self, group_id: str, when_ms: int) -> None:
        timer = self.host.call_at(when_ms, lambda: self._on_timer(group_id))
        self._shard_of(group_id).state.arm(group_id, when_ms, timer)

    def _on_timer(self, group_id: str) -> None:
        shard = self._shard_of(group_id)
        shard.state.disarm(group_id)
        shard.start(None, self._expire(group_id))

    def _expire(self, group_id: str) -> Request[None]:
        group = self.any_group(group_id)
        assert group is not None, f"{group_id} has a timer"
        try:
            if isinstance(group, ConsumerGroup):
                self.consumer.expire(group)
                return
            yield from self._carry_out(group_id, expire(group, now_ms=self.host.monotonic_ms()))
        except StorageError as error:
            log.error("group.not_written", group_id=short(group_id), reason=short(str(error)))
            self._arm(group_id, self.host.monotonic_ms() + RETRY_MS)
        except Exception:  # without its timer the group would keep silent members for good
            self._arm(group_id, self.host.monotonic_ms() + RETRY_MS)
            raise

    def _log_move(self, before: Group | None, after: Group) -> None:
        if before is None or before.state is not after.state:
            self._log_event(
                "group.moved",
                after.group_id,
                state=after.state.value,
                generation=after.generation,
                members=len(after.members),
            )

    def _log_event(self, event: str, group_id: str, **facts: object) -> None:
        """Write a line, if the event has one left: clients bring it about at will."""
        allowance = self._allowances.setdefault(event, Allowance())
        is_written, left_out = allowance.admit(self.host.monotonic_ms() / 1_000)
        if is_written:
            more = {"left_out": left_out} if left_out else {}
            log.info(event, group_id=short(group_id), **facts, **more)


def _tombstones(group: AnyGroup) -> Sequence[GroupLogRecord]:
    """The records that end a group without members."""
    if isinstance(group, ConsumerGroup):
        return dissolve(group.group_id, group.members, group.patterns)
    return (GroupRecord(GroupKey(group.group_id), None),)


def group_error(error: StorageError) -> ErrorCode:
    """The error code for a member whose group's generation could not be written.

    Source: Kafka, which sends the client to look for a coordinator whose disk works.
    """
    is_too_large = error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_too_large else ErrorCode.NOT_COORDINATOR
