"""Addresses at which no broker listens, or one that is too old: the commands that ask it say so."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from support.command_line import run_txn
from txn.wire.encoding import encode
from txn.wire.kio import load_response_schema


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "orders", "--bootstrap", "127.0.0.1:1"), "node 127.0.0.1:1 cannot be reached"),
        (("explain", "orders", "--bootstrap", "nowhere"), "--bootstrap takes HOST:PORT"),
        (("explain", "orders", "--data", "/nonexistent"), "is no data directory"),
        (("explain", "a", "--data", "/", "--bootstrap", "a:1"), "give one of them"),
        (("transactions", "abort"), "in one way: --transactional-id ID, or"),
        (
            ("transactions", "abort", "--topic-partition", "orders-0"),
            "in one way: --transactional-id ID, or",
        ),
        (("transactions", "list", "--longer-than", "soon"), "a duration is a number"),
    ],
)
def test_wrong_usage_and_nobody_to_ask_end_with_2_and_say_what_to_do(
    arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = run_txn(*arguments)
    assert (code, out, said in err, err.count("\n")) == (2, "", True, 1)


def test_what_listens_there_and_is_no_broker_is_told_from_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer).start()
        code, _, err = run_txn("explain", "orders", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, f"127.0.0.1:{port} does not answer like a Kafka broker" in err) == (2, True)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"", "If its listener wants TLS or SASL, set security.protocol"),
        (b"\x15\x03\x03\0\x02\x02\x46", "speaks TLS on this port; set security.protocol"),
    ],
)
def test_a_listener_with_tls_or_that_hangs_up_is_told_with_the_setting(
    first: bytes, told: str
) -> None:
    with answering(lambda _: first) as port:
        code, out, err = run_txn("transactions", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_a_listener_that_hangs_up_behind_its_versions_may_want_sasl() -> None:
    def answer(asked: bytes) -> bytes:
        (key,) = struct.unpack_from(">h", asked, 4)
        return versions_alone(asked) if key == 18 else b""

    with answering(answer) as port:
        code, out, err = run_txn("transactions", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "If its listener wants SASL" in err


METADATA_ALONE = {"api_key": 3, "min_version": 0, "max_version": 9}
UNSUPPORTED_VERSION = 35


def versions_alone(asked: bytes) -> bytes:
    """The ApiVersions answer of a broker that knows version 0 of it, and Metadata."""
    (version,) = struct.unpack_from(">h", asked, 6)
    fields = {"error_code": UNSUPPORTED_VERSION if version else 0, "api_keys": [METADATA_ALONE]}
    body = encode(load_response_schema(18, 0), fields)
    return struct.pack(">i", 4 + len(body)) + asked[8:12] + body


def test_a_broker_that_is_too_old_is_told_from_one_that_is_not() -> None:
    def answer(asked: bytes) -> bytes:
        (key,) = struct.unpack_from(">h", asked, 4)
        if key == 18:
            return versions_alone(asked)
        version, metadata = 9, {"controller_id": 1, "topics": [], "brokers": [], "cluster_id": None}
        metadata["brokers"] = [{"node_id": 1, "host": "127.0.0.1", "port": port, "rack": None}]
        body = b"\0" + encode(load_response_schema(3, version), metadata)
        return struct.pack(">i", 4 + len(body)) + asked[8:12] + body

    with answering(answer) as port:
        code, out, err = run_txn("transactions", "list", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "this client needs ListTransactions in version 0 to 1" in err
    assert "use a broker of Kafka 3.0 or newer" in err


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """The port of a listener that answers frames; it closes the connection where that is empty."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while asked := connection.recv(1 << 16):
                if not (told := answer(asked)):
                    return
                connection.sendall(told)

    def accept() -> None:
        with suppress(OSError):
            while True:
                serve(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
