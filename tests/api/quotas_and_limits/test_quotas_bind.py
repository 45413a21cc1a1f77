"""Quotas bind clients: with real clients, and with one that does not care."""

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import txn
from support.client_quotas import IdentifiedConnection, milliseconds, set_quota
from support.clients import create_topic, plain_producer, send
from txn.wire.api_keys import ApiKey

RATE = 400_000
SAMPLES = 6
MEASURED_S = SAMPLES - 0.1
"""The time of all samples: a rate over it is the quota. In a part of it a client may be faster, and
is slower afterwards."""
PROPERTIES = {"quota.window.num": str(SAMPLES), "controller.quota.window.num": "2"}
THROTTLING_QUOTA_EXCEEDED, UNKNOWN_TOPIC = 89, 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[txn.Broker]:
    with txn.Broker(
        tmp_path / "data",
        durability="process",
        properties=PROPERTIES,
        metrics="127.0.0.1:0",
    ) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        yield broker


class Flood:
    """A producer that sends as fast as it may, on a thread of its own."""

    def __init__(self, servers: str, client_id: str) -> None:
        self.throttles_ms: list[float] = []
        self.delivered: list[int] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "client.id": client_id,
                "linger.ms": 0,
                "batch.size": 20_000,
                "queue.buffering.max.kbytes": 1_000,
                "throttle_cb": lambda event: self.throttles_ms.append(event.throttle_time),
            }
        )
        self._until = time.monotonic() + MEASURED_S
        self.thread = Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while time.monotonic() < self._until:
            try:
                self._producer.produce("orders", bytes(10_000), on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def _note(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.delivered.append(len(message))

    def rate(self) -> float:
        """Bytes a second, once the time is over; what is still queued then is dropped."""
        self.thread.join()
        self._producer.purge()
        del self._producer  # its callback refers to this object: it would go on connecting
        return sum(self.delivered) / MEASURED_S


def test_a_producer_is_slowed_to_its_rate_and_no_other_is(broker: txn.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "slow"}, producer_byte_rate=RATE)
    slow, fast = (Flood(broker.bootstrap_servers, name) for name in ("slow", "fast"))
    assert slow.rate() == pytest.approx(RATE, rel=0.2)
    assert max(slow.throttles_ms) > 0
    assert fast.rate() > 5 * RATE
    assert not fast.throttles_ms


def test_a_consumer_is_slowed_to_its_rate(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    send(plain_producer(servers), "orders", [bytes(10_000)] * 500)
    set_quota(servers, {"user": "ANONYMOUS"}, consumer_byte_rate=RATE)
    throttles_ms: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "fetch.message.max.bytes": 50_000,
            "queued.max.messages.kbytes": 100,
            "throttle_cb": lambda event: throttles_ms.append(event.throttle_time),
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    consumed, until = 0, time.monotonic() + MEASURED_S
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            consumed += len(message)
    consumer.close()
    assert consumed / MEASURED_S == pytest.approx(RATE, rel=0.2)
    assert max(throttles_ms) > 0


def test_a_client_that_ignores_the_throttle_stays_muted(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"client-id": None}, producer_byte_rate=1000)
    with IdentifiedConnection(servers) as client:
        began = time.monotonic()
        throttle_ms = client.produce("orders", 6000)
        assert 900 < throttle_ms < 1300  # 6000 bytes take a second more than the window has
        for _ in range(50):
            client.send_produce("orders", 10)
        time.sleep(0.3)
        assert client.has_nothing()
        client.produced()
        assert time.monotonic() - began >= throttle_ms / 1000 - 0.05


def test_a_client_without_acknowledgements_is_muted_too(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"user": None}, producer_byte_rate=1000)
    with IdentifiedConnection(servers) as client:
        client.send_produce("orders", 6000, acks=0)
        began = time.monotonic()
        client.send_produce("orders", 10)
        client.produced()
        assert time.monotonic() - began > 0.8


def test_a_fetch_over_the_quota_is_answered_with_nothing(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    for _ in range(8):
        send(plain_producer(servers), "orders", [bytes(900)])
    set_quota(servers, {"client-id": "shop"}, consumer_byte_rate=1000)
    with IdentifiedConnection(servers) as client:
        first, throttle_ms = client.fetch("orders")
        assert (900 < first <= 5000, throttle_ms) == (True, 0)
        empty, throttle_ms = client.fetch("orders")
        assert (empty, throttle_ms > 0) == (0, True)


def test_a_batch_that_is_larger_than_the_window_is_read_once_it_is_empty(
    broker: txn.Broker,
) -> None:
    servers = broker.bootstrap_servers
    send(plain_producer(servers), "orders", [bytes(50_000)])
    set_quota(servers, {"client-id": "shop"}, consumer_byte_rate=1000)
    with IdentifiedConnection(servers) as client:
        assert client.fetch("orders")[0] > 50_000
        assert client.fetch("orders")[0] == 0


def test_a_quota_counts_for_open_connections_and_no_longer_once_it_is_removed(
    broker: txn.Broker,
) -> None:
    servers = broker.bootstrap_servers
    with IdentifiedConnection(servers) as client:
        assert client.produce("orders", 100_000) == 0
        set_quota(servers, {"client-id": "shop"}, producer_byte_rate=50_000)
        assert client.produce("orders", 260_000) > 0
        set_quota(servers, {"client-id": "shop"}, producer_byte_rate=None)
        assert client.produce("orders", 100_000) == 0


def test_time_of_requests_is_bounded(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"user": "ANONYMOUS"}, request_percentage=0.2)
    fields = {"topics": None, "allow_auto_topic_creation": False}
    with IdentifiedConnection(servers) as client:
        throttles_ms: list[int] = []
        while not throttles_ms or (throttles_ms[-1] == 0 and len(throttles_ms) < 5_000):
            throttles_ms.append(milliseconds(client.ask(ApiKey.METADATA, 7, **fields)))
        assert 0 < throttles_ms[-1] <= 1000
        began = time.monotonic()
        client.ask(ApiKey.METADATA, 7, **fields)
        assert time.monotonic() - began >= throttles_ms[-1] / 1000 - 0.05


def create(client: IdentifiedConnection, version: int, *topics: tuple[str, int]) -> Any:
    return client.ask(
        ApiKey.CREATE_TOPICS,
        version,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name, partitions in topics
        ],
        timeout=10_000,
        validate_only=False,
    )


def codes(answer: Any) -> list[int]:
    return [int(topic.error_code) for topic in answer.topics]


def test_changes_of_topics_are_refused_over_the_quota(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"client-id": "shop"}, controller_mutation_rate=2)
    with IdentifiedConnection(servers) as client:
        answer = create(client, 7, ("a", 6), ("b", 1))  # four at once; one request may overdraw
        assert codes(answer) == [0, THROTTLING_QUOTA_EXCEEDED]
        assert answer.topics[1].error_message == "The throttling quota has been exceeded."
        assert 900 <= milliseconds(answer) <= 1000
        began = time.monotonic()
        deleted = client.ask(
            ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a", "topic_id": None}], timeout=10_000
        )
        assert [int(one.error_code) for one in deleted.responses] == [0]
        assert time.monotonic() - began > 0.8  # the connection was muted
        grown = {"name": "orders", "count": 2, "assignments": None}
        answer = client.ask(
            ApiKey.CREATE_PARTITIONS, 3, topics=[grown], timeout=10_000, validate_only=False
        )
        assert [int(one.error_code) for one in answer.results] == [THROTTLING_QUOTA_EXCEEDED]


def test_old_clients_are_throttled_and_not_refused(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"client-id": "shop"}, controller_mutation_rate=2)
    with IdentifiedConnection(servers) as client:
        answer = create(client, 5, ("a", 5), ("b", 1))
        assert codes(answer) == [0, 0]
        assert 900 <= milliseconds(answer) <= 1000


def test_a_topic_that_metadata_would_make_waits_for_the_quota(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"client-id": "shop"}, controller_mutation_rate=0.5)
    names = [{"name": f"auto-{n}", "topic_id": None} for n in range(3)]
    with IdentifiedConnection(servers) as client:
        answer = client.ask(ApiKey.METADATA, 7, topics=names, allow_auto_topic_creation=True)
    assert codes(answer) == [0, 0, UNKNOWN_TOPIC]
    assert milliseconds(answer) > 0


def of_metric(broker: txn.Broker, name: str) -> dict[str, float]:
    """The values of a metric by the kind of the quota."""
    with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{name}(?:{{quota="(\w+)"}})? (\S+)$', text, re.MULTILINE)
    return {kind: float(value) for kind, value in found}


def test_throttled_requests_and_their_time_are_counted_by_kind(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"user": None}, producer_byte_rate=1000, controller_mutation_rate=1)
    with IdentifiedConnection(servers) as client:
        told_ms = client.produce("orders", 6000)
    with IdentifiedConnection(servers) as client:
        mutations_ms = milliseconds(create(client, 5, ("a", 3)))
    requests = of_metric(broker, "txn_quota_throttled_requests_total")
    assert requests == {"Produce": 1, "Fetch": 0, "Request": 0, "ControllerMutation": 1}
    seconds = of_metric(broker, "txn_quota_throttle_seconds_total")
    assert seconds["Produce"] == pytest.approx(told_ms / 1000)
    assert seconds["ControllerMutation"] == pytest.approx(mutations_ms / 1000)
    assert of_metric(broker, "txn_quota_rates") == {"": 1}


def test_ten_thousand_client_ids_share_a_bounded_number_of_rates(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"client-id": None}, producer_byte_rate=10_000)
    throttled = 0
    with IdentifiedConnection(servers) as client:
        for n in range(10_000):
            client.client_id = f"invented-{n}"
            client.send_produce("orders", 50, acks=0)
        deadline = time.monotonic() + 10
        while not throttled and time.monotonic() < deadline:
            time.sleep(0.1)
            throttled = int(of_metric(broker, "txn_quota_throttled_requests_total")["Produce"])
        assert throttled > 0
        assert of_metric(broker, "txn_quota_rates")[""] == 1_001
    with IdentifiedConnection(servers, "a-neighbour") as neighbour:
        assert neighbour.produce("orders", 50) > 0  # of the same principal and address
    set_quota(servers, {"client-id": "named"}, producer_byte_rate=10_000)
    with IdentifiedConnection(servers, "named") as named:
        assert named.produce("orders", 50) == 0


def test_a_client_that_leaves_while_it_is_muted_for_long_keeps_no_connection(
    broker: txn.Broker,
) -> None:
    servers = broker.bootstrap_servers
    set_quota(servers, {"user": None}, producer_byte_rate=10)
    name = "kafka_server_socket_server_metrics_connection_count"
    for _ in range(20):
        with IdentifiedConnection(servers) as client:
            assert client.produce("orders", 5000) > 60_000
    deadline = time.monotonic() + 10
    while connections(broker, name) > 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert connections(broker, name) <= 3


def connections(broker: txn.Broker, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE))


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULE} required user_ada="secret" user_bob="secret";'
    ),
}


def throttles_of(servers: str, user: str) -> list[float]:
    """The throttle times that a user is told while it writes 20 kB."""
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": "secret",
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    producer.produce("orders", bytes(20_000))
    assert producer.flush(10) == 0
    producer.poll(0.5)
    return told


def test_a_stranger_spends_nobodys_quota() -> None:
    """ApiVersions before the log-in was charged to the client id that it claimed."""
    with txn.Broker(properties=SASL, metrics="127.0.0.1:0") as broker:
        set_quota(broker.listeners["PLAINTEXT"], {"client-id": "shop"}, request_percentage=50)
        with IdentifiedConnection(broker.listeners["SASL_PLAINTEXT"]) as client:
            client.ask(ApiKey.API_VERSIONS, 0)
            assert of_metric(broker, "txn_quota_rates") == {"": 0}
            client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0ada\0secret")
            client.ask(ApiKey.METADATA, 1, topics=[])
            assert of_metric(broker, "txn_quota_rates") == {"": 1}


def test_a_quota_is_of_the_user_who_authenticated() -> None:
    with txn.Broker(properties=SASL) as broker:
        plain = broker.listeners["PLAINTEXT"]
        create_topic(plain, "orders")
        set_quota(plain, {"user": "ada"}, producer_byte_rate=1_900)
        servers = broker.listeners["SASL_PLAINTEXT"]
        assert max(throttles_of(servers, "ada")) > 0
        assert not throttles_of(servers, "bob")
