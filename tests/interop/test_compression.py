"""`compression.type` beside Apache Kafka: in its directories, to its tools, and back at Kafka."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

import txn
from harnesses.peers.dump_log_segments import fields, kafka_dump
from harnesses.peers.kafka import KafkaNode
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.damaged import segment_of
from support.packed import produce, taken
from support.wire_client import RawConnection
from txn.inspect.verify import verify

pytestmark = [pytest.mark.peer, pytest.mark.timeout(240)]

TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
FIRST, SECOND, LAST = ([number] * 5 for number in (b"1" * 200, b"2" * 200, b"3" * 200))


def write(servers: str, topic: str, values: list[bytes]) -> None:
    """A batch of snappy, and a transaction of gzip."""
    send(plain_producer(servers, compression_type="snappy", linger_ms=20), topic, values)
    producer = transactional_producer(servers, f"{topic}-writer", compression_type="gzip")
    commit_values(producer, topic, values)


def described(servers: str, kind: ResourceType, name: str) -> dict[str, tuple[str, int]]:
    """Value and source of settings of compression."""
    admin = AdminClient({"bootstrap.servers": servers})
    (asked,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    entries = asked.result(WAIT_S)
    return {
        name: (entry.value, entry.source)
        for name, entry in entries.items()
        if name.startswith("compression.")
    }


def test_P1_topics_with_a_codec_move_from_kafka_and_back(tmp_path: Path) -> None:
    everywhere = {"compression.type": "gzip"}
    with KafkaNode(tmp_path / "kafka", everywhere) as node:
        for compression_type in TYPES:
            create_topic(
                node.bootstrap_servers, compression_type, compression_type=compression_type
            )
            write(node.bootstrap_servers, compression_type, FIRST)
        create_topic(node.bootstrap_servers, "levels", compression_zstd_level="9")
        told = [described(node.bootstrap_servers, ResourceType.TOPIC, name) for name in TYPES]
        levels = described(node.bootstrap_servers, ResourceType.TOPIC, "levels")
    back = tmp_path / "back"
    shutil.copytree(node.data, back / "data")
    with txn.Broker(back / "data", properties=everywhere) as broker:
        servers = broker.bootstrap_servers
        assert [described(servers, ResourceType.TOPIC, name) for name in TYPES] == told
        assert described(servers, ResourceType.TOPIC, "levels") == levels
        code, out, err = run_txn("topics", "describe", "zstd", "--bootstrap", servers)
        assert (code, "compression.type=zstd" in out) == (0, True), err
        for compression_type in TYPES:
            write(servers, compression_type, SECOND)
            assert read_all(servers, compression_type) == FIRST * 2 + SECOND * 2
    files = sorted(segment_of(back / "data", name) for name in TYPES)
    dumped = kafka_dump(files, "--deep-iteration")
    assert dumped.complaints == ""
    for file in files:
        batches = [fields(line) for line in dumped.of([file], "baseOffset")]
        codecs = {each["compresscodec"] for each in batches if each["isControl"] == "false"}
        topic = file.parent.name.removesuffix("-0")
        assert codecs == {"none" if topic == "uncompressed" else topic}
        assert {each["compresscodec"] for each in batches if each["isControl"] == "true"} == {
            "none"
        }
        assert {each["isvalid"] for each in batches} == {"true"}
    assert verify(back / "data", is_deep=True).findings == []
    with KafkaNode(back, everywhere) as node:
        for compression_type in TYPES:
            write(node.bootstrap_servers, compression_type, LAST)
            found = read_all(node.bootstrap_servers, compression_type)
            assert found == FIRST * 2 + SECOND * 2 + LAST * 2


@pytest.mark.parametrize("name", taken())
def test_content_in_several_streams_is_taken_by_both(
    bootstrap: str, unique: Callable[[str], str], name: str
) -> None:
    topic = unique("streams")
    create_topic(bootstrap, topic)
    with RawConnection(bootstrap) as connection:
        (answer,) = produce(connection, taken()[name], topic=topic)
    assert (int(answer.error_code), answer.base_offset) == (0, 0)


def test_acks_all_is_taken_by_both_with_more_min_insync_replicas_than_replicas(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    """Kafka 4.2 waits for all replicas there are, if those are fewer."""
    topic = unique("insync")
    create_topic(bootstrap, topic, min_insync_replicas="2")
    assert send(plain_producer(bootstrap, acks="all"), topic, [b"1"]) == [0]
