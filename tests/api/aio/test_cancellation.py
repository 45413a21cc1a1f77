"""A cancellation at any await: nothing lost, nothing doubled, no transaction left open."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest
from confluent_kafka import TopicPartition

import txn
import txn.aio
from support.clients import ends
from support.stepping import Moment, is_cancelled_at
from txn.client.engine import EngineName
from txn.testing import TestBroker

RECORDS_PER_STEP = 4
WAIT_S = 30.0

Copy = Callable[[txn.aio.Producer, txn.aio.Consumer, str, bool], Coroutine[Any, Any, None]]


async def read_inside(
    producer: txn.aio.Producer, consumer: txn.aio.Consumer, out: str, waits: bool
) -> None:
    async with producer.transaction(consumer) as t:
        for message in await consumer.consume(3, timeout=WAIT_S if waits else 0.5):
            await t.send(out, message.value())


async def read_before(
    producer: txn.aio.Producer, consumer: txn.aio.Consumer, out: str, waits: bool
) -> None:
    async for batch in consumer.batches(2, timeout_s=WAIT_S if waits else 0.5):
        async with producer.transaction(consumer) as t:
            for message in batch:
                t.produce(out, message.value())
        return


async def send_own_offsets(
    producer: txn.aio.Producer, consumer: txn.aio.Consumer, out: str, waits: bool
) -> None:
    async with producer.transaction(consumer) as t:
        message = await consumer.poll(WAIT_S if waits else 0.5)
        if message is not None:
            t.produce(out, message.value())
            partition, offset = message.partition() or 0, (message.offset() or 0) + 1
            await t.send_offsets(
                [TopicPartition(str(message.topic()), partition, offset)], consumer
            )


async def catch_a_timeout_of_a_read(
    producer: txn.aio.Producer, consumer: txn.aio.Consumer, out: str, waits: bool
) -> None:
    async with producer.transaction(consumer) as t:
        try:
            async with asyncio.timeout(0):
                for early in await consumer.consume(1):
                    t.produce(out, early.value())
        except TimeoutError:
            pass
        message = await consumer.poll(WAIT_S if waits else 0.5)
        if message is not None:
            t.produce(out, message.value())


@pytest.mark.parametrize(
    "copy", [read_inside, read_before, send_own_offsets, catch_a_timeout_of_a_read]
)
def test_P1_P3_a_copy_that_is_cancelled_at_each_await_copies_each_record_once(
    broker: TestBroker, engine: EngineName, copy: Copy
) -> None:
    source = f"in-{copy.__name__}-{engine}"
    out = f"{source}-out"
    broker.create_topic(source, partitions=2)
    broker.create_topic(out)
    sent: list[str] = []

    def produce() -> None:
        values = [f"{source}-{len(sent) + n}" for n in range(RECORDS_PER_STEP)]
        broker.produce(source, *values)
        sent.extend(values)

    async def run() -> int:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        async with (
            txn.aio.Consumer(settings, group_id=source, auto_offset_reset="earliest") as consumer,
            txn.aio.Producer(settings, transactional_id=source, engine=engine) as producer,
        ):
            await consumer.subscribe([source])
            for moment in Moment:
                for step in count(1):
                    produce()
                    if not await is_cancelled_at(step, moment, copy(producer, consumer, out, True)):
                        break
                    await copy(producer, consumer, out, True)  # both are fit for use at once
            while True:
                before = len(broker.records(out))
                await copy(producer, consumer, out, False)
                if len(broker.records(out)) == before == len(sent):
                    return step

    steps = asyncio.run(run())
    assert steps > 3
    assert Counter((record.value or b"").decode() for record in broker.records(out)) == Counter(
        sent
    )
    stable, end = ends(broker.bootstrap_servers, out)
    assert stable == end
