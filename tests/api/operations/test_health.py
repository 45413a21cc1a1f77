"""Probes of brokers over HTTP: live, ready, and neither."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from prometheus_client.parser import text_string_to_metric_families

import txn
from support.clients import create_topic, plain_producer, send
from support.damaged import flip_bit
from txn.errors import CorruptLogError
from txn.server.lifecycle.broker import service_of
from txn.server.metrics import health

WAIT_S = 20.0


def probe(broker: txn.Broker, path: str, method: str = "GET") -> tuple[int, Any]:
    status, body = ask(broker, path, method)
    return status, json.loads(body) if body else None


def get(broker: txn.Broker, path: str) -> bytes:
    return ask(broker, path, "GET")[1]


def ask(broker: txn.Broker, path: str, method: str) -> tuple[int, bytes]:
    assert broker.metrics_address is not None
    connection = http.client.HTTPConnection(broker.metrics_address, timeout=WAIT_S)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_a_broker_that_serves_is_live_and_ready() -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        assert probe(broker, "/healthz") == (200, {"status": "ok"})
        assert probe(broker, "/readyz") == (200, {"status": "ready", "missing": []})
        assert probe(broker, "/healthz", "HEAD") == (200, None)
        assert probe(broker, "/readyz", "HEAD") == (200, None)


def test_a_control_loop_that_no_longer_turns_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "STUCK_S", 0.5)
    with txn.Broker() as broker:
        probes = health.HealthProbes(service_of(broker))
        probes.watch(lambda call: None)
        live, ready = probes.live(), probes.ready()
    assert (live.is_well, live.facts["status"]) == (False, "stuck")
    assert ready.facts["missing"] == [{"part": "broker", "reason": "stuck"}]


def test_a_partition_that_cannot_be_used_is_named() -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"1"])
        error = CorruptLogError("orders-0 is damaged", partition=0)
        service_of(broker).node.partitions["orders"].withdraw(0, error)
        status, facts = probe(broker, "/readyz")
        assert probe(broker, "/healthz")[0] == 200
    assert status == 503
    assert facts["missing"] == [
        {"part": "partition", "name": "orders-0", "reason": "orders-0 is damaged"}
    ]


@pytest.mark.parametrize(
    ("topic", "coordinator", "other"),
    [
        ("__transaction_state", "transaction coordinator", "__consumer_offsets"),
        ("__consumer_offsets", "group coordinator", "__transaction_state"),
    ],
)
def test_a_coordinator_that_cannot_read_a_partition_is_missing(
    tmp_path: Path, topic: str, coordinator: str, other: str
) -> None:
    with txn.Broker(tmp_path / "data") as broker:
        commit_with_offsets(broker.bootstrap_servers)
    logs = (tmp_path / "data").glob(f"{topic}-*/*.log")
    (damaged,) = [path for path in logs if path.stat().st_size]
    flip_bit(damaged, 100)
    with txn.Broker(tmp_path / "data", metrics="127.0.0.1:0") as broker:
        status, facts = probe(broker, "/readyz")
        assert probe(broker, "/healthz")[0] == 200
        metrics = get(broker, "/metrics").decode()
    assert (status, facts["status"]) == (503, "not ready")
    unreadable, partition = facts["missing"]
    assert unreadable == {"part": coordinator, "reason": "1 of its partitions cannot be read"}
    assert (partition["part"], partition["name"]) == ("partition", damaged.parent.name)
    failed = {
        one.labels["topic"]: one.value
        for family in text_string_to_metric_families(metrics)
        for one in family.samples
        if one.name == "txn_coordinator_partitions" and one.labels["state"] == "failed"
    }
    assert failed == {topic: 1, other: 0}


def commit_with_offsets(servers: str) -> None:
    """One transaction with a record and an offset."""
    consumer = txn.Consumer(bootstrap_servers=servers, group_id="shop")
    producer = txn.Producer(bootstrap_servers=servers, transactional_id="loader")
    with producer.transaction() as t:
        t.produce("orders", b"1")
        t.send_offsets([TopicPartition("orders", 0, 0)], consumer)
    producer.close()
    consumer.close()


def test_a_broker_that_starts_is_live_and_not_ready() -> None:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        starting = health.HealthProbes(service_of(broker))
        assert starting.live() == health.Health(True, {"status": "starting"})
        assert starting.ready() == health.Health(
            False,
            {"status": "not ready", "missing": [{"part": "broker", "reason": "starting"}]},
        )
