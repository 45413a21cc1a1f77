"""A full queue holds back the task that sends, and no other task."""

import asyncio
import time

import pytest

import txn.aio
from txn.client.engine import EngineName
from txn.testing import TestBroker

RECORDS = 400
RECORD_BYTES = 1000
PAUSED_S = 1.5
SMALL_QUEUE = {
    "confluent-kafka": {"queue.buffering.max.messages": 50},
    "native": {"buffer.memory": 50 * RECORD_BYTES, "batch.size": 10 * RECORD_BYTES},
}


async def beat(gaps: list[float]) -> None:
    last = time.monotonic()
    while True:
        await asyncio.sleep(0.005)
        now = time.monotonic()
        gaps.append(now - last)
        last = now


def test_P1_the_event_loop_goes_on_while_the_queue_is_full(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = f"pressed-{engine}"
    broker.create_topic(topic)
    gaps: list[float] = []
    value = b"x" * RECORD_BYTES

    async def work() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, **SMALL_QUEUE[engine]}
        async with (
            txn.aio.Producer(settings, transactional_id=topic, engine=engine) as producer,
            producer.transaction() as t,
        ):
            beating = asyncio.ensure_future(beat(gaps))
            broker.pause()
            asyncio.get_running_loop().call_later(PAUSED_S, broker.resume)
            with pytest.raises(BufferError, match="await send"):
                for _ in range(RECORDS):
                    t.produce(topic, value)
            begun = time.monotonic()
            for _ in range(RECORDS):
                await t.send(topic, value)
            assert time.monotonic() - begun > PAUSED_S / 2  # held back
            beating.cancel()

    asyncio.run(work())
    assert len(broker.records(topic)) >= RECORDS  # and those that found room at once
    assert max(gaps) < PAUSED_S / 2


def test_a_send_that_is_cancelled_for_want_of_room_adds_nothing(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = f"cancelled-{engine}"
    broker.create_topic(topic)
    value = b"x" * RECORD_BYTES

    async def work() -> int:
        settings = {"bootstrap.servers": broker.bootstrap_servers, **SMALL_QUEUE[engine]}
        added = 0
        async with (
            txn.aio.Producer(settings, transactional_id=topic, engine=engine) as producer,
            producer.transaction() as t,
        ):
            broker.pause()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    while True:
                        await t.send(topic, value)
                        added += 1
            broker.resume()
        return added

    assert asyncio.run(work()) == len(broker.records(topic))


def test_a_task_that_sends_without_waiting_lets_others_run(broker: TestBroker) -> None:
    broker.create_topic("turns")

    async def work() -> list[float]:
        gaps: list[float] = []
        async with (
            txn.aio.Producer(
                bootstrap_servers=broker.bootstrap_servers, transactional_id="turns"
            ) as producer,
            producer.transaction() as t,
        ):
            beating = asyncio.ensure_future(beat(gaps))
            for _ in range(20_000):
                await t.send("turns", b"x")
            beating.cancel()
        return gaps

    assert len(asyncio.run(work())) > 3
