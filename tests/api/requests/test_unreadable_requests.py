"""A request that the broker cannot read has a line of the log, and ends its connection."""

import struct
from collections.abc import Iterator

import pytest

import txn
from support.processors import until
from support.wire_client import RawConnection
from txn.logs import RareLog, log

PRODUCE, FETCH, METADATA = 0, 1, 3


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


def framed(api_key: int, api_version: int, rest: bytes) -> bytes:
    """A frame with a header up to the version."""
    content = struct.pack(">hh", api_key, api_version) + rest
    return struct.pack(">i", len(content)) + content


NO_CLIENT_ID = struct.pack(">ih", 1, -1)

UNREADABLE = {
    "a Produce that ends too early": (
        framed(PRODUCE, 8, NO_CLIENT_ID + b"\xff\xff\x00"),
        "request.malformed api_key=0 api_version=8 client_host=127.0.0.1 reason=",
    ),
    "a Fetch that ends too early": (
        framed(FETCH, 11, NO_CLIENT_ID + b"\x00"),
        "request.malformed api_key=1 api_version=11 client_host=127.0.0.1 reason=",
    ),
    "an API key that no API has": (
        framed(9999, 0, NO_CLIENT_ID),
        "request.malformed api_key=9999 api_version=0 client_host=127.0.0.1 reason=",
    ),
    "a header that ends too early": (
        framed(METADATA, 1, b"\x00"),
        "request.malformed api_key=3 api_version=1 client_host=127.0.0.1 reason=",
    ),
    "the greeting of a browser": (
        b"GET / HTTP/1.1\r\n\r\n",
        "request.malformed api_key=None api_version=None client_host=127.0.0.1 reason=",
    ),
    "a version of Fetch from the future": (
        framed(FETCH, 999, NO_CLIENT_ID + b"\x00"),
        "request.unsupported api_key=1 api_version=999 client_host=127.0.0.1",
    ),
    "a request for Python that ends too early": (
        framed(METADATA, 1, NO_CLIENT_ID + b"\x00\x00\x00\x07"),
        "request.malformed api_key=3 api_version=1 client_host=127.0.0.1 reason=",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_request_is_logged_with_its_sender_and_its_api(
    case: str, servers: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_line = RareLog(log, interval_s=0.0)
    monkeypatch.setattr("txn.server.loop.control_loop.rare_log", every_line)
    sent, line = UNREADABLE[case]

    def attempt() -> bool:
        """One more unreadable request: of many in 100 ms a reactor reports one."""
        with RawConnection(servers) as connection:
            connection.send_raw(sent)
            assert connection.is_closed_by_peer()
        return line in caplog.text

    until(attempt)


def test_a_flood_of_unreadable_requests_is_one_line_a_second(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        with RawConnection(servers) as connection:
            connection.send_raw(framed(FETCH, 11, NO_CLIENT_ID))
            assert connection.is_closed_by_peer()
    assert caplog.text.count("request.malformed") <= 2
