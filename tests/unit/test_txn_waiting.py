"""Requests that wait: for a sync, for their turn at the transactional id, for a producer id."""

import asyncio
from unittest.mock import Mock, patch

import pytest

from support.flights import TOPIC
from support.txn_bench import (
    ABORT,
    COMMIT,
    OFFSETS,
    P0,
    P1,
    TIMEOUT_MS,
    WaitingBench,
    in_loop,
    let_run,
    log_of,
)
from txn.broker.host import RETRY_MS, Durability
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.states import TxnState
from txn.identifiers import ProducerIdAndEpoch
from txn.partition import ADMIT, ASK_TO_JOIN
from txn.wire.error_codes import ErrorCode


@in_loop
async def test_P2_the_data_and_the_decision_are_synced_together_and_before_the_markers() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    answer = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    assert bench.host.syncs == [[P0, P1, log_of(bench)]]
    assert bench.state() is TxnState.PREPARE_COMMIT
    assert bench.host.store(*P0).markers() == []
    assert not answer.done()
    await bench.finish_sync()
    assert answer.done()
    assert bench.host.store(*P0).committed() == [b"a"]


@in_loop
async def test_P5_nothing_behind_the_answer_is_synced_and_complete_carries_the_markers() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.end(producer, COMMIT)
    await let_run()
    await bench.finish_sync()
    assert len(bench.host.syncs) == 1
    completed = bench.coordinator.transactions.get("pay")
    assert completed is not None
    assert completed.state is TxnState.COMPLETE_COMMIT
    assert completed.last_offsets == ()
    topic_id = bench.host.topic_ids[TOPIC].bytes
    assert [each[:3] for each in completed.unsynced_markers] == [
        (topic_id, index, bench.host.store(TOPIC, index).log_end_offset - 1) for index in (0, 1)
    ]


@in_loop
async def test_a_marker_that_a_later_commit_has_synced_is_carried_no_longer() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    following = (await bench.end(producer, COMMIT)).producer
    bench.write(following, P0, 0, b"next")
    await bench.end(following, COMMIT)
    completed = bench.coordinator.transactions.get("pay")
    assert completed is not None
    assert [each.partition for each in completed.unsynced_markers] == [1, 0]
    assert completed.unsynced_markers[1].offset == bench.host.store(*P0).log_end_offset - 1


async def commit_with_a_bug_in_syncing(is_begun: bool) -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bug = RuntimeError("a bug")
    begun = asyncio.get_running_loop().create_future()
    begun.set_exception(bug)
    broken = Mock(return_value=begun, side_effect=None if is_begun else bug)
    with patch.object(bench.host, "sync", broken):
        end = bench.end(producer, COMMIT)
    assert (await end).code is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.host.store(*P0).committed() == []

    opened = bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
    assert not isinstance(opened, InitProducerIdResult)
    following = (await opened).producer
    bench.write(following, P0, 0, b"next")
    assert (await bench.end(following, COMMIT)).code is ErrorCode.NONE
    assert bench.host.store(*P0).committed() == [b"next"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_bug_in_syncing_aborts_the_transaction_and_the_next_one_goes_on(is_begun: bool) -> None:
    """Its flow never went on, so the id was held for ever: every later request of it hung."""
    asyncio.run(asyncio.wait_for(commit_with_a_bug_in_syncing(is_begun), 10))


@in_loop
async def test_the_next_transaction_waits_in_line_and_is_not_sent_away() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    end = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    joining = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, TV2, [P0]
    )
    assert isinstance(joining, asyncio.Future)
    await bench.finish_sync()
    following = (await end).producer
    assert await joining == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}
    joined = bench.coordinator.join(
        "pay", following.producer_id, following.producer_epoch, TV2, [P0]
    )
    assert joined == {P0: 0}
    assert bench.coordinator.is_joined("pay", following, P0)


@in_loop
async def test_P7_a_late_batch_that_waited_in_line_finds_its_transaction_over() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.end(producer, COMMIT)
    joining = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, TV2, [OFFSETS]
    )
    assert not isinstance(joining, dict)
    await let_run()
    await bench.finish_sync()
    assert await joining == {OFFSETS: ErrorCode.INVALID_PRODUCER_EPOCH}


@in_loop
async def test_requests_in_line_are_served_in_their_order() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    answers = [
        bench.end(producer, COMMIT),
        bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None),
        bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None),
    ]
    epochs = [(await answer).producer.producer_epoch for answer in answers]
    assert epochs == [1, 2, 3]


@in_loop
async def test_a_timeout_that_comes_during_a_commit_changes_nothing() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    end = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    bench.host.advance(TIMEOUT_MS)
    await bench.finish_sync()
    assert (await end).code is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_COMMIT


@in_loop
async def test_P2_an_abort_has_no_marker_before_its_records_are_on_the_disk() -> None:
    """A reader passes the records with the marker, and its group commits an offset behind them."""
    bench = WaitingBench()
    producer = await bench.start()
    bench.end(producer, ABORT)
    await let_run()
    assert bench.host.syncs == [[P0, P1, log_of(bench)]]
    assert bench.host.store(*P0).last_stable_offset == 0


@in_loop
async def test_P2_records_that_cannot_be_synced_are_aborted() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.store(*P1).is_unsyncable = True
    assert (await bench.end(producer, COMMIT)).code is ErrorCode.TRANSACTION_ABORTABLE
    bench.host.store(*P1).is_unsyncable = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.state() is TxnState.COMPLETE_ABORT
    assert bench.host.store(*P0).committed() == []
    assert bench.host.store(*P1).committed() == []


@in_loop
async def test_P2_a_tv1_client_aborts_what_could_not_be_synced_and_goes_on() -> None:
    """The abort bumped the epoch: the client was fenced by it, and needed a new producer."""
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = True
    refused = await bench.end(producer, COMMIT, bumps_epoch=False)
    assert refused.code is ErrorCode.TRANSACTION_ABORTABLE
    again = bench.end(producer, COMMIT, bumps_epoch=False)
    assert again.code is ErrorCode.TRANSACTION_ABORTABLE
    for _ in range(2):
        assert bench.end(producer, ABORT, bumps_epoch=False) == InitProducerIdResult(producer)
    joined = bench.coordinator.add_partitions("pay", producer, [P0])
    assert joined is ErrorCode.CONCURRENT_TRANSACTIONS

    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.coordinator.add_partitions("pay", producer, [P0]) is ErrorCode.NONE
    assert bench.host.store(*P0).client_append(producer, 1, b"c", 1)[0] == ADMIT
    assert (await bench.end(producer, COMMIT, bumps_epoch=False)) == InitProducerIdResult(producer)
    assert bench.host.store(*P0).committed() == [b"c"]
    assert bench.host.store(*P1).committed() == []


@in_loop
async def test_P2_a_tv2_client_aborts_what_could_not_be_synced_and_goes_on() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = True
    assert (await bench.end(producer, COMMIT)).code is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.end(producer, COMMIT).code is ErrorCode.TRANSACTION_ABORTABLE
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    assert [bench.end(producer, ABORT) for _ in range(2)] == [InitProducerIdResult(following)] * 2

    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.write(following, P0, 0, b"c") == ADMIT
    assert bench.end(producer, COMMIT).code is ErrorCode.PRODUCER_FENCED
    assert (await bench.end(following, COMMIT)).code is ErrorCode.NONE
    assert bench.host.store(*P0).committed() == [b"c"]


@in_loop
async def test_P2_a_decision_that_cannot_be_synced_reaches_no_partition() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    log = bench.host.store(*log_of(bench))
    log.is_unsyncable = True
    answer = await bench.end(producer, COMMIT)
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.host.store(*P0).markers() == []
    again = bench.end(producer, COMMIT)
    assert isinstance(again, InitProducerIdResult)
    assert again.code is ErrorCode.TRANSACTION_ABORTABLE
    log.is_unsyncable = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.host.store(*P0).committed() == []
    assert bench.state() is TxnState.COMPLETE_ABORT


@in_loop
async def test_P7_an_epoch_is_synced_before_it_is_given_out() -> None:
    bench = WaitingBench()
    await bench.start()
    answer = bench.coordinator.init_producer_id("other", TIMEOUT_MS, None)
    assert not isinstance(answer, InitProducerIdResult)
    waiting = asyncio.ensure_future(answer)
    await let_run()
    assert not waiting.done()
    await bench.finish_sync()
    assert waiting.done()


@in_loop
async def test_with_durability_always_joining_is_synced_before_records_are() -> None:
    bench = WaitingBench(Durability.ALWAYS)
    answer = bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
    assert not isinstance(answer, InitProducerIdResult)
    producer = (await answer).producer
    bench.host.unfinished_syncs = []
    joining = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, TV2, [P0]
    )
    assert not isinstance(joining, dict)
    await let_run()
    assert bench.host.store(*P0).client_append(producer, 0, b"a", TV2)[0] == ASK_TO_JOIN
    await bench.finish_sync()
    assert await joining == {P0: 0}
    assert bench.host.store(*P0).client_append(producer, 0, b"a", TV2)[0] == ADMIT


@in_loop
async def test_an_end_goes_on_when_the_one_who_asked_is_gone() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    asked = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    asked.cancel()
    await bench.finish_sync()
    assert bench.state() is TxnState.COMPLETE_COMMIT
