"""A broker that a program forgets to close: it says so, stops, and leaves nothing behind."""

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import txn
from support.own_process import in_own_process
from txn.server.lifecycle.broker import service_of

WAIT_S = 30.0


def until(holds: Callable[[], bool]) -> None:
    """Wait for an effect that another thread has."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "the effect does not come"
        os.sched_yield()


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=WAIT_S
    )


def test_a_broker_that_is_collected_warns_stops_and_removes_its_temporary_directory() -> None:
    """The story: its threads held it, so it served a directory in /tmp until the process ended."""
    in_own_process(collect_a_broker)


def collect_a_broker() -> None:
    files = len(os.listdir("/proc/self/fd"))
    held = [txn.Broker()]
    path, address = held[0].path, held[0].bootstrap_servers

    with pytest.warns(ResourceWarning, match=f"unclosed broker {address} on {path}"):
        held.clear()

    until(lambda: not path.exists())
    until(lambda: not any(thread.name.startswith("txn-") for thread in threading.enumerate()))
    until(lambda: gc.collect() >= 0 and len(os.listdir("/proc/self/fd")) <= files)


def test_a_named_broker_that_is_collected_closes_in_order(tmp_path: Path) -> None:
    held = [txn.Broker(tmp_path / "data")]
    with pytest.warns(ResourceWarning, match="open it in a `with` block, or call close"):
        held.clear()
    until((tmp_path / "data" / ".kafka_cleanshutdown").exists)


def test_a_broker_that_was_closed_or_never_opened_warns_of_nothing(tmp_path: Path) -> None:
    txn.Broker().close()
    with pytest.raises(txn.ConfigError, match=r"num.partitions cannot be 'many'"):
        txn.Broker(num_partitions="many")
    gc.collect()  # a warning is an error here


def test_a_broker_left_open_at_the_end_of_the_program_is_closed_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    program = f"""\
import txn
named, temporary = txn.Broker({str(data)!r}), txn.Broker()
with txn.Producer(bootstrap_servers=named.bootstrap_servers, transactional_id="a") as producer:
    with producer.transaction() as t:
        t.produce("orders", b"1")
print(temporary.path)
"""
    done = run(program, "-W", "always::ResourceWarning")
    assert done.returncode == 0
    assert done.stderr.count("ResourceWarning: unclosed broker 127.0.0.1:") == 2
    assert not Path(done.stdout.strip()).exists()
    assert (data / ".kafka_cleanshutdown").exists()


def test_nothing_is_printed_where_nobody_asked_for_warnings(tmp_path: Path) -> None:
    done = run("import txn; broker = txn.Broker()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_end_comes_though_warnings_are_errors_and_a_transaction_is_open(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    program = f"""\
import txn
broker = txn.Broker({str(data)!r})
producer = txn.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a")
transaction = producer.transaction()
transaction.__enter__().produce("orders", b"1")
raise SystemExit(3)
"""
    assert run(program, "-W", "error").returncode == 3
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_broker_that_cannot_be_closed_is_not_marked_as_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise txn.StorageError("the disk refuses")

    held = [txn.Broker(tmp_path / "data")]
    monkeypatch.setattr(service_of(held[0]).node, "close", fail)
    with caplog.at_level(logging.ERROR, "txn"):
        with pytest.warns(ResourceWarning):
            held.clear()
        until(lambda: "broker.not_closed" in caplog.text)
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_a_port_that_is_taken_leaves_no_directory_and_no_file_behind(
    exists: bool, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    if exists:
        data.mkdir()
    with txn.Broker() as other:
        port = int(other.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(txn.AddressError, match=f"127.0.0.1:{port}"):
            txn.Broker(data, port=port)
    assert data.exists() == exists
    assert not exists or list(data.iterdir()) == []


def test_a_directory_that_is_refused_leaves_the_port_free(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data") as broker, txn.Broker() as other:
        port = int(other.bootstrap_servers.rpartition(":")[2])
        other.close()
        with pytest.raises(txn.DirectoryError) as refused:
            txn.Broker(broker.path, port=port)
        with txn.Broker(port=port):
            assert refused.value  # whose traceback holds the broker that did not start
