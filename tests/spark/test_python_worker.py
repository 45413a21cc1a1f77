"""The costs of PySpark's workers that txn's tasks avoid: collections, and late acknowledgements."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from txn.spark.python_worker import REUSED, acknowledge_now

FROZEN = """\
import gc
from txn.spark.python_worker import begin_request
for _ in range(3):
    begin_request()
    print(gc.get_freeze_count() > 1000)
"""


@pytest.mark.parametrize(
    ("environment", "frozen"),
    [({REUSED: "1"}, ["False", "True", "True"]), ({}, ["False", "False", "False"])],
)
def test_heap_of_a_worker_is_exempt_from_collections_from_its_second_request_on(
    environment: dict[str, str], frozen: list[str]
) -> None:
    """A user's own process keeps its collections."""
    inherited = {name: value for name, value in os.environ.items() if name != REUSED}
    command = [sys.executable, "-c", FROZEN]
    printed = subprocess.check_output(command, text=True, env={**inherited, **environment})
    assert printed.split() == frozen


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux has it")
def test_received_segments_are_acknowledged_now(tmp_path: Path) -> None:
    """Only TCP knows the option; the process's other files and sockets are left alone."""
    option = (socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    unix, peer = socket.socketpair()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as spark,
        server.accept()[0] as worker,
        unix,
        peer,
        (tmp_path / "file").open("w"),
    ):
        worker.setsockopt(*option, 0)
        spark.sendall(b"function")
        assert worker.recv(8) == b"function"
        assert worker.getsockopt(*option) == 0
        acknowledge_now()
        assert worker.getsockopt(*option) == 1
