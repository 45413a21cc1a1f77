"""A server in the place of a broker, whose answer to ApiVersions is long, slow or no answer."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest

from txn.client import reach
from txn.client.reach import ANSWER_BYTES_MAX, CONSUMER_GROUP_HEARTBEAT, api_keys_of

Talk = Callable[[socket.socket, Event], None]


@contextmanager
def peer(talk: Talk) -> Iterator[int]:
    """The port of a server that receives a request, and then talks until the block ends."""
    ends = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionError):
                connection.recv(100)
                talk(connection, ends)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ends.set()
            thread.join()


def answer(count: int) -> bytes:
    """An answer with this many API keys, all of groups of KIP-848."""
    body = struct.pack(">ihi", 0, 0, count)
    body += struct.pack(">hhh", CONSUMER_GROUP_HEARTBEAT, 0, 1) * count
    return struct.pack(">i", len(body)) + body


def keys(talk: Talk) -> frozenset[int]:
    with peer(talk) as port:
        return api_keys_of("127.0.0.1", port, has_tls=False)


def test_the_keys_are_those_of_the_answer_however_it_is_cut() -> None:
    def in_pieces(connection: socket.socket, _: Event) -> None:
        for byte in answer(2):
            connection.sendall(bytes([byte]))

    assert keys(in_pieces) == {CONSUMER_GROUP_HEARTBEAT}


def test_an_answer_with_too_many_bytes_is_not_read() -> None:
    """Its first 64 KiB were read, which the sender can make take a day."""
    most = (ANSWER_BYTES_MAX - 10) // 6
    assert keys(lambda connection, _: connection.sendall(answer(most))) == {
        CONSUMER_GROUP_HEARTBEAT
    }
    assert keys(lambda connection, _: connection.sendall(answer(most + 1))) == frozenset()


def test_a_size_is_not_believed() -> None:
    def announce(size: int) -> Talk:
        def talk(connection: socket.socket, ends: Event) -> None:
            connection.sendall(struct.pack(">i", size))
            ends.wait()

        return talk

    began = time.monotonic()
    for size in (-1, ANSWER_BYTES_MAX + 1, 2**31 - 1):
        assert keys(announce(size)) == frozenset()
    assert time.monotonic() - began < reach.ANSWER_SECONDS  # none of them waited


def test_an_answer_byte_by_byte_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(connection: socket.socket, ends: Event) -> None:
        connection.sendall(struct.pack(">i", ANSWER_BYTES_MAX))
        while not ends.wait(0.05):
            connection.sendall(b"\0")

    monkeypatch.setattr(reach, "ANSWER_SECONDS", 0.3)
    began = time.monotonic()
    assert keys(drip) == frozenset()
    assert time.monotonic() - began < 20


def test_an_answer_that_is_cut_has_no_keys() -> None:
    assert keys(lambda connection, _: connection.sendall(answer(2)[:-1])) == frozenset()
    assert keys(lambda *_: None) == frozenset()
