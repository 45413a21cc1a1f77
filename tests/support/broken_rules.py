"""Rules that both the simulation and the black box break, each through the `Seam`."""

from collections.abc import Callable, Collection

from typing_extensions import override

from support.seam import Seam
from txn.coordinator.operations import Request
from txn.coordinator.transaction.connections import ConnectionUse, LatestConnections
from txn.coordinator.transaction.decide import (
    Done,
    End,
    Refuse,
    Write,
    decide_add,
    decide_end,
    decide_end_and_bump,
    decide_verify,
)
from txn.coordinator.transaction.ending import Block
from txn.coordinator.transaction.states import Txn, TxnResult
from txn.coordinator.transaction.successors import NewProducerId
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch, TopicPartition
from txn.partition.admission import (
    COORDINATOR,
    DUPLICATE,
    JOIN,
    OUT_OF_ORDER_SEQUENCE,
    AdmitResult,
    refusal,
)
from txn.partition.producer_state_entry import ProducerStateEntry
from txn.partition.stable_offset import OpenTransactions

Breaking = Callable[[Seam], None]
"""Breaks one rule of the broker."""

EndResult = Refuse | Done | End


def without_a_look(request: Request[None]) -> Request[None]:
    """An end that closes no partition, and takes no record for a late one."""
    result: object = None
    failure: StorageError | None = None
    while True:
        try:
            step = request.send(result) if failure is None else request.throw(failure)
        except StopIteration:
            return
        result = failure = None
        if isinstance(step, Block):
            result = ()
            continue
        try:
            result = yield step
        except StorageError as error:
            failure = error


def follow_the_newest_marker(seam: Seam) -> None:
    """The last stable offset goes to the newest marker, past transactions that are open."""

    @seam.instead_of(OpenTransactions)
    class UpToTheNewestMarker(OpenTransactions):
        __slots__ = ()

        @override
        def end(self, producer_id: int) -> None:
            super().end(producer_id)
            self.first_offset = -1


def fence_nobody(seam: Seam) -> None:
    """Neither the coordinator nor a partition looks at producer epochs."""

    @seam.instead_of(decide_add)
    def add(
        txn: Txn | None,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        client_version: int,
        now_ms: int,
    ) -> Refuse | Done | Write:
        producer = _in_force(txn, producer)
        return decide_add(txn, producer, partitions, client_version=client_version, now_ms=now_ms)

    @seam.instead_of(decide_verify)
    def verify(
        txn: Txn | None, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> Refuse | Done:
        return decide_verify(txn, _in_force(txn, producer), partition)

    end_with(seam, producer_of=_in_force)

    @seam.instead_of(refusal)
    def admits_older_epochs(
        state: ProducerStateEntry | None,
        origin: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        is_transactional: bool,
        expected_epoch: int | None,
        is_unwritten: bool,
    ) -> AdmitResult | None:
        is_older = state is not None and producer_epoch < state.producer_epoch
        if is_older and is_transactional and origin != COORDINATOR:
            return None if expected_epoch is not None else JOIN
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


def end_with(
    seam: Seam,
    *,
    producer_of: Callable[
        [Txn | None, ProducerIdAndEpoch], ProducerIdAndEpoch
    ] = lambda _, producer: producer,
    result: Callable[[EndResult, Txn | None], EndResult] = lambda decision, _: decision,
) -> None:
    """Have EndTxn decided otherwise, with and without a new epoch."""

    @seam.instead_of(decide_end)
    def end(
        txn: Txn | None, producer: ProducerIdAndEpoch, outcome: TxnResult, *, now_ms: int
    ) -> EndResult:
        return result(decide_end(txn, producer_of(txn, producer), outcome, now_ms=now_ms), txn)

    @seam.instead_of(decide_end_and_bump)
    def end_and_bump(
        txn: Txn | None,
        producer: ProducerIdAndEpoch,
        outcome: TxnResult,
        *,
        now_ms: int,
        new_producer_id: NewProducerId,
    ) -> EndResult:
        producer = producer_of(txn, producer)
        decision = decide_end_and_bump(
            txn, producer, outcome, now_ms=now_ms, new_producer_id=new_producer_id
        )
        return result(decision, txn)


def _in_force(txn: Txn | None, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """The producer of a request under the epoch that is in use now."""
    if txn is None or txn.producer_id != producer.producer_id:
        return producer
    return producer._replace(producer_epoch=txn.producer_epoch)


def forget_batches(seam: Seam) -> None:
    """A dedup window of zero: no batch is remembered, so each is taken for the next one."""

    @seam.instead_of(refusal)
    def knows_no_retry(
        state: ProducerStateEntry | None,
        origin: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        is_transactional: bool,
        expected_epoch: int | None,
        is_unwritten: bool,
    ) -> AdmitResult | None:
        result = refusal(
            state,
            origin,
            producer_epoch,
            base_sequence,
            last_sequence,
            is_transactional,
            expected_epoch,
            is_unwritten,
        )
        is_retry = result is not None and result[0] == DUPLICATE
        return None if is_retry or result is OUT_OF_ORDER_SEQUENCE else result


def serve_late_requests(seam: Seam) -> None:
    """A request that a TV1 client left on a connection is served as if it had just been sent."""

    @seam.instead_of(LatestConnections)
    class NeverLate(LatestConnections):
        __slots__ = ()

        @override
        def may_be_late(
            self,
            transactional_id: str,
            use: ConnectionUse,
            producer: ProducerIdAndEpoch,
            connection: int,
        ) -> bool:
            return False
