"""Rules of the broker, each broken on purpose: what the checkers have to catch.

A breakage is done from outside, for the length of a `with` block; the product has no switch
for any of it. `must_find` is the anomaly it has to be caught by.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from kio.schema.errors import ErrorCode

from sim.disk import SimLog
from sim.plan import Plan, make_copier_plan, make_late_plan, make_plan
from txn.broker import groups, transactions
from txn.broker.transactions import TRANSACTIONS_TOPIC, TransactionCoordinator
from txn.coordinator.group.offsets import OffsetTable
from txn.coordinator.transaction import decide, timeouts
from txn.coordinator.transaction.connections import LatestConnections
from txn.coordinator.transaction.states import PREPARED, Producer, Txn, TxnState
from txn.partition import partition
from txn.partition.aborted_index import AbortedIndex
from txn.partition.admission import COORDINATOR, DUPLICATE, OUT_OF_ORDER_SEQUENCE
from txn.partition.partition import TRANSACTIONAL, Partition
from txn.partition.producer_state import ProducerState
from txn.partition.stable_offset import OpenTransactions
from txn.storage.base import BatchKind, Record, StoredBatch

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
    """Put something else in the place of an attribute; `make` gets what was there."""
    stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))


# -------------------------------------------------------------------- partitions


def _stable_offset_follows_the_newest_marker(stack: ExitStack) -> None:
    def end(self: OpenTransactions, producer_id: int) -> None:
        self._first_offsets.pop(producer_id)
        self.first_offset = -1

    stack.enter_context(patch.object(OpenTransactions, "end", end))


def _stable_offset_is_the_log_end(stack: ExitStack) -> None:
    stack.enter_context(patch.object(Partition, "first_unstable_offset", lambda self: -1))


def _batches_of_older_epochs_are_stored(stack: ExitStack) -> None:
    def make(refusal: Any) -> Any:
        def lenient(state: ProducerState | None, origin: int, epoch: int, *rest: Any) -> Any:
            if state is not None and epoch < state.producer_epoch and origin != COORDINATOR:
                return None
            return refusal(state, origin, epoch, *rest)

        return lenient

    _replaced(stack, partition, "refusal", make)


def _nothing_is_known_as_a_retry(stack: ExitStack) -> None:
    def make(refusal: Any) -> Any:
        def lenient(*args: Any) -> Any:
            verdict = refusal(*args)
            is_known = verdict is not None and verdict[0] == DUPLICATE
            return None if is_known or verdict is OUT_OF_ORDER_SEQUENCE else verdict

        return lenient

    _replaced(stack, partition, "refusal", make)


def _aborted_transactions_are_not_named(stack: ExitStack) -> None:
    stack.enter_context(patch.object(AbortedIndex, "aborted_in", lambda self, start, end: []))


def _aborted_transactions_are_named_too_late(stack: ExitStack) -> None:
    def make(aborted_in: Any) -> Any:
        return lambda self, start, end: [e for e in aborted_in(self, start, end) if e[1] >= start]

    _replaced(stack, AbortedIndex, "aborted_in", make)


def _replay_passes_over_markers(stack: ExitStack) -> None:
    def make(replay: Any) -> Any:
        return lambda self, batches: replay(self, [b for b in batches if b[6] <= TRANSACTIONAL])

    _replaced(stack, Partition, "replay", make)


def _replay_forgets_sequences(stack: ExitStack) -> None:
    def make(replay: Any) -> Any:
        return lambda self, batches: replay(self, [(*b[:4], -1, *b[5:]) for b in batches])

    _replaced(stack, Partition, "replay", make)


def _markers_are_stored_as_data(stack: ExitStack) -> None:
    def make(store: Any) -> Any:
        def leaky(self: SimLog, batch: StoredBatch, count: int) -> None:
            if batch.kind is BatchKind.COMMIT_MARKER and self.topic != "__consumer_offsets":
                record = Record(batch.base_offset, 0, None, b"marker")
                batch = batch._replace(records=(record,))
            store(self, batch, count)

        return leaky

    _replaced(stack, SimLog, "_store", make)


# -------------------------------------------------------------------- the coordinator


def _epochs_are_not_checked(stack: ExitStack) -> None:
    def make(decision: Any) -> Any:
        def lenient(txn: Txn | None, producer: Producer, *args: Any, **kwargs: Any) -> Any:
            if txn is not None and txn.producer_id == producer.producer_id:
                producer = txn.producer
            return decision(txn, producer, *args, **kwargs)

        return lenient

    for name in ("decide_end", "decide_end_and_bump", "decide_add"):
        _replaced(stack, transactions, name, make)
    _batches_of_older_epochs_are_stored(stack)


def _forces(stack: ExitStack, is_forced: Callable[[str], bool]) -> None:
    """Let the coordinator wait only for the logs of some topics."""

    def make(force: Any) -> Any:
        def partial(self: TransactionCoordinator, stores: Iterable[Any]) -> Any:
            yield from force(self, [store for store in stores if is_forced(store.topic)])

        return partial

    _replaced(stack, TransactionCoordinator, "_force", make)


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
    def make(mark: Any) -> Any:
        def wrong(self: TransactionCoordinator, transactional_id: str) -> None:
            txn = self.transactions.get(transactional_id)
            if txn is not None and self._host.now_ms() - txn.updated_ms > 20:
                aborted = replace(txn, state=TxnState.PREPARE_ABORT)
                self.transactions.apply(transactional_id, aborted)
            mark(self, transactional_id)

        return wrong

    _replaced(stack, TransactionCoordinator, "_mark", make)


def _timeouts_never_fire(stack: ExitStack) -> None:
    stack.enter_context(patch.object(timeouts, "deadline_ms", lambda txn: None))


def _one_partition_gets_no_marker(stack: ExitStack) -> None:
    def make(mark: Any) -> Any:
        def forgetful(self: TransactionCoordinator, place: Any, *args: Any) -> None:
            if place != ("sink", 1):
                mark(self, place, *args)

        return forgetful

    _replaced(stack, TransactionCoordinator, "_append_marker", make)


def _late_requests_are_served(stack: ExitStack) -> None:
    stack.enter_context(patch.object(LatestConnections, "is_superseded", lambda *args: False))


def _a_starting_producer_fences_nobody(stack: ExitStack) -> None:
    def make(decide_init: Any) -> Any:
        def lenient(txn: Txn | None, shown: Any, **kwargs: Any) -> Any:
            decision = decide_init(txn, shown, **kwargs)
            if txn is None or txn.state in PREPARED or not isinstance(decision, decide.Write):
                return decision
            return decide.Write(replace(txn, timeout_ms=kwargs["timeout_ms"]))

        return lenient

    _replaced(stack, transactions, "decide_init", make)


def _every_commit_is_answered_with_success(stack: ExitStack) -> None:
    def make(decide_end: Any) -> Any:
        def lying(txn: Txn | None, producer: Producer, *args: Any, **kwargs: Any) -> Any:
            decision = decide_end(txn, producer, *args, **kwargs)
            if isinstance(decision, decide.Refuse) and txn is not None:
                return decide.Done(txn)
            return decision

        return lying

    _replaced(stack, transactions, "decide_end", make)
    _replaced(stack, transactions, "decide_end_and_bump", make)


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
        patch.object(groups, "commit_refusal", lambda *args, **kwargs: ErrorCode.none)
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
    ),
    Broken("PREPARE is durable before the data", "lost-write", _prepare_is_durable_before_the_data),
    Broken("recovery forgets PREPARE", "lso-stuck", _recovery_forgets_prepare),
    Broken("recovery aborts what was to commit", "lost-write", _recovery_aborts_prepared_commits),
    Broken("timeouts never fire", "lso-stuck", _timeouts_never_fire),
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
)
"""The table: the rule, what it has to be caught by."""
