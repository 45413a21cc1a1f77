"""A request that costs its connection has a line of the log.

Nobody could tell why a client without a log-in, or one with acks=0, lost its connections.
"""

import struct
from collections.abc import Iterator

import pytest

import txn
from support.processors import until
from support.wire_client import RawConnection
from txn.logs import RareLog, log
from txn.wire.messages import encode_request

PRODUCE, FETCH, METADATA = 0, 1, 3
SASL = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
    ),
}


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


def unacknowledged(topic: str, *, partitions: int = 1) -> bytes:
    """A Produce with acks=0 to partitions of a topic."""
    fields = {
        "transactional_id": None,
        "acks": 0,
        "timeout": 1_000,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [{"index": n, "records": None} for n in range(partitions)],
            }
        ],
    }
    return framed(PRODUCE, 8, NO_CLIENT_ID + encode_request(PRODUCE, 8, fields))


UNACKNOWLEDGED = {
    "one partition": (unacknowledged("nowhere"), "partition=nowhere-0"),
    "several": (unacknowledged("nowhere", partitions=3), 'partition="nowhere-0 and 2 others"'),
    "a name that is no topic's": (
        unacknowledged("x" * 30_000),
        f"partition={'x' * 249}-0",
    ),
}


@pytest.mark.parametrize("case", UNACKNOWLEDGED)
def test_a_failed_produce_without_an_answer_is_logged_with_its_partition_and_its_error(
    case: str, servers: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txn.server.loop.control_loop.rare_log", RareLog(log, interval_s=0.0))
    sent, partition = UNACKNOWLEDGED[case]
    line = "request.unacknowledged api_key=0 api_version=8 client_host=127.0.0.1 error="

    def attempt() -> bool:
        with RawConnection(servers) as connection:
            connection.send_raw(sent)
            assert connection.is_closed_by_peer()
        return line in caplog.text and f"{partition}\n" in caplog.text

    until(attempt)


def test_a_request_before_the_log_in_is_logged_with_its_sender_and_its_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    line = (
        "request.unauthenticated api_key=3 api_version=1 client_host=127.0.0.1 "
        "session_expired=False"
    )
    with txn.Broker(properties=SASL) as broker:
        for _ in range(20):
            with RawConnection(broker.listeners["SASL_PLAINTEXT"]) as connection:
                connection.send_raw(framed(METADATA, 1, NO_CLIENT_ID + b"\xff\xff\xff\xff"))
                assert connection.is_closed_by_peer()
        until(lambda: line in caplog.text)
        assert caplog.text.count("request.unauthenticated") <= 2


def test_a_flood_of_unreadable_requests_is_one_line_a_second(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        with RawConnection(servers) as connection:
            connection.send_raw(framed(FETCH, 11, NO_CLIENT_ID))
            assert connection.is_closed_by_peer()
    assert caplog.text.count("request.malformed") <= 2
