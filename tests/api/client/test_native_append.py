"""`produce` of the native engine adds most records in one step, and no rule is lost there.

A record that the step does not add goes through `RecordQueue.add`, as those of `send` always do.
"""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any

import pytest

import txn
import txn.aio
from txn.client.native import NativeProducer
from txn.client.record_queue import RecordQueue
from txn.client.transaction import Transaction
from txn.testing import TestBroker

PROGRAM_S = 120.0
THREADS = 4
EACH = 600
ROUNDS = 20

IN_A_FORK = """\
import os, sys, txn

servers = sys.argv[1]
with (
    txn.Producer(bootstrap_servers=servers, transactional_id="parent", engine="native") as parent,
    txn.Producer(bootstrap_servers=servers, engine="native") as plain,
):
    with parent.transaction() as t:
        for each in (t, plain):
            each.produce("append-forked", b"first")
            each.produce("append-forked", b"before")
        if (child := os.fork()) == 0:
            refused = 0
            for each in (t, plain):
                try:
                    each.produce("append-forked", b"of nobody")
                except txn.ForkedError:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        for each in (t, plain):
            each.produce("append-forked", b"after")
"""


class Number(int):
    """A subclass of int."""


class Text(str):
    """A subclass of str."""


class Pairs(list[tuple[str, str | bytes | None]]):
    """A list that gives itself in its own way."""

    def __iter__(self) -> Iterator[tuple[str, str | bytes | None]]:
        return iter([("own", b"way")])


class Interrupted(BaseException):
    """Raised by a signal's handler, as KeyboardInterrupt is."""


Open = Callable[..., txn.Producer]


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("shared")
        yield made


@pytest.fixture
def opened(broker: TestBroker) -> Iterator[Open]:
    made: list[txn.Producer] = []

    def open_one(**settings: Any) -> txn.Producer:
        engine = settings.pop("engine", "native")
        made.append(
            txn.Producer(bootstrap_servers=broker.bootstrap_servers, engine=engine, **settings)
        )
        return made[-1]

    yield open_one
    for producer in made:
        with suppress(txn.TxnError):
            producer.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The value of each record that is not added in one step."""
    seen: list[object] = []
    add = RecordQueue.add

    def noted(self: RecordQueue, topic: str, value: Any, *rest: Any) -> None:
        seen.append(value)
        add(self, topic, value, *rest)

    monkeypatch.setattr(RecordQueue, "add", noted)
    return seen


def test_a_record_has_all_that_it_was_given(
    broker: TestBroker, opened: Open, slow: list[object]
) -> None:
    topic = broker.create_topic("given", partitions=3)
    with opened(transactional_id="given").transaction() as t:
        t.produce(topic, "text", b"key", partition=2, timestamp=10**11)
        t.produce(topic, None, "key", partition=2, headers=[("a", b"1"), ("a", None), ("ü", "t")])
        t.produce(topic, b"", None, partition=2, headers={"b": b"", "c": None, "d": "e"})
        t.produce(Text(topic), Text("own"), Text("k"), partition=2, headers=[], timestamp=None)
    text, tombstone, empty, own = broker.records(topic)
    assert (text.value, text.key, text.timestamp_ms) == (b"text", b"key", 10**11)
    assert (tombstone.value, tombstone.key) == (None, b"key")
    assert tombstone.headers == (("a", b"1"), ("a", None), ("ü", b"t"))
    assert (empty.value, empty.key) == (b"", None)
    assert empty.headers == (("b", b""), ("c", None), ("d", b"e"))
    assert (own.value, own.key, own.headers) == (b"own", b"k", ())
    assert {record.partition for record in (text, tombstone, empty, own)} == {2}
    assert slow == []


def test_records_of_both_ways_are_stored_in_the_order_of_their_calls(
    broker: TestBroker, opened: Open, slow: list[object]
) -> None:
    topic = broker.create_topic("both-ways")
    producer = opened(transactional_id="both-ways", buffer_memory=40_000, batch_size=2_000)
    with producer.transaction() as t:
        for number in range(EACH):
            value = b"%d" % number + b"." * 100
            if number % 5 == 0:
                t.send(topic, value)
            elif number % 5 == 1:
                t.produce(topic, value, partition=Number(0))
            elif number % 5 == 2:
                t.produce(topic, value, timestamp=1_000)
            else:
                t.produce(topic, value)
    values = [record.value or b"" for record in broker.records(topic)]
    assert [int(value.rstrip(b".")) for value in values] == list(range(EACH))
    assert EACH * 3 // 5 <= len(slow) < EACH


def test_no_code_of_a_value_runs_within_the_step(
    broker: TestBroker, opened: Open, slow: list[object]
) -> None:
    """Such code may end the transaction, or let another thread do so."""
    topic = broker.create_topic("own-code")
    with opened(transactional_id="own-code").transaction() as t:
        t.produce(topic, b"headers", headers=Pairs([("not", b"this")]))
        t.produce(topic, b"partition", partition=Number(0))
        t.produce(topic, b"bool", partition=False)
    assert slow == [b"headers", b"partition", b"bool"]
    first, *_ = broker.records(topic)
    assert first.headers == (("own", b"way"),)
    assert len(broker.records(topic)) == 3


REFUSED: list[dict[str, Any]] = [
    {"topic": b"shared"},
    {"topic": None},
    {"value": {"a": 1}},
    {"value": bytearray(b"x")},
    {"key": 7},
    {"headers": "a"},
    {"headers": [["a", "b"]]},
    {"headers": [("a",)]},
    {"headers": {"a": 1}},
    {"partition": "1"},
    {"partition": 1.0},
    {"timestamp": 0},
    {"timestamp": -1},
    {"timestamp": 1.7e12},
    {"timestamp": datetime(2026, 1, 1)},
    {"value": b"x" * 1_000_001},
    {"on_delivery": print},
]


@pytest.mark.parametrize("named", [True, False], ids=["in-blocks", "plain"])
def test_what_cannot_be_sent_is_refused_as_with_the_other_engine(
    broker: TestBroker, opened: Open, named: bool
) -> None:
    topic = broker.create_topic(f"refused-{named}")
    refusals: dict[str, list[tuple[type[Exception], str]]] = {}
    for engine in ("native", "confluent-kafka"):
        producer = opened(engine=engine, transactional_id="refused" if named else None)
        for record in REFUSED:
            with pytest.raises((TypeError, txn.RejectedError)) as raised:
                if named:
                    with producer.transaction() as t:
                        t.produce(**{"topic": topic, **record})
                else:
                    producer.produce(**{"topic": topic, **record})
            refusals.setdefault(engine, []).append((raised.type, str(raised.value)))
        producer.close()
    assert refusals["native"] == refusals["confluent-kafka"]
    assert broker.records(topic) == []


@pytest.mark.parametrize(
    "record",
    [
        {"headers": [(b"a", b"b")]},
        {"headers": {1: "a"}},
        {"partition": 2**40},
        {"timestamp": 2**70},
        {"value": "\ud800"},
        {"topic": "\ud800"},
    ],
    ids=ascii,
)
def test_what_does_not_fit_is_refused_as_by_send(
    opened: Open, slow: list[object], record: dict[str, Any]
) -> None:
    producer = opened()
    producer.produce("shared", b"first")
    errors = []
    for call in (producer.produce, producer.send):
        with pytest.raises((TypeError, OverflowError, UnicodeEncodeError)) as raised:
            call(**{"topic": "shared", **record})
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]
    assert len(slow) == 3


def test_a_time_that_may_count_seconds_is_warned_of(opened: Open) -> None:
    producer = opened()
    producer.produce("shared", b"first")
    with pytest.warns(UserWarning, match="before March 1973") as told:
        producer.produce("shared", b"x", timestamp=1_700_000_000)
    with (
        pytest.warns(UserWarning, match="before March 1973") as in_block,
        opened(transactional_id="seconds").transaction() as t,
    ):
        t.produce("shared", b"x", timestamp=1_700_000_000)
    assert {warning.filename for warning in (*told, *in_block)} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer.produce("shared", b"x", timestamp=1_700_000_000_000)


def test_threads_add_each_record_once_and_each_in_its_own_order(
    broker: TestBroker, opened: Open
) -> None:
    topic = broker.create_topic("threads")
    producer = opened(transactional_id="threads", buffer_memory=20_000, batch_size=2_000)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with producer.transaction() as t:

            def work(thread: int) -> None:
                for number in range(EACH):
                    t.produce(topic, b"%d %d" % (thread, number) + b" " * 60)

            workers = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    finally:
        sys.setswitchinterval(interval)
    read: dict[int, list[int]] = {}
    for record in broker.records(topic):
        thread, number = (record.value or b"").split()
        read.setdefault(int(thread), []).append(int(number))
    assert read == {thread: list(range(EACH)) for thread in range(THREADS)}


def test_no_record_of_an_aborted_block_comes_into_the_next_one(
    broker: TestBroker, opened: Open
) -> None:
    """A thread goes on producing while the block of its transaction ends, and others begin."""
    topic = broker.create_topic("late")
    producer = opened(transactional_id="late", buffer_memory=2_000, batch_size=500, linger_ms=0)
    raised: list[BaseException] = []

    def work(t: Transaction) -> None:
        try:
            while True:
                t.produce(topic, b"aborted" + b"." * 200)
        except BaseException as error:
            raised.append(error)

    for _ in range(ROUNDS):
        with suppress(ZeroDivisionError), producer.transaction() as first:
            worker = threading.Thread(target=work, args=(first,))
            worker.start()
            first.produce(topic, b"aborted")
            raise ZeroDivisionError
        with producer.transaction() as second:
            second.produce(topic, b"committed")
            with pytest.raises(txn.RejectedError, match="is over"):
                first.produce(topic, b"too late")
        worker.join()
    assert [record.value for record in broker.records(topic)] == [b"committed"] * ROUNDS
    assert len(raised) == ROUNDS
    assert {type(error) for error in raised} == {txn.RejectedError}


def test_a_record_that_waits_for_room_is_refused_once_its_block_is_over(
    broker: TestBroker, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may have begun the next transaction, which took the record."""
    topic = broker.create_topic("waiting")
    producer = opened(transactional_id="waiting", buffer_memory=1_000)
    room = NativeProducer.poll

    def end_and_begin(self: Any, timeout: float) -> int:
        if blocks:
            block, blocks[:] = blocks[0], []
            with suppress(ZeroDivisionError):
                block.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
            next_one.__enter__()
        return room(self, timeout)

    blocks: list[Transaction] = []
    first, next_one = producer.transaction(), producer.transaction()
    first.__enter__()
    first.produce(topic, b"." * 600)
    blocks.append(first)
    monkeypatch.setattr(NativeProducer, "poll", end_and_begin)
    with pytest.raises(txn.RejectedError, match="is over"):
        first.produce(topic, b"," * 600)
    next_one.__exit__(None, None, None)
    assert broker.records(topic) == []


def test_a_closed_producer_takes_nothing(broker: TestBroker, opened: Open) -> None:
    topic = broker.create_topic("closed")
    plain, named = opened(), opened(transactional_id="closed")
    for _ in range(2):
        plain.produce(topic, b"before")
    with (
        pytest.raises(txn.RejectedError, match="was closed in its block"),
        named.transaction() as t,
    ):
        t.produce(topic, b"aborted")
        named.close()
        with pytest.raises(txn.RejectedError, match="is over"):
            t.produce(topic, b"after")
    plain.close()
    with pytest.raises(txn.RejectedError, match="is closed; open another"):
        plain.produce(topic, b"after")
    assert [record.value for record in broker.records(topic)] == [b"before"] * 2


def test_a_record_that_meets_the_close_of_its_producer_is_refused(
    broker: TestBroker, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken, and lost without a word."""
    topic = broker.create_topic("closing")
    producer = opened()
    send = NativeProducer.produce

    def close_first(self: Any, topic: str, **record: Any) -> None:
        producer.close()
        send(self, topic, **record)

    monkeypatch.setattr(NativeProducer, "produce", close_first)
    with pytest.raises(txn.RejectedError, match="is closed; open another"):
        producer.produce(topic, b"lost")


def test_a_forked_child_adds_nothing_to_the_queue_of_its_parent(broker: TestBroker) -> None:
    broker.create_topic("append-forked")
    command = [sys.executable, "-c", IN_A_FORK, broker.bootstrap_servers]
    subprocess.run(command, check=True, timeout=PROGRAM_S)
    values = [record.value or b"" for record in broker.records("append-forked")]
    assert sorted(values) == sorted([b"first", b"before", b"after"] * 2)


def test_a_fenced_producer_says_so(opened: Open) -> None:
    old = opened(transactional_id="fenced")
    with pytest.raises(txn.FencedError), old.transaction() as t:
        t.produce("shared", b"first")
        opened(transactional_id="fenced")
        for _ in count():
            t.produce("shared", b"." * 100)
    with pytest.raises(txn.RejectedError, match="is over"):
        t.produce("shared", b"after")


def test_records_that_are_refused_are_reported_once(broker: TestBroker, opened: Open) -> None:
    topic = broker.create_topic("narrow", max_message_bytes=1_000)
    producer = opened()
    for _ in range(3):
        producer.produce(topic, b"." * 2_000)
    with pytest.raises(txn.RejectedError, match=r"a record of 2000 bytes in 'narrow'.* and 2 more"):
        producer.flush()
    producer.flush()
    for number in range(600):  # enough for a collection of reports
        producer.produce(topic, b"%d" % number)
    producer.flush()
    assert len(broker.records(topic)) == 600


def test_records_of_a_producer_that_was_flushed_and_dropped_are_stored(
    broker: TestBroker, opened: Open
) -> None:
    """After the flush nothing keeps the producer, until it has another record."""
    topic = broker.create_topic("flushed")
    servers = broker.bootstrap_servers
    producer = txn.Producer(bootstrap_servers=servers, linger_ms=300, engine="native")
    for number in range(3):
        producer.produce(topic, b"%d" % number)
        producer.produce(topic, b"%d" % number)
        producer.flush()
    producer.produce(topic, b"last")
    producer.produce(topic, b"last")
    del producer
    gc.collect()
    values = [record.value for record in broker.wait_for_records(topic, 8)]
    assert values == [b"0", b"0", b"1", b"1", b"2", b"2", b"last", b"last"]


def test_a_block_that_caught_a_signal_of_produce_cannot_commit(
    broker: TestBroker, opened: Open
) -> None:
    """The record is on its way, and whoever catches the signal does not know it."""
    topic = broker.create_topic("signals")
    producer = opened(transactional_id="signals")

    def interrupt(*_: object) -> None:
        raise Interrupted

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(txn.AbortableError, match=r"caught an error of produce\(\)"):
            for _ in range(50):  # few signals come elsewhere
                with producer.transaction() as t, suppress(Interrupted):
                    signal.setitimer(signal.ITIMER_REAL, 0.002)
                    while True:
                        t.produce(topic, b"." * 20_000)
    finally:
        signal.signal(signal.SIGALRM, handler)


def test_a_full_queue_of_asyncio_refuses_a_record_and_counts_it_once(broker: TestBroker) -> None:
    topic = broker.create_topic("full")

    async def work() -> int:
        added = 0
        async with (
            txn.aio.Producer(
                bootstrap_servers=broker.bootstrap_servers,
                transactional_id="full",
                engine="native",
                buffer_memory=5_000,
            ) as producer,
            producer.transaction() as t,
        ):
            broker.pause()
            with pytest.raises(BufferError, match="await send"):
                for added in count():
                    t.produce(topic, b"%d" % added)
            broker.resume()
        return added

    added = asyncio.run(work())
    values = [record.value for record in broker.records(topic)]
    assert values == [b"%d" % number for number in range(added)]
