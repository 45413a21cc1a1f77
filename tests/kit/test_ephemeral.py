"""`txn serve` with a temporary directory: for tests in another language, and by mistake."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.command_line import run_txn

STARTER = """
import subprocess, sys
command = [sys.executable, "-m", "txn", "serve", "--ephemeral"]
broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
print(broker.pid, broker.stdout.readline().split()[-1], flush=True)
input()
"""


def test_it_serves_on_a_free_port_and_stops_with_the_process_that_started_it() -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    with starter.stdout as output:
        pid, servers = output.readline().split()
    broker = psutil.Process(int(pid))
    place = next(
        Path(each.path).parent for each in broker.open_files() if each.path.endswith(".lock")
    )
    create_topic(servers, "orders")
    send(plain_producer(servers), "orders", [b"7 apples"])
    assert read_all(servers, "orders") == [b"7 apples"]

    starter.kill()
    starter.wait()
    assert starter.stdin is not None
    starter.stdin.close()
    broker.wait(WAIT_S)
    assert not place.exists()


@pytest.mark.parametrize("other", ["--data x", "--config x", "--check"])
def test_it_takes_nothing_that_would_stay(other: str) -> None:
    code, _, errors = run_txn("serve", "--ephemeral", *other.split())
    assert code == 2
    assert f"leave {other.split()[0]} out" in errors


@pytest.mark.parametrize(("words", "is_warned"), [((), True), (("--data", "data"), False)])
def test_a_broker_whose_data_goes_with_it_says_so(
    tmp_path: Path, words: tuple[str, ...], is_warned: bool
) -> None:
    """Records of days were gone after a restart, and no line had told of it."""
    broker = subprocess.Popen(
        [sys.executable, "-m", "txn", "serve", "--listen", "127.0.0.1:0", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert broker.stdout is not None
    broker.stdout.readline()
    broker.terminate()
    _, said = broker.communicate(timeout=WAIT_S)
    told = [line for line in said.splitlines() if "broker.data_is_temporary" in line]
    assert bool(told) is is_warned
    assert all("WARNING" in line and "--data DIR" in line for line in told)
