"""The requests of one transactional id: each decides by `decide`, appends, and finishes its end.

    decide ──► append to `__transaction_state` ──► replay ──► markers ──► Complete

Invariant: a request decides on the state of its id, writes the decision, and only then acts on it
or answers. It is a generator that its shard runs (`broker.runtime`): while one waits for the disk,
the next one of the id waits for it. So no step looks whether the state has changed meanwhile.

The methods are in the order of a transaction's life: `initialize`, `add` or `join`, `end`, and the
aborts that its client did not ask for. `_begin_end` appends the Prepare, and
`coordinator.transaction.ending` takes over there. A Prepare is always finished: at once, by a retry
every `RETRY_MS` while a disk refuses, or at the next start.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from txn.broker.host import RETRY_MS, Durability
from txn.broker.members import ALWAYS, COMMIT, NONE, PROCESS, TO_COMMIT
from txn.broker.transactions.markers import MARKERS_PER_TURN
from txn.broker.transactions.partitions import ALLOWED_PER_TURN
from txn.broker.transactions.producer_ids import (
    InitProducerIdResult,
    Services,
    refused,
    with_producer_id,
)
from txn.broker.transactions.state import TxnShard, Volatile
from txn.coordinator.operations import COMMITTED, Request, Synced, in_parts
from txn.coordinator.transaction import timeouts
from txn.coordinator.transaction.decide import (
    TV2,
    AbortFirst,
    Done,
    End,
    Refuse,
    Write,
    decide_add,
    decide_end,
    decide_end_and_bump,
    decide_fence,
    decide_init,
    decide_verify,
    plan,
)
from txn.coordinator.transaction.ending import Ending, decide, finish
from txn.coordinator.transaction.recovery_decisions import decide_undo
from txn.coordinator.transaction.states import AT_REST, Txn, TxnResult, TxnState
from txn.coordinator.transaction.unsynced import LAST_OFFSETS_MAX
from txn.errors import StorageError
from txn.identifiers import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition
from txn.logs import log
from txn.storage.base import Marker
from txn.wire.error_codes import ErrorCode

_CODE_FOR_A_BATCH: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR: ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Codes that mean something else to the sender of a batch."""


def code_for_a_batch(code: ErrorCode) -> int:
    """The code that Produce and TxnOffsetCommit give; their clients act on these codes."""
    return int(_CODE_FOR_A_BATCH.get(code, code))


class TransactionalId:
    """One transactional id, on the shard that keeps it."""

    __slots__ = ("_services", "name", "shard")

    def __init__(self, services: Services, shard: TxnShard, name: str) -> None:
        self._services = services
        self.shard = shard
        self.name = name

    @property
    def txn(self) -> Txn | None:
        """Its state; None if it is unknown."""
        return self.shard.state.transactions.get(self.name)

    @property
    def volatile(self) -> Volatile | None:
        """Its state in memory alone; None if it is at rest or unknown."""
        return self.shard.state.volatile.get(self.name)

    def write(self, txn: Txn) -> None:
        """Append its next state and replay it. Raises StorageError: nothing changed."""
        self.shard.append([(self.name, txn)])

    # ------------------------------------------------------------ InitProducerId

    def initialize(
        self, timeout_ms: int, expected: ProducerIdAndEpoch | None, keep_prepared: bool
    ) -> Request[InitProducerIdResult]:
        """Decide on InitProducerId and write it."""
        services = self._services
        try:
            while True:
                txn = self.txn
                decide_it = partial(
                    decide_init,
                    txn,
                    expected,
                    timeout_ms=timeout_ms,
                    now_ms=services.host.now_ms(),
                    new_producer_id=services.producer_ids.generate,
                    keep_prepared=keep_prepared,
                )
                decision = yield from with_producer_id(services, decide_it)
                if not isinstance(decision, AbortFirst):
                    break
                log.info(
                    "txn.fenced",
                    transactional_id=self.name,
                    producer_id=decision.end.prepare.producer_id,
                    producer_epoch=decision.end.prepare.producer_epoch,
                )
                self._begin_end(decision.end)
                yield from self.finish()
            if isinstance(decision, Refuse):
                return refused(decision.code)
            if txn is not None and decision.txn.is_two_phase and decision.txn.is_prepared:
                yield from self._keep_prepared(txn, decision.txn)
            else:
                self.write(decision.txn)
            volatile = self.volatile
            if volatile is not None:
                has_more = timeout_ms < decision.txn.timeout_ms
                volatile.following_timeout_ms = timeout_ms if has_more else None
            services.partitions.admit_batches_of(self.name, decision.txn)
            yield COMMITTED
        except StorageError:
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        ongoing = decision.txn.producer if decision.txn.is_prepared else NO_PRODUCER
        return InitProducerIdResult(decision.txn.client, ongoing=ongoing)

    def _keep_prepared(self, txn: Txn, kept: Txn) -> Request[None]:
        """Append that an open transaction is kept for another system to decide on.

        If it began as any other, its records have to be on the disk before. Later batches are
        synced before they are acknowledged. Raises StorageError: nothing changed.
        """
        host = self._services.host
        if txn.is_two_phase or host.durability is not COMMIT:
            self.write(kept)
            return
        host.sync_before_ack(txn.producer_id, is_forced=True)
        try:
            yield Synced(txn.partitions)
            self.write(kept)
        except StorageError:
            host.sync_before_ack(txn.producer_id, is_forced=False)
            raise

    # ------------------------------------------------------------ its partitions

    def add(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        client_version: int,
    ) -> Request[ErrorCode]:
        """Join partitions, all of which exist, to the transaction."""
        if not self.name:
            return ErrorCode.INVALID_REQUEST
        host = self._services.host
        decision = decide_add(
            self.txn, producer, partitions, client_version=client_version, now_ms=host.now_ms()
        )
        if isinstance(decision, Refuse):
            return decision.code
        try:
            if isinstance(decision, Write):
                self.write(decision.txn)
            if must_sync_before_answer(
                host.durability, decision.txn
            ):  # it may be written and not synced
                yield COMMITTED
        except StorageError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        allow_txn = self._services.partitions.allow_txn
        if len(partitions) <= ALLOWED_PER_TURN:  # nearly always, and it is quicker
            allow_txn(self.name, producer, partitions)
        else:
            allow = partial(allow_txn, self.name, producer)
            yield from in_parts(allow, partitions, ALLOWED_PER_TURN)
        return NONE

    def join(
        self,
        producer: ProducerIdAndEpoch,
        transaction_version: int,
        partitions: Sequence[TopicPartition],
    ) -> Request[dict[TopicPartition, int]]:
        """The code for each partition that a batch wants to enter, 0 where it may be stored."""
        has_partition = self._services.host.has_partition
        existing, codes = [], {}
        for partition in partitions:
            if has_partition(*partition):
                existing.append(partition)
            else:
                codes[partition] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if transaction_version < TV2:
            for partition in existing:
                codes[partition] = code_for_a_batch(self._verify(producer, partition))
        elif existing:
            code = yield from self.add(producer, existing, TV2)
            codes.update(dict.fromkeys(existing, code_for_a_batch(code)))
        return codes

    def verify(
        self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Request[dict[TopicPartition, ErrorCode]]:
        """The code for each partition, NONE where it is in the transaction."""
        codes: dict[TopicPartition, ErrorCode] = {}

        def verify(part: Sequence[TopicPartition]) -> None:
            for each in part:
                codes[each] = self._verify(producer, each)

        yield from in_parts(verify, list(partitions), ALLOWED_PER_TURN)
        return codes

    def _verify(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> ErrorCode:
        if not self.name:
            return ErrorCode.INVALID_REQUEST
        decision = decide_verify(self.txn, producer, partition)
        if isinstance(decision, Refuse):
            return decision.code
        self._services.partitions.allow_txn(self.name, producer, [partition])
        return ErrorCode.NONE

    # ------------------------------------------------------------ EndTxn

    def end(
        self, producer: ProducerIdAndEpoch, outcome: TxnResult, bumps_epoch: bool
    ) -> Request[InitProducerIdResult]:
        """End the transaction; the answer has the identity of the next one."""
        try:
            decision = yield from with_producer_id(
                self._services, self._decide_end, producer, outcome, bumps_epoch
            )
        except StorageError:
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if isinstance(decision, Refuse):
            return _answer_to_refused_end(self.volatile, producer, outcome, decision.code)
        if isinstance(decision, Done):
            return InitProducerIdResult(decision.txn.producer)
        if outcome is TO_COMMIT:
            try:
                decision = yield from self._with_last_offsets(decision)
            except StorageError as error:
                self._log_not_durable(error)
                if decision.prepare.is_two_phase:  # it is not ours to decide
                    return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                yield from self._abort_undurable(producer, bumps_epoch)
                return refused(ErrorCode.TRANSACTION_ABORTABLE)
        try:
            ending = self._begin_end(decision)
        except StorageError:
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        following = InitProducerIdResult(decision.following)
        try:
            if not ending.is_decided:
                yield from decide(ending)
        except StorageError as error:
            if ending.is_commit and ending.data and not decision.prepare.is_two_phase:
                self._log_not_durable(error)
                return (yield from self._undo(producer, ending, error))
            self._retry_later(ending, error)
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            yield from finish(ending, self.write, following)
        except StorageError as error:
            self._retry_later(ending, error)
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return following

    def _decide_end(
        self, producer: ProducerIdAndEpoch, outcome: TxnResult, bumps_epoch: bool
    ) -> Refuse | Done | End:
        """Raises NoProducerIdError."""
        services = self._services
        now_ms = services.host.now_ms()
        if not bumps_epoch:
            return decide_end(self.txn, producer, outcome, now_ms=now_ms)
        take = services.producer_ids.generate
        return decide_end_and_bump(self.txn, producer, outcome, now_ms=now_ms, new_producer_id=take)

    def _with_last_offsets(self, end: End) -> Request[End]:
        """Name the last offset of each partition in the Prepare of a commit.

        Data that another system decides on, or that is in very many partitions, is synced before.
        Raises StorageError: a partition cannot be opened or synced; nothing is written.
        """
        partitions = end.prepare.partitions
        services = self._services
        if services.host.durability is PROCESS:
            yield from services.partitions.require_open(partitions)
            return end
        is_named = len(partitions) <= LAST_OFFSETS_MAX
        if end.prepare.is_two_phase or not is_named:
            held = yield from services.partitions.require_open(partitions)
            yield Synced(held)
        if not is_named:
            return end
        last_offsets = services.partitions.last_offsets(partitions)
        return end._replace(prepare=end.prepare._replace(last_offsets=last_offsets))

    def _begin_end(self, end: End) -> Ending:
        """Append a Prepare; `finish` comes next. Raises StorageError: nothing changed."""
        self.write(end.prepare)
        volatile = self.shard.state.volatile[self.name]
        if volatile.following_timeout_ms is not None:
            completed = end.complete._replace(timeout_ms=volatile.following_timeout_ms)
            end = end._replace(complete=completed)
        is_decided = not self.shard.waits_for_disk
        is_one_step = is_decided and len(end.prepare.partitions) <= MARKERS_PER_TURN
        volatile.ending = Ending(end, is_decided, is_one_step)
        return volatile.ending

    def finish(self) -> Request[None]:
        """Finish the end under way: markers, then Complete. Does nothing where there is none."""
        volatile = self.volatile
        ending = None if volatile is None else volatile.ending
        if ending is None:
            return
        try:
            yield from finish(ending, self.write)
        except StorageError as error:
            self._retry_later(ending, error)

    def _retry_later(self, ending: Ending, error: StorageError) -> None:
        if ending.logged != error.message:  # logged once, tried for long
            ending.logged = error.message
            log.error("txn.end_delayed", transactional_id=self.name, reason=error.message)
        host = self._services.host
        host.call_at(
            host.monotonic_ms() + RETRY_MS, lambda: self.shard.start(self.name, self.finish())
        )

    # ------------------------------------------------------------ commits that a disk refuses

    def _log_not_durable(self, error: StorageError) -> None:
        log.error("txn.commit_not_durable", transactional_id=self.name, reason=error.message)

    def _abort_undurable(self, producer: ProducerIdAndEpoch, bumps_epoch: bool) -> Request[None]:
        """Abort a transaction that cannot be made durable, before a retry seems to succeed.

        The client asks for an abort when it hears of the failure. It is done by then, and the
        client goes on with the identity that this abort leaves it.
        """
        try:
            decision = yield from with_producer_id(
                self._services, self._decide_end, producer, TxnResult.ABORT, bumps_epoch
            )
            assert isinstance(decision, End), f"{self.name} was open"
            self._begin_end(decision)
        except StorageError as error:  # the client's own abort, or its time, ends it
            self._log_abort_failed(error)
            return
        self.shard.state.volatile[self.name].given_up = producer
        yield from self.finish()

    def _undo(
        self, producer: ProducerIdAndEpoch, ending: Ending, error: StorageError
    ) -> Request[InitProducerIdResult]:
        """Abort a commit that is prepared and cannot be synced, as `_abort_undurable` does.

        Until the abort is on the disk a start may find the commit, so no answer reports it before.
        """
        prepare = decide_undo(ending.plan.prepare, now_ms=self._services.host.now_ms())
        try:
            undoing = self._begin_end(plan(prepare))
        except StorageError:  # it is the coordinator's own log; the next start finishes the commit
            self._retry_later(ending, error)
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.shard.state.volatile[self.name].given_up = producer
        yield from self.finish()
        is_sure = undoing.is_decided
        return refused(
            ErrorCode.TRANSACTION_ABORTABLE if is_sure else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )

    # ------------------------------------------------------------ aborts by others

    def abort_for_operator(self, partition: TopicPartition, marker: Marker) -> Request[ErrorCode]:
        """Abort the transaction of which an operator wants to abort a part."""
        txn = self.txn
        if txn is None or partition not in txn.partitions:  # it ended meanwhile
            return ErrorCode.NONE
        if marker.producer_epoch < txn.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if txn.state is not TxnState.ONGOING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if marker.is_commit:
            return ErrorCode.INVALID_TXN_STATE
        try:
            end = yield from with_producer_id(self._services, self._decide_fence, txn)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        log.warning("txn.aborted_by_operator", transactional_id=self.name)
        yield from self._fence(end)
        fenced = self.txn
        if fenced is not None and fenced.state not in AT_REST:  # a disk refuses
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def time_out(self) -> Request[None]:
        """Abort the transaction if it is past its time (P5)."""
        txn, volatile, services = self.txn, self.volatile, self._services
        if txn is None or volatile is None or txn.state is not TxnState.ONGOING:
            return
        if not timeouts.is_timed_out(txn, volatile.begun_ms, services.host.monotonic_ms()):
            services.timers.watch(self.shard, self.name, txn, volatile)
            return
        try:
            end = yield from with_producer_id(self._services, self._decide_fence, txn)
        except StorageError as error:
            self._log_abort_failed(error)
            services.timers.watch_again(self.shard, self.name, volatile)
            return
        log.warning(
            "txn.timed_out",
            transactional_id=self.name,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            timeout_ms=txn.timeout_ms,
        )
        yield from self._fence(end)

    def _decide_fence(self, txn: Txn) -> End:
        """Raises NoProducerIdError."""
        services = self._services
        now_ms = services.host.now_ms()
        return decide_fence(txn, now_ms=now_ms, new_producer_id=services.producer_ids.generate)

    def _fence(self, end: End) -> Request[None]:
        """Abort an open transaction under a later epoch."""
        try:
            self._begin_end(end)
        except StorageError as error:
            self._log_abort_failed(error)
            volatile = self.shard.state.volatile[self.name]
            self._services.timers.watch_again(self.shard, self.name, volatile)
            return
        yield from self.finish()

    def _log_abort_failed(self, error: StorageError) -> None:
        log.error("txn.abort_failed", transactional_id=self.name, reason=error.message)


def must_sync_before_answer(durability: Durability, txn: Txn) -> bool:
    """Return True if answers to a transaction's client wait until their state is on the disk."""
    return durability is ALWAYS or (durability is COMMIT and txn.is_two_phase)


def _answer_to_refused_end(
    volatile: Volatile | None, producer: ProducerIdAndEpoch, outcome: TxnResult, code: ErrorCode
) -> InitProducerIdResult:
    """Give the answer to a repeated EndTxn, whose first answer may have been lost."""
    if volatile is None:
        return refused(code)
    ending = volatile.ending
    is_waiting = code is ErrorCode.CONCURRENT_TRANSACTIONS
    if is_waiting and ending is not None and ending.is_put_off and not ending.is_fenced:
        # The decision is on the disk, and a marker has to wait.
        return InitProducerIdResult(ending.plan.following)
    if outcome is TxnResult.COMMIT and volatile.given_up == producer:
        return refused(ErrorCode.TRANSACTION_ABORTABLE)
    return refused(code)
