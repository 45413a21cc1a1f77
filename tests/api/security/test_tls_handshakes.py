"""Everything that may be wrong with a handshake; it costs only its own connection."""

import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import txn
from api.security.tls_brokers import (
    METRICS,
    address,
    ask_metadata,
    await_failure,
    await_true,
    failures,
    refusal_of,
)
from support.certificates import Issuer, TlsConnection
from support.clients import (
    WAIT_S,
    create_topic,
    transactional_producer,
)
from support.wire_client import RawConnection

HANDSHAKE_BYTES_MAX = 128 << 10
"""As in rust/txn-net/src/tls/stream.rs."""


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "certificates")


@pytest.fixture
def other(tmp_path: Path) -> Issuer:
    """An issuer that nobody trusts."""
    return Issuer(tmp_path / "others")


@pytest.fixture
def broker(issuer: Issuer) -> Iterator[txn.Broker]:
    """A broker that asks for client certificates."""
    properties = issuer.broker(issuer.issue("broker"), "required")
    with txn.Broker(metrics=METRICS, properties=properties) as running:
        yield running


def test_a_client_without_a_certificate_is_refused(broker: txn.Broker, issuer: Issuer) -> None:
    assert "certificate required" in refusal_of(address(broker), issuer.client())
    await_failure(broker, "no_certificate")


def test_a_client_of_another_issuer_is_refused(
    broker: txn.Broker, issuer: Issuer, other: Issuer
) -> None:
    with pytest.raises((ConnectionError, ssl.SSLError)):  # librdkafka would not even show it
        ask_metadata(address(broker), issuer.context(other.issue("client")))
    await_failure(broker, "unknown_issuer")


def test_an_expired_client_is_refused(broker: txn.Broker, issuer: Issuer) -> None:
    refusal_of(address(broker), issuer.client(issuer.issue("client", expired=True)))
    await_failure(broker, "expired")


def test_clients_refuse_a_broker_of_another_issuer(
    broker: txn.Broker, issuer: Issuer, other: Issuer
) -> None:
    told = refusal_of(address(broker), other.client(issuer.issue("client")))
    assert "certificate verify failed" in told
    await_failure(broker, "client_refused")


@pytest.mark.parametrize(("hosts", "expired"), [(("elsewhere.example",), False), ((), True)])
def test_clients_refuse_another_host_and_an_expired_broker(
    issuer: Issuer, hosts: tuple[str, ...], expired: bool
) -> None:
    certificate = issuer.issue("broker", *hosts, expired=expired)
    with txn.Broker(metrics=METRICS, properties=issuer.broker(certificate)) as broker:
        told = refusal_of(address(broker), issuer.client())
        assert "certificate verify failed" in told
        await_failure(broker, "client_refused")


def test_tls_1_1_is_refused(broker: txn.Broker) -> None:
    host, _, port = address(broker).rpartition(":")
    command = ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_1"]
    command += ["-cipher", "DEFAULT@SECLEVEL=0"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=WAIT_S)
    assert b"alert handshake failure" in done.stderr
    await_failure(broker, "incompatible")


def test_plain_bytes_at_a_tls_port_and_tls_at_a_plain_port_cost_their_connection_alone(
    broker: txn.Broker, issuer: Issuer
) -> None:
    client = issuer.issue("client")
    with RawConnection(address(broker)) as plain:
        plain.send_frame(struct.pack(">hhih", 3, 0, 1, -1))
        assert plain.socket.recv(1) == b"\x15"  # an alert
        assert plain.socket.recv(100)
        assert plain.is_closed_by_peer()
    await_failure(broker, "not_tls")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TlsConnection(broker.listeners["PLAINTEXT"], issuer.context(client))
    assert ask_metadata(address(broker), issuer.context(client))


def test_a_truncated_handshake_is_counted(broker: txn.Broker) -> None:
    with RawConnection(address(broker)) as connection:
        connection.send_raw(bytes.fromhex("16030100c8010000c40303"))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.is_closed_by_peer()
    await_failure(broker, "client_left")


def extension(number: int, content: bytes) -> bytes:
    return struct.pack(">HH", number, len(content)) + content


def client_hello(key_shares: bytes) -> bytes:
    """A ClientHello of TLS 1.3 with 60,000 bytes of padding, in records."""
    extensions = b"".join(
        (
            extension(10, b"\0\2\0\x1d"),  # the group x25519
            extension(13, b"\0\4\x04\x03\x08\x04"),  # signatures by ECDSA and RSA
            extension(43, b"\2\3\4"),  # TLS 1.3
            extension(51, struct.pack(">H", len(key_shares)) + key_shares),
            extension(21, bytes(60_000)),
        )
    )
    hello = b"\3\3" + bytes(range(32)) + b"\x20" + bytes(32) + b"\0\2\x13\x01\1\0"
    hello += struct.pack(">H", len(extensions)) + extensions
    message = b"\1" + len(hello).to_bytes(3, "big") + hello
    parts = [message[at : at + 16_384] for at in range(0, len(message), 16_384)]
    return b"".join(b"\x16\3\1" + struct.pack(">H", len(part)) + part for part in parts)


def answer_of(connection: RawConnection) -> None:
    """Wait for the broker's records, of which the first is a handshake."""
    assert connection.socket.recv(1) == b"\x16"
    assert connection.socket.recv(1 << 16)


def long_handshake(connection: RawConnection) -> int:
    """Begin a handshake; return the number of bytes sent."""
    first, second = client_hello(b""), client_hello(b"\0\x1d\0\x20" + bytes(range(9, 41)))
    connection.send_raw(first)
    answer_of(connection)  # a HelloRetryRequest, as no key was shared
    connection.send_raw(second)
    return len(first) + len(second)


@pytest.mark.parametrize("size", [0xFFFF, 0x10000])
def test_a_message_of_more_than_64_KiB_with_its_records_is_too_large(
    broker: txn.Broker, size: int
) -> None:
    """It was counted as `client_left`, or as `not_tls`."""
    message = b"\1" + size.to_bytes(3, "big") + bytes(size)
    parts = [message[at : at + 1024] for at in range(0, len(message), 1024)]
    with RawConnection(address(broker)) as connection, suppress(ConnectionError):
        for part in parts:
            connection.send_raw(b"\x16\3\1" + struct.pack(">H", len(part)) + part)
    await_failure(broker, "too_large")
    assert failures(broker) == {"too_large": 1}


def test_a_handshake_of_too_many_bytes_is_refused(broker: txn.Broker) -> None:
    """Each message has at most 64 KiB. Two greetings and the begin of a record have more."""
    with RawConnection(address(broker)) as less, RawConnection(address(broker)) as more:
        for connection, bytes_sent in (
            (less, HANDSHAKE_BYTES_MAX),
            (more, HANDSHAKE_BYTES_MAX + 1),
        ):
            rest = bytes_sent - long_handshake(connection)
            connection.send_raw((b"\x17\3\3\x40\0").ljust(rest, b"\0"))
        await_failure(broker, "too_large")
        assert failures(broker) == {"too_large": 1}
        less.send_raw(b"\0")
        await_true(lambda: failures(broker) == {"too_large": 2})


def test_a_renegotiation_is_refused(issuer: Issuer) -> None:
    """OpenSSL asks for one at a line of `R`; rustls answers `no_renegotiation`."""
    with txn.Broker(metrics=METRICS, properties=issuer.broker(issuer.issue("broker"))) as broker:
        command = ["openssl", "s_client", "-connect", address(broker), "-tls1_2"]
        done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=WAIT_S)
        assert b"no renegotiation" in done.stderr
        assert ask_metadata(address(broker), issuer.context())


def test_idle_and_half_open_tls_connections_do_not_slow_a_neighbour(
    broker: txn.Broker, issuer: Issuer
) -> None:
    """300 connections idle, 50 begin a handshake and stop, and others come all the time."""
    plain = broker.listeners["PLAINTEXT"]
    context = issuer.context(issuer.issue("client"))
    create_topic(plain, "t")
    producer = transactional_producer(plain, "id")

    def p99_s() -> float:
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            producer.begin_transaction()
            producer.produce("t", b"x")
            producer.commit_transaction(WAIT_S)
            times.append(time.perf_counter() - begun)
        return sorted(times)[-3]

    p99_s()
    alone = p99_s()
    idle: list[RawConnection] = [TlsConnection(address(broker), context) for _ in range(300)]
    for _ in range(50):
        half = RawConnection(address(broker))
        half.send_raw(b"\x16\x03\x01")
        idle.append(half)
    stopping = threading.Event()

    def come_and_go() -> None:
        while not stopping.is_set():
            TlsConnection(address(broker), context).socket.close()

    storm = threading.Thread(target=come_and_go)
    storm.start()
    beside = p99_s()
    stopping.set()
    storm.join()
    for connection in idle:
        connection.socket.close()
    assert beside < max(0.1, 10 * alone)
