"""Markers: one that a partition refuses is written later, and nothing comes in before it."""

from collections.abc import Callable

import pytest

from support.flights import TOPIC
from support.txn_bench import (
    ABORT,
    COMMIT,
    OFFSETS,
    P0,
    P1,
    TIMEOUT_MS,
    Bench,
    WaitingBench,
    in_loop,
    let_run,
)
from txn.broker.host import RETRY_MS
from txn.coordinator.transaction.decide import TV1, TV2
from txn.coordinator.transaction.states import TxnResult, TxnState
from txn.identifiers import ProducerIdAndEpoch
from txn.partition import ADMIT, REFUSE
from txn.storage.base import Marker
from txn.wire.error_codes import ErrorCode


def test_groups_are_told_of_markers_in_their_partitions() -> None:
    bench = Bench()
    producer = bench.init()
    bench.coordinator.add_partitions("pay", producer, [P0, OFFSETS])
    bench.end(producer, COMMIT)
    assert bench.told == [(1, producer.producer_id, True)]


def test_P8_a_marker_that_a_partition_refused_is_told_to_nobody() -> None:
    """Pending offsets of a later epoch became committed without a marker in the log."""
    bench = Bench()
    producer = bench.init()
    later = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 5)
    bench.write(producer, OFFSETS, 0, b"offsets")
    store = bench.host.store(*OFFSETS)
    store.append_marker(Marker(later.producer_id, later.producer_epoch, 0, False, 0))

    bench.end(producer, COMMIT, bumps_epoch=False)

    assert bench.told == []


def test_P3_a_marker_that_cannot_be_written_is_written_later() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.write(producer, P1, 0, b"b")
    bench.host.store(*P1).is_read_only = True
    following = bench.end(producer, COMMIT).producer
    assert bench.state() is TxnState.PREPARE_COMMIT
    joined = bench.coordinator.join(
        "pay", following.producer_id, following.producer_epoch, TV2, [P0]
    )
    assert joined == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
    bench.host.advance(3 * RETRY_MS)
    assert bench.state() is TxnState.PREPARE_COMMIT
    bench.host.store(*P1).is_read_only = False
    bench.host.advance(RETRY_MS)
    assert bench.state() is TxnState.COMPLETE_COMMIT
    assert bench.host.store(*P1).committed() == [b"b"]
    assert len(bench.host.store(*P0).markers()) == 1


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_P7_nothing_comes_in_before_the_marker_that_a_disk_refused(outcome: TxnResult) -> None:
    """A late batch came into a commit that was answered already, and was shown with it."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    store = bench.host.store(*P0)
    store.is_read_only = True
    bench.end(producer, outcome)
    store.is_read_only = False
    refused = (REFUSE, int(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert store.client_append(producer, 1, b"late", TV1)[:2] == refused
    bench.host.advance(RETRY_MS)
    assert store.committed() == ([b"a"] if outcome is COMMIT else [])
    assert store.last_stable_offset == store.log_end_offset


@pytest.mark.parametrize("bumps_epoch", [False, True])
@pytest.mark.parametrize("outcome", TxnResult)
def test_P3_an_end_that_waits_for_a_marker_is_answered_again_as_it_was(
    outcome: TxnResult, bumps_epoch: bool
) -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.host.store(*P0).is_read_only = True
    answers = [bench.end(producer, outcome, bumps_epoch=bumps_epoch) for _ in range(3)]
    assert answers[0].code is ErrorCode.NONE
    assert answers[1:] == answers[:1] * 2
    assert len(bench.states()) == 3
    other = next(each for each in TxnResult if each is not outcome)
    assert bench.end(producer, other, bumps_epoch=bumps_epoch).code is not ErrorCode.NONE


def test_P3_a_partition_that_cannot_be_opened_is_joined_and_gets_its_marker_later() -> None:
    bench = Bench()
    producer = bench.init()
    bench.host.unopenable.add(P1)
    joined = bench.coordinator.add_partitions("pay", producer, [P0, P1])
    assert joined is ErrorCode.NONE
    assert bench.host.store(*P0).client_append(producer, 0, b"a", 1)[0] == ADMIT
    bench.end(producer, ABORT)
    assert bench.state() is TxnState.PREPARE_ABORT
    bench.host.unopenable.clear()
    bench.host.advance(RETRY_MS)
    assert bench.state() is TxnState.COMPLETE_ABORT
    assert [len(bench.host.store(*partition).markers()) for partition in (P0, P1)] == [1, 1]


def test_P2_nothing_is_committed_with_a_partition_that_cannot_be_opened() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.coordinator.add_partitions("pay", producer, [P1])
    bench.host.unopenable.add(P1)
    assert bench.end(producer, COMMIT).code is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.state() is TxnState.PREPARE_ABORT
    assert bench.host.store(*P0).committed() == []


def test_P5_a_deleted_topic_holds_nothing_up() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.write(producer, OFFSETS, 0, b"b")
    bench.host.delete_topic(TOPIC)
    assert bench.end(producer, COMMIT).code is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_COMMIT
    assert bench.host.store(*OFFSETS).committed() == [b"b"]


def fence(bench: WaitingBench) -> None:
    bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None)


def let_time_out(bench: WaitingBench) -> None:
    bench.host.advance(TIMEOUT_MS + 1)


def end_by_an_operator(bench: WaitingBench) -> None:
    marker = Marker(1_000, 0, 0, is_commit=False, timestamp_ms=0)
    bench.coordinator.write_marker(P0, marker, must_bump=False)


@in_loop
@pytest.mark.parametrize("ends", [fence, let_time_out, end_by_an_operator])
async def test_P3_readers_pass_no_record_of_an_abort_that_a_power_failure_may_take(
    ends: Callable[[WaitingBench], None],
) -> None:
    """The producer does not know yet that it is fenced, and writes while the disk is at work."""
    bench = WaitingBench()
    producer = await bench.start()
    store = bench.host.store(*P0)
    ends(bench)
    await let_run()
    assert bench.state() is TxnState.PREPARE_ABORT
    assert store.client_append(producer, 1, b"late", TV2) == (ADMIT, 1)
    await bench.finish_sync()
    assert store.markers() == []
    assert store.client_append(producer, 2, b"later", TV2)[0] == REFUSE
    await bench.finish_sync()
    assert len(store.markers()) == 1
    assert store.synced_end >= 2


@in_loop
@pytest.mark.parametrize("outcome", [ABORT, COMMIT])
async def test_P3_a_partition_that_cannot_be_opened_leaves_no_other_unsynced(
    outcome: TxnResult,
) -> None:
    """One partition was damaged, and the records of the others were not synced at all."""
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.unopenable.add(P1)
    bench.end(producer, outcome)
    await let_run()
    store = bench.host.store(*P0)
    assert len(store.markers()) == 1
    assert store.synced_end >= 1
    assert bench.state() is TxnState.PREPARE_ABORT


@in_loop
async def test_P3_late_batches_of_a_partition_opened_again_precede_its_marker() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.unopenable.add(P1)
    bench.end(producer, ABORT)
    await let_run()
    bench.host.unopenable.clear()
    store = bench.host.store(*P1)
    assert store.client_append(producer, 1, b"late", TV2)[0] == ADMIT
    bench.host.unfinished_syncs = []
    bench.host.advance(RETRY_MS)
    await let_run()
    assert store.markers() == []
    await bench.finish_sync()
    assert len(store.markers()) == 1
    assert store.synced_end >= 2
