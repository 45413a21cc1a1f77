"""A program of `txn.aio` that is killed at every step of its protocol."""

import asyncio

import txn
import txn.aio
from txn.testing import crash_everywhere


def copy(servers: str) -> None:
    asyncio.run(copy_in_capitals(servers))


async def copy_in_capitals(servers: str) -> None:
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    async with (
        txn.aio.Producer(bootstrap_servers=servers, transactional_id="copies-1") as producer,
        txn.aio.Consumer(settings, group_id="copies") as consumer,
    ):
        await consumer.subscribe(["in"])
        timeout = 15.0  # a new group of Apache Kafka waits three seconds for more members
        while True:
            try:
                async with producer.transaction(consumer) as t:
                    messages = await consumer.consume(2, timeout)
                    for message in messages:
                        await t.send("out", (message.value() or b"").upper())
            except txn.AbortableError:
                continue  # the block has aborted and rewound: once more
            if not messages:
                return
            timeout = 2.0


def test_P1_P3_a_killed_program_copies_each_record_once() -> None:
    crash_everywhere(copy, input={"in": ["a", "b", "c", "d"]}, output="out", quick=6)
