"""Reads of `txn.aio.Consumer`, and the records that a cancelled one has fetched."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import TopicPartition

import txn
import txn.aio
from txn.client.engine import EngineName
from txn.testing import TestBroker

WAIT_S = 30.0
MEASURED_S = 1.0


@pytest.fixture
def topic(broker: TestBroker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")[-200:]
    broker.create_topic(name)
    broker.produce(name, "1", "2", "3")
    return str(name)


@asynccontextmanager
async def opened(broker: TestBroker, topic: str) -> AsyncIterator[txn.aio.Consumer]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    async with txn.aio.Consumer(settings, group_id=topic) as consumer:
        await consumer.subscribe([topic])
        yield consumer


async def fetch_one_for_nobody(consumer: txn.aio.Consumer) -> None:
    """Cancel a read once its records are there."""
    reading = asyncio.ensure_future(consumer.consume(1))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(consumer.assignment())  # behind the read, in the worker
    reading.cancel()
    await waiting
    with pytest.raises(asyncio.CancelledError):
        await reading


async def values_of(consumer: txn.aio.Consumer, number: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < number:
        message = await consumer.poll(WAIT_S)
        assert message is not None
        values.append(message.value())
    return values


async def committed(consumer: txn.aio.Consumer) -> list[int]:
    return [p.offset for p in await consumer.committed(await consumer.assignment())]


def test_P3_a_block_does_not_commit_what_a_cancelled_read_has_fetched(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    async def run() -> None:
        async with (
            opened(broker, topic) as consumer,
            txn.aio.Producer(
                bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, engine=engine
            ) as producer,
        ):
            async with producer.transaction(consumer):
                assert await values_of(consumer, 1) == [b"1"]
                await fetch_one_for_nobody(consumer)
            assert await committed(consumer) == [1]
            assert await values_of(consumer, 1) == [b"2"]
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(consumer):
                    await fetch_one_for_nobody(consumer)
                    raise ZeroDivisionError
            assert await values_of(consumer, 2) == [b"2", b"3"]

    asyncio.run(run())


async def commit(consumer: txn.aio.Consumer) -> list[bytes]:
    await consumer.commit()
    assert await committed(consumer) == [1]
    return [b"2", b"3"]


async def rewind(consumer: txn.aio.Consumer) -> list[bytes]:
    await consumer.rewind()
    return [b"1", b"2", b"3"]


async def seek(consumer: txn.aio.Consumer) -> list[bytes]:
    (partition,) = await consumer.assignment()
    await consumer.seek(TopicPartition(partition.topic, partition.partition, 2))
    return [b"3"]


async def assign_again(consumer: txn.aio.Consumer) -> list[bytes]:
    positions = await consumer.position(await consumer.assignment())
    assert [p.offset for p in positions] == [1]
    await consumer.assign(positions)
    return [b"2", b"3"]


@pytest.mark.parametrize("act", [commit, rewind, seek, assign_again])
def test_records_that_a_cancelled_read_has_fetched_follow_the_consumer(
    broker: TestBroker, topic: str, act: Callable[[txn.aio.Consumer], object]
) -> None:
    async def run() -> None:
        async with opened(broker, topic) as consumer:
            assert await values_of(consumer, 1) == [b"1"]
            await fetch_one_for_nobody(consumer)
            expected = await act(consumer)  # type: ignore[misc]
            assert await values_of(consumer, len(expected)) == expected

    asyncio.run(run())


def test_P3_a_partition_that_is_given_up_keeps_its_place_before_fetched_records(
    broker: TestBroker, topic: str
) -> None:
    async def run() -> None:
        async with (
            opened(broker, topic) as consumer,
            txn.aio.Producer(
                bootstrap_servers=broker.bootstrap_servers, transactional_id=topic
            ) as producer,
        ):
            async with producer.transaction(consumer):
                assert await values_of(consumer, 1) == [b"1"]
                await fetch_one_for_nobody(consumer)
                partitions = await consumer.assignment()
                await consumer.unassign()
                assert await consumer.poll(0.2) is None
            assert [p.offset for p in await consumer.committed(partitions)] == [1]

    asyncio.run(run())


def test_P1_P3_fetched_records_of_a_partition_that_is_taken_away_are_read_again(
    broker: TestBroker, topic: str, engine: EngineName
) -> None:
    out = f"{topic[-190:]}-out"
    broker.create_topic(out)

    async def copy(producer: txn.aio.Producer, consumer: txn.aio.Consumer) -> None:
        while len(broker.records(out)) < 3:
            try:
                async with producer.transaction(consumer) as t:
                    for message in await consumer.consume(1, timeout=1):
                        t.produce(out, message.value())
            except txn.AbortableError:
                continue  # it lost records with the partition, and is rewound

    async def run() -> None:
        async with (
            opened(broker, topic) as consumer,
            txn.aio.Producer(
                bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, engine=engine
            ) as producer,
        ):
            async with producer.transaction(consumer) as t:
                for value in await values_of(consumer, 1):
                    t.produce(out, value)
            await fetch_one_for_nobody(consumer)
            broker.rebalance(topic)
            await copy(producer, consumer)

    asyncio.run(run())
    assert [record.value for record in broker.records(out)] == [b"1", b"2", b"3"]


def test_batches_end_if_nothing_comes_and_polls_return_none(broker: TestBroker, topic: str) -> None:
    async def run() -> None:
        async with opened(broker, topic) as consumer:
            assert await values_of(consumer, 1) == [b"1"]
            batches = [[m.value() for m in batch] async for batch in consumer.batches(1, 0.2)]
            assert batches == [[b"2"], [b"3"]]
            assert await consumer.poll(0) is None
            assert await consumer.consume(5, 0.05) == []

    asyncio.run(run())


def test_two_tasks_share_the_records_of_a_consumer(broker: TestBroker, topic: str) -> None:
    async def run() -> list[bytes | None]:
        async with opened(broker, topic) as consumer:
            halves = await asyncio.gather(values_of(consumer, 1), values_of(consumer, 2))
            return halves[0] + halves[1]

    assert sorted(asyncio.run(run()), key=str) == [b"1", b"2", b"3"]


def test_an_error_of_a_cancelled_read_is_raised_by_the_next_one(broker: TestBroker) -> None:
    async def run() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        async with txn.aio.Consumer(settings, group_id="nothing") as consumer:
            reading = asyncio.ensure_future(consumer.poll())
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            with pytest.raises(txn.RejectedError, match="call subscribe"):
                await consumer.poll()

    asyncio.run(run())


def test_a_consumer_that_waits_takes_hardly_any_cpu(broker: TestBroker, topic: str) -> None:
    async def run() -> float:
        async with opened(broker, topic) as consumer:
            await values_of(consumer, 3)
            began = time.process_time()
            assert await consumer.poll(MEASURED_S) is None
            return time.process_time() - began

    assert asyncio.run(run()) < 0.4 * MEASURED_S
