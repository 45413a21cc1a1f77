"""The rules of a start after a power failure: what is gone, and what is written again."""

import asyncio
import uuid
from collections.abc import Callable
from itertools import pairwise
from typing import cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.eager_calls import EagerCalls
from support.flights import TOPIC, coordinator_on, flights_host
from txn.broker.host import RETRY_MS, Durability
from txn.broker.transactions.state import TxnShard
from txn.coordinator.transaction.decide import TV2, plan
from txn.coordinator.transaction.records import encode_key, encode_value
from txn.coordinator.transaction.states import LastOffset, Txn, TxnResult, TxnState, UnsyncedMarker
from txn.coordinator.transaction.unsynced import carried, is_ended_by, is_in_log, is_to_decide
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.storage.base import Marker
from txn.testing import FakeHost, MemoryLog
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition

TOPIC_ID = uuid.UUID(int=1).bytes
P0, P1 = (TOPIC, 0), (TOPIC, 1)
TIMEOUT_MS = 10_000
MARKER = UnsyncedMarker(TOPIC_ID, 0, 6, 7, 5, is_commit=True)


def log_of(*epochs: int) -> MemoryLog:
    """A log with a record in each of these leader epochs."""
    log = MemoryLog("t", 0)
    for epoch in epochs:
        log.lead(epoch)
        log.append([(None, b"")], timestamp_ms=0)
    return log


@pytest.mark.parametrize(
    ("last", "epochs", "expected"),
    [
        (LastOffset(TOPIC_ID, 0, 0, 1), (0, 0), True),
        (LastOffset(TOPIC_ID, 0, 0, 2), (0, 0), False),
        (LastOffset(TOPIC_ID, 0, 0, 1), (0, 1), False),
        (LastOffset(TOPIC_ID, 0, 1, 1), (0, 1, 2), True),
        (LastOffset(TOPIC_ID, 0, 0, -1), (), True),
    ],
)
def test_P2_a_record_is_there_if_its_offset_is_of_its_leader_epoch(
    last: LastOffset, epochs: tuple[int, ...], expected: bool
) -> None:
    assert is_in_log(last, log_of(*epochs)) is expected


def test_a_record_that_was_deleted_since_counts_as_there() -> None:
    log = log_of(0, 1)
    log.delete_records(2)
    assert is_in_log(LastOffset(TOPIC_ID, 0, 0, 1), log)


@pytest.mark.parametrize(
    ("producer", "first_offset", "expected"),
    [
        (ProducerIdAndEpoch(7, 5), 5, True),
        (ProducerIdAndEpoch(7, 4), 0, True),
        (ProducerIdAndEpoch(7, 5), 6, False),
        (ProducerIdAndEpoch(7, 6), 5, False),
        (ProducerIdAndEpoch(8, 5), 5, False),
    ],
)
def test_P3_a_marker_is_gone_if_its_transaction_is_open(
    producer: ProducerIdAndEpoch, first_offset: int, expected: bool
) -> None:
    assert is_ended_by(MARKER, producer, first_offset) is expected


def test_P2_another_system_alone_decides_on_a_two_phase_commit() -> None:
    prepare = Txn(
        producer_id=7,
        producer_epoch=5,
        timeout_ms=1_000,
        state=TxnState.PREPARE_COMMIT,
        partitions=frozenset({P0}),
        start_ms=0,
        updated_ms=0,
        last_offsets=(LastOffset(TOPIC_ID, 0, 0, 1),),
    )
    assert is_to_decide(prepare)
    assert not is_to_decide(prepare._replace(timeout_ms=2**31 - 1))
    assert not is_to_decide(prepare._replace(last_offsets=()))
    assert not is_to_decide(prepare._replace(state=TxnState.PREPARE_ABORT))


@given(
    st.lists(st.tuples(st.sampled_from([0, 1]), st.booleans()), max_size=12),
    st.integers(0, 12),
)
def test_a_lost_tail_finds_in_what_is_carried_the_result_of_each_transaction(
    history: list[tuple[int, bool]], synced: int
) -> None:
    """Each transaction has one record and one marker; every cut behind the synced part is tried."""
    known: tuple[UnsyncedMarker, ...] = ()
    results = {}
    for number, (partition, is_commit) in enumerate(history):
        marker = MARKER._replace(partition=partition, offset=2 * number + 1, is_commit=is_commit)
        results[partition, 2 * number] = is_commit
        known = carried(known, [marker], lambda each: each.offset < synced)
    for (partition, first_offset), is_commit in results.items():
        if first_offset + 1 < synced:
            continue
        ends = (
            each.is_commit
            for each in known
            if each.partition == partition
            and is_ended_by(each, ProducerIdAndEpoch(7, 5), first_offset)
        )
        assert next(ends) is is_commit
    by_place = [[each for each in known if each.partition == place] for place in (0, 1)]
    for markers in by_place:
        assert all(one.is_commit is not next_one.is_commit for one, next_one in pairwise(markers))


def test_only_markers_without_a_newer_one_in_their_partition_are_looked_up() -> None:
    """The look-up of a log for each of thousands of partitions would hold the control loop."""
    known = [MARKER._replace(partition=partition) for partition in range(3)]
    written = [MARKER._replace(partition=partition, offset=9) for partition in range(2)]
    asked: list[UnsyncedMarker] = []

    def is_synced(marker: UnsyncedMarker) -> bool:
        asked.append(marker)
        return False

    assert carried(known, written, is_synced) == (known[2], *written)
    assert asked == [known[2]]


# ---------------------------------------------------------------- a start


class Bench:
    """A coordinator with `durability=commit`, and a transaction of two partitions."""

    def __init__(self) -> None:
        self.host = flights_host(Durability.COMMIT)
        self.coordinator = EagerCalls(coordinator_on(self.host))
        self.coordinator.recover()

    def commit(self, *, finishes: bool) -> ProducerIdAndEpoch:
        """Commit, or leave the broker where PREPARE is written and nothing of it synced."""

        async def run() -> ProducerIdAndEpoch:
            asked = self.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
            producer: ProducerIdAndEpoch = (await asked).producer
            for partition, value in ((P0, b"a"), (P1, b"b")):
                self.coordinator.join(
                    "pay", producer.producer_id, producer.producer_epoch, TV2, [partition]
                )
                self.host.store(*partition).client_append(producer, 0, value, TV2)
            if not finishes:
                self.host.unfinished_syncs = []
            end = self.coordinator.end("pay", producer, TxnResult.COMMIT, bumps_epoch=True)
            if finishes:
                assert (await end).code is ErrorCode.NONE
            else:
                await asyncio.sleep(0)
            return producer

        return asyncio.run(run())

    def lose_power(self, keeps: Callable[[str, int, int], int]) -> None:
        """Lose unsynced batches. `keeps` tells from topic, synced and written how many are left."""
        logs = iter([each for stores in self.host.topics.values() for each in stores])
        self.host = self.host.after_power_failure(
            lambda synced, written: keeps(next(logs).topic, synced, written)
        )
        self.coordinator = EagerCalls(coordinator_on(self.host))

    def recover(self) -> None:
        self.coordinator.recover(power_failed=True, stores=self.host.stores())

    def state(self) -> TxnState:
        txn: Txn = self.coordinator.transactions.get("pay")
        return txn.state

    def seen(self) -> list[bytes | None]:
        return [value for store in self.host.stores() for value in store.committed()]


def of_coordinator(topic: str, synced: int, written: int) -> int:
    """Only the coordinator's unsynced records are left."""
    return written if topic == TRANSACTIONS_TOPIC else synced


def everything(topic: str, synced: int, written: int) -> int:
    return written


def nothing_unsynced(topic: str, synced: int, written: int) -> int:
    return synced


def test_P3_a_prepare_whose_records_are_lost_was_never_answered_and_is_aborted() -> None:
    bench = Bench()
    bench.commit(finishes=False)
    bench.lose_power(of_coordinator)
    bench.recover()
    assert bench.state() is TxnState.COMPLETE_ABORT
    assert bench.seen() == []


def test_P2_a_prepare_whose_records_are_all_there_is_finished() -> None:
    bench = Bench()
    bench.commit(finishes=False)
    bench.lose_power(everything)
    bench.recover()
    assert bench.state() is TxnState.COMPLETE_COMMIT
    assert bench.seen() == [b"a", b"b"]


@pytest.mark.parametrize("keeps", [nothing_unsynced, of_coordinator])
def test_P2_lost_markers_are_written_again_and_survive_the_next_failure(
    keeps: Callable[[str, int, int], int],
) -> None:
    bench = Bench()
    bench.commit(finishes=True)
    for _ in range(3):
        bench.lose_power(keeps)
        assert bench.seen() in ([], [b"a", b"b"])
        bench.recover()
        assert bench.seen() == [b"a", b"b"]
        assert bench.state() is TxnState.COMPLETE_COMMIT


def test_P3_a_commit_is_left_prepared_until_all_its_partitions_can_be_read() -> None:
    bench = Bench()
    bench.commit(finishes=False)
    bench.lose_power(lambda topic, synced, written: written)
    bench.host.unopenable.add(P1)
    bench.recover()
    assert bench.state() is TxnState.PREPARE_COMMIT
    assert bench.host.store(*P0).markers() == []
    assert not bench.coordinator.is_recovered
    bench.host.unopenable.clear()
    asyncio.run(_advance(bench.host))
    assert bench.state() is TxnState.COMPLETE_COMMIT
    assert bench.seen() == [b"a", b"b"]


def test_P2_a_prepare_that_is_decided_after_its_start_fences_its_client() -> None:
    """Power may have taken all of the transaction that the client means with its next EndTxn."""
    bench = Bench()
    producer = bench.commit(finishes=False)
    bench.lose_power(lambda topic, synced, written: written)
    bench.host.unopenable.add(P1)
    bench.recover()
    bench.host.unopenable.clear()
    asyncio.run(_advance(bench.host))
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    answer = bench.coordinator.end("pay", following, TxnResult.COMMIT, bumps_epoch=True)
    assert answer.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize("is_elected", [False, True])
def test_P7_a_start_is_recovered_once_the_client_of_an_end_that_a_disk_refuses_is_fenced(
    is_elected: bool,  # again, meanwhile
) -> None:
    """The next start would take the power failure for mended, and let the client go on."""
    bench = Bench()
    producer = bench.commit(finishes=False)
    bench.lose_power(everything)
    bench.host.store(*P1).is_read_only = True
    recovered = Mock()
    bench.recover()
    bench.coordinator.call_when_recovered(recovered)
    assert (bench.state(), recovered.called) == (TxnState.PREPARE_COMMIT, False)
    assert not bench.coordinator.is_recovered
    if is_elected:
        index = coordinator_partition("pay", len(bench.host.topics[TRANSACTIONS_TOPIC]))
        bench.coordinator.resign(index)
        asyncio.run(_elect(bench, index))
    bench.host.store(*P1).is_read_only = False
    asyncio.run(_advance(bench.host))
    assert (bench.state(), recovered.called) == (TxnState.COMPLETE_COMMIT, True)
    assert bench.coordinator.is_recovered
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    answer = bench.coordinator.end("pay", following, TxnResult.COMMIT, bumps_epoch=True)
    assert answer.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_P3_nothing_of_an_id_is_served_while_a_marker_of_it_may_be_gone() -> None:
    bench = Bench()
    producer = bench.commit(finishes=True)
    bench.lose_power(of_coordinator)
    bench.host.unopenable.add(P1)
    bench.recover()
    assert bench.host.store(*P0).committed() == [b"a"]
    assert not bench.coordinator.is_recovered
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    joined = bench.coordinator.add_partitions("pay", following, [P0])
    assert joined is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.host.unopenable.clear()
    abort = Marker(*following, 0, is_commit=False, timestamp_ms=0)
    ended = bench.coordinator.write_marker(P1, abort, must_bump=False)
    assert ended is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.lose_power(everything)
    bench.recover()
    assert bench.coordinator.is_recovered
    assert bench.seen() == [b"a", b"b"]


def test_a_partition_that_cannot_be_opened_leaves_no_marker_of_a_start_unsynced() -> None:
    bench = Bench()
    bench.commit(finishes=True)
    bench.lose_power(of_coordinator)
    bench.host.unopenable.add(P1)
    bench.recover()
    written_again = bench.host.store(*P0)
    assert len(written_again.markers()) == 1
    assert written_again.synced_end == written_again.log_end_offset


# ---------------------------------------------------------------- an election behind such a start


def left_prepared() -> Bench:
    """A start finds a Prepare whose records it cannot look for; they are lost."""
    bench = Bench()
    bench.commit(finishes=False)
    bench.lose_power(of_coordinator)
    bench.host.unopenable |= {P0, P1}
    bench.recover()
    assert bench.state() is TxnState.PREPARE_COMMIT
    return bench


def elect_again(
    bench: Bench, *, between: Callable[[TxnShard], object] = lambda shard: None
) -> None:
    """Resign and be elected."""
    shard: TxnShard = bench.coordinator.transactions.of("pay")
    bench.coordinator.resign(shard.index)
    between(shard)

    async def elect() -> None:
        elected = bench.coordinator.elect(shard.index)
        if elected is not None:
            await elected

    asyncio.run(elect())


def test_P3_an_elected_coordinator_aborts_a_prepare_whose_records_a_start_could_not_read() -> None:
    """The election dropped the list of such ids, and committed what was lost."""
    bench = left_prepared()
    for _ in range(3):
        elect_again(bench)
        asyncio.run(_advance(bench.host))
        assert bench.state() is TxnState.PREPARE_COMMIT
    bench.host.unopenable.clear()
    asyncio.run(_advance(bench.host))
    assert bench.state() is TxnState.COMPLETE_ABORT
    assert bench.seen() == []


def test_P3_a_prepare_is_left_where_the_election_reads_its_log_at_the_second_try() -> None:
    bench = left_prepared()

    def read_badly_once(shard: TxnShard) -> None:
        log = cast("MemoryLog", shard.log)
        log.batches = Mock(side_effect=[StorageError("bad sector"), log.batches()])  # type: ignore[method-assign]

    elect_again(bench, between=read_badly_once)
    bench.host.unopenable.clear()
    asyncio.run(_advance(bench.host))
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_an_elected_coordinator_looks_for_lost_records_by_its_own_timer_alone() -> None:
    """One of the unloaded shard could decide before the log of the shard is synced."""
    bench = left_prepared()
    bench.host.advance(RETRY_MS // 2)
    elect_again(bench)
    bench.host.unopenable.clear()
    asyncio.run(_advance(bench.host, RETRY_MS // 2))
    assert bench.state() is TxnState.PREPARE_COMMIT
    asyncio.run(_advance(bench.host, RETRY_MS // 2))
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_an_elected_coordinator_leaves_a_prepare_that_another_broker_finished() -> None:
    bench = left_prepared()
    prepare: Txn = bench.coordinator.transactions.get("pay")
    complete = plan(prepare).complete

    def finish_elsewhere(shard: TxnShard) -> None:
        record = encode_key("pay"), encode_value(complete)
        shard.log.append([record], timestamp_ms=0)

    elect_again(bench, between=finish_elsewhere)
    asyncio.run(_advance(bench.host))
    assert bench.state() is complete.state


def test_P3_an_elected_coordinator_serves_nothing_of_an_id_whose_marker_may_be_gone() -> None:
    """The election dropped the list of such ids, and records entered a decided transaction."""
    bench = Bench()
    producer = bench.commit(finishes=True)
    bench.lose_power(of_coordinator)
    bench.host.unopenable.add(P1)
    bench.recover()
    refusals = []
    elect_again(bench, between=lambda shard: refusals.append(bench.coordinator.refusal("pay")))
    assert refusals == [ErrorCode.NOT_COORDINATOR]
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    joined = bench.coordinator.add_partitions("pay", following, [P0])
    assert joined is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_P3_the_complete_carries_the_markers_that_a_start_wrote_before_the_election() -> None:
    bench = left_prepared()
    written = MARKER._replace(topic_id=bench.host.topic_ids[TOPIC].bytes, offset=1_000)
    shard: TxnShard = bench.coordinator.transactions.of("pay")
    shard.state.findings.written_again["pay"] = (written,)
    elect_again(bench)
    bench.host.unopenable.clear()
    asyncio.run(_advance(bench.host))
    assert bench.coordinator.transactions.get("pay").unsynced_markers == (written,)


def test_P3_a_shard_that_a_start_could_not_read_is_left_to_the_next_start() -> None:
    """No rule of a start after a power failure was applied to it."""
    bench = Bench()
    bench.commit(finishes=False)
    bench.lose_power(of_coordinator)
    shard_index = coordinator_partition("pay", len(bench.host.topics[TRANSACTIONS_TOPIC]))
    log = bench.host.store(TRANSACTIONS_TOPIC, shard_index)
    readable = log.batches
    log.batches = Mock(side_effect=StorageError("bad sector"))  # type: ignore[method-assign]
    bench.recover()
    log.batches = readable  # type: ignore[method-assign]
    elect_again(bench)
    assert bench.coordinator.refusal("pay") is ErrorCode.NOT_COORDINATOR
    assert all(store.markers() == [] for store in bench.host.stores())


async def _elect(bench: Bench, index: int) -> None:
    await bench.coordinator.elect(index)


async def _advance(host: FakeHost, by_ms: int = RETRY_MS) -> None:
    host.advance(by_ms)
    for _ in range(10):
        await asyncio.sleep(0)
