"""A transaction whose epochs are used up waits for the producer id of the next one."""

import asyncio
import logging

import pytest

from support.flights import flights_host
from support.txn_bench import (
    COMMIT,
    P0,
    TIMEOUT_MS,
    Bench,
    in_loop,
    let_run,
)
from txn.broker.host import RETRY_MS
from txn.coordinator.transaction.records import encode_key, encode_value
from txn.coordinator.transaction.states import Txn, TxnState
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.storage.base import Marker
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition

LAST_EPOCH = 32_766


def with_epochs_used_up() -> Bench:
    """A broker that has just started on an open transaction, and was given no producer ids yet."""
    host = flights_host()
    host.create_topic(TRANSACTIONS_TOPIC, 2)
    txn = Txn(
        producer_id=1_000,
        producer_epoch=LAST_EPOCH - 1,
        timeout_ms=TIMEOUT_MS,
        state=TxnState.EMPTY,
        partitions=frozenset(),
        start_ms=-1,
        updated_ms=host.now,
    )
    store = host.store(TRANSACTIONS_TOPIC, coordinator_partition("pay", 2))
    store.append([(encode_key("pay"), encode_value(txn))], timestamp_ms=host.now)
    bench = Bench(host)
    producer = bench.init()
    assert producer == ProducerIdAndEpoch(1_000, LAST_EPOCH)
    bench.write(producer, P0, 0, b"x")
    restarted = Bench(host.after_crash())
    restarted.host.unfinished_allocations = []
    return restarted


def give_block(bench: Bench, block: range | StorageError) -> None:
    """Let a block of producer ids arrive; one is on its way."""
    assert bench.host.unfinished_allocations is not None
    (arrive,) = bench.host.unfinished_allocations
    bench.host.unfinished_allocations.clear()
    arrive(block)


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records]


def test_P5_a_timed_out_transaction_waits_for_its_producer_id_and_for_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It looked again after a second, and told an operator of an error each time."""

    async def main() -> None:
        bench = with_epochs_used_up()
        caplog.clear()
        bench.host.advance(TIMEOUT_MS)
        await let_run()
        assert bench.state() is TxnState.ONGOING
        assert levels(caplog) == []
        give_block(bench, range(5_000, 5_010))
        await let_run()
        bench.host.advance(0)
        assert bench.state() is TxnState.COMPLETE_ABORT
        assert bench.init() == ProducerIdAndEpoch(5_000, 1)
        assert levels(caplog) == [logging.WARNING]  # txn.timed_out

    asyncio.run(main())


def test_P5_a_timed_out_transaction_asks_again_for_a_block_that_was_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        bench = with_epochs_used_up()
        caplog.clear()
        bench.host.advance(TIMEOUT_MS)
        await let_run()
        give_block(bench, StorageError("the disk refuses"))
        await let_run()
        assert levels(caplog) == [logging.ERROR]
        bench.host.advance(RETRY_MS)
        await let_run()
        give_block(bench, range(5_000, 5_010))
        await let_run()
        bench.host.advance(0)
        assert bench.state() is TxnState.COMPLETE_ABORT

    asyncio.run(main())


@in_loop
async def test_an_operators_abort_waits_for_the_producer_id_of_the_next_transaction() -> None:
    """It was refused, as if the disk were broken."""
    bench = with_epochs_used_up()
    marker = Marker(1_000, LAST_EPOCH, 0, is_commit=False, timestamp_ms=0)
    aborted = bench.coordinator.write_marker(P0, marker, must_bump=False)
    await let_run()
    assert not aborted.done()
    give_block(bench, range(5_000, 5_010))
    assert await aborted is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_ABORT


@in_loop
async def test_a_request_that_waits_for_a_producer_id_keeps_its_place_in_line() -> None:
    bench = with_epochs_used_up()
    producer = ProducerIdAndEpoch(1_000, LAST_EPOCH)
    aborted = bench.coordinator.write_marker(P0, Marker(*producer, 0, False, 0), must_bump=False)
    await let_run()
    ended = bench.coordinator.end("pay", producer, COMMIT, bumps_epoch=False)
    await let_run()
    assert not ended.done()
    give_block(bench, range(5_000, 5_010))
    assert await aborted is ErrorCode.NONE
    assert (await ended).code is not ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_ABORT
