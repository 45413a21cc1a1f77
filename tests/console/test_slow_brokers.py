"""Brokers that accept connections and never answer: the console answers all the same, and stops."""

import http.client
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import txn
from support.clients import WAIT_S
from support.console import ConsoleProcess

REQUESTS = 60


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a socket that accepts connections and answers none."""
    with socket.create_server(("127.0.0.1", 0), backlog=1_000) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_assets_and_a_stop_wait_for_no_broker_that_is_silent(silent: str, tmp_path: Path) -> None:
    """All requests shared 40 threads: with those in use an asset took 10 s, and a stop 12 s."""
    errors = tmp_path / "errors"
    with errors.open("w") as stderr, ExitStack() as stack:
        console = ConsoleProcess("--bootstrap", silent, stderr=stderr)
        browser = console.browser()
        lines = ["GET / HTTP/1.1", "Host: localhost", f"Cookie: {browser.cookie}", "", ""]
        asking = []
        for _ in range(REQUESTS):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", console.port)))
            each.settimeout(WAIT_S)
            each.sendall("\r\n".join(lines).encode())
            asking.append(each)
        assert console.stranger().get("/assets/console.css").status == 200
        assert console.browser().get("/login").status == 200
        assert select.select(asking, (), (), 0)[0] == []
        assert console.stop() == 0
        answers = [each.makefile("rb").read() for each in asking]
    assert all(each.startswith(b"HTTP/1.1 503") and b"console stops" in each for each in answers)
    assert "Traceback" not in errors.read_text()


def test_a_followed_page_comes_again_after_a_trouble(tmp_path: Path) -> None:
    """A part that was the same as before was not sent, and the page went on to tell the trouble."""
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        console = ConsoleProcess("--bootstrap", servers)
        stream = ExitStack()
        answer = stream.enter_context(console.browser().stream("/groups"))
        assert answer.readline() == b"event: part\n"
    with stream:
        await_line(answer, b"event: trouble\n")
        port = int(servers.rpartition(":")[2])
        with txn.Broker(tmp_path / "data", port=port, durability="process"):
            await_line(answer, b"event: part\n")
    assert console.stop() == 0


def await_line(answer: http.client.HTTPResponse, wanted: bytes) -> None:
    while (line := answer.readline()) != wanted:
        assert line, "the stream ended"
