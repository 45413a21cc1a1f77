"""Blocks, openings and ends of `txn.aio`."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

import txn
import txn.aio
from harnesses.peers.kafka import free_port
from support.stepping import Moment, is_cancelled_at
from txn.client.engine import EngineName
from txn.client.transaction import BlockResult
from txn.testing import TestBroker

PROGRAM_S = 60.0


def open_producer(
    broker: TestBroker, name: str = "t", engine: EngineName | None = None, **more: Any
) -> txn.aio.Producer:
    return txn.aio.Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=name, engine=engine, **more
    )


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


@pytest.mark.parametrize("runner", ["asyncio", "uvloop"])
def test_P1_P3_a_loop_of_either_kind_copies_exactly_once(
    broker: TestBroker, engine: EngineName, runner: str
) -> None:
    source, out = f"copied-{runner}-{engine}", f"copy-{runner}-{engine}"
    broker.create_topic(source)
    broker.create_topic(out)
    broker.produce(source, *(str(n) for n in range(50)))

    async def copy() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        async with (
            open_producer(broker, source, engine) as producer,
            txn.aio.Consumer(settings, group_id=source, auto_offset_reset="earliest") as consumer,
        ):
            await consumer.subscribe([source])
            done = 0
            async for batch in consumer.batches(7):
                async with producer.transaction(consumer) as t:
                    for message in batch:
                        await t.send(out, message.value())
                done += len(batch)
                if done == 50:
                    return

    run(copy(), runner)
    assert values(broker, out) == [str(n).encode() for n in range(50)]


def run(coroutine: Coroutine[Any, Any, None], runner: str) -> None:
    if runner == "uvloop":
        import uvloop

        uvloop.run(coroutine)
    else:
        asyncio.run(coroutine)


def test_an_exception_in_the_block_aborts_and_the_producer_goes_on(
    broker: TestBroker, engine: EngineName
) -> None:
    broker.create_topic(f"aborted-{engine}")

    async def work() -> None:
        async with open_producer(broker, engine=engine) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as t:
                    t.produce(f"aborted-{engine}", b"no")
                    raise ZeroDivisionError
            assert t.result is BlockResult.ABORTED
            async with producer.transaction() as t:
                t.produce(f"aborted-{engine}", b"yes")
            assert t.result is BlockResult.COMMITTED

    asyncio.run(work())
    assert values(broker, f"aborted-{engine}") == [b"yes"]


@pytest.mark.parametrize("moment", Moment)
def test_a_commit_that_is_cancelled_is_finished_and_says_so(
    broker: TestBroker, engine: EngineName, moment: Moment
) -> None:
    topic = f"finished-{engine}-{moment.value}"
    broker.create_topic(topic)
    notes: list[str] = []

    async def work() -> None:
        async with open_producer(broker, engine=engine) as producer:

            async def block() -> None:
                async with producer.transaction() as t:
                    t.produce(topic, b"decided")
                    is_entered.append(t)

            async def noting() -> None:
                try:
                    await block()
                except asyncio.CancelledError as raised:
                    notes.extend(raised.__notes__)
                    raise

            is_entered: list[txn.aio.Transaction] = []
            assert await is_cancelled_at(2, moment, noting())  # 1: the begin, 2: the end
            assert [t.result for t in is_entered] == [BlockResult.COMMITTED]

    asyncio.run(work())
    assert values(broker, topic) == [b"decided"]
    assert notes == ["The transaction was committed before this was raised."]


def test_a_commit_without_an_answer_that_is_cancelled_is_called_in_doubt(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = f"doubted-{engine}"
    broker.create_topic(topic)

    async def work() -> None:
        async with open_producer(broker, topic, engine) as producer:
            held = broker.hold("EndTxn")
            t = producer.transaction(timeout=1)

            async def block() -> None:
                async with t:
                    t.produce(topic, b"decided")

            task = asyncio.ensure_future(block())
            while not held.happened:  # noqa: ASYNC110 (the fault is of another thread)
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            held.release()
            assert t.result is BlockResult.IN_DOUBT
            (note,) = raised.value.__notes__
            assert note.startswith(f"producer {topic!r} asked for a commit and had no answer")
            with pytest.raises(txn.InDoubtError) as refused:
                async with producer.transaction():
                    pass
            assert refused.value.action is txn.Action.REOPEN
        async with open_producer(broker, topic, engine) as again, again.transaction():
            pass

    asyncio.run(work())


def test_a_timeout_of_asyncio_around_a_block_aborts_it(broker: TestBroker) -> None:
    broker.create_topic("timed-out")

    async def work() -> None:
        async with open_producer(broker) as producer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), producer.transaction() as t:
                    t.produce("timed-out", b"no")
                    await asyncio.sleep(60)
            async with producer.transaction() as t:
                t.produce("timed-out", b"yes")

    asyncio.run(work())
    assert values(broker, "timed-out") == [b"yes"]


def test_a_second_block_beside_an_open_one_is_refused_and_does_no_harm(
    broker: TestBroker,
) -> None:
    broker.create_topic("one-at-a-time")

    async def work() -> None:
        async with open_producer(broker) as producer, producer.transaction() as t:
            t.produce("one-at-a-time", b"first")
            with pytest.raises(txn.RejectedError, match=r"one at a time.*asyncio\.Lock"):
                async with producer.transaction():
                    pass

    asyncio.run(work())
    assert values(broker, "one-at-a-time") == [b"first"]


def test_an_opening_that_is_cancelled_leaves_nothing_open(
    broker: TestBroker, engine: EngineName
) -> None:
    async def work() -> None:
        for step, moment in ((1, Moment.WAITING), (1, Moment.WOKEN)):
            producer = open_producer(broker, f"opening-{moment.value}-{engine}", engine)
            assert await is_cancelled_at(step, moment, producer.client.open())
            with pytest.raises(txn.RejectedError, match="is closed"):
                producer.transaction()
            async with (
                open_producer(broker, f"opening-{moment.value}-{engine}", engine) as again,
                again.transaction(),
            ):
                pass

    asyncio.run(work())


def test_an_opening_at_a_cluster_that_is_not_there_ends_soon_after_its_cancellation(
    engine: EngineName,
) -> None:
    async def work() -> float:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await txn.aio.Producer.open(
                    bootstrap_servers=f"127.0.0.1:{free_port()}",
                    transactional_id="nowhere",
                    engine=engine,
                    connect_timeout=50,
                )
        return time.monotonic() - began

    assert asyncio.run(work()) < 10


def test_errors_are_those_of_the_synchronous_client(broker: TestBroker) -> None:
    broker.create_topic("fenced")

    async def work() -> None:
        async with open_producer(broker, "same") as first, open_producer(broker, "same"):
            with pytest.raises(txn.FencedError) as raised:
                async with first.transaction() as t:
                    t.produce("fenced", b"late")
        assert raised.value.action is txn.Action.GIVE_UP
        with pytest.raises(txn.ConfigError, match=r"enable\.auto\.commit"):
            await txn.aio.Consumer.open(
                {"bootstrap.servers": "x", "enable.auto.commit": True}, group_id="g"
            )
        with pytest.raises(txn.RejectedError, match="is not open"):
            txn.aio.Producer().transaction()

    asyncio.run(work())


def test_a_client_of_another_event_loop_is_refused(broker: TestBroker) -> None:
    producer = open_producer(broker)

    async def open_it() -> None:
        await producer.client.open()

    async def use_it() -> None:
        async with producer.transaction():
            pass

    asyncio.run(open_it())
    with pytest.raises(txn.RejectedError, match="belongs to the event loop that opened it"):
        asyncio.run(use_it())


def test_each_client_has_one_thread_whatever_it_does(broker: TestBroker) -> None:
    broker.create_topic("threads")

    async def work() -> None:
        before = set(threading.enumerate())
        async with open_producer(broker) as producer:
            for _ in range(5):
                async with producer.transaction() as t:
                    t.produce("threads", b"")
            began = [t.name for t in set(threading.enumerate()) - before if "txn-aio" in t.name]
            assert began == ["txn-aio-producer"]

    asyncio.run(work())
    assert not [t for t in threading.enumerate() if "txn-aio" in t.name and not ended(t)]


def ended(thread: threading.Thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


STOPPED = """\
import asyncio, sys, txn, txn.aio

async def main():
    async with txn.aio.Producer(
        bootstrap_servers=sys.argv[1], transactional_id="stopped", engine=sys.argv[2]
    ) as producer:
        async with producer.transaction() as t:
            t.produce("stopped", b"no")
            print("open", flush=True)
            await asyncio.sleep(60)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("stopped")
"""

FORKED = """\
import asyncio, os, sys, txn, txn.aio

async def main():
    producer = await txn.aio.Producer.open(bootstrap_servers=sys.argv[1], transactional_id="fork")
    child = os.fork()
    if child == 0:
        try:
            producer.transaction()
        except txn.ForkedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    async with producer.transaction():
        pass
    await producer.close()

asyncio.run(main())
"""


def test_ctrl_c_aborts_the_block_and_ends_the_program(
    broker: TestBroker, engine: EngineName
) -> None:
    if "stopped" not in broker.topics():
        broker.create_topic("stopped")
    program = subprocess.Popen(
        [sys.executable, "-c", STOPPED, broker.bootstrap_servers, engine],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    with program:
        assert program.stdout.readline() == "open\n"
        os.kill(program.pid, signal.SIGINT)
        assert program.communicate(timeout=PROGRAM_S)[0] == "stopped\n"
    assert program.returncode == 0
    assert values(broker, "stopped") == []


def test_a_forked_child_is_refused_and_its_parent_goes_on(broker: TestBroker) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
