"""The cost of a test's broker: opening it, a topic, a reset; and a session of 200 tests.

`make micro` runs it with the others.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from txn.testing import TestBroker

TESTS = 200
SESSION = f"""
import pytest

@pytest.mark.parametrize("number", range({TESTS}))
def test_own_broker(txn_fresh_broker, number):
    txn_fresh_broker.create_topic("orders")
    txn_fresh_broker.produce("orders", str(number))
    assert len(txn_fresh_broker.records("orders")) == 1
"""


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", "7 apples")
        broker.records("orders")
        yield broker


def test_open(benchmark: Any) -> None:
    opened = [TestBroker()]

    def close_last() -> None:
        opened.pop().close()

    benchmark.pedantic(lambda: opened.append(TestBroker()), setup=close_last, rounds=50)
    close_last()


def test_topic(benchmark: Any, broker: TestBroker) -> None:
    benchmark(broker.create_topic)


def test_records(benchmark: Any, broker: TestBroker) -> None:
    benchmark(broker.records, "orders")


def test_reset(benchmark: Any, broker: TestBroker) -> None:
    with broker.snapshot() as snapshot:
        benchmark(broker.reset, snapshot)


def test_reset_to_an_empty_broker(benchmark: Any, broker: TestBroker) -> None:
    benchmark(broker.reset)


@pytest.mark.timeout(600)
def test_a_session_of_tests_with_a_broker_each(benchmark: Any, tmp_path: Path) -> None:
    (tmp_path / "test_session.py").write_text(SESSION)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "."]

    def play() -> str:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    printed = benchmark.pedantic(play, rounds=3)
    assert f"{TESTS} passed" in printed
