"""Compacted topics, for tests: made by real clients, cleaned when the test says so."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer

import txn
from support.brokers import BrokerProcess
from support.clients import WAIT_S, create_topic, plain_producer, transactional_producer
from txn.server.lifecycle.broker import service_of

SEGMENT_BYTES = 4096
ON_CALL: dict[str, Any] = {"log.cleaner.enable": "false", "log.cleaner.delete.retention.ms": 0}
"""A broker that compacts when `compact` is called; markers and tombstones are not kept long."""

Pair = tuple[str, str | None]


def compact(broker: txn.Broker) -> int:
    """Clean every log that needs it; return the number of cleanings."""
    cleanings = 0
    while service_of(broker).log_cleaner.clean_dirtiest():
        cleanings += 1
    return cleanings


def compacted_topic(broker: txn.Broker | BrokerProcess, name: str) -> None:
    create_topic(
        broker.bootstrap_servers,
        name,
        cleanup_policy="compact",
        internal_segment_bytes=str(SEGMENT_BYTES),
        min_cleanable_dirty_ratio="0.01",
    )


def put(producer: Producer, topic: str, pairs: Iterable[Pair]) -> None:
    for key, value in pairs:
        producer.produce(topic, key=key, value=value, partition=0)
    assert producer.flush(WAIT_S) == 0


def roll(producer: Producer, topic: str) -> None:
    """Fill the active segment, so that all before it can be cleaned."""
    put(producer, topic, [("roll", "x" * SEGMENT_BYTES), ("roll", "x" * SEGMENT_BYTES)])


def fill(broker: txn.Broker, topic: str) -> None:
    """Every kind of producer, several laps over few keys, tombstones, aborted transactions."""
    servers = broker.bootstrap_servers
    compacted_topic(broker, topic)
    plain = plain_producer(servers)
    idempotent = plain_producer(servers, enable_idempotence=True)
    packed = plain_producer(servers, compression_type="zstd", linger_ms=20)
    transactional = transactional_producer(servers, "pay")
    for lap in range(24):
        put(plain, topic, [(f"plain-{n}", f"{lap}") for n in range(9)])
        put(idempotent, topic, [(f"idempotent-{n}", f"{lap}" if n else None) for n in range(9)])
        put(packed, topic, [(f"packed-{n}", f"{lap} {'v' * 40}") for n in range(30)])
        transactional.begin_transaction()
        put(transactional, topic, [(f"paid-{n}", f"{lap}") for n in range(5)])
        if lap % 3 == 0:
            transactional.commit_transaction(WAIT_S)
        else:
            transactional.abort_transaction(WAIT_S)
    roll(plain, topic)
