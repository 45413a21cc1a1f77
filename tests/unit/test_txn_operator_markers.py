"""Markers that an operator asks for (WriteTxnMarkers)."""

from support.txn_bench import P0, P1, Bench, WaitingBench, in_loop, let_run
from txn.coordinator.transaction.decide import TV1, TV2
from txn.coordinator.transaction.states import TxnState
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.partition import ADMIT, REFUSE
from txn.storage.base import Marker
from txn.testing import MemoryLog
from txn.wire.error_codes import ErrorCode


def test_an_operators_marker_for_a_partition_that_cannot_be_opened_is_refused() -> None:
    bench = Bench()
    bench.host.unopenable.add(P1)
    marker = Marker(5, 0, 0, False, 0)
    written = bench.coordinator.write_marker(P1, marker, must_bump=False)
    assert written is ErrorCode.KAFKA_STORAGE_ERROR


def test_P7_an_operator_is_not_told_of_an_abort_that_a_disk_refused() -> None:
    """The client could commit afterwards, although the operator believed it aborted."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    logs = bench.host.coordinator_partitions(TRANSACTIONS_TOPIC)
    for log in logs:
        log.is_read_only = True
    marker = Marker(producer.producer_id, producer.producer_epoch, 0, False, 0)
    refused = bench.coordinator.write_marker(P0, marker, must_bump=False)
    assert refused is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.state() is TxnState.ONGOING
    for log in logs:
        log.is_read_only = False
    assert bench.coordinator.write_marker(P0, marker, must_bump=False) is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_ABORT


def a_stranger(bench: Bench) -> tuple[ProducerIdAndEpoch, MemoryLog]:
    """A producer with an open transaction that no id explains, and the partition that holds it."""
    stranger, store = ProducerIdAndEpoch(77, 3), bench.host.store(*P0)
    store.producer_state.allow_txn(*stranger)
    assert store.client_append(stranger, 0, b"x", TV1)[0] == ADMIT
    return stranger, store


@in_loop
async def test_P3_records_that_nobody_explains_are_on_the_disk_before_their_marker() -> None:
    bench = WaitingBench()
    await bench.start()
    stranger, store = a_stranger(bench)
    marker = Marker(*stranger, 0, is_commit=False, timestamp_ms=0)
    written = bench.coordinator.write_marker(P0, marker, must_bump=False)
    await let_run()
    assert store.client_append(stranger, 1, b"late", TV1)[0] == REFUSE
    assert store.markers() == []
    await bench.finish_sync()
    assert store.markers() == [(77, 3, False)]
    assert not written.done()
    await bench.finish_sync()
    assert await written is ErrorCode.NONE


@in_loop
async def test_an_operator_who_is_refused_leaves_the_producer_as_it_was() -> None:
    bench = WaitingBench()
    await bench.start()
    stranger, store = a_stranger(bench)
    marker = Marker(*stranger, 0, is_commit=False, timestamp_ms=0)
    refused = bench.coordinator.write_marker(P0, marker, must_bump=True)
    await let_run()
    await bench.finish_sync()
    assert await refused is ErrorCode.INVALID_PRODUCER_EPOCH
    assert store.client_append(stranger, 1, b"y", TV2)[0] == ADMIT


def test_P3_an_operator_commits_nothing_that_no_id_explains() -> None:
    """No Prepare stands behind it, so a power failure could turn it into an abort."""
    bench = Bench()
    stranger, store = a_stranger(bench)
    store.sync()
    marker = Marker(*stranger, 0, is_commit=True, timestamp_ms=0)
    refused = bench.coordinator.write_marker(P0, marker, must_bump=False)
    assert refused is ErrorCode.INVALID_TXN_STATE
    assert store.committed() == []
    assert store.client_append(stranger, 1, b"y", TV1)[0] == ADMIT
