"""Settings as Apache Kafka 4.2 tells them: names, values, sources, synonyms, types, error codes.

Intended differences are listed with their reasons; a difference that is not listed fails.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from harnesses.peers.kafka import KafkaNode
from support.clients import WAIT_S, create_topic, plain_producer, send
from support.config_requests import APPEND, DELETE, SET, SUBTRACT, Entry, Resources
from support.wire_client import ask

TOPIC, BROKER = 2, 4
GIVEN = 4
NONE, UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST = 0, 3, 17, 40, 42

TOPIC_DIFFERENCES = {
    "min.insync.replicas": "Kafka stores it for every broker when a cluster is made (KIP-966)",
}
BROKER_DIFFERENCES = {
    "group.initial.rebalance.delay.ms": "0: see txn.config",
    "min.insync.replicas": "Kafka stores it for every broker when a cluster is made (KIP-966)",
    "num.network.threads": "2, and does not change while the broker runs: see txn.config",
    "offsets.topic.replication.factor": "one node has one replica",
    "sasl.enabled.mechanisms": "no GSSAPI, and does not change while the broker runs",
    "sasl.mechanism.inter.broker.protocol": "does not change while the broker runs",
    "transaction.state.log.min.isr": "one node has one replica",
    "transaction.state.log.replication.factor": "one node has one replica",
}
BROKER_DIFFERENCES |= {
    **dict.fromkeys(
        ("ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols"),
        "does not change while the broker runs",
    ),
    **dict.fromkeys(("ssl.keystore.type", "ssl.truststore.type"), "PEM, where Kafka has JKS"),
}
ONLY_HERE = {
    "durability",
    "max.partitions",
    "metrics.allow.remote",
    "metrics.group.partitions.max",
    "metrics.listener",
}

pytestmark = pytest.mark.peer


def described(servers: str, kind: int, name: str) -> dict[str, Any]:
    """The settings of a resource that is there, by name."""
    found = Resources(servers, kind).describe_known(name)
    assert found.code == NONE, found.message
    return found.entries


def altered(servers: str, kind: int, name: str, *entries: Entry) -> int:
    return Resources(servers, kind).alter(name, *entries)[0]


def waited_for(look: Callable[[], Any], expected: Any) -> Any:
    """The value once it is as expected, or at last: Kafka's broker learns of changes later."""
    seen = look()
    for _ in range(1000):
        if seen == expected:
            break
        seen = look()
    return seen


def test_every_topic_setting_is_told_as_kafka_tells_it(
    txn_broker: str, kafka_peer: str, unique: Callable[[str], str]
) -> None:
    topic = unique("told")
    create_topic(txn_broker, topic)
    create_topic(kafka_peer, topic)
    ours, theirs = (described(servers, TOPIC, topic) for servers in (txn_broker, kafka_peer))
    assert ours.keys() == theirs.keys()
    assert {name for name in ours if ours[name] != theirs[name]} == set(TOPIC_DIFFERENCES)


def test_a_topics_own_settings_are_told_as_kafka_tells_them(
    txn_broker: str, kafka_peer: str, unique: Callable[[str], str]
) -> None:
    topic = unique("own")
    own: dict[str, Any] = {
        "cleanup.policy": "compact, delete",
        "compression.gzip.level": "9",
        "compression.type": "gzip",
        "compression.zstd.level": "-131072",
        "internal.segment.bytes": "1000",
        "leader.replication.throttled.replicas": "0:1,1:1",
        "min.cleanable.dirty.ratio": "0.25",
        "preallocate": "TRUE",
        "retention.ms": " 5 ",
        "segment.bytes": "2000000",
    }
    create_topic(txn_broker, topic, **own)
    create_topic(kafka_peer, topic, **own)
    ours, theirs = (described(servers, TOPIC, topic) for servers in (txn_broker, kafka_peer))
    assert [ours[name] for name in own] == [theirs[name] for name in own]


CREATE_TOPICS = 19


def created(servers: str, topic: str, *settings: tuple[str, str | None]) -> Any:
    """Send CreateTopics; return the answer for the topic."""
    wanted = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": [{"name": name, "value": value} for name, value in settings],
    }
    return ask(servers, CREATE_TOPICS, 7, topics=[wanted], validate_only=False).topics[0]


def test_a_new_topic_is_told_with_every_setting_as_by_kafka(
    txn_broker: str, kafka_peer: str, unique: Callable[[str], str]
) -> None:
    topic = unique("created")
    told = [
        {entry.name: entry for entry in created(servers, topic, ("retention.ms", "5")).configs}
        for servers in (txn_broker, kafka_peer)
    ]
    assert told[0].keys() == told[1].keys()
    unlike = {name for name in told[0] if told[0][name] != told[1][name]}
    assert unlike <= set(TOPIC_DIFFERENCES)


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("retention.ms", "x", INVALID_CONFIG),
        ("retention.msec", "5", INVALID_CONFIG),
        ("retention.ms", None, INVALID_CONFIG),
        ("cleanup.policy", "", NONE),
        *(("compression.type", name, NONE) for name in ("uncompressed", "zstd", "producer")),
        *(("compression.type", name, INVALID_CONFIG) for name in ("none", "GZIP", "")),
        *(("compression.gzip.level", level, NONE) for level in ("-1", "1", "9")),
        *(("compression.gzip.level", level, INVALID_CONFIG) for level in ("0", "10", "-2")),
        ("compression.zstd.level", "0", NONE),
        ("compression.lz4.level", "0", INVALID_CONFIG),
        ("min.insync.replicas", "3", NONE),
        ("min.insync.replicas", "0", INVALID_CONFIG),
    ],
)
def test_a_new_topics_settings_are_taken_or_refused_as_by_kafka(
    bootstrap: str, unique: Callable[[str], str], setting: str, value: str | None, code: int
) -> None:
    assert int(created(bootstrap, unique("new"), (setting, value)).error_code) == code


def test_every_broker_setting_is_told_as_kafka_tells_it(txn_broker: str, kafka_peer: str) -> None:
    ours, theirs = (described(servers, BROKER, "1") for servers in (txn_broker, kafka_peer))
    assert ours.keys() - theirs.keys() == ONLY_HERE
    both = ours.keys() & theirs.keys()
    given = {
        name for name in both if GIVEN in (ours[name].config_source, theirs[name].config_source)
    }
    unlike = {name for name in both - given if ours[name] != theirs[name]}
    assert unlike == set(BROKER_DIFFERENCES) - given
    kinds = [{name: entry.config_type for name, entry in told.items()} for told in (ours, theirs)]
    assert {name: kinds[0][name] for name in both} == {name: kinds[1][name] for name in both}


@pytest.fixture
def altered_broker(bootstrap: str) -> Iterator[str]:
    """A broker that some setting is altered of; as before when the test has ended."""
    yield bootstrap
    for name in ("1", ""):
        assert altered(bootstrap, BROKER, name, ("log.retention.ms", DELETE, None)) == 0


def test_what_is_altered_for_brokers_comes_before_what_they_were_given(
    altered_broker: str, unique: Callable[[str], str]
) -> None:
    topic = unique("layers")
    create_topic(altered_broker, topic, retention_ms="1000000000")
    assert altered(altered_broker, BROKER, "1", ("log.retention.ms", SET, "1000000001")) == 0
    assert altered(altered_broker, BROKER, "", ("log.retention.ms", SET, "1000000002")) == 0

    def look() -> list[tuple[str, str, int]]:
        entry = described(altered_broker, TOPIC, topic)["retention.ms"]
        return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]

    expected = [
        ("retention.ms", "1000000000", 1),
        ("log.retention.ms", "1000000001", 2),
        ("log.retention.ms", "1000000002", 3),
        ("log.retention.hours", "168", 5),
    ]
    assert waited_for(look, expected) == expected


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([("cleanup.policy", SET, "")], NONE),
        ([("cleanup.policy", SET, "compact,compact")], NONE),
        ([("cleanup.policy", SET, "Compact")], INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "compact")], NONE),
        ([("cleanup.policy", SUBTRACT, "nothing")], NONE),
        ([("retention.ms", APPEND, "1")], INVALID_CONFIG),
        ([("retention.msec", SET, "1")], INVALID_CONFIG),
        ([("retention.ms", SET, "x")], INVALID_CONFIG),
        ([("retention.ms", SET, "-2")], INVALID_CONFIG),
        ([("retention.ms", SET, None)], INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], INVALID_REQUEST),
        ([("segment.bytes", SET, "1048575")], INVALID_CONFIG),
        ([("segment.bytes", SET, "1048576")], NONE),
        ([("remote.storage.enable", SET, "true")], INVALID_CONFIG),
        (
            [("min.compaction.lag.ms", SET, "2"), ("max.compaction.lag.ms", SET, "1")],
            INVALID_CONFIG,
        ),
        ([("preallocate", SET, "yes")], INVALID_CONFIG),
        ([("leader.replication.throttled.replicas", SET, "*")], NONE),
        ([("leader.replication.throttled.replicas", SET, "all")], INVALID_CONFIG),
        ([("message.downconversion.enable", SET, "true")], INVALID_CONFIG),
    ],
)
def test_an_alteration_is_taken_or_refused_as_by_kafka(
    bootstrap: str, unique: Callable[[str], str], entries: list[Any], code: int
) -> None:
    topic = unique("judged")
    create_topic(bootstrap, topic)
    assert altered(bootstrap, TOPIC, topic, *entries) == code


@pytest.mark.parametrize(
    ("kind", "name", "setting", "code"),
    [
        (TOPIC, "nobody", "retention.ms", UNKNOWN_TOPIC),
        (TOPIC, "a/b", "retention.ms", INVALID_TOPIC),
        (BROKER, "7", "log.retention.ms", INVALID_REQUEST),
        (BROKER, "x", "log.retention.ms", INVALID_REQUEST),
        (BROKER, "1", "log.retention.hours", INVALID_REQUEST),
        (1, "t", "retention.ms", INVALID_REQUEST),
        (99, "t", "retention.ms", INVALID_REQUEST),
    ],
)
def test_an_alteration_of_what_is_not_there_is_refused_as_by_kafka(
    bootstrap: str, kind: int, name: str, setting: str, code: int
) -> None:
    assert altered(bootstrap, kind, name, (setting, SET, "1000000000")) == code


def test_a_replacement_takes_back_what_it_does_not_name(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("replaced")
    create_topic(bootstrap, topic, retention_ms="5", flush_ms="6")
    assert Resources(bootstrap, TOPIC).replace(topic, retention_ms="7") == NONE

    def look() -> list[tuple[str, int]]:
        found = described(bootstrap, TOPIC, topic)
        entries = [found["retention.ms"], found["flush.ms"]]
        return [(entry.value, entry.config_source) for entry in entries]

    expected = [("7", 1), (str(2**63 - 1), 5)]
    assert waited_for(look, expected) == expected


def told_of(servers: str, topic: str) -> tuple[dict[str, tuple[str, int]], tuple[int, int]]:
    """Altered values of a topic and of brokers, and the start and end of partition 0."""
    told = [described(servers, TOPIC, topic), described(servers, BROKER, "1")]
    altered_ones = {
        name: (entry.value, entry.config_source)
        for settings in told
        for name, entry in settings.items()
        if entry.config_source in (1, 2, 3) and name != "min.insync.replicas"
    }
    return altered_ones, bounds_of(servers, topic)


def bounds_of(servers: str, topic: str) -> tuple[int, int]:
    """Where partition 0 starts and ends, once it is led: a Kafka that starts needs a while."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), 5)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            consumer.close()
            return found


def test_settings_and_deleted_records_move_with_the_directory_to_kafka_and_back(
    tmp_path: Path,
) -> None:
    with txn.Broker(tmp_path / "first" / "data") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"v"] * 10)
        assert altered(servers, TOPIC, "orders", ("flush.ms", SET, "7")) == NONE
        assert altered(servers, BROKER, "1", ("log.retention.ms", SET, "1000000001")) == NONE
        assert altered(servers, BROKER, "", ("log.index.interval.bytes", SET, "512")) == NONE
        place = TopicPartition("orders", 0, 4)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_records([place])[place].result(WAIT_S)
        here = told_of(servers, "orders")
    shutil.copytree(tmp_path / "first" / "data", tmp_path / "second" / "data")
    with KafkaNode(tmp_path / "second") as node:
        there = told_of(node.bootstrap_servers, "orders")
    with txn.Broker(tmp_path / "second" / "data") as broker:
        back = told_of(broker.bootstrap_servers, "orders")

    assert here[0] == {
        "flush.ms": ("7", 1),
        "index.interval.bytes": ("512", 3),
        "log.index.interval.bytes": ("512", 3),
        "log.retention.ms": ("1000000001", 2),
        "retention.ms": ("1000000001", 2),
    }
    assert here[1] == (4, 10)
    assert there == here
    assert back == here
