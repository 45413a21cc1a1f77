"""A transaction coordinator that resigns answers NOT_COORDINATOR; elected, it has lost nothing."""

import asyncio

from support.eager_calls import EagerCalls
from support.flights import TOPIC, coordinator_on, flights_host
from txn.broker.host import Durability
from txn.broker.shard import ShardPhase
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.broker.transactions.state import TxnShard
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.states import TxnResult, TxnState
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.testing import FakeHost
from txn.wire.error_codes import ErrorCode

P0 = (TOPIC, 0)
TIMEOUT_MS = 60_000
COMMIT = TxnResult.COMMIT


class Bench:
    """A coordinator with one transaction open."""

    def __init__(self) -> None:
        self.host = flights_host()
        self.coordinator = EagerCalls(coordinator_on(self.host))
        self.coordinator.recover(stores=self.host.stores())
        started = self.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
        assert isinstance(started, InitProducerIdResult)
        self.producer = started.producer
        self.add()
        self.host.store(*P0).client_append(self.producer, 0, b"a", TV2)
        self.shard: TxnShard = self.coordinator.transactions.of("pay")

    def add(self) -> object:
        return self.coordinator.add_partitions("pay", self.producer, [P0], client_version=TV2)

    def end(self) -> InitProducerIdResult:
        ended = self.coordinator.end("pay", self.producer, COMMIT, bumps_epoch=True)
        assert isinstance(ended, InitProducerIdResult)
        return ended

    def resign(self) -> None:
        self.coordinator.resign(self.shard.index)

    def elect(self) -> None:
        self.coordinator.elect(self.shard.index)

    @property
    def following(self) -> ProducerIdAndEpoch:
        """The identity after the transaction, of its markers too."""
        return ProducerIdAndEpoch(self.producer.producer_id, self.producer.producer_epoch + 1)

    def state(self) -> TxnState:
        txn = self.coordinator.transactions.get("pay")
        assert txn is not None
        return TxnState(txn.state)


def test_requests_for_an_id_of_an_unloaded_shard_are_answered_not_coordinator() -> None:
    bench = Bench()
    bench.resign()
    initialized = bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
    verified = bench.coordinator.verify_partitions("pay", bench.producer, [P0])
    assert bench.shard.phase is ShardPhase.UNLOADED
    assert initialized.code is ErrorCode.NOT_COORDINATOR
    assert bench.add() is ErrorCode.NOT_COORDINATOR
    assert bench.end().code is ErrorCode.NOT_COORDINATOR
    assert verified == {P0: ErrorCode.NOT_COORDINATOR}
    assert bench.coordinator.refusal("pay") is ErrorCode.NOT_COORDINATOR
    assert not bench.coordinator.is_joined("pay", bench.producer, P0)


def test_P8_an_open_transaction_goes_on_with_the_coordinator_that_is_elected() -> None:
    bench = Bench()
    before = bench.coordinator.transactions.get("pay")
    bench.resign()
    assert bench.coordinator.transactions.get("pay") is None
    bench.elect()
    assert bench.coordinator.transactions.get("pay") == before
    assert bench.end().code is ErrorCode.NONE
    assert bench.host.store(*P0).markers() == [(*bench.following, True)]


def test_P5_the_time_of_an_open_transaction_runs_on_while_its_shard_is_unloaded() -> None:
    bench = Bench()
    bench.resign()
    length = bench.shard.log.log_end_offset
    bench.host.advance(TIMEOUT_MS)
    assert bench.shard.log.log_end_offset == length  # no timer of an unloaded shard rings
    bench.elect()
    bench.host.advance(1)
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_P3_a_prepare_whose_markers_were_refused_is_finished_by_the_elected_coordinator() -> None:
    bench = Bench()
    store = bench.host.store(*P0)
    store.is_read_only = True
    bench.end()
    assert bench.state() is TxnState.PREPARE_COMMIT
    bench.resign()
    store.is_read_only = False
    bench.elect()
    assert bench.state() is TxnState.COMPLETE_COMMIT
    assert store.markers() == [(*bench.following, True)]


# ---------------------------------------------------------------- with a disk to wait for


async def opened(host: FakeHost) -> tuple[TransactionCoordinator, ProducerIdAndEpoch]:
    coordinator = coordinator_on(host)
    coordinator.recover(stores=host.stores())
    started = await coordinator.init_producer_id("pay", TIMEOUT_MS, None)
    await coordinator.add_partitions("pay", started.producer, [P0], client_version=TV2)
    host.unfinished_syncs = []
    return coordinator, started.producer


async def let_run(host: FakeHost, failure: StorageError | None = None) -> None:
    """Let tasks go on; their syncs end, or fail."""
    for _ in range(8):
        await asyncio.sleep(0)
        for sync in host.unfinished_syncs or ():
            if not sync.done() and failure is not None:
                sync.set_exception(failure)
            elif not sync.done():
                sync.set_result(None)


def test_P2_a_commit_that_waits_for_the_disk_is_left_to_the_next_coordinator() -> None:
    async def main() -> None:
        host = flights_host(Durability.COMMIT)
        coordinator, producer = await opened(host)
        ending = asyncio.ensure_future(coordinator.end("pay", producer, COMMIT, bumps_epoch=True))
        await asyncio.sleep(0)
        shard = coordinator.transactions.of("pay")
        assert shard is not None
        coordinator.resign(shard.index)
        assert (await ending).code is ErrorCode.NOT_COORDINATOR
        electing = asyncio.ensure_future(coordinator.elect(shard.index))
        await asyncio.sleep(0)
        assert coordinator.refusal("pay") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert host.store(*P0).markers() == []
        await let_run(host)
        await electing
        assert host.store(*P0).markers() == [
            (producer.producer_id, producer.producer_epoch + 1, True)
        ]
        txn = coordinator.transactions.get("pay")
        assert txn is not None
        assert txn.state is TxnState.COMPLETE_COMMIT

    asyncio.run(main())


def test_an_election_that_is_lost_again_while_it_loads_serves_nothing() -> None:
    async def main() -> None:
        host = flights_host(Durability.COMMIT)
        coordinator, _ = await opened(host)
        shard = coordinator.transactions.of("pay")
        assert shard is not None
        coordinator.resign(shard.index)
        electing = asyncio.ensure_future(coordinator.elect(shard.index))
        await asyncio.sleep(0)
        coordinator.resign(shard.index)
        await let_run(host)
        await electing
        assert coordinator.refusal("pay") is ErrorCode.NOT_COORDINATOR

    asyncio.run(main())


def test_a_shard_whose_records_cannot_be_synced_fails() -> None:
    async def main() -> None:
        host = flights_host(Durability.COMMIT)
        coordinator, _ = await opened(host)
        shard = coordinator.transactions.of("pay")
        assert shard is not None
        coordinator.resign(shard.index)
        electing = asyncio.ensure_future(coordinator.elect(shard.index))
        await let_run(host, StorageError("full", topic=TOPIC, partition=0))
        await electing
        assert shard.phase is ShardPhase.FAILED
        assert coordinator.refusal("pay") is ErrorCode.NOT_COORDINATOR

    asyncio.run(main())
