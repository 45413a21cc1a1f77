"""`send` of `txn.aio`: where each record is stored."""

import asyncio
import time

import pytest

import txn
import txn.aio
from txn.client.engine import EngineName
from txn.testing import TestBroker

RECORDS = 2000
RECORD_BYTES = 1000
SMALL_QUEUE = {
    "confluent-kafka": {"queue.buffering.max.messages": 50},
    "native": {"buffer.memory": 50 * RECORD_BYTES, "batch.size": 10 * RECORD_BYTES},
}
RATE_MIN = 300
"""Records a second; a machine that does nothing else manages some twenty thousand."""


def test_a_record_that_is_sent_tells_its_offset(broker: TestBroker, engine: EngineName) -> None:
    topic = f"sent-{engine}"
    broker.create_topic(topic)

    async def work() -> list[int]:
        async with txn.aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, engine=engine
        ) as producer:
            first = await producer.send(topic, b"0")
            assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
            sent = await asyncio.gather(*(producer.send(topic, b"") for _ in range(20)))
            return [each.offset for each in sent]

    assert asyncio.run(work()) == list(range(1, 21))


def test_a_delivery_of_a_block_is_awaited_before_the_commit(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = f"awaited-{engine}"
    broker.create_topic(topic)

    async def work() -> None:
        async with (
            txn.aio.Producer(
                bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, engine=engine
            ) as producer,
            producer.transaction() as t,
        ):
            delivery = await t.send(topic, b"0")
            assert (await delivery).offset == 0
            assert broker.records(topic) == []

    asyncio.run(work())
    assert len(broker.records(topic)) == 1


def test_a_record_that_is_refused_raises_where_it_is_sent(
    broker: TestBroker, engine: EngineName
) -> None:
    broker.create_topic(f"small-{engine}", max_message_bytes=2000)

    async def work() -> None:
        async with txn.aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, engine=engine
        ) as producer:
            with pytest.raises(txn.RejectedError) as raised:
                await producer.send(f"small-{engine}", b"x" * 5000)
            assert raised.value.action is txn.Action.GIVE_UP
            assert (await producer.send(f"small-{engine}", b"x")).offset == 0

    asyncio.run(work())


def test_many_tasks_that_send_wait_for_room_and_lose_nothing(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = f"many-{engine}"
    broker.create_topic(topic)
    values = [f"{n:04}".ljust(RECORD_BYTES).encode() for n in range(RECORDS)]

    async def work() -> float:
        settings = {"bootstrap.servers": broker.bootstrap_servers, **SMALL_QUEUE[engine]}
        async with txn.aio.Producer(settings, engine=engine, linger_ms=1) as producer:
            began = time.monotonic()
            await asyncio.gather(*(producer.send(topic, value) for value in values))
            return RECORDS / (time.monotonic() - began)

    assert asyncio.run(work()) > RATE_MIN
    assert sorted(record.value or b"" for record in broker.records(topic)) == values


def test_flush_waits_for_what_was_produced_and_can_be_cancelled(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = f"flushed-{engine}"
    broker.create_topic(topic)

    async def work() -> None:
        async with txn.aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, engine=engine
        ) as producer:
            await producer.send(topic, b"first")
            broker.pause()
            producer.produce(topic, b"second")
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await producer.flush()
            assert time.monotonic() - began < 5
            broker.resume()
            await producer.flush()
            assert len(broker.records(topic)) == 2

    asyncio.run(work())
