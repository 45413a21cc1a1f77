"""Limits on connections, by Kafka's settings, at the start and altered while the broker runs."""

import socket
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from prometheus_client.parser import text_string_to_metric_families

import txn
from support.client_quotas import set_quota
from support.clients import WAIT_S, create_topic, plain_producer, send
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn.errors import ConfigError

API_VERSIONS = 18
MALFORMED = struct.pack(">hhih", 32_000, 0, 7, -1)
"""A request of an API that nobody serves."""
SHORT_S = 0.3


class Client:
    """A client that asks one thing over one connection."""

    def __init__(self, servers: str, source: str | None = None) -> None:
        self.connection = RawConnection(servers, source)

    def ask(self) -> None:
        self.connection.call(entity_builder(request(API_VERSIONS, 0))({}))

    def is_served(self) -> bool:
        """Ask; False if it is neither served nor closed within a short time."""
        self.connection.socket.settimeout(SHORT_S)
        try:
            self.ask()
        except TimeoutError:
            return False
        return True

    def is_refused(self) -> bool:
        try:
            self.ask()
        except ConnectionError:
            return True
        return False

    def close(self) -> None:
        self.connection.socket.close()


Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def connect(servers: str, source: str | None = None) -> Client:
            client = Client(servers, source)
            stack.callback(client.close)
            return client

        yield connect


def alter(servers: str, **settings: str) -> None:
    """Set broker settings."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(WAIT_S)


def counted(broker: txn.Broker, metric: str) -> dict[tuple[str, ...], float]:
    """The values of a metric that are not 0, by labels."""
    url = f"http://{broker.metrics_address}/metrics"
    with urllib.request.urlopen(url, timeout=WAIT_S) as response:
        text = response.read().decode()
    return {
        tuple(one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == metric and one.value
    }


def await_count(broker: txn.Broker, metric: str, expected: object) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := counted(broker, metric)) != expected:
        assert time.monotonic() < deadline, found


def test_a_connection_beyond_max_connections_waits_for_its_place(connect: Connect) -> None:
    with txn.Broker(max_connections=2, metrics="127.0.0.1:0") as broker:
        servers = broker.bootstrap_servers
        first, second = connect(servers), connect(servers)
        first.ask()
        second.ask()
        third = connect(servers)
        third.connection.send_frame(b"\0\x12\0\0\0\0\0\7\xff\xff")
        assert third.connection.has_nothing()
        assert first.is_served()
        assert first.is_served()  # in a later turn of the reactor that accepts and holds the third
        second.close()
        third.connection.read_frame()
        blocked = counted(broker, "txn_network_accept_blocked_seconds_total")
        assert blocked[("PLAINTEXT",)] > 0
        assert not counted(broker, "txn_network_refused_connections_total")


def test_max_connections_may_be_altered_and_closes_what_is_too_much(connect: Connect) -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        servers = broker.bootstrap_servers
        idle = [connect(servers) for _ in range(8)]
        for client in idle:
            client.ask()
        alter(servers, max_connections="4")
        assert sum(client.is_refused() for client in idle) >= 4
        create_topic(servers, "orders")
        assert send(plain_producer(servers), "orders", [b"a"]) == [0]
        closed = counted(broker, "txn_network_closed_connections_total")
        assert closed[("PLAINTEXT", "max_connections")] >= 4


def test_one_address_has_its_limit_and_others_theirs(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = "127.0.0.2:2, localhost:100"
    with txn.Broker(
        max_connections_per_ip=1,
        max_connections_per_ip_overrides=overrides,
        metrics="127.0.0.1:0",
    ) as broker:
        servers = broker.bootstrap_servers
        clients = [connect(servers, source) for source in ("127.0.0.3", "127.0.0.2", "127.0.0.2")]
        for client in clients:
            client.ask()
        assert connect(servers, "127.0.0.3").is_refused()
        assert connect(servers, "127.0.0.2").is_refused()
        clients[0].close()
        # Its place is free a moment later.
        deadline = time.monotonic() + WAIT_S
        while connect(servers, "127.0.0.3").is_refused():
            assert time.monotonic() < deadline
        create_topic(servers, "orders")  # from 127.0.0.1, as localhost
        refused = counted(broker, "txn_network_refused_connections_total")
        assert refused.keys() == {("PLAINTEXT", "max_connections_per_ip")}
        assert refused[("PLAINTEXT", "max_connections_per_ip")] >= 2
    assert "connection.refused" in caplog.text
    assert "client_host=127.0.0.3" in caplog.text


def test_the_limit_of_an_address_may_be_altered(connect: Connect) -> None:
    with txn.Broker() as broker:
        servers = broker.bootstrap_servers
        connect(servers, "127.0.0.3").ask()
        alter(servers, max_connections_per_ip_overrides="127.0.0.3:1")
        assert connect(servers, "127.0.0.3").is_refused()
        connect(servers, "127.0.0.4").ask()
        alter(servers, max_connections_per_ip_overrides="127.0.0.3:2")
        connect(servers, "127.0.0.3").ask()


def test_a_creation_rate_spreads_the_connections_that_come(connect: Connect) -> None:
    with txn.Broker(max_connection_creation_rate=2) as broker:
        began = time.monotonic()
        for _ in range(20):
            connect(broker.bootstrap_servers).ask()
        assert time.monotonic() - began < 0.9
        for _ in range(3):
            connect(broker.bootstrap_servers).ask()
        assert time.monotonic() - began > 1.4


def test_a_listener_has_limits_of_its_own(connect: Connect) -> None:
    listeners = "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
    with txn.Broker(
        properties={
            "listeners": listeners,
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "listener.name.outside.max.connections": 1,
        }
    ) as broker:
        inside, outside = broker.listeners["INSIDE"], broker.listeners["OUTSIDE"]
        first = connect(outside)
        first.ask()
        assert not connect(outside).is_served()
        connect(inside).ask()
        alter(inside, listener_name_outside_max_connections="3")
        connect(outside).ask()


def test_a_client_whose_connection_was_closed_may_connect_at_once(connect: Connect) -> None:
    """The socket was closed before its place was given back: a client that connected anew as soon
    as it saw the end was refused now and then, as if it had two connections.
    """
    with txn.Broker(max_connections_per_ip=1) as broker:
        for _ in range(200):
            client = connect(broker.bootstrap_servers)
            client.ask()
            client.connection.send_frame(MALFORMED)
            assert client.connection.is_closed_by_peer()
            client.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_connections_per_ip": 0}, "nobody can connect"),
        ({"max_connections_per_ip_overrides": "somewhere"}, "HOST:NUMBER"),
        ({"max_connections_per_ip_overrides": "no.such.host.invalid:1"}, "has no address"),
        ({"max_connections": -1}, "from 0 to"),
        (
            {"connection_failed_authentication_delay_ms": 100, "connections_max_idle_ms": 100},
            "less than connections.max.idle.ms",
        ),
    ],
)
def test_limits_that_cannot_be_are_refused_at_the_start(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        txn.Broker(**settings)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max.connections", "0", "at least 1"),
        ("max.connections.per.ip", "0", "nobody could connect"),
        ("max.connections.per.ip.overrides", "localhost:3", "IP addresses alone"),
        ("max.connections.per.ip.overrides", "127.0.0.1", "HOST:NUMBER"),
        ("listener.name.other.max.connections", "3", "of no listener"),
        ("listener.name.plaintext.max.connection.creation.rate", "0", "at least 1"),
        ("connections.max.idle.ms", "5", "while the broker runs"),
    ],
)
def test_limits_that_cannot_be_are_refused_while_the_broker_runs(
    name: str, value: str, said: str
) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    with txn.Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        [done] = admin.incremental_alter_configs([resource]).values()
        with pytest.raises(KafkaException, match=said):
            done.result(WAIT_S)


def test_altered_limits_of_a_listener_are_described_and_outlive_a_restart(
    tmp_path: Path, connect: Connect
) -> None:
    name = "listener.name.plaintext.max.connections"
    with txn.Broker(tmp_path / "data") as broker:
        alter(broker.bootstrap_servers, listener_name_plaintext_max_connections="7")
    with txn.Broker(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        [asked] = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
        described = asked.result(WAIT_S)[name]
        assert described.value == "7"
        assert not described.is_read_only
        assert list(described.synonyms) == [name, "max.connections"]
        clients = [connect(broker.bootstrap_servers) for _ in range(8)]
        assert not all(client.is_served() for client in clients)


@pytest.mark.parametrize("name", ["127.0.0.5", None])
def test_an_address_that_connects_too_often_is_closed_later(
    name: str | None, connect: Connect, tmp_path: Path
) -> None:
    with txn.Broker(tmp_path / "data") as broker:
        set_quota(broker.bootstrap_servers, {"ip": name}, connection_creation_rate=1.0)
        set_quota(broker.bootstrap_servers, {"ip": "127.0.0.1"}, connection_creation_rate=1000.0)
        require_rate(broker.bootstrap_servers, connect)
    with txn.Broker(tmp_path / "data", metrics="127.0.0.1:0") as broker:
        servers = broker.bootstrap_servers
        require_rate(servers, connect)
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"a"])
        refused = counted(broker, "txn_network_refused_connections_total")
        assert refused == {("PLAINTEXT", "ip_connection_creation_rate"): 1}
        set_quota(servers, {"ip": name}, connection_creation_rate=None)
        for _ in range(20):
            connect(servers, "127.0.0.5").ask()


def require_rate(servers: str, connect: Connect) -> None:
    """An address may connect once a second, ten times after a pause."""
    for _ in range(10):
        connect(servers, "127.0.0.5").ask()
    late = connect(servers, "127.0.0.5")
    began = time.monotonic()
    assert late.is_refused()
    assert time.monotonic() - began > SHORT_S


def test_idle_and_dripping_connections_are_closed_and_told_apart(connect: Connect) -> None:
    with txn.Broker(connections_max_idle_ms=400, metrics="127.0.0.1:0") as broker:
        silent, slow = connect(broker.bootstrap_servers), connect(broker.bootstrap_servers)
        slow.connection.send_raw(b"\0\0\1\0")
        began = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while time.monotonic() < began + WAIT_S:
                slow.connection.send_raw(b"\0")
                time.sleep(0.05)
        assert silent.connection.is_closed_by_peer()
        expected = {("PLAINTEXT", "idle"): 1.0, ("PLAINTEXT", "slow_request"): 1.0}
        await_count(broker, "txn_network_closed_connections_total", expected)


def test_connections_are_counted_as_they_come(connect: Connect) -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        for _ in range(5):
            client = connect(broker.bootstrap_servers)
            client.ask()
            client.connection.socket.shutdown(socket.SHUT_RDWR)
        metric = "kafka_server_socket_server_metrics_connection_creation_total"
        assert sum(counted(broker, metric).values()) == 5
