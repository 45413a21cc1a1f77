"""Old segments go by themselves, and the facts that a start may believe are written down."""

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

import txn
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from txn.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_checkpoint

AT_ONCE = {"log.retention.check.interval.ms": 1}


def send_dated(producer: Producer, topic: str, timestamp_ms: int) -> None:
    producer.produce(topic, value=b"old", timestamp=timestamp_ms)
    assert producer.flush(WAIT_S) == 0


def bounds(servers: str, topic: str, *, start: int | None = None) -> tuple[int, int]:
    """Log start and end; with `start`, once the log starts there (or the test's time is over)."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bounds"})
    try:
        while True:
            found = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
            if start in (None, found[0]):
                return found
    finally:
        consumer.close()


def test_records_older_than_retention_ms_go_and_the_others_stay(tmp_path: Path) -> None:
    with txn.Broker(tmp_path, properties=AT_ONCE) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", retention_ms="3600000", segment_ms="1000")
        producer = plain_producer(servers)
        send_dated(producer, "orders", 1000)
        send_dated(producer, "orders", 5000)
        send(producer, "orders", [b"new"])
        assert bounds(servers, "orders", start=2) == (2, 3)
        assert read_all(servers, "orders") == [b"new"]


def test_a_log_that_is_wholly_old_goes_on_at_its_offset(tmp_path: Path) -> None:
    with txn.Broker(tmp_path, properties=AT_ONCE) as broker:
        create_topic(broker.bootstrap_servers, "orders", retention_ms="1000")
        send_dated(plain_producer(broker.bootstrap_servers), "orders", 1000)
        assert bounds(broker.bootstrap_servers, "orders", start=1) == (1, 1)
    with txn.Broker(tmp_path) as broker:
        assert bounds(broker.bootstrap_servers, "orders") == (1, 1)
        assert send(plain_producer(broker.bootstrap_servers), "orders", [b"new"]) == [1]


def test_a_retention_that_is_shortened_counts_at_once(tmp_path: Path) -> None:
    with txn.Broker(tmp_path, properties=AT_ONCE) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", retention_bytes="1000000", internal_segment_bytes="1000")
        producer = plain_producer(servers, batch_num_messages=1)  # two batches a segment
        send(producer, "orders", [b"x" * 400] * 10)
        assert bounds(servers, "orders") == (0, 10)
        alter(servers, "orders", "retention.bytes", "1000")
        assert bounds(servers, "orders", start=6) == (6, 10)


def test_a_stopped_broker_leaves_kafkas_checkpoints(tmp_path: Path) -> None:
    with txn.Broker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "orders", partitions=2)
        send(plain_producer(broker.bootstrap_servers), "orders", [b"x"] * 3, partition=1)
    recovery_points = read_checkpoint(tmp_path / RECOVERY_POINTS)
    assert recovery_points.pop(("__cluster_metadata", 0)) > 0
    assert recovery_points == {("orders", 1): 3}
    assert read_checkpoint(tmp_path / HIGH_WATERMARKS) == {("orders", 1): 3}


def alter(servers: str, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
