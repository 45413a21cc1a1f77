"""A log that nobody reads.

A broker wrote its lines on the threads that serve connections. A pipe whose reader had stopped took
64 KiB of them. Then no request was answered, and SIGTERM did not end the process.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.clients import create_topic, plain_producer, read_all, send

WAIT_S = 60
TOPICS = 900
"""Fewer than the acts of one kind that are written at once; their lines have over 350 KiB."""


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe that takes no byte more: its two ends."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writing, b"." * 511 + b"\n")
        os.set_blocking(writing, True)
        yield reading, writing
    finally:
        os.close(reading)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def serving(
    data: Path, errors: int, port: int, output: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """`txn serve` with its log in a pipe, which is closed here; it answers connections."""
    command = [sys.executable, "-m", "txn", "serve", "--data", str(data)]
    with subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}"], stdout=output, stderr=errors
    ) as process:
        os.close(errors)
        try:
            await_broker(port)
            yield process
        finally:
            process.kill()


def await_broker(port: int) -> None:
    ends_s = time.monotonic() + WAIT_S
    while True:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def read_to_end(reading: int) -> list[str]:
    """Every line of a pipe, until nobody writes to it any more."""
    with open(reading, "rb", closefd=False) as pipe:
        return pipe.read().decode().splitlines()


def create_long_topics(servers: str) -> None:
    names = [f"{number:04}".ljust(240, "n") for number in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(WAIT_S)


@pytest.mark.parametrize("is_output_too", [False, True])
def test_a_log_that_nobody_reads_keeps_neither_clients_nor_a_stop_waiting(
    tmp_path: Path, is_output_too: bool
) -> None:
    port = free_port()
    with (
        full_pipe() as (_, writing),
        serving(
            tmp_path / "data", writing, port, writing if is_output_too else subprocess.DEVNULL
        ) as process,
    ):
        servers = f"127.0.0.1:{port}"
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"one", b"two"])
        create_long_topics(servers)
        assert read_all(servers, "orders") == [b"one", b"two"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").is_file()


def test_a_broker_that_fails_ends_though_nobody_reads_its_log(tmp_path: Path) -> None:
    with (
        full_pipe() as (_, writing),
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        data = str(tmp_path / "data")
        command = [sys.executable, "-m", "txn", "serve", "--data", data, "--listen", listen]
        ended = subprocess.run(command, stderr=writing, timeout=WAIT_S)
        os.close(writing)
    assert ended.returncode == 1


def test_lines_that_found_no_room_are_counted_where_they_are_missing(tmp_path: Path) -> None:
    port = free_port()
    lines: list[str] = []
    with (
        full_pipe() as (reading, writing),
        serving(tmp_path / "data", writing, port) as process,
    ):
        servers = f"127.0.0.1:{port}"
        create_long_topics(servers)
        reader = threading.Thread(target=lambda: lines.extend(read_to_end(reading)))
        reader.start()
        create_topic(servers, "the-last")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        reader.join(WAIT_S)
    told = [line for line in lines if not line.startswith(".")]
    created = [int(found[1]) for line in told if (found := re.search(r"TOPIC:(\d{4})n+", line))]
    assert created == sorted(created)
    dropped = [line for line in told if "log.lines_dropped" in line]
    assert len(dropped) == 1
    assert re.fullmatch(r"\S+ \S+ WARNING log\.lines_dropped count=\d+", dropped[0])
    count = int(dropped[0].rpartition("=")[2])
    assert len(created) + count in (TOPICS, TOPICS + 1)  # that of `the-last` may be one of them
    behind = told[told.index(dropped[0]) + 1 :]
    assert "broker.stopped" in behind[-1]
