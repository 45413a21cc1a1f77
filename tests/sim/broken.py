"""Rules of the broker, each broken on purpose, which the checkers have to catch.

Each goes through `support.seam.Seam`: a pure rule gives way to a function, a part of the broker to
a subclass. The product has no switch for any of it. `must_find` is the anomaly it has to be caught
by.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from typing_extensions import override

from sim.cleaning import CleanedSegment, delete_retention_ms, limit_of, moved_up, output_of
from sim.disk import SimCatalog, SimFile, SimLog, SimStorage
from sim.plan import (
    SimPlan,
    make_cleaned_lost_cache_plan,
    make_cleaner_plan,
    make_cleaner_power_plan,
    make_clock_plan,
    make_copier_plan,
    make_damage_plan,
    make_election_plan,
    make_first_ids_power_plan,
    make_late_plan,
    make_lost_cache_plan,
    make_operator_plan,
    make_passed_abort_plan,
    make_passing_abort_plan,
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
from support import broken_rules
from support.broken_rules import Breaking, EndResult, end_with, without_a_look
from support.seam import Seam
from txn.broker.controller import LocalController
from txn.broker.hanging_transactions import HangingTransactions
from txn.broker.host import Timer
from txn.broker.local_host import LocalHost
from txn.broker.marker_sender import NONE_HELD, LocalMarkerSender, MarkersSent, to_be_retried
from txn.broker.shard import Shard
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.coordinator.group.classic.group import Group
from txn.coordinator.group.classic.refusals import commit_refusal
from txn.coordinator.group.offsets import GroupOffsets, OffsetTable
from txn.coordinator.group.records import OffsetKey, OffsetValue
from txn.coordinator.operations import Request
from txn.coordinator.transaction.decide import (
    AbortFirst,
    Done,
    Refuse,
    Write,
    decide_init,
)
from txn.coordinator.transaction.ending import Ending, decide, finish
from txn.coordinator.transaction.lost_cache import (
    EndOf,
    LostOffset,
    NamedOffsets,
    find_lost_offset,
)
from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    TopicIdOf,
    lost_marker_of,
    unexplained,
)
from txn.coordinator.transaction.records import TxnRecord, decode_record, decode_value, encode_value
from txn.coordinator.transaction.states import PREPARED, Txn, TxnResult, TxnState, UnsyncedMarker
from txn.coordinator.transaction.successors import NewProducerId
from txn.coordinator.transaction.timeouts import age_at_start, has_deadline, is_expired
from txn.coordinator.transaction.unsynced import carried, is_ended_by, is_in_log, is_to_decide
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import ProducerIdAndEpoch, TopicPartition
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic
from txn.partition.admission import DUPLICATE, AbortedTxn, AdmitResult, refusal
from txn.partition.producer_state_entry import ProducerStateEntry
from txn.partition.producer_state_manager import (
    TRANSACTIONAL,
    ProducerStateManager,
    ReplayedBatch,
)
from txn.partition.stable_offset import OpenTransactions
from txn.storage.base import BatchKind, Marker, PartitionLog, StoredBatch
from txn.storage.log_offsets import LogStarts
from txn.wire.error_codes import ErrorCode

R = TypeVar("R")
S = TypeVar("S")


@dataclass(frozen=True)
class BrokenRule:
    """One rule that does not hold."""

    rule: str
    must_find: str
    breaks: Breaking = field(repr=False)
    plans: Callable[[int], SimPlan] = make_plan
    seeds_max: int = 400

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break it for a while."""
        with Seam() as seam:
            self.breaks(seam)
            yield

    def __str__(self) -> str:
        return self.rule


# -------------------------------------------------------------------- partitions


def _stable_offset_is_the_log_end(seam: Seam) -> None:
    @seam.instead_of(OpenTransactions)
    class NoneIsOpen(OpenTransactions):
        __slots__ = ()

        @override
        def begin(self, producer_id: int, first_offset: int) -> None:
            """Nothing holds readers back."""

        @override
        def end(self, producer_id: int) -> None:
            """Nothing was begun."""


def _sequences_used_again_are_retries(seam: Seam) -> None:
    @seam.instead_of(refusal)
    def knows_every_sequence(
        state: ProducerStateEntry | None,
        origin: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        is_transactional: bool,
        expected_epoch: int | None,
        is_unwritten: bool,
    ) -> AdmitResult | None:
        if state is not None and producer_epoch == state.producer_epoch:
            base_offset = state.offset_of_stored(base_sequence, last_sequence)
            if base_offset >= 0:
                return DUPLICATE, base_offset, None
        return refusal(
            state,
            origin,
            producer_epoch,
            base_sequence,
            last_sequence,
            is_transactional,
            expected_epoch,
            is_unwritten,
        )


def _names_only(seam: Seam, is_named: Callable[[SimLog, int, int], bool]) -> None:
    """Have fetches name some aborted transactions, by the fetch's start and their first offset."""

    @seam.instead_of(SimLog)
    class NamesSome(SimLog):
        @override
        def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
            return [e for e in super().aborted_in(start, end) if is_named(self, start, e[1])]


def _aborted_transactions_are_not_named(seam: Seam) -> None:
    _names_only(seam, lambda log, start, first_offset: False)


def _aborted_transactions_are_named_too_late(seam: Seam) -> None:
    _names_only(seam, lambda log, start, first_offset: first_offset >= start)


def _replay_passes_over_markers(seam: Seam) -> None:
    @seam.instead_of(ProducerStateManager)
    class ReplaysData(ProducerStateManager):
        __slots__ = ()

        @override
        def replay(self, batches: Sequence[ReplayedBatch]) -> list[AbortedTxn]:
            return super().replay([batch for batch in batches if batch[6] <= TRANSACTIONAL])


def _replay_forgets_sequences(seam: Seam) -> None:
    @seam.instead_of(ProducerStateManager)
    class ReplaysNoSequences(ProducerStateManager):
        __slots__ = ()

        @override
        def replay(self, batches: Sequence[ReplayedBatch]) -> list[AbortedTxn]:
            return super().replay([(*batch[:4], -1, *batch[5:]) for batch in batches])


def _markers_are_stored_as_data(seam: Seam) -> None:
    @seam.instead_of(SimLog)
    class Leaky(SimLog):
        @override
        def append_marker(self, marker: Marker) -> int:
            offset = super().append_marker(marker)
            if marker.is_commit and self.topic != OFFSETS_TOPIC:
                self.append([(None, b"marker")], timestamp_ms=marker.timestamp_ms)
            return offset


# -------------------------------------------------------------------- the coordinator


class BrokenStart:
    """The start of a coordinator.

    Attributes:
        is_under_way: True while it recovers.
        is_after_power_failure: True in the start after a power failure.
    """

    def __init__(self, seam: Seam) -> None:
        self.is_under_way = self.is_after_power_failure = False
        start = self

        @seam.instead_of(TransactionCoordinator)
        class TellsOfItsStart(TransactionCoordinator):
            @override
            def recover(self, *, power_failed: bool = False, **more: Any) -> None:
                start.is_under_way, start.is_after_power_failure = True, power_failed
                try:
                    super().recover(power_failed=power_failed, **more)
                finally:
                    start.is_under_way = start.is_after_power_failure = False


def _forces(seam: Seam, is_forced: Callable[[str], bool]) -> None:
    """Let requests wait only for the logs of some topics."""

    @seam.instead_of(LocalHost)
    class ForcesSome(LocalHost):
        @override
        def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
            return super().sync([store for store in stores if is_forced(store.topic)])

        @override
        def sync_now(self, stores: Iterable[PartitionLog]) -> StorageError | None:
            return super().sync_now([store for store in stores if is_forced(store.topic)])


def _markers_come_before_prepare_is_durable(seam: Seam) -> None:
    _forces(seam, lambda topic: topic != TRANSACTIONS_TOPIC)


def _prepare_is_durable_before_the_data(seam: Seam) -> None:
    _forces(seam, lambda topic: topic == TRANSACTIONS_TOPIC)


def _recovery_forgets_prepare(seam: Seam) -> None:
    start = BrokenStart(seam)

    @seam.instead_of(finish)
    def finish_unless_it_starts(
        ending: Ending, write: Callable[[Txn], object], answer: object = None
    ) -> Request[None]:
        if not start.is_under_way:
            yield from finish(ending, write, answer)


def _an_election_forgets_prepare(seam: Seam) -> None:
    electing: set[int] = set()

    @seam.instead_of(TransactionCoordinator)
    class TellsOfItsElections(TransactionCoordinator):
        @override
        async def elect(self, index: int) -> None:
            electing.add(index)
            try:
                await super().elect(index)
            finally:
                electing.discard(index)

    @seam.instead_of(finish)
    def finish_unless_it_is_elected(
        ending: Ending, write: Callable[[Txn], object], answer: object = None
    ) -> Request[None]:
        if not electing:
            yield from finish(ending, write, answer)


def _recovery_aborts_prepared_commits(seam: Seam) -> None:
    @seam.instead_of(decode_record)
    def read_as_abort(key: bytes, value: bytes | None) -> TxnRecord | None:
        record = decode_record(key, value)
        if record is None:
            return None
        transactional_id, txn = record
        if not isinstance(txn, Txn) or txn.state is not TxnState.PREPARE_COMMIT:
            return record
        return transactional_id, txn._replace(state=TxnState.PREPARE_ABORT)


def _a_start_believes_every_prepare(seam: Seam) -> None:
    seam.instead_of(is_to_decide)(lambda txn: False)


def _lost_records_are_taken_for_later_ones(seam: Seam) -> None:
    """Offsets count in any leader epoch, and a decision is not synced before a marker."""
    seam.instead_of(is_in_log)(lambda last, log: last.offset < log.log_end_offset)
    _markers_come_before_prepare_is_durable(seam)


def _a_start_after_a_kill_believes_every_prepare(seam: Seam) -> None:
    @seam.instead_of(find_lost_offset)
    def find_none(
        unfinished: Sequence[tuple[str, Txn]],
        everybody: Callable[[], Iterable[tuple[str, Txn]]],
        held: Iterable[OpenTransaction],
        *,
        named_by: Callable[[str], NamedOffsets],
        end_of: EndOf,
        topic_id_of: TopicIdOf,
    ) -> LostOffset | None:
        return None


def _an_unread_commit_is_finished_after_a_kill(seam: Seam) -> None:
    start = BrokenStart(seam)
    seam.instead_of(is_to_decide)(lambda txn: start.is_after_power_failure and is_to_decide(txn))


def _a_lost_marker_is_left_unseen(seam: Seam) -> None:
    seam.instead_of(lost_marker_of)(lambda held, owner, topic_id_of: None)


def _the_last_record_is_taken_for_a_lost_one(seam: Seam) -> None:
    @seam.instead_of(find_lost_offset)
    def find_too_many(
        unfinished: Sequence[tuple[str, Txn]],
        everybody: Callable[[], Iterable[tuple[str, Txn]]],
        held: Iterable[OpenTransaction],
        *,
        named_by: Callable[[str], NamedOffsets],
        end_of: EndOf,
        topic_id_of: TopicIdOf,
    ) -> LostOffset | None:
        def before_end(topic_id: bytes, partition: int) -> int | None:
            end = end_of(topic_id, partition)
            return None if end is None else end - 1

        return find_lost_offset(
            unfinished,
            everybody,
            held,
            named_by=named_by,
            end_of=before_end,
            topic_id_of=topic_id_of,
        )


def _prepare_ends_a_later_transaction(seam: Seam) -> None:
    start = BrokenStart(seam)

    @seam.instead_of(finish)
    def finish_everywhere(
        ending: Ending, write: Callable[[Txn], object], answer: object = None
    ) -> Request[None]:
        if start.is_under_way:
            ending.unmarked = ending.plan.prepare.partitions
        yield from finish(ending, write, answer)


def _records_carry_no_markers(seam: Seam) -> None:
    seam.instead_of(carried)(lambda known, written, is_synced: ())


def _an_abort_is_decided_without_its_data(seam: Seam) -> None:
    @seam.instead_of(decide)
    def decide_without_data(ending: Ending) -> Request[None]:
        if not ending.is_commit:
            ending.data = frozenset()
        yield from decide(ending)


def _an_abort_is_synced_behind_its_marker(seam: Seam) -> None:
    _an_abort_is_decided_without_its_data(seam)

    @seam.instead_of(finish)
    def finish_before_the_sync(
        ending: Ending, write: Callable[[Txn], object], answer: object = None
    ) -> Request[None]:
        yield from without_a_look(finish(ending, write, answer))


def _an_abort_is_not_synced(seam: Seam) -> None:
    _an_abort_is_decided_without_its_data(seam)

    @seam.instead_of(finish)
    def finish_without_sync(
        ending: Ending, write: Callable[[Txn], object], answer: object = None
    ) -> Request[None]:
        prepare = ending.plan.prepare
        if prepare.state is not TxnState.PREPARE_COMMIT:
            unnamed = prepare._replace(partitions=frozenset())
            ending.plan = ending.plan._replace(prepare=unnamed)
        yield from without_a_look(finish(ending, write, answer))


def _lost_markers_stay_lost(seam: Seam) -> None:
    @seam.instead_of(decode_record)
    def read_without_markers(key: bytes, value: bytes | None) -> TxnRecord | None:
        record = decode_record(key, value)
        if record is None:
            return None
        transactional_id, txn = record
        if txn is None:
            return record
        known = decode_value(txn) if isinstance(txn, bytes) else txn
        return transactional_id, known._replace(unsynced_markers=())


def _a_marker_ends_a_later_transaction(seam: Seam) -> None:
    @seam.instead_of(is_ended_by)
    def is_of_the_producer(
        marker: UnsyncedMarker, producer: ProducerIdAndEpoch, first_offset: int
    ) -> bool:
        return marker.producer_id == producer.producer_id


def _a_start_forgets_the_markers_it_wrote(seam: Seam) -> None:
    start = BrokenStart(seam)

    @seam.instead_of(encode_value)
    def encode_without_markers(txn: Txn) -> bytes:
        return encode_value(txn._replace(unsynced_markers=()) if start.is_under_way else txn)


def _timeouts_never_fire(seam: Seam) -> None:
    seam.instead_of(has_deadline)(lambda txn: False)


def _timeouts_go_by_the_time_of_day(seam: Seam) -> None:
    @seam.instead_of(LocalHost)
    class TellsTheTimeOfDay(LocalHost):
        def __init__(self, *parts: Any, **named: Any) -> None:
            super().__init__(*parts, **named)
            self._clock, self.monotonic_ms = self.monotonic_ms, self.now_ms

        @override
        def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
            return super().call_at(self._clock() + when_ms - self.now_ms(), call)


def _a_start_in_the_future_prolongs_a_transaction(seam: Seam) -> None:
    seam.instead_of(age_at_start)(lambda txn, now_ms: now_ms - txn.start_ms)


def _one_partition_gets_no_marker(seam: Seam) -> None:
    @seam.instead_of(LocalMarkerSender)
    class Forgetful(LocalMarkerSender):
        @override
        def send(
            self,
            partitions: Iterable[TopicPartition],
            marker: Marker,
            held: Mapping[TopicPartition, StorageError] = NONE_HELD,
        ) -> MarkersSent:
            remembered = [each for each in partitions if each != ("sink", 1)]
            return super().send(remembered, marker, held)


InitResult = Refuse | Write | AbortFirst


def _a_starting_producer_fences_nobody(seam: Seam) -> None:
    def init_as_before(decision: InitResult, txn: Txn | None, timeout_ms: int) -> InitResult:
        if txn is None or txn.state in PREPARED or not isinstance(decision, Write):
            return decision
        return Write(txn._replace(timeout_ms=timeout_ms))

    _init_with(seam, result=init_as_before)


def _init_with(
    seam: Seam,
    *,
    keeps_prepared: bool = True,
    timeout_of: Callable[[int], int] = lambda timeout_ms: timeout_ms,
    result: Callable[[InitResult, Txn | None, int], InitResult] = lambda decision, *_: decision,
) -> None:
    """Have InitProducerId decided otherwise."""

    @seam.instead_of(decide_init)
    def init(
        txn: Txn | None,
        expected: ProducerIdAndEpoch | None,
        *,
        timeout_ms: int,
        now_ms: int,
        new_producer_id: NewProducerId,
        keep_prepared: bool = False,
    ) -> InitResult:
        decision = decide_init(
            txn,
            expected,
            timeout_ms=timeout_of(timeout_ms),
            now_ms=now_ms,
            new_producer_id=new_producer_id,
            keep_prepared=keep_prepared and keeps_prepared,
        )
        return result(decision, txn, timeout_ms)


def _every_commit_is_answered_with_success(seam: Seam) -> None:
    def success(decision: EndResult, txn: Txn | None) -> EndResult:
        return Done(txn) if isinstance(decision, Refuse) and txn is not None else decision

    end_with(seam, result=success)


def _ids_are_given_out_before_their_block_is_durable(seam: Seam) -> None:
    @seam.instead_of(LocalController)
    class WaitsForNoDisk(LocalController):
        @override
        def allocate_producer_ids(self) -> Awaitable[range]:
            start = self.image.next_producer_id
            on_its_way = asyncio.ensure_future(super().allocate_producer_ids())
            on_its_way.add_done_callback(lambda done: done.exception())
            given: asyncio.Future[range] = asyncio.get_running_loop().create_future()
            given.set_result(range(start, self.image.next_producer_id))
            return given


def _what_is_prepared_is_not_kept(seam: Seam) -> None:
    _init_with(seam, keeps_prepared=False)


def _what_is_prepared_times_out(seam: Seam) -> None:
    _init_with(seam, timeout_of=lambda timeout_ms: min(timeout_ms, 700))


def _a_power_failure_ends_what_is_prepared(seam: Seam) -> None:
    start = BrokenStart(seam)

    @seam.instead_of(decode_record)
    def read_as_ordinary(key: bytes, value: bytes | None) -> TxnRecord | None:
        record = decode_record(key, value)
        if record is None or not start.is_after_power_failure:
            return record
        transactional_id, txn = record
        if not isinstance(txn, Txn):
            return record
        return transactional_id, txn._replace(timeout_ms=min(txn.timeout_ms, 700))


def _what_is_prepared_is_not_forced(seam: Seam) -> None:
    @seam.instead_of(SimCatalog)
    class ForcesNoProducer(SimCatalog):
        @override
        def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
            """Acknowledge every batch at once."""


def _that_something_is_prepared_is_not_forced(seam: Seam) -> None:
    def is_open(log: PartitionLog) -> bool:
        (newest,) = log.batches(log.log_end_offset - 1)
        value = newest.records[-1].value
        return value is not None and decode_value(value).state is TxnState.ONGOING

    @seam.instead_of(LocalHost)
    class ForcesNoBeginning(LocalHost):
        @override
        def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
            stores = [
                store for store in stores if store.topic != TRANSACTIONS_TOPIC or not is_open(store)
            ]
            return super().sync(stores)


def _hand_over_forces(seam: Seam, is_forced: Callable[[str], bool]) -> None:
    """Let a hand-over wait only for the logs of some topics.

    The coordinator has a producer's batches forced, and waits for its earlier ones next.
    """

    @seam.instead_of(LocalHost)
    class Hasty(LocalHost):
        def __init__(self, *parts: Any, **named: Any) -> None:
            super().__init__(*parts, **named)
            self._hands_over = False

        @override
        def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
            super().sync_before_ack(producer_id, is_forced)
            self._hands_over = is_forced

        @override
        def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
            if self._hands_over:
                stores = [
                    store
                    for store in stores
                    if store.topic == TRANSACTIONS_TOPIC or is_forced(store.topic)
                ]
            self._hands_over = False
            return super().sync(stores)


def _what_is_handed_over_is_not_forced(seam: Seam) -> None:
    _hand_over_forces(seam, lambda topic: False)


def _offsets_that_are_handed_over_are_not_forced(seam: Seam) -> None:
    _hand_over_forces(seam, lambda topic: topic != OFFSETS_TOPIC)


def _what_is_kept_takes_more(seam: Seam) -> None:
    @seam.instead_of(ProducerStateManager)
    class BlocksNobody(ProducerStateManager):
        __slots__ = ()

        @override
        def block_txn(self, producer_id: int, holder: object = None) -> None:
            """Let more in."""


def _a_start_lets_more_into_what_is_kept(seam: Seam) -> None:
    start = BrokenStart(seam)

    @seam.instead_of(ProducerStateManager)
    class BlocksNobodyAtAStart(ProducerStateManager):
        __slots__ = ()

        @override
        def block_txn(self, producer_id: int, holder: object = None) -> None:
            if not start.is_under_way:
                super().block_txn(producer_id, holder)


def _what_is_kept_has_no_more_time(seam: Seam) -> None:
    def keep_its_time(decision: InitResult, txn: Txn | None, timeout_ms: int) -> InitResult:
        if txn is None or not isinstance(decision, Write) or not decision.txn.is_prepared:
            return decision
        return Write(decision.txn._replace(timeout_ms=txn.timeout_ms))

    _init_with(seam, result=keep_its_time)


def _who_was_taken_over_ends_what_is_kept(seam: Seam) -> None:
    def heir_of(txn: Txn | None, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        is_taken_over = txn is not None and txn.is_prepared and producer == txn.producer
        return txn.client if txn is not None and is_taken_over else producer

    end_with(seam, producer_of=heir_of)


def _a_commit_that_is_put_off_is_undone(seam: Seam) -> None:
    @seam.instead_of(TransactionCoordinator)
    class Hasty(TransactionCoordinator):
        @override
        async def end(
            self,
            transactional_id: str,
            producer: ProducerIdAndEpoch,
            outcome: TxnResult,
            *,
            bumps_epoch: bool,
        ) -> InitProducerIdResult:
            answer = await super().end(transactional_id, producer, outcome, bumps_epoch=bumps_epoch)
            txn = self.transactions.get(transactional_id)
            is_put_off = answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            if is_put_off and txn is not None and txn.state is TxnState.ONGOING:
                await super().end(
                    transactional_id, producer, TxnResult.ABORT, bumps_epoch=bumps_epoch
                )
            return answer


def _operators_end_a_part(seam: Seam) -> None:
    @seam.instead_of(TransactionCoordinator)
    class EndsParts(TransactionCoordinator):
        @override
        async def write_marker(
            self, partition: TopicPartition, marker: Marker, *, must_bump: bool
        ) -> ErrorCode:
            try:
                log = self.partition(*partition)
                assert log is not None, f"{partition} was looked up"
                log.append_marker(marker)
            except StorageError:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NONE


def _operators_end_nothing_unknown(seam: Seam) -> None:
    @seam.instead_of(TransactionCoordinator)
    class EndsWhatItKnows(TransactionCoordinator):
        @override
        async def write_marker(
            self, partition: TopicPartition, marker: Marker, *, must_bump: bool
        ) -> ErrorCode:
            if not any(
                txn.producer_id == marker.producer_id and partition in txn.partitions
                for _, txn in self.transactions.decoded()
            ):
                return ErrorCode.NONE
            return await super().write_marker(partition, marker, must_bump=must_bump)


def _open_transactions_expire(seam: Seam) -> None:
    @seam.instead_of(is_expired)
    def is_old(txn: Txn, now_ms: int, expiration_ms: int) -> bool:
        return txn.updated_ms <= now_ms - expiration_ms


def _refused_markers_are_not_tried_again(seam: Seam) -> None:
    seam.instead_of(to_be_retried)(lambda refused, marker: {})


# -------------------------------------------------------------------- what is deleted or damaged


def _deletion_ends_what_began_below(seam: Seam) -> None:
    @seam.instead_of(ProducerStateManager)
    class EndsWhatIsDeleted(ProducerStateManager):
        __slots__ = ()

        @override
        def forget_below(self, log_start_offset: int) -> None:
            for each in self.describe():
                if 0 <= each.current_txn_start_offset < log_start_offset:
                    epoch = each.producer_epoch, each.coordinator_epoch
                    at = log_start_offset, each.producer_id
                    self.admit_marker(*at, *epoch, True, each.last_timestamp_ms)
            super().forget_below(log_start_offset)


def _deletion_forgets_every_abort(seam: Seam) -> None:
    _names_only(seam, lambda log, start, first_offset: not log.log_start_offset)


def _log_starts_are_not_kept(seam: Seam) -> None:
    @seam.instead_of(LogStarts)
    class KeepsNone(LogStarts):
        @override
        def of(self, topic: str, index: int) -> int | None:
            return None


def _damaged_decisions_are_passed_over(seam: Seam) -> None:
    @seam.instead_of(Shard)
    class ReadsOnly(Shard[S, R]):
        @override
        def load(self, replay: Callable[[], object], empty: Callable[[], S]) -> Exception | None:
            def replay_up_to_damage() -> None:
                with suppress(CorruptLogError):
                    replay()

            return super().load(replay_up_to_damage, empty)


def _open_transactions_are_not_compared(seam: Seam) -> None:
    seam.instead_of(unexplained)(lambda held, owners, topic_id_of: [])


def _orphans_are_ended_though_a_log_is_unread(seam: Seam) -> None:
    @seam.instead_of(HangingTransactions)
    class EndsAll(HangingTransactions):
        @override
        def end(
            self,
            stores: Iterable[PartitionLog],
            known: Iterable[Txn],
            *,
            unread: Sequence[str] = (),
        ) -> None:
            super().end(stores, known)


def _damage_is_shown(seam: Seam) -> None:
    @seam.instead_of(SimLog)
    class Careless(SimLog):
        @override
        def batches(self, start: int = 0) -> Iterator[StoredBatch]:
            return (batch for batch in self.stored if self.end_of(batch) > start)

        @override
        def read_batches(self, start: int, batches_max: int) -> Iterator[StoredBatch]:
            return islice(self.batches(start), batches_max)


def _damage_is_not_named(seam: Seam) -> None:
    @seam.instead_of(SimStorage)
    class Nameless(SimStorage):
        @override
        def open(self, topic: Topic, index: int) -> SimLog:
            try:
                return super().open(topic, index)
            except CorruptLogError as error:
                raise CorruptLogError("a log is damaged") from error


# -------------------------------------------------------------------- what is cleaned


def _the_cleaner_asks_nobody_what_is_needed(seam: Seam) -> None:
    @seam.instead_of(ProducerStateManager)
    class NeedsNothing(ProducerStateManager):
        __slots__ = ()

        @override
        def last_batches(self) -> list[tuple[int, int, int]]:
            return []


def _what_is_cleaned_stays_named(seam: Seam) -> None:
    @seam.instead_of(ProducerStateManager)
    class KeepsAborted(ProducerStateManager):
        __slots__ = ()

        @override
        def forget_aborted(self, last_offsets: Sequence[int]) -> None:
            """Name them for good."""


def _leaves(seam: Seam, keep: Callable[[CleanedSegment], list[bytes]]) -> None:
    """Let the cleaner leave something else than it did."""

    @seam.instead_of(output_of)
    def wrong(output: CleanedSegment) -> list[bytes]:
        return output.left if output.log.topic.startswith("__") else keep(output)


def _open_transactions_are_cleaned(seam: Seam) -> None:
    def keep(output: CleanedSegment) -> list[bytes]:
        open_ids = {
            each.producer_id
            for each in output.log.producer_state.describe()
            if each.current_txn_start_offset >= 0
        }
        return [each for each in output.left if decoded(each).producer_id not in open_ids]

    seam.instead_of(limit_of)(lambda log: log.log_end_offset)
    _leaves(seam, keep)


def _is_abort_marker(batch: bytes) -> bool:
    return decoded(batch).kind is BatchKind.ABORT_MARKER


def _aborted_transactions_are_cleaned_as_committed(seam: Seam) -> None:
    def keep(output: CleanedSegment) -> list[bytes]:
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

    _leaves(seam, keep)


def _abort_markers_are_cleaned_away(seam: Seam) -> None:
    _leaves(seam, lambda output: [each for each in output.left if not _is_abort_marker(each)])


def _the_last_of_a_key_is_cleaned_away(seam: Seam) -> None:
    _leaves(seam, lambda output: [each for each in output.left if not decoded(each).records])


def _tombstones_are_cleaned_away_at_once(seam: Seam) -> None:
    seam.instead_of(delete_retention_ms)(lambda: 0)


def _cleaned_records_move_up(seam: Seam) -> None:
    _leaves(seam, lambda output: [moved_up(each) for each in output.left])


def _lost_segments_are_taken_for_cleaned_ones(seam: Seam) -> None:
    @seam.instead_of(SimFile)
    class SaysAllIsSynced(SimFile):
        @property
        @override
        def checkpointed_end(self) -> int | None:
            return 1 << 62 if self.cleanings else super().checkpointed_end


# -------------------------------------------------------------------- offsets


def _offsets_are_visible_before_the_commit(seam: Seam) -> None:
    @seam.instead_of(OffsetTable)
    class CommitsAtOnce(OffsetTable):
        @override
        def put(
            self,
            key: OffsetKey,
            value: OffsetValue,
            *,
            record_offset: int,
            producer_id: int | None = None,
        ) -> None:
            super().put(key, value, record_offset=record_offset)


def _offsets_count_though_aborted(seam: Seam) -> None:
    @seam.instead_of(OffsetTable)
    class CommitsAlways(OffsetTable):
        @override
        def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
            super().end_transaction(producer_id, is_commit=True)


def _pending_offsets_hold_nobody_back(seam: Seam) -> None:
    @seam.instead_of(OffsetTable)
    class HoldsNobodyBack(OffsetTable):
        @override
        def of_group(self, group_id: str) -> GroupOffsets:
            return super().of_group(group_id)._replace(pending=())


def _generations_do_not_fence_offsets(seam: Seam) -> None:
    @seam.instead_of(commit_refusal)
    def let_in(
        group: Group | None,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        knows_group_not_found: bool,
    ) -> ErrorCode:
        return ErrorCode.NONE


RULES = (
    BrokenRule(
        "the last stable offset follows the newest marker",
        "precommitted-read",
        broken_rules.follow_the_newest_marker,
    ),
    BrokenRule(
        "the last stable offset is the log end",
        "aborted-read",
        _stable_offset_is_the_log_end,
    ),
    BrokenRule("the epoch is not checked", "zombie-commit", broken_rules.fence_nobody),
    BrokenRule(
        "a starting producer fences nobody", "zombie-commit", _a_starting_producer_fences_nobody
    ),
    BrokenRule(
        "what a TV1 client left on a connection is served",
        "late-end",
        broken_rules.serve_late_requests,
        plans=make_late_plan,
    ),
    BrokenRule("the dedup window is zero", "duplicate", broken_rules.forget_batches),
    BrokenRule(
        "a sequence used again is taken for a retry",
        "lost-write",
        _sequences_used_again_are_retries,
        plans=make_purger_plan,
    ),
    BrokenRule(
        "aborted transactions are not named", "aborted-read", _aborted_transactions_are_not_named
    ),
    BrokenRule(
        "aborted transactions are named by their first offset alone",
        "aborted-read",
        _aborted_transactions_are_named_too_late,
    ),
    BrokenRule("replay passes over markers", "lso-regress", _replay_passes_over_markers),
    BrokenRule("replay forgets sequences", "recovery-divergence", _replay_forgets_sequences),
    BrokenRule("markers are stored as data", "marker-leak", _markers_are_stored_as_data),
    BrokenRule(
        "markers come before PREPARE is durable",
        "torn-transaction",
        _markers_come_before_prepare_is_durable,
        plans=make_power_plan,
    ),
    BrokenRule(
        "PREPARE is durable before the data", "lost-write", _prepare_is_durable_before_the_data
    ),
    BrokenRule("recovery forgets PREPARE", "lso-stuck", _recovery_forgets_prepare),
    BrokenRule(
        "an election forgets PREPARE",
        "lso-stuck",
        _an_election_forgets_prepare,
        plans=make_election_plan,
    ),
    BrokenRule(
        "recovery aborts what was to commit", "lost-write", _recovery_aborts_prepared_commits
    ),
    BrokenRule(
        "a start believes every PREPARE",
        "torn-transaction",
        _a_start_believes_every_prepare,
        plans=make_power_plan,
    ),
    BrokenRule(
        "a start after a kill believes every PREPARE",
        "torn-transaction",
        _a_start_after_a_kill_believes_every_prepare,
        plans=make_lost_cache_plan,
    ),
    BrokenRule(
        "an unread commit is finished after a kill",
        "torn-transaction",
        _an_unread_commit_is_finished_after_a_kill,
        plans=make_lost_cache_plan,
    ),
    BrokenRule(
        "an open transaction is believed whose marker was lost",
        "lost-write",
        _a_lost_marker_is_left_unseen,
        plans=lambda seed: make_cleaned_lost_cache_plan(140 + seed),
    ),
    BrokenRule(
        "the last record is taken for a lost one",
        "false-alarm",
        _the_last_record_is_taken_for_a_lost_one,
    ),
    BrokenRule(
        "lost records are taken for later ones",
        "torn-transaction",
        _lost_records_are_taken_for_later_ones,
        plans=make_two_power_plan,
    ),
    BrokenRule(
        "PREPARE ends a later transaction",
        "torn-transaction",
        _prepare_ends_a_later_transaction,
        plans=make_power_plan,
    ),
    BrokenRule(
        "records carry no markers",
        "torn-transaction",
        _records_carry_no_markers,
        plans=make_power_plan,
    ),
    BrokenRule(
        "lost markers stay lost", "torn-transaction", _lost_markers_stay_lost, plans=make_power_plan
    ),
    BrokenRule(
        "an abort is not synced",
        "offset-split",
        _an_abort_is_not_synced,
        plans=make_passed_abort_plan,
    ),
    BrokenRule(
        "an abort is synced behind its marker",
        "offset-split",
        _an_abort_is_synced_behind_its_marker,
        plans=make_passing_abort_plan,
        seeds_max=1_000,
    ),
    BrokenRule(
        "a marker that is written again ends a later transaction",
        "torn-transaction",
        _a_marker_ends_a_later_transaction,
        plans=make_power_plan,
    ),
    BrokenRule(
        "a start forgets the markers that it wrote",
        "torn-transaction",
        _a_start_forgets_the_markers_it_wrote,
        plans=make_two_power_plan,
    ),
    BrokenRule("timeouts never fire", "lso-stuck", _timeouts_never_fire),
    BrokenRule(
        "timeouts go by the time of day",
        "lso-stuck",
        _timeouts_go_by_the_time_of_day,
        plans=make_clock_plan,
    ),
    BrokenRule(
        "a start in the future prolongs a transaction",
        "lso-stuck",
        _a_start_in_the_future_prolongs_a_transaction,
        plans=make_clock_plan,
    ),
    BrokenRule("a partition gets no marker", "lso-stuck", _one_partition_gets_no_marker),
    BrokenRule(
        "offsets are visible before the commit",
        "inconsistent-offset",
        _offsets_are_visible_before_the_commit,
    ),
    BrokenRule(
        "offsets count though aborted", "inconsistent-offset", _offsets_count_though_aborted
    ),
    BrokenRule(
        "pending offsets hold nobody back",
        "offset-split",
        _pending_offsets_hold_nobody_back,
        plans=make_copier_plan,
    ),
    BrokenRule(
        "generations do not fence offsets",
        "offset-split",
        _generations_do_not_fence_offsets,
        plans=make_copier_plan,
    ),
    BrokenRule(
        "every end is answered with success", "lost-write", _every_commit_is_answered_with_success
    ),
    BrokenRule(
        "producer ids are given out before their block is durable",
        "id-reuse",
        _ids_are_given_out_before_their_block_is_durable,
        plans=make_first_ids_power_plan,
    ),
    BrokenRule(
        "what is prepared is not kept",
        "lost-write",
        _what_is_prepared_is_not_kept,
        plans=make_two_phase_plan,
    ),
    BrokenRule(
        "what is prepared times out",
        "lost-write",
        _what_is_prepared_times_out,
        plans=make_two_phase_plan,
    ),
    BrokenRule(
        "a power failure ends what is prepared",
        "lost-write",
        _a_power_failure_ends_what_is_prepared,
        plans=make_prepared_power_plan,
    ),
    BrokenRule(
        "what is prepared is not forced",
        "torn-transaction",
        _what_is_prepared_is_not_forced,
        plans=make_prepared_power_plan,
    ),
    BrokenRule(
        "that something is prepared is not forced",
        "lost-write",
        _that_something_is_prepared_is_not_forced,
        plans=make_prepared_power_plan,
    ),
    BrokenRule(
        "what is handed over to two-phase commit is not forced before",
        "torn-transaction",
        _what_is_handed_over_is_not_forced,
        plans=make_upgrade_crash_plan,
    ),
    BrokenRule(
        "offsets that are handed over to two-phase commit are not forced before",
        "inconsistent-offset",
        _offsets_that_are_handed_over_are_not_forced,
        plans=make_upgrade_crash_plan,
    ),
    BrokenRule(
        "what is kept takes more",
        "zombie-commit",
        _what_is_kept_takes_more,
        plans=make_upgrade_crash_plan,
    ),
    BrokenRule(
        "a start lets more into what is kept",
        "zombie-commit",
        _a_start_lets_more_into_what_is_kept,
        plans=make_upgrade_crash_plan,
    ),
    BrokenRule(
        "what is kept has no more time than before",
        "lost-write",
        _what_is_kept_has_no_more_time,
        plans=make_upgrade_plan,
    ),
    BrokenRule(
        "who was taken over ends what is kept",
        "lost-write",
        _who_was_taken_over_ends_what_is_kept,
        plans=make_upgrade_plan,
    ),
    BrokenRule(
        "a commit of what is prepared is undone when a disk refuses it",
        "lost-write",
        _a_commit_that_is_put_off_is_undone,
        plans=make_prepared_refusal_plan,
    ),
    BrokenRule(
        "an operator ends a part of a transaction",
        "zombie-commit",
        _operators_end_a_part,
        plans=make_operator_plan,
    ),
    BrokenRule(
        "an operator ends nothing that is unknown",
        "lso-stuck",
        _operators_end_nothing_unknown,
        plans=make_operator_plan,
    ),
    BrokenRule("open transactions expire", "lso-stuck", _open_transactions_expire),
    BrokenRule(
        "a refused marker is not tried again", "lso-stuck", _refused_markers_are_not_tried_again
    ),
    BrokenRule(
        "a deletion ends what began below it",
        "precommitted-read",
        _deletion_ends_what_began_below,
        plans=make_operator_plan,
    ),
    BrokenRule(
        "a deletion forgets every aborted transaction",
        "aborted-read",
        _deletion_forgets_every_abort,
        plans=make_operator_plan,
    ),
    BrokenRule("a log start is not kept", "deleted-read", _log_starts_are_not_kept),
    BrokenRule(
        "damaged decisions are passed over",
        "damage-served",
        _damaged_decisions_are_passed_over,
        plans=make_damage_plan,
    ),
    BrokenRule("damage is shown", "damage-served", _damage_is_shown, plans=make_damage_plan),
    BrokenRule(
        "open transactions are not held against the coordinator",
        "damage-served",
        _open_transactions_are_not_compared,
        plans=make_unmark_plan,
    ),
    BrokenRule(
        "orphans are ended though a log of the coordinator is unread",
        "lost-write",
        _orphans_are_ended_though_a_log_is_unread,
        plans=make_unread_power_plan,
    ),
    BrokenRule(
        "damage is not named", "damage-unnamed", _damage_is_not_named, plans=make_damage_plan
    ),
    BrokenRule(
        "the cleaner passes the last stable offset",
        "lost-write",
        _open_transactions_are_cleaned,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "aborted transactions are cleaned as committed ones",
        "aborted-read",
        _aborted_transactions_are_cleaned_as_committed,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "what is needed of producers is cleaned away",
        "recovery-divergence",
        _the_cleaner_asks_nobody_what_is_needed,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "aborted transactions stay named without their markers",
        "txnindex-mismatch",
        _what_is_cleaned_stays_named,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "abort markers are cleaned away before their records",
        "txnindex-mismatch",
        _abort_markers_are_cleaned_away,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "the last record of a key is cleaned away",
        "lost-write",
        _the_last_of_a_key_is_cleaned_away,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "tombstones are cleaned away at once",
        "lost-write",
        _tombstones_are_cleaned_away_at_once,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "cleaned records move up",
        "inconsistent-offset",
        _cleaned_records_move_up,
        plans=make_cleaner_plan,
    ),
    BrokenRule(
        "a start takes segments that power has shortened for cleaned ones",
        "lost-write",
        _lost_segments_are_taken_for_cleaned_ones,
        plans=make_cleaner_power_plan,
    ),
)
"""The table: the rule, and the anomaly that has to catch it."""
