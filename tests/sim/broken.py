"""Rules of the broker, each broken on purpose, which the checkers have to catch.

A breakage is done from outside, for the length of a `with` block; the product has no switch
for any of it. `must_find` is the anomaly it has to be caught by.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from unittest.mock import patch

from sim import cleaning
from sim.cleaning import Output, moved_up
from sim.disk import File, SimCatalog, SimLog, SimStorage
from sim.plan import (
    Plan,
    make_cleaner_plan,
    make_cleaner_power_plan,
    make_clock_plan,
    make_copier_plan,
    make_damage_plan,
    make_late_plan,
    make_operator_plan,
    make_passed_abort_plan,
    make_plan,
    make_power_plan,
    make_prepared_power_plan,
    make_prepared_refusal_plan,
    make_purger_plan,
    make_two_phase_plan,
    make_two_power_plan,
    make_unmark_plan,
    make_unread_power_plan,
    make_upgrade_crash_plan,
    make_upgrade_plan,
)
from sim.segments import decoded
from txn.broker import group_coordinator, txn_coordinator
from txn.broker.hanging_transactions import HangingTransactions
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.runtime import Shard
from txn.broker.txn_coordinator import TransactionCoordinator
from txn.coordinator.group.offsets import OffsetTable
from txn.coordinator.operations import Remote, Synced
from txn.coordinator.transaction import decide, ending, store, timeouts
from txn.coordinator.transaction.connections import LatestConnections
from txn.coordinator.transaction.records import TxnRecord
from txn.coordinator.transaction.states import PREPARED, Producer, Txn, TxnState
from txn.errors import CorruptLogError
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.partition import ADMIT, producer_state_manager
from txn.partition.admission import COORDINATOR, DUPLICATE, OUT_OF_ORDER_SEQUENCE
from txn.partition.producer_state_entry import ProducerStateEntry
from txn.partition.producer_state_manager import TRANSACTIONAL, ProducerStateManager
from txn.partition.stable_offset import OpenTransactions
from txn.storage.base import BatchKind, Marker
from txn.storage.native import LogStarts
from txn.wire.error_codes import ErrorCode

Breaking = Callable[[ExitStack], None]


@dataclass(frozen=True)
class Broken:
    """One rule that does not hold."""

    rule: str
    must_find: str
    breaks: Breaking = field(repr=False)
    plans: Callable[[int], Plan] = make_plan
    seeds_max: int = 400

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break it for a while."""
        with ExitStack() as stack:
            self.breaks(stack)
            yield

    def __str__(self) -> str:
        return self.rule


def _replaced(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute; `make` gets the former value."""
    stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))


# -------------------------------------------------------------------- partitions


def _stable_offset_follows_the_newest_marker(stack: ExitStack) -> None:
    def end(self: OpenTransactions, producer_id: int) -> None:
        self._first_offsets.pop(producer_id)
        self.first_offset = -1

    stack.enter_context(patch.object(OpenTransactions, "end", end))


def _stable_offset_is_the_log_end(stack: ExitStack) -> None:
    stack.enter_context(
        patch.object(ProducerStateManager, "first_unstable_offset", lambda self: -1)
    )


def _batches_of_older_epochs_are_stored(stack: ExitStack) -> None:
    def make(refusal: Any) -> Any:
        def lenient(state: ProducerStateEntry | None, origin: int, epoch: int, *rest: Any) -> Any:
            if state is not None and epoch < state.producer_epoch and origin != COORDINATOR:
                return None
            return refusal(state, origin, epoch, *rest)

        return lenient

    _replaced(stack, producer_state_manager, "refusal", make)


def _nothing_is_known_as_a_retry(stack: ExitStack) -> None:
    def make(refusal: Any) -> Any:
        def lenient(*args: Any) -> Any:
            verdict = refusal(*args)
            is_known = verdict is not None and verdict[0] == DUPLICATE
            return None if is_known or verdict is OUT_OF_ORDER_SEQUENCE else verdict

        return lenient

    _replaced(stack, producer_state_manager, "refusal", make)


def _sequences_used_again_are_retries(stack: ExitStack) -> None:
    def make(refusal: Any) -> Any:
        def lenient(state: ProducerStateEntry | None, origin: int, epoch: int, *rest: Any) -> Any:
            if state is not None and epoch == state.producer_epoch:
                base_offset = state.offset_of_stored(rest[0], rest[1])
                if base_offset >= 0:
                    return DUPLICATE, base_offset, None
            return refusal(state, origin, epoch, *rest)

        return lenient

    _replaced(stack, producer_state_manager, "refusal", make)


def _aborted_transactions_are_not_named(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SimLog, "aborted_in", lambda self, start, end: []))


def _names_only(stack: ExitStack, is_named: Callable[[SimLog, int, int], bool]) -> None:
    """Have fetches name some aborted transactions, by the fetch's start and their first offset."""

    def make(aborted_in: Any) -> Any:
        def partial(self: SimLog, start: int, end: int) -> list[tuple[int, int]]:
            return [e for e in aborted_in(self, start, end) if is_named(self, start, e[1])]

        return partial

    _replaced(stack, SimLog, "aborted_in", make)


def _aborted_transactions_are_named_too_late(stack: ExitStack) -> None:
    _names_only(stack, lambda log, start, first_offset: first_offset >= start)


def _replay_passes_over_markers(stack: ExitStack) -> None:
    def make(replay: Any) -> Any:
        return lambda self, batches: replay(self, [b for b in batches if b[6] <= TRANSACTIONAL])

    _replaced(stack, ProducerStateManager, "replay", make)


def _replay_forgets_sequences(stack: ExitStack) -> None:
    def make(replay: Any) -> Any:
        return lambda self, batches: replay(self, [(*b[:4], -1, *b[5:]) for b in batches])

    _replaced(stack, ProducerStateManager, "replay", make)


def _markers_are_stored_as_data(stack: ExitStack) -> None:
    def make(append_marker: Any) -> Any:
        def leaky(self: SimLog, marker: Marker) -> Any:
            offset = append_marker(self, marker)
            if marker.is_commit and self.topic != OFFSETS_TOPIC:
                self.append([(None, b"marker")], timestamp_ms=marker.timestamp_ms)
            return offset

        return leaky

    _replaced(stack, SimLog, "append_marker", make)


# -------------------------------------------------------------------- the coordinator


def _epochs_are_not_checked(stack: ExitStack) -> None:
    def make(decision: Any) -> Any:
        def lenient(txn: Txn | None, producer: Producer, *args: Any, **kwargs: Any) -> Any:
            if txn is not None and txn.producer_id == producer.producer_id:
                producer = txn.producer
            return decision(txn, producer, *args, **kwargs)

        return lenient

    for name in ("decide_end", "decide_end_and_bump", "decide_add"):
        _replaced(stack, txn_coordinator, name, make)
    _batches_of_older_epochs_are_stored(stack)


def _forces(stack: ExitStack, is_forced: Callable[[str], bool]) -> None:
    """Let requests wait only for the logs of some topics."""

    def make(logs_of: Any) -> Any:
        def partial(self: Shard[Any, Any], step: Any) -> Any:
            return [log for log in logs_of(self, step) if is_forced(log.topic)]

        return partial

    _replaced(stack, Shard, "_logs_of", make)


def _markers_come_before_prepare_is_durable(stack: ExitStack) -> None:
    _forces(stack, lambda topic: topic != TRANSACTIONS_TOPIC)


def _prepare_is_durable_before_the_data(stack: ExitStack) -> None:
    _forces(stack, lambda topic: topic == TRANSACTIONS_TOPIC)


def _recovery_forgets_prepare(stack: ExitStack) -> None:
    def make(recover: Any) -> Any:
        def forgetful(self: TransactionCoordinator, **kwargs: Any) -> None:
            def nothing(transactional_id: str) -> Any:
                yield from ()

            with patch.object(self, "_finish", nothing):
                recover(self, **kwargs)

        return forgetful

    _replaced(stack, TransactionCoordinator, "recover", make)


def _recovery_aborts_prepared_commits(stack: ExitStack) -> None:
    def make(resume: Any) -> Any:
        def wrong(
            self: TransactionCoordinator, transactional_id: str, txn: Txn, **about: bool
        ) -> None:
            if self._host.now_ms() - txn.updated_ms > 20:
                txn = txn._replace(state=TxnState.PREPARE_ABORT)
                shard = self._shard_of(transactional_id)
                assert shard is not None, "it was loaded"
                shard.state.transactions.replay(TxnRecord(transactional_id, txn))
            resume(self, transactional_id, txn, **about)

        return wrong

    _replaced(stack, TransactionCoordinator, "_resume", make)


def _a_start_believes_every_prepare(stack: ExitStack) -> None:
    stack.enter_context(patch.object(txn_coordinator, "is_to_decide", lambda txn: False))


def _lost_records_are_taken_for_later_ones(stack: ExitStack) -> None:
    """Offsets count in any leader epoch, and a decision is not synced before a marker."""

    def make(forced: Any) -> Any:
        def hasty(wait: Any, *, is_due: bool = False) -> Any:
            if not is_due:
                yield from forced(wait)

        return hasty

    def in_any_epoch(last: Any, log: Any) -> bool:
        return bool(last.offset < log.log_end_offset)

    stack.enter_context(patch.object(txn_coordinator, "is_there", in_any_epoch))
    _replaced(stack, txn_coordinator, "_forced", make)
    _markers_come_before_prepare_is_durable(stack)


def _prepare_ends_a_later_transaction(stack: ExitStack) -> None:
    stack.enter_context(
        patch.object(TransactionCoordinator, "_begun_later", lambda self, prepare: set())
    )


def _records_carry_no_markers(stack: ExitStack) -> None:
    stack.enter_context(patch.object(txn_coordinator, "carried", lambda *args: ()))


def _an_abort_is_not_synced(stack: ExitStack) -> None:
    stack.enter_context(patch.object(ending, "Synced", lambda _: Remote(lambda: None)))


def _lost_markers_stay_lost(stack: ExitStack) -> None:
    stack.enter_context(
        patch.object(TransactionCoordinator, "_write_lost_markers", lambda self: None)
    )


def _a_marker_ends_a_later_transaction(stack: ExitStack) -> None:
    def is_ended_by(marker: Any, producer: Producer, first_offset: int) -> bool:
        return bool(marker.producer_id == producer.producer_id)

    stack.enter_context(patch.object(txn_coordinator, "is_ended_by", is_ended_by))


def _a_start_forgets_the_markers_it_wrote(stack: ExitStack) -> None:
    def make(write_again: Any) -> Any:
        def forgetful(self: TransactionCoordinator, *args: Any) -> tuple[()]:
            write_again(self, *args)
            return ()

        return forgetful

    _replaced(stack, TransactionCoordinator, "_write_again", make)


def _timeouts_never_fire(stack: ExitStack) -> None:
    stack.enter_context(patch.object(timeouts, "has_deadline", lambda txn: False))


def _timeouts_go_by_the_time_of_day(stack: ExitStack) -> None:
    def make(time_out: Any) -> Any:
        def by_time_of_day(self: TransactionCoordinator, transactional_id: str) -> Any:
            txn = self.transactions.get(transactional_id)
            if txn is not None and timeouts.has_deadline(txn):
                left_ms = txn.start_ms + txn.timeout_ms - self._host.now_ms()
                if left_ms > 0:
                    self._watch_from(transactional_id, self._host.monotonic_ms() + left_ms)
                    return
            yield from time_out(self, transactional_id)

        return by_time_of_day

    _replaced(stack, TransactionCoordinator, "_time_out", make)


def _a_start_in_the_future_prolongs_a_transaction(stack: ExitStack) -> None:
    stack.enter_context(
        patch.object(timeouts, "age_at_start", lambda txn, now_ms: now_ms - txn.start_ms)
    )


def _one_partition_gets_no_marker(stack: ExitStack) -> None:
    def make(mark: Any) -> Any:
        def forgetful(self: LocalMarkerSender, place: Any, *args: Any) -> int | None:
            return None if place == ("sink", 1) else mark(self, place, *args)

        return forgetful

    _replaced(stack, LocalMarkerSender, "_append", make)


def _late_requests_are_served(stack: ExitStack) -> None:
    stack.enter_context(patch.object(LatestConnections, "is_superseded", lambda *args: False))


def _a_starting_producer_fences_nobody(stack: ExitStack) -> None:
    def make(decide_init: Any) -> Any:
        def lenient(txn: Txn | None, shown: Any, **kwargs: Any) -> Any:
            decision = decide_init(txn, shown, **kwargs)
            if txn is None or txn.state in PREPARED or not isinstance(decision, decide.Write):
                return decision
            return decide.Write(txn._replace(timeout_ms=kwargs["timeout_ms"]))

        return lenient

    _replaced(stack, txn_coordinator, "decide_init", make)


def _every_commit_is_answered_with_success(stack: ExitStack) -> None:
    def make(decide_end: Any) -> Any:
        def lying(txn: Txn | None, producer: Producer, *args: Any, **kwargs: Any) -> Any:
            decision = decide_end(txn, producer, *args, **kwargs)
            if isinstance(decision, decide.Refuse) and txn is not None:
                return decide.Done(txn)
            return decision

        return lying

    _replaced(stack, txn_coordinator, "decide_end", make)
    _replaced(stack, txn_coordinator, "decide_end_and_bump", make)


def _what_is_prepared_is_not_kept(stack: ExitStack) -> None:
    def make(decide_init: Any) -> Any:
        def deaf(*args: Any, keep_prepared: bool, **kwargs: Any) -> Any:
            return decide_init(*args, keep_prepared=False, **kwargs)

        return deaf

    _replaced(stack, txn_coordinator, "decide_init", make)


def _what_is_prepared_times_out(stack: ExitStack) -> None:
    stack.enter_context(patch.object(txn_coordinator, "NO_TIMEOUT_MS", 700))


def _a_power_failure_ends_what_is_prepared(stack: ExitStack) -> None:
    stack.enter_context(patch.object(Txn, "is_two_phase", False))


def _what_is_prepared_is_not_forced(stack: ExitStack) -> None:
    stack.enter_context(patch.object(SimCatalog, "sync_before_ack", lambda *args: None))


def _that_something_is_prepared_is_not_forced(stack: ExitStack) -> None:
    def unforced(self: TransactionCoordinator, txn: Txn) -> bool:
        return False

    stack.enter_context(patch.object(TransactionCoordinator, "_forces_answers_of", unforced))


def _hand_over_forces(stack: ExitStack, is_forced: Callable[[str], bool]) -> None:
    """Let a hand-over wait only for the logs of some topics."""

    def make(hand_over: Any) -> Any:
        def hasty(self: TransactionCoordinator, *args: Any) -> Any:
            for step in hand_over(self, *args):
                if isinstance(step, Synced):
                    forced = [each for each in step.partitions if is_forced(each[0])]
                    yield Synced(forced)
                else:
                    yield step

        return hasty

    _replaced(stack, TransactionCoordinator, "_hand_over", make)


def _what_is_handed_over_is_not_forced(stack: ExitStack) -> None:
    _hand_over_forces(stack, lambda topic: False)


def _offsets_that_are_handed_over_are_not_forced(stack: ExitStack) -> None:
    _hand_over_forces(stack, lambda topic: topic != OFFSETS_TOPIC)


def _what_is_kept_takes_more(stack: ExitStack) -> None:
    stack.enter_context(
        patch.object(ProducerStateManager, "block_txn", lambda self, producer_id: None)
    )


def _a_start_lets_more_into_what_is_kept(stack: ExitStack) -> None:
    def make(recover: Any) -> Any:
        def lenient(self: TransactionCoordinator, **kwargs: Any) -> None:
            with patch.object(ProducerStateManager, "block_txn", lambda self, producer_id: None):
                recover(self, **kwargs)

        return lenient

    _replaced(stack, TransactionCoordinator, "recover", make)


def _what_is_kept_has_no_more_time(stack: ExitStack) -> None:
    def make(kept: Any) -> Any:
        return lambda txn, *args: kept(txn, *args)._replace(timeout_ms=txn.timeout_ms)

    _replaced(stack, decide, "_kept", make)


def _who_was_taken_over_ends_what_is_kept(stack: ExitStack) -> None:
    def make(refusal: Any) -> Any:
        def lenient(txn: Txn | None, producer: Producer) -> Any:
            if txn is not None and txn.is_prepared and producer == txn.producer:
                return None
            return refusal(txn, producer)

        return lenient

    _replaced(stack, decide, "_refusal_of_stranger", make)


def _a_commit_that_is_put_off_is_undone(stack: ExitStack) -> None:
    def make(end: Any) -> Any:
        def hasty(
            self: TransactionCoordinator, name: str, producer: Any, outcome: Any, bumps: bool
        ) -> Any:
            answer = yield from end(self, name, producer, outcome, bumps)
            txn = self.transactions.get(name)
            is_put_off = answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            if is_put_off and txn is not None and txn.state is TxnState.ONGOING:
                yield from self._give_up(name, producer, bumps)
            return answer

        return hasty

    _replaced(stack, TransactionCoordinator, "_end", make)


def _operators_end_a_part(stack: ExitStack) -> None:
    stack.enter_context(patch.object(TransactionCoordinator, "_owner_of", lambda *args: None))


def _operators_end_nothing_unknown(stack: ExitStack) -> None:
    def make(write_marker: Any) -> Any:
        async def idle(
            self: TransactionCoordinator, partition: Any, marker: Any, **kwargs: Any
        ) -> Any:
            if self._owner_of(partition, marker.producer_id) is None:
                return ErrorCode.NONE
            return await write_marker(self, partition, marker, **kwargs)

        return idle

    _replaced(stack, TransactionCoordinator, "write_marker", make)


def _open_transactions_expire(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        return lambda txn, now_ms, expiration_ms: txn.updated_ms <= now_ms - expiration_ms

    _replaced(stack, store, "is_expired", make)


def _refused_markers_are_not_tried_again(stack: ExitStack) -> None:
    stack.enter_context(patch.object(TransactionCoordinator, "_retry_later", lambda *args: None))


# -------------------------------------------------------------------- what is deleted or damaged


def _deletion_ends_what_began_below(stack: ExitStack) -> None:
    def make(forget_below: Any) -> Any:
        def forgetful(self: ProducerStateManager, log_start_offset: int) -> None:
            for producer_id, first_offset in list(self._open._first_offsets.items()):
                if first_offset < log_start_offset:
                    self._producers[producer_id].txn_first_offset = -1
                    self._open.end(producer_id)
                    self._admitted = (ADMIT, self._open.first_offset, None)
            forget_below(self, log_start_offset)

        return forgetful

    _replaced(stack, ProducerStateManager, "forget_below", make)


def _deletion_forgets_every_abort(stack: ExitStack) -> None:
    _names_only(stack, lambda log, start, first_offset: not log.log_start_offset)


def _log_starts_are_not_kept(stack: ExitStack) -> None:
    stack.enter_context(patch.object(LogStarts, "of", lambda self, topic, index: None))


def _damaged_decisions_are_passed_over(stack: ExitStack) -> None:
    def make(replay: Any) -> Any:
        def lenient(self: TransactionCoordinator, shard: Any) -> None:
            with suppress(CorruptLogError):
                replay(self, shard)

        return lenient

    _replaced(stack, TransactionCoordinator, "_replay", make)


def _open_transactions_are_not_compared(stack: ExitStack) -> None:
    _replaced(
        stack,
        TransactionCoordinator,
        "_refuse_unexplained",
        lambda _: lambda self, stores, unread: None,
    )


def _orphans_are_ended_though_a_log_is_unread(stack: ExitStack) -> None:
    def make(end: Any) -> Any:
        return lambda self, stores, known, *, unread: end(self, stores, known)

    _replaced(stack, HangingTransactions, "end", make)


def _damage_is_shown(stack: ExitStack) -> None:
    def careless(self: SimLog, start: int = 0, batches_max: int | None = None) -> Any:
        batches = (batch for batch in self.stored if self.end_of(batch) > start)
        return islice(batches, batches_max)

    stack.enter_context(patch.object(SimLog, "batches", careless))
    stack.enter_context(patch.object(SimLog, "read_batches", careless))


def _damage_is_not_named(stack: ExitStack) -> None:
    def make(open_log: Any) -> Any:
        def nameless(self: SimStorage, *place: Any) -> Any:
            try:
                return open_log(self, *place)
            except CorruptLogError as error:
                raise CorruptLogError("a log is damaged") from error

        return nameless

    _replaced(stack, SimStorage, "open", make)


# -------------------------------------------------------------------- what is cleaned


def _the_cleaner_asks_nobody_what_is_needed(stack: ExitStack) -> None:
    stack.enter_context(patch.object(ProducerStateManager, "last_batches", lambda self: []))


def _what_is_cleaned_stays_named(stack: ExitStack) -> None:
    stack.enter_context(
        patch.object(ProducerStateManager, "forget_aborted", lambda self, offsets: None)
    )


def _leaves(stack: ExitStack, keep: Callable[[Output], list[bytes]]) -> None:
    """Let the cleaner leave something else than it did."""

    def wrong(output: Output) -> list[bytes]:
        return output.left if output.log.topic.startswith("__") else keep(output)

    stack.enter_context(patch.object(cleaning, "output_of", wrong))


def _open_transactions_are_cleaned(stack: ExitStack) -> None:
    def keep(output: Output) -> list[bytes]:
        open_ids = {
            each.producer_id
            for each in output.log.producer_state.describe()
            if each.current_txn_start_offset >= 0
        }
        return [each for each in output.left if decoded(each).producer_id not in open_ids]

    stack.enter_context(patch.object(cleaning, "limit_of", lambda log: log.log_end_offset))
    _leaves(stack, keep)


def _is_abort_marker(batch: bytes) -> bool:
    return decoded(batch).kind is BatchKind.ABORT_MARKER


def _aborted_transactions_are_cleaned_as_committed(stack: ExitStack) -> None:
    def keep(output: Output) -> list[bytes]:
        aborted = {
            (entry[0], n)
            for entry in output.log.producer_state.aborted_entries()
            for n in range(entry[1], entry[2])
        }
        former = {each.base_offset: each.data for each in output.first_segment}
        for base, data in former.items():
            batch = decoded(data)
            if (batch.producer_id, base) in aborted and batch.records:
                output.left.append(data)
        left = {decoded(data).base_offset: data for data in output.left}
        return [left[base] for base in sorted(left) if not _is_abort_marker(left[base])]

    _leaves(stack, keep)


def _abort_markers_are_cleaned_away(stack: ExitStack) -> None:
    _leaves(stack, lambda output: [each for each in output.left if not _is_abort_marker(each)])


def _the_last_of_a_key_is_cleaned_away(stack: ExitStack) -> None:
    _leaves(stack, lambda output: [each for each in output.left if not decoded(each).records])


def _tombstones_are_cleaned_away_at_once(stack: ExitStack) -> None:
    stack.enter_context(patch.object(cleaning, "DELETE_RETENTION_MS", 0))


def _cleaned_records_move_up(stack: ExitStack) -> None:
    _leaves(stack, lambda output: [moved_up(each) for each in output.left])


def _lost_segments_are_taken_for_cleaned_ones(stack: ExitStack) -> None:
    def make(known: Any) -> Any:
        return property(lambda self: known.fget(self) if not self.cleanings else 1 << 62)

    _replaced(stack, File, "checkpointed_end", make)


# -------------------------------------------------------------------- offsets


def _offsets_are_visible_before_the_commit(stack: ExitStack) -> None:
    def make(put: Any) -> Any:
        def early(self: OffsetTable, key: Any, value: Any, **kwargs: Any) -> None:
            put(self, key, value, record_offset=kwargs["record_offset"])

        return early

    _replaced(stack, OffsetTable, "put", make)


def _offsets_count_though_aborted(stack: ExitStack) -> None:
    def make(end: Any) -> Any:
        return lambda self, producer_id, is_commit: end(self, producer_id, is_commit=True)

    _replaced(stack, OffsetTable, "end_transaction", make)


def _pending_offsets_hold_nobody_back(stack: ExitStack) -> None:
    stack.enter_context(patch.object(OffsetTable, "is_pending", lambda self, key: False))


def _generations_do_not_fence_offsets(stack: ExitStack) -> None:
    stack.enter_context(
        patch.object(group_coordinator, "commit_refusal", lambda *args, **kwargs: ErrorCode.NONE)
    )


RULES = (
    Broken(
        "the last stable offset follows the newest marker",
        "precommitted-read",
        _stable_offset_follows_the_newest_marker,
    ),
    Broken(
        "the last stable offset is the log end",
        "aborted-read",
        _stable_offset_is_the_log_end,
    ),
    Broken("the epoch is not checked", "zombie-commit", _epochs_are_not_checked),
    Broken(
        "a starting producer fences nobody", "zombie-commit", _a_starting_producer_fences_nobody
    ),
    Broken(
        "what a TV1 client left on a connection is served",
        "late-end",
        _late_requests_are_served,
        plans=make_late_plan,
    ),
    Broken("the dedup window is zero", "duplicate", _nothing_is_known_as_a_retry),
    Broken(
        "a sequence used again is taken for a retry",
        "lost-write",
        _sequences_used_again_are_retries,
        plans=make_purger_plan,
    ),
    Broken(
        "aborted transactions are not named", "aborted-read", _aborted_transactions_are_not_named
    ),
    Broken(
        "aborted transactions are named by their first offset alone",
        "aborted-read",
        _aborted_transactions_are_named_too_late,
    ),
    Broken("replay passes over markers", "lso-regress", _replay_passes_over_markers),
    Broken("replay forgets sequences", "recovery-divergence", _replay_forgets_sequences),
    Broken("markers are stored as data", "marker-leak", _markers_are_stored_as_data),
    Broken(
        "markers come before PREPARE is durable",
        "torn-transaction",
        _markers_come_before_prepare_is_durable,
        plans=make_power_plan,
    ),
    Broken("PREPARE is durable before the data", "lost-write", _prepare_is_durable_before_the_data),
    Broken("recovery forgets PREPARE", "lso-stuck", _recovery_forgets_prepare),
    Broken("recovery aborts what was to commit", "lost-write", _recovery_aborts_prepared_commits),
    Broken(
        "a start believes every PREPARE",
        "torn-transaction",
        _a_start_believes_every_prepare,
        plans=make_power_plan,
    ),
    Broken(
        "lost records are taken for later ones",
        "torn-transaction",
        _lost_records_are_taken_for_later_ones,
        plans=make_two_power_plan,
    ),
    Broken(
        "PREPARE ends a later transaction",
        "torn-transaction",
        _prepare_ends_a_later_transaction,
        plans=make_power_plan,
    ),
    Broken(
        "records carry no markers",
        "torn-transaction",
        _records_carry_no_markers,
        plans=make_power_plan,
    ),
    Broken(
        "lost markers stay lost", "torn-transaction", _lost_markers_stay_lost, plans=make_power_plan
    ),
    Broken(
        "an abort is not synced",
        "offset-split",
        _an_abort_is_not_synced,
        plans=make_passed_abort_plan,
    ),
    Broken(
        "a marker that is written again ends a later transaction",
        "torn-transaction",
        _a_marker_ends_a_later_transaction,
        plans=make_power_plan,
    ),
    Broken(
        "a start forgets the markers that it wrote",
        "torn-transaction",
        _a_start_forgets_the_markers_it_wrote,
        plans=make_two_power_plan,
    ),
    Broken("timeouts never fire", "lso-stuck", _timeouts_never_fire),
    Broken(
        "timeouts go by the time of day",
        "lso-stuck",
        _timeouts_go_by_the_time_of_day,
        plans=make_clock_plan,
    ),
    Broken(
        "a start in the future prolongs a transaction",
        "lso-stuck",
        _a_start_in_the_future_prolongs_a_transaction,
        plans=make_clock_plan,
    ),
    Broken("a partition gets no marker", "lso-stuck", _one_partition_gets_no_marker),
    Broken(
        "offsets are visible before the commit",
        "inconsistent-offset",
        _offsets_are_visible_before_the_commit,
    ),
    Broken("offsets count though aborted", "inconsistent-offset", _offsets_count_though_aborted),
    Broken(
        "pending offsets hold nobody back",
        "offset-split",
        _pending_offsets_hold_nobody_back,
        plans=make_copier_plan,
    ),
    Broken(
        "generations do not fence offsets",
        "offset-split",
        _generations_do_not_fence_offsets,
        plans=make_copier_plan,
    ),
    Broken(
        "every end is answered with success", "lost-write", _every_commit_is_answered_with_success
    ),
    Broken(
        "what is prepared is not kept",
        "lost-write",
        _what_is_prepared_is_not_kept,
        plans=make_two_phase_plan,
    ),
    Broken(
        "what is prepared times out",
        "lost-write",
        _what_is_prepared_times_out,
        plans=make_two_phase_plan,
    ),
    Broken(
        "a power failure ends what is prepared",
        "lost-write",
        _a_power_failure_ends_what_is_prepared,
        plans=make_prepared_power_plan,
    ),
    Broken(
        "what is prepared is not forced",
        "torn-transaction",
        _what_is_prepared_is_not_forced,
        plans=make_prepared_power_plan,
    ),
    Broken(
        "that something is prepared is not forced",
        "lost-write",
        _that_something_is_prepared_is_not_forced,
        plans=make_prepared_power_plan,
    ),
    Broken(
        "what is handed over to two-phase commit is not forced before",
        "torn-transaction",
        _what_is_handed_over_is_not_forced,
        plans=make_upgrade_crash_plan,
    ),
    Broken(
        "offsets that are handed over to two-phase commit are not forced before",
        "inconsistent-offset",
        _offsets_that_are_handed_over_are_not_forced,
        plans=make_upgrade_crash_plan,
    ),
    Broken(
        "what is kept takes more",
        "zombie-commit",
        _what_is_kept_takes_more,
        plans=make_upgrade_crash_plan,
    ),
    Broken(
        "a start lets more into what is kept",
        "zombie-commit",
        _a_start_lets_more_into_what_is_kept,
        plans=make_upgrade_crash_plan,
    ),
    Broken(
        "what is kept has no more time than before",
        "lost-write",
        _what_is_kept_has_no_more_time,
        plans=make_upgrade_plan,
    ),
    Broken(
        "who was taken over ends what is kept",
        "lost-write",
        _who_was_taken_over_ends_what_is_kept,
        plans=make_upgrade_plan,
    ),
    Broken(
        "a commit of what is prepared is undone when a disk refuses it",
        "lost-write",
        _a_commit_that_is_put_off_is_undone,
        plans=make_prepared_refusal_plan,
    ),
    Broken(
        "an operator ends a part of a transaction",
        "zombie-commit",
        _operators_end_a_part,
        plans=make_operator_plan,
    ),
    Broken(
        "an operator ends nothing that is unknown",
        "lso-stuck",
        _operators_end_nothing_unknown,
        plans=make_operator_plan,
    ),
    Broken("open transactions expire", "lso-stuck", _open_transactions_expire),
    Broken(
        "a refused marker is not tried again", "lso-stuck", _refused_markers_are_not_tried_again
    ),
    Broken(
        "a deletion ends what began below it",
        "precommitted-read",
        _deletion_ends_what_began_below,
        plans=make_operator_plan,
    ),
    Broken(
        "a deletion forgets every aborted transaction",
        "aborted-read",
        _deletion_forgets_every_abort,
        plans=make_operator_plan,
    ),
    Broken("a log start is not kept", "deleted-read", _log_starts_are_not_kept),
    Broken(
        "damaged decisions are passed over",
        "damage-served",
        _damaged_decisions_are_passed_over,
        plans=make_damage_plan,
    ),
    Broken("damage is shown", "damage-served", _damage_is_shown, plans=make_damage_plan),
    Broken(
        "open transactions are not held against the coordinator",
        "damage-served",
        _open_transactions_are_not_compared,
        plans=make_unmark_plan,
    ),
    Broken(
        "orphans are ended though a log of the coordinator is unread",
        "lost-write",
        _orphans_are_ended_though_a_log_is_unread,
        plans=make_unread_power_plan,
    ),
    Broken("damage is not named", "damage-unnamed", _damage_is_not_named, plans=make_damage_plan),
    Broken(
        "the cleaner passes the last stable offset",
        "lost-write",
        _open_transactions_are_cleaned,
        plans=make_cleaner_plan,
    ),
    Broken(
        "aborted transactions are cleaned as committed ones",
        "aborted-read",
        _aborted_transactions_are_cleaned_as_committed,
        plans=make_cleaner_plan,
    ),
    Broken(
        "what is needed of producers is cleaned away",
        "recovery-divergence",
        _the_cleaner_asks_nobody_what_is_needed,
        plans=make_cleaner_plan,
    ),
    Broken(
        "aborted transactions stay named without their markers",
        "txnindex-mismatch",
        _what_is_cleaned_stays_named,
        plans=make_cleaner_plan,
    ),
    Broken(
        "abort markers are cleaned away before their records",
        "txnindex-mismatch",
        _abort_markers_are_cleaned_away,
        plans=make_cleaner_plan,
    ),
    Broken(
        "the last record of a key is cleaned away",
        "lost-write",
        _the_last_of_a_key_is_cleaned_away,
        plans=make_cleaner_plan,
    ),
    Broken(
        "tombstones are cleaned away at once",
        "lost-write",
        _tombstones_are_cleaned_away_at_once,
        plans=make_cleaner_plan,
    ),
    Broken(
        "cleaned records move up",
        "inconsistent-offset",
        _cleaned_records_move_up,
        plans=make_cleaner_plan,
    ),
    Broken(
        "a start takes segments that power has shortened for cleaned ones",
        "lost-write",
        _lost_segments_are_taken_for_cleaned_ones,
        plans=make_cleaner_power_plan,
    ),
)
"""The table: the rule, and the anomaly that has to catch it."""
