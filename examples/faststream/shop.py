"""A FastStream application, with a loop of `txn.aio` beside its subscribers.

    KAFKA=127.0.0.1:9092 faststream run shop:app

FastStream's subscriber commits the offset of a record behind its handler, and its publisher sends
outside of that. So a record may be handled twice after a crash: it is *at least once*. A
transaction needs the consumer whose offsets it commits, and FastStream keeps that to itself. So
what has to be exactly once runs as a task of the application (`invoice`), and what may be repeated
is a subscriber (`notify`).
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

import txn
import txn.aio

servers = os.environ["KAFKA"]
broker = KafkaBroker(servers, logger=None)


async def invoice() -> None:
    """Read orders and write invoices, exactly once."""
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    async with txn.aio.Consumer(settings, group_id="invoices") as consumer:
        await consumer.subscribe(["orders"])
        while True:
            try:
                async with txn.aio.Producer(
                    bootstrap_servers=servers, transactional_id="invoices-0"
                ) as producer:
                    async for batch in consumer:
                        async with producer.transaction(consumer) as t:
                            for message in batch:
                                await t.send("invoices", message.value().upper(), message.key())
            except txn.TxnError as error:
                if error.action is txn.Action.GIVE_UP:
                    raise
                await asyncio.sleep(1)


@broker.subscriber(
    "invoices", group_id="mails", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK
)
@broker.publisher("mails")
async def notify(invoice: str) -> str:
    """Write a mail for each committed invoice, at least once."""
    return f"Your invoice: {invoice}"


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """Run the loop while the application runs."""
    task = asyncio.create_task(invoice())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


app = FastStream(broker, lifespan=lifespan, logger=None)
