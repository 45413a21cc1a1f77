"""A directory of txn that an Apache Kafka used last, whose retention removed first segments.

Kafka notes a log start once a minute, after the removal, and only one that lies within a segment.
`.lock` named the last boot of txn. So txn took the segments that a killed Kafka had removed for
lost, and refused a sound partition.
"""

import logging
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

import txn
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode, free_port
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.damaged import events
from txn.inspect.verify import verify
from txn.storage.checkpoints import LOG_STARTS, read_checkpoint

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

WITHIN_FIRST = 2
VALUES = [b"%d" % number for number in range(10)]
RETAINING_SOON = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "100"}


def segments(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "orders-0").glob("*.log"))


def delete_records(servers: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_records([TopicPartition("orders", 0, offset)]).values():
        done.result(WAIT_S)


def retain_one_byte(servers: str) -> None:
    change = ConfigEntry("retention.bytes", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "orders", incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def wait_until_kafka_notes(data: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while read_checkpoint(data / LOG_STARTS) != {("orders", 0): WITHIN_FIRST}:
        assert time.monotonic() < deadline, "Kafka noted no log start"
        time.sleep(0.05)


def wait_until_it_is_gone(data: Path, first: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while first in segments(data):
        assert time.monotonic() < deadline, "Kafka's retention removed nothing"
        time.sleep(0.05)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_P9_segments_that_a_killed_kafka_has_removed_are_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_clean: bool
) -> None:
    caplog.set_level(logging.INFO)
    data, port = tmp_path / "data", free_port()
    with txn.Broker(data, port=port) as broker:
        create_topic(broker.bootstrap_servers, "orders", segment_bytes="1048576")
        for value in VALUES:
            send(plain_producer(broker.bootstrap_servers), "orders", [value * 200_000])
        delete_records(broker.bootstrap_servers, WITHIN_FIRST)
    first, *others = segments(data)
    assert others
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()  # as a killed broker leaves it
    with KafkaNode(tmp_path, {**FEW_PARTITIONS, **RETAINING_SOON}, port=port) as node:
        wait_until_kafka_notes(data)
        retain_one_byte(node.bootstrap_servers)
        wait_until_it_is_gone(data, first)
        node.kill()

    assert not verify(data).findings
    with txn.Broker(data, port=port) as broker:
        assert not events(caplog, "log.damaged")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"on"])
        assert read_all(broker.bootstrap_servers, "orders")[-1] == b"on"
