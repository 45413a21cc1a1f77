"""The README's promises have tests; its code runs in `test_pages.py`."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import txn
from support.clients import create_topic, plain_producer, send, transactional_producer
from support.command_line import run_txn
from txn.testing import TestBroker

WAIT_S = 100

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PROMISES = sorted(set(re.findall(r"\bP[1-9]\b", README)))


def test_the_transaction_example_is_under_20_lines() -> None:
    assert len(BLOCKS[0].strip().splitlines()) < 20


def test_two_instances_of_the_loop_do_not_fence_each_other_in_turn() -> None:
    """Each opened a producer anew when the other had fenced it, for ever."""
    loop: dict[str, Any] = {"txn": txn}
    exec(BLOCKS[1], loop)
    with TestBroker() as broker, ThreadPoolExecutor(2) as threads:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("invoices", partitions=1)
        orders = (b"%d" % number for number in count())
        stop = Event()
        try:
            both = [threads.submit(loop["run"], broker.bootstrap_servers, stop)]
            await_invoices(broker, orders, lambda: broker.records("invoices") != [])
            both.append(threads.submit(loop["run"], broker.bootstrap_servers, stop))
            await_invoices(broker, orders, lambda: any(each.done() for each in both))
            [over] = [each for each in both if each.done()]
            [left] = [each for each in both if each is not over]
            copied = len(broker.records("invoices"))
            await_invoices(broker, orders, lambda: len(broker.records("invoices")) > copied)
        finally:
            stop.set()

        assert isinstance(over.exception(), txn.FencedError)
        assert left.exception(WAIT_S) is None
        copies = values(broker, "invoices")
        assert len(set(copies)) == len(copies)


def await_invoices(broker: TestBroker, orders: Iterator[bytes], is_so: Callable[[], bool]) -> None:
    """Send an order to each partition ten times a second until it is so."""
    ends_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < ends_s
        for partition in range(2):
            broker.produce("orders", next(orders), partition=partition)
        time.sleep(0.1)


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def test_all_nine_promises_are_listed() -> None:
    assert [f"P{number}" for number in range(1, 10)] == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_a_test_that_carries_its_name(promise: str) -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert re.search(rf"\b(def test|class Test)\w*{promise}(?![0-9])", tests)


def test_what_explain_prints_is_what_the_readme_shows() -> None:
    """But for times, addresses and offsets in `__transaction_state`."""
    (block,) = re.findall(
        r"^```console\n\$ (txn explain .*?)^```", README, re.MULTILINE | re.DOTALL
    )
    shown = block.splitlines()[1:]
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"before"] * 217)
        producer = transactional_producer(servers, "pay-3", client_id="billing")
        producer.begin_transaction()
        send(producer, "orders", [b"a", b"b"])
        send(plain_producer(servers), "orders", [b"x"] * 41)
        _, printed, _ = run_txn("explain", "orders", "--bootstrap", servers)
    assert [masked(line) for line in printed.splitlines()] == [masked(line) for line in shown]


def masked(line: str) -> str:
    line = re.sub(r"127\.0\.0\.1:\d+", "HOST", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", "TIME", line)
    line = re.sub(r"(\d+ min )?[\d.]+ m?s\b", "AGE", line)
    return re.sub(r" +[+-]AGE", " AGE", line)
