"""The fixtures, in sessions of pytest of their own with warnings as errors."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import threading
from pathlib import Path
import txn.testing.places

txn.testing.places.SHARED_MEMORY = Path({place!r})

def pytest_unconfigure(config):
    mine = [each.name for each in threading.enumerate() if each.name.startswith("txn")]
    assert mine == [], mine
"""


def run_pytest(
    tmp_path: Path, tests: str, *options: str, exit_code: int = 0
) -> tuple[str, list[Path]]:
    """The output of a session on these tests, and the data directories that it left."""
    place = tmp_path / "data"
    place.mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST.format(place=str(place)))
    (tmp_path / "test_it.py").write_text(tests)
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, *options, str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert ended.returncode == exit_code, ended.stdout
    return ended.stdout, list(place.iterdir())


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_fixtures_leave_no_thread_and_no_file(tmp_path: Path, options: tuple[str, ...]) -> None:
    tests = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_shared(txn_broker, txn_topic, number):
    txn_broker.produce(txn_topic, str(number))
    assert [r.value for r in txn_broker.records(txn_topic)] == [str(number).encode()]

@pytest.mark.parametrize("number", range(4))
def test_fresh(txn_fresh_broker, number):
    assert txn_fresh_broker.topics() == []
    assert txn_fresh_broker.create_topic() == "topic-1"
"""
    printed, left = run_pytest(tmp_path, tests, *options)
    assert "8 passed" in printed
    assert left == []


def test_a_fault_ends_with_its_test(tmp_path: Path) -> None:
    tests = """
def test_one(txn_broker):
    txn_broker.delay(3600)
    txn_broker.lose_answer("Produce")

def test_two(txn_broker, txn_topic):
    from confluent_kafka import Producer
    producer = Producer({"bootstrap.servers": txn_broker.bootstrap_servers, "retries": 0})
    failed = []
    producer.produce(txn_topic, b"v", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert failed == [None]
"""
    assert "2 passed" in run_pytest(tmp_path, tests)[0]


def test_a_test_that_closes_the_shared_broker_is_told_and_harms_no_other(tmp_path: Path) -> None:
    """Every later test of the session failed in its teardown, one without a broker, too."""
    tests = """
def test_one(txn_broker):
    txn_broker.close()

def test_two():
    pass

def test_three(txn_topic):
    pass

def test_four(txn_fresh_broker):
    txn_fresh_broker.close()
"""
    printed, left = run_pytest(tmp_path, tests, exit_code=1)
    assert "3 passed, 2 errors" in printed
    assert "this test closed txn_broker, which the session shares" in printed
    assert "txn_broker was closed by test_it.py::test_one" in printed
    assert left == []


def test_a_session_without_the_fixtures_loads_no_broker(tmp_path: Path) -> None:
    tests = """
import sys

def test_it():
    loaded = {name for name in sys.modules if name.startswith("txn.")}
    assert loaded == {"txn.errors", "txn.testing", "txn.testing.plugin"}
"""
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "test_it.py").write_text(tests)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "alone"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout
