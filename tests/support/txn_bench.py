"""A transaction coordinator under test: requests, time, syncs and records."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any
from unittest.mock import Mock

from support.eager_calls import EagerCalls
from support.flights import TOPIC, flights_host
from txn.broker.host import Durability
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.records import decode_value
from txn.coordinator.transaction.states import Txn, TxnResult, TxnState
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.testing import FakeHost
from txn.wire.error_codes import ErrorCode

P0, P1 = (TOPIC, 0), (TOPIC, 1)
OFFSETS = (OFFSETS_TOPIC, 1)
COMMIT, ABORT = TxnResult.COMMIT, TxnResult.ABORT
TIMEOUT_MS = 60_000


class Bench:
    """A coordinator on its host, and a client that does everything right."""

    def __init__(self, host: FakeHost | None = None) -> None:
        self.host = host or flights_host()
        self.told: list[tuple[int, int, bool]] = []
        """Markers among committed offsets."""
        markers = LocalMarkerSender(
            self.host.partition, lambda *marker: self.told.append(marker), Mock()
        )
        self.coordinator = EagerCalls(TransactionCoordinator(self.host, markers))
        self.coordinator.recover(stores=self.host.stores())

    def init(
        self,
        transactional_id: str = "pay",
        shown: ProducerIdAndEpoch | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ProducerIdAndEpoch:
        identity = self.coordinator.init_producer_id(transactional_id, timeout_ms, shown)
        assert isinstance(identity, InitProducerIdResult)
        assert identity.code is ErrorCode.NONE
        return identity.producer

    def write(
        self, producer: ProducerIdAndEpoch, partition: tuple[str, int], sequence: int, value: bytes
    ) -> int:
        """Join and append; return the verdict's kind."""
        store = self.host.store(*partition)
        joined = self.coordinator.join(
            "pay", producer.producer_id, producer.producer_epoch, TV2, [partition]
        )
        assert joined == {partition: 0}
        return store.client_append(producer, sequence, value, TV2)[0]

    def end(
        self, producer: ProducerIdAndEpoch, outcome: TxnResult, *, bumps_epoch: bool = True
    ) -> Any:
        return self.coordinator.end("pay", producer, outcome, bumps_epoch=bumps_epoch)

    def states(self) -> list[TxnState]:
        """The states in `__transaction_state`, in the order they were written."""
        return [
            decode_value(record.value).state
            for store in self.host.coordinator_partitions(TRANSACTIONS_TOPIC)
            for batch in store.stored
            for record in batch.records
            if record.value is not None
        ]

    def state(self) -> TxnState:
        txn: Txn | None = self.coordinator.transactions.get("pay")
        assert txn is not None
        return txn.state


class WaitingBench(Bench):
    """A coordinator whose syncs are finished by the test."""

    def __init__(self, durability: Durability = Durability.COMMIT) -> None:
        super().__init__(flights_host(durability))

    async def start(self) -> ProducerIdAndEpoch:
        """A producer with one record in each of two partitions."""
        answer = self.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
        assert not isinstance(answer, InitProducerIdResult)
        producer: ProducerIdAndEpoch = (await answer).producer
        self.write(producer, P0, 0, b"a")
        self.write(producer, P1, 0, b"b")
        self.host.syncs.clear()
        self.host.unfinished_syncs = []
        return producer

    async def finish_sync(self) -> None:
        assert self.host.unfinished_syncs is not None
        self.host.unfinished_syncs.pop(0).set_result(None)
        await let_run()


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own."""

    @wraps(test)
    def run(**arguments: object) -> None:
        asyncio.run(test(**arguments))

    return run


async def let_run() -> None:
    """Give every task that can go on the time to do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def log_of(bench: Bench) -> tuple[str, int]:
    stores = bench.host.coordinator_partitions(TRANSACTIONS_TOPIC)
    return next((s.topic, s.index) for s in stores if s.stored)
