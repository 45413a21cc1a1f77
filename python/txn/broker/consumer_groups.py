"""Groups of the consumer protocol (KIP-848): decisions, written, replayed and answered.

The rules are in `coordinator/group/consumer/`. A heartbeat is decided, written and answered in one
step; it waits for nothing. The pattern of a subscription is read and resolved on a thread of its
own, and a large target assignment is computed there: their cost is a client's to choose. No other
request and no stop waits for them.

A computed assignment is written if its group is still there, and has no newer one. A group that
changed its protocol or was loaded again meanwhile is another one.

A pattern is resolved again when topics were created, or its answer is old, but for one group not
more often than every `RESOLVE_PAUSE_MS`. The topics that the member whose heartbeat began it may
not describe are left out.

Source: Apache Kafka's group coordinator.
"""

import asyncio
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from time import thread_time
from typing import Any, Final

from txn.broker.audit import short
from txn.broker.consumer_group_batches import bytes_of, in_batches, split_early
from txn.broker.group_shards import GroupShard, GroupShards
from txn.broker.host import Host
from txn.config import split_list
from txn.coordinator.group.classic.group import Group
from txn.coordinator.group.classic.membership import dismissed
from txn.coordinator.group.consumer.beat import JOINS, Beat, BeatAnswer, Outcome, Refusal
from txn.coordinator.group.consumer.decide import added_bytes, heartbeat
from txn.coordinator.group.consumer.departures import leave, overdue
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.consumer.migration import Moment, Removal, Rules, join_classic, remove
from txn.coordinator.group.consumer.patterns import pattern_resolved, patterns_checked
from txn.coordinator.group.consumer.records import (
    Assignment,
    PatternValue,
)
from txn.coordinator.group.consumer.target import DEFAULT_ASSIGNOR, Limits, Task, computed
from txn.coordinator.group.store import AnyGroup, GroupLogRecord
from txn.coordinator.group.subscribed_patterns import check_pattern, matching_topics
from txn.coordinator.operations import Reply, Request
from txn.errors import StorageError
from txn.logs import log
from txn.wire.error_codes import ErrorCode

RESOLVE_PAUSE_MS: Final = 10_000
"""Least pause between two resolutions of a group's patterns, as in Apache Kafka."""

MATCH_S: Final = 10.0
"""Processor time in which a group's patterns are matched; each has an equal share of it at least.
"""

Sees = Callable[[Collection[str]], Coroutine[Any, Any, Collection[str]]]
"""Gives the topics that a client may describe."""


class ConsumerGroups:
    """The consumer groups of this node.

    Args:
        host: The broker.
        shards: The loaded groups.
        group_bytes_max: The largest size of one group's members.
        held_bytes_max: The largest size of all groups and their members.
        set_timer: Sets a group's timer anew.
        error_code: The code for a member whose group's records could not be written.
        log_event: Writes a line of the log: event, group, facts.
    """

    def __init__(
        self,
        host: Host,
        shards: GroupShards,
        *,
        group_bytes_max: Callable[[], int],
        held_bytes_max: int,
        set_timer: Callable[[AnyGroup], None],
        error_code: Callable[[StorageError], ErrorCode],
        log_event: Callable[..., None],
    ) -> None:
        self._host = host
        self._shards = shards
        self._group_bytes_max = group_bytes_max
        self._held_bytes_max = held_bytes_max
        self._set_timer = set_timer
        self._error_code = error_code
        self._log_event = log_event
        self._resolved_ms: dict[str, int] = {}
        """Group → when its patterns were last resolved."""
        self._resolving: set[str] = set()
        """Groups whose patterns are being resolved."""

    def setting(self, group_id: str, name: str) -> Any:
        """The value of a group's own setting that is in force, without its prefix."""
        return self._host.group_setting(group_id, f"consumer.{name}")

    @property
    def assignors(self) -> list[str]:
        """The assignors that members may ask for; the first one is the default."""
        return split_list(self._host.setting("group.consumer.assignors")) or [DEFAULT_ASSIGNOR]

    def get(self, group_id: str) -> ConsumerGroup | None:
        """A consumer group, or None."""
        group = self._shards.of(group_id).state.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # ------------------------------------------------------------ members

    async def heartbeat(
        self, group_id: str, beat: Beat, sees: Sees | None, owner: str = ""
    ) -> BeatAnswer:
        """Answer a member's heartbeat; its records are in the log then.

        Args:
            group_id: Its group.
            beat: The request.
            sees: Gives the topics that it may describe; None: all.
            owner: Whose turns its patterns take on the side thread.
        """
        if beat.pattern and not self._is_known(group_id, beat.pattern):
            fault = await self._fault_of(beat.pattern, owner)
            if fault is not None:
                return BeatAnswer(ErrorCode.INVALID_REGULAR_EXPRESSION, fault)
        shard = self._shards.of(group_id)
        if shard.refusal is not ErrorCode.NONE:
            return BeatAnswer(shard.refusal)
        known = shard.state.groups.get(group_id)
        is_classic = isinstance(known, Group)
        if beat.epoch != JOINS and (known is None or is_classic):
            kind = "Group" if beat.epoch < JOINS or is_classic else "Consumer group"
            state = "is not a consumer group" if is_classic else "not found"
            message = f"{kind} {group_id} {state}."
            return BeatAnswer(ErrorCode.GROUP_ID_NOT_FOUND, message)
        try:
            before, outcome = self._decided(known or ConsumerGroup(group_id), beat)
        except Refusal as refusal:
            return refusal.answer
        if outcome.answer.error is not ErrorCode.NONE:
            return outcome.answer
        try:
            if isinstance(known, ConsumerGroup) and outcome.gone:
                self.remove(shard, known, outcome.gone)
            else:
                self.carry_out(shard, group_id, [*before, *outcome.records])
        except StorageError as error:
            if isinstance(known, ConsumerGroup) and outcome.heard is not None:
                known.hear(outcome.heard, self._host.monotonic_ms())  # it was not silent
            return BeatAnswer(self._error_code(error))
        if isinstance(known, Group):
            shard.start(None, _dismiss(known))
        self.note_heartbeat(group_id, outcome)
        self.begin_task(group_id, outcome, owner)
        if outcome.heard is not None:
            self._resolve_if_due(group_id, sees, owner)
        return outcome.answer

    def _decided(self, group: AnyGroup, beat: Beat) -> tuple[Sequence[GroupLogRecord], Outcome]:
        """The outcome of a heartbeat, and the records that it needs before. Raises Refusal."""
        if isinstance(group, ConsumerGroup) and beat.epoch < JOINS:
            return (), leave(group, beat)
        held = sum(shard.state.held_bytes for shard in self._shards.shards)
        joined = ConsumerGroup(group.group_id) if isinstance(group, Group) else group
        added = added_bytes(joined, beat)
        if added > 0 and held + added > self._held_bytes_max:
            return (), Outcome(BeatAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        limits, at = self.limits(group.group_id), self.now()
        if isinstance(group, Group):
            return join_classic(
                group, beat, at=at, topics=self._host, limits=limits, rules=self.rules
            )
        return (), heartbeat(group, beat, now_ms=at.day_ms, topics=self._host, limits=limits)

    def limits(self, group_id: str) -> Limits:
        """The settings for a group."""
        return Limits(
            self._host.setting("group.consumer.max.size"),
            self._group_bytes_max(),
            self.setting(group_id, "assignment.interval.ms"),
            self.assignors[0],
        )

    @property
    def rules(self) -> Rules:
        """The settings for changes of a group's protocol."""
        return Rules(
            self._host.setting("group.consumer.migration.policy"),
            self._host.setting("group.consumer.max.size"),
            self._host.setting("group.max.size"),
            self._shards.batch_bytes_max(),
        )

    def now(self) -> Moment:
        """The time."""
        return Moment(self._host.monotonic_ms(), self._host.now_ms())

    def note_heartbeat(self, group_id: str, outcome: Outcome) -> None:
        """Prolong the session of the member whose request was written, and note what it checked."""
        group = self.get(group_id)
        if group is None or outcome.heard is None:
            return
        group.hear(outcome.heard, self._host.monotonic_ms())
        if outcome.checked_topics:
            group.is_outdated = False
        self.ensure_timer(group, outcome.heard)

    def _resolve_if_due(self, group_id: str, sees: Sees | None, owner: str) -> None:
        group = self.get(group_id)
        if group is not None and group.subscribed_patterns and self._is_due(group):
            self._resolving.add(group_id)
            self._host.spawn(self._resolve(group, sees, owner))

    def ensure_timer(self, group: ConsumerGroup, member_id: str) -> None:
        """Set the timer of a group of which one member was heard, unless it rings in time."""
        armed = self._shards.of(group.group_id).state.timers.get(group.group_id)
        timeout_ms = self.setting(group.group_id, "session.timeout.ms")
        due_ms = group.deadline_of(member_id, timeout_ms)
        if armed is None or (due_ms is not None and due_ms < armed[0]):
            self._set_timer(group)

    def remove(self, shard: GroupShard, group: ConsumerGroup, member_ids: Sequence[str]) -> None:
        """Remove members; the group may become a classic one. Raises StorageError."""
        removal = remove(group, member_ids, topics=self._host, rules=self.rules, at=self.now())
        self.carry_out_removal(shard, group.group_id, removal)

    def carry_out_removal(self, shard: GroupShard, group_id: str, removal: Removal) -> None:
        """Write the records of a removal, and serve its classic group. Raises StorageError."""
        self.carry_out(shard, group_id, [*removal.records])
        if removal.classic is None:
            return
        self.forget([group_id])
        shard.state.put_live(removal.classic)
        shard.state.note_size(removal.classic)
        self._set_timer(removal.classic)
        self._log_event("group.downgraded", group_id, members=len(removal.classic.members))

    def carry_out(self, shard: GroupShard, group_id: str, records: list[GroupLogRecord]) -> None:
        """Write records of a group, and replay them. Raises StorageError."""
        if not records:
            return
        before = self.get(group_id)
        state, epoch = (None, -1) if before is None else (before.state, before.epoch)
        self._append(shard, before, records)
        group = self.get(group_id)
        if group is None:
            return
        shard.state.note_size(group)
        if group.epoch != epoch or group.state is not state:
            self._log_event(
                "group.moved",
                group_id,
                state=group.state.value,
                generation=group.epoch,
                members=len(group.members),
            )

    def _append(
        self, shard: GroupShard, group: ConsumerGroup | None, records: list[GroupLogRecord]
    ) -> None:
        """Write records as one batch, or the larger part of them before it if they do not fit.

        That part is the target assignments of members, with the group's epoch. A crash behind it
        is harmless: the epoch of the target is behind the group's, so the next heartbeat assigns
        anew. A member that is not in the log yet stays in the last batch.
        """
        try:
            shard.append(records)
        except StorageError as error:
            bytes_max = self._shards.batch_bytes_max()
            if group is None or error.code != ErrorCode.MESSAGE_TOO_LARGE:
                raise
            early, late = split_early(records, group)
            if not early or sum(map(bytes_of, late)) > bytes_max:
                raise
            for part in in_batches(early, bytes_max):
                shard.append(part)
            shard.append(late)

    # ------------------------------------------------------------ time

    def next_deadline(self, group: ConsumerGroup) -> int | None:
        """When `expire` has something to do next, on the monotonic clock; None for never."""
        return group.next_deadline(self.setting(group.group_id, "session.timeout.ms"))

    def expire(self, group: ConsumerGroup) -> None:
        """Give up members that went silent, or are late with a step. Raises StorageError.

        One batch of them goes at a time. The timer rings at once for the others.
        """
        member_ids = overdue(
            group,
            now_ms=self._host.monotonic_ms(),
            session_timeout_ms=self.setting(group.group_id, "session.timeout.ms"),
            bytes_max=self._shards.batch_bytes_max(),
        )
        self.remove(self._shards.of(group.group_id), group, member_ids)
        left = self.get(group.group_id)
        if left is not None:
            self._set_timer(left)

    # ------------------------------------------------------------ large assignments

    def begin_task(self, group_id: str, outcome: Outcome, owner: str) -> None:
        """Begin to compute the target assignment that a written outcome asks for, if it does."""
        group = self.get(group_id)
        if group is not None and outcome.task is not None:
            group.computed_epoch = outcome.task.epoch
            self._host.spawn(self._compute(group, outcome.task, owner))

    async def _compute(self, group: ConsumerGroup, task: Task, owner: str) -> None:
        """Compute a target assignment on the side thread, and write it."""
        found: list[Mapping[str, Assignment]] = []
        try:
            await self._host.in_side_thread(owner, lambda _: found.append(task.assigned()))
        finally:
            group.computed_epoch = None
        if self._served(group.group_id) is not group:
            return
        try:
            self._write(group, computed(group, task, found[0], self._host.now_ms()))
        except StorageError as error:  # the next heartbeat computes it again
            log.error("group.not_written", group_id=short(group.group_id), reason=short(str(error)))

    # ------------------------------------------------------------ patterns

    def _is_known(self, group_id: str, pattern: str) -> bool:
        group = self.get(group_id)
        return group is not None and group.members_of_pattern(pattern) > 0

    async def _fault_of(self, pattern: str, owner: str) -> str | None:
        """Say in Kafka's words why a client's pattern cannot be used; None if it can."""
        faults: list[str] = []

        def check(_: Callable[[], bool]) -> None:
            try:
                check_pattern(pattern)
            except ValueError as error:
                faults.append(str(error))

        await self._host.in_side_thread(owner, check)
        return faults[0] if faults else None

    def _is_due(self, group: ConsumerGroup) -> bool:
        """Say whether a group's patterns have to be resolved, and may be now."""
        group_id = group.group_id
        if group_id in self._resolving:
            return False
        last_ms = self._resolved_ms.get(group_id)
        if last_ms is None:
            return True
        since_ms = self._host.monotonic_ms() - last_ms
        if since_ms < RESOLVE_PAUSE_MS:
            return False
        is_old = since_ms >= self._host.setting("group.consumer.regex.refresh.interval.ms")
        is_new = any(pattern not in group.patterns for pattern in group.subscribed_patterns)
        return group.has_new_topics or is_new or is_old

    async def _resolve(self, group: ConsumerGroup, sees: Sees | None, owner: str) -> None:
        """Find the topics of a group's patterns, and write them."""
        group_id = group.group_id
        found: dict[str, frozenset[str]] = {}
        group.has_new_topics = is_written = False
        names = tuple(self._host.topic_names())
        former = {
            pattern: group.patterns[pattern].topics if pattern in group.patterns else frozenset()
            for pattern in group.subscribed_patterns
        }

        def match(is_stopped: Callable[[], bool]) -> None:
            unfinished = 0
            end_s = thread_time() + MATCH_S
            for number, (pattern, topics) in enumerate(former.items()):
                began_s = thread_time()
                # A pattern that needs less than its share leaves the rest to the others.
                due_s = began_s + (end_s - began_s) / (len(former) - number)
                found[pattern], is_finished = _matched(pattern, names, topics, due_s, is_stopped)
                unfinished += not is_finished
            if unfinished and not is_stopped():
                log.warning("group.patterns_unfinished", group_id=short(group_id), count=unfinished)

        try:
            # The patterns of one client's many groups must not keep those of others waiting.
            await self._host.in_side_thread(owner, match)
            seen = frozenset[str]().union(*found.values())
            if sees is not None:
                seen = frozenset(await sees(sorted(seen)))
            await self._write_resolved(group_id, found, seen)
            is_written = True
        except StorageError as error:
            log.error("group.not_written", group_id=short(group_id), reason=short(str(error)))
        finally:
            group.has_new_topics = group.has_new_topics or not is_written
            self._resolving.discard(group_id)
            self._resolved_ms[group_id] = self._host.monotonic_ms()

    async def _write_resolved(
        self, group_id: str, found: dict[str, frozenset[str]], seen: Collection[str]
    ) -> None:
        """Write each pattern whose topics changed in a batch of its own. Raises StorageError.

        One pattern's topics may be too many for a batch. It keeps its former topics then, and
        holds up no other pattern.
        """
        now_ms = self._host.now_ms()
        for pattern, topics in found.items():
            await asyncio.sleep(0)  # let requests in between: a pattern may have all topics
            if (group := self._served(group_id)) is None:
                return
            resolved = PatternValue(topics.intersection(seen), 0, now_ms)
            try:
                self._write(group, pattern_resolved(group, pattern, resolved))
            except StorageError as error:
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                log.error(
                    "group.pattern_too_large",
                    group_id=short(group_id),
                    topics=len(resolved.topics),
                    reason=short(str(error)),
                )
                if pattern not in group.patterns:
                    nothing = PatternValue(frozenset(), 0, now_ms)
                    self._write(group, pattern_resolved(group, pattern, nothing))
        if (group := self._served(group_id)) is not None:
            self._write(group, patterns_checked(group, topics=self._host))

    def _served(self, group_id: str) -> ConsumerGroup | None:
        is_served = self._shards.of(group_id).refusal is ErrorCode.NONE
        return self.get(group_id) if is_served else None

    def _write(self, group: ConsumerGroup, records: Iterable[GroupLogRecord]) -> None:
        self.carry_out(self._shards.of(group.group_id), group.group_id, [*records])

    def forget(self, group_ids: Iterable[str]) -> None:
        """Drop the times of groups that are gone."""
        for group_id in group_ids:
            self._resolved_ms.pop(group_id, None)


def _matched(
    pattern: str,
    names: Sequence[str],
    former: frozenset[str],
    due_s: float,
    is_stopped: Callable[[], bool],
) -> tuple[frozenset[str], bool]:
    """The topics of a pattern, and whether it was matched with all names.

    A name for which there was no time matches if it matched before.
    """
    count = 0

    def timely() -> Iterator[str]:
        nonlocal count
        for name in names:
            if is_stopped() or thread_time() >= due_s:
                return
            count += 1
            yield name

    try:
        found = matching_topics(pattern, timely())
    except ValueError:  # an Apache Kafka took it
        return frozenset(), True
    return found | former.intersection(names[count:]), count == len(names)


def _dismiss(group: Group) -> Request[None]:
    """Let members that wait in a group that ended join again."""
    for ticket, answer in dismissed(group, ErrorCode.REBALANCE_IN_PROGRESS):
        yield Reply(answer, ticket)
