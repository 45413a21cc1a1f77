"""Kafka Connect and MirrorMaker 2 with exactly-once sources, killed and restarted.

Both run as of Apache Kafka 4.2 and of 4.3, the last one that Maven Central has whole. Their
internal topics, transactions and fencing of zombies are on the broker under test.
"""

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from clients.marks import long
from clients.programs import Program, java_command
from clients.test_clients import committed
from harnesses.peers.jars import CONNECT_4_2, CONNECT_4_3, NODE_4_2, JarSet, class_path
from harnesses.peers.kafka import KafkaNode, free_port
from support.clients import (
    WAIT_S,
    create_topic,
    read_all,
    read_messages,
    send,
    transactional_producer,
)

pytestmark = [long, pytest.mark.java, pytest.mark.timeout(900)]

VERSIONS = (CONNECT_4_2, CONNECT_4_3)

CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
KILLS = 3


@contextmanager
def java(
    program: str, settings: Mapping[str, object], directory: Path, connect: JarSet
) -> Iterator[Program]:
    """A running program of Connect's, with a file of its settings."""
    file = directory / f"{program.rpartition('.')[2]}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = java_command(program, str(file), jars=NODE_4_2, level="WARN")
    command[command.index("-cp") + 1] = f"{class_path(connect)}:{class_path(NODE_4_2)}"  # log4j
    command[1:2] = ["-Xmx384m"]
    with Program(command, directory / "program.log") as running:
        yield running


class Worker:
    """The REST interface of a worker."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Its answer, or nothing while it cannot give one."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return json.loads(answer.read() or b"null")
        except (urllib.error.URLError, OSError):
            return None

    def runs(self, connector: str) -> bool:
        """Whether a connector has a task that runs."""
        status = self.ask("GET", f"/connectors/{connector}/status") or {}
        return [each["state"] for each in status.get("tasks", [])] == ["RUNNING"]


@pytest.mark.parametrize("connect", VERSIONS, ids=lambda each: each.name)
def test_P1_P3_connect_copies_each_line_once_over_kills(
    connect: JarSet, servers: str, name: str, tmp_path: Path
) -> None:
    port = free_port()
    worker = Worker(port)
    settings = {
        "bootstrap.servers": servers,
        "group.id": f"{name}-workers",
        "key.converter": CONVERTER,
        "value.converter": CONVERTER,
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        "listeners": f"http://127.0.0.1:{port}",
        "offset.flush.interval.ms": 200,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "scheduled.rebalance.max.delay.ms": 0,
        **{f"{each}.storage.topic": f"{name}-{each}" for each in ("config", "offset", "status")},
        **{f"{each}.storage.replication.factor": 1 for each in ("config", "offset", "status")},
        "offset.storage.partitions": 2,
        "status.storage.partitions": 2,
    }
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    create_topic(servers, name)
    connectors = {
        "source": {
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(source),
            "topic": name,
            "batch.size": "50",
            "exactly.once.support": "required",
        },
        "sink": {
            "connector.class": "FileStreamSink",
            "tasks.max": "1",
            "file": str(sink),
            "topics": name,
        },
    }
    lines: list[bytes] = []
    for turn in range(KILLS + 1):
        with java(
            "org.apache.kafka.connect.cli.ConnectDistributed", settings, tmp_path, connect
        ) as program:
            if turn == 0:
                for connector, config in connectors.items():
                    made = {"name": connector, "config": config}
                    program.until(partial(worker.ask, "POST", "/connectors", made))
            more = [f"line {turn} {n}".encode() for n in range(3000)]
            before = len(lines)
            lines += more
            with source.open("ab") as file:
                file.write(b"".join(line + b"\n" for line in more))
            wanted = len(lines) if turn == KILLS else before + 1
            program.until(partial(has_records, servers, name, wanted))
            if turn == KILLS:
                program.until(lambda: worker.runs("source") and worker.runs("sink"))
                program.until(partial(has_line, sink, lines[-1]))
    assert read_all(servers, name) == lines
    assert {*sink.read_bytes().split(b"\n")} == {*lines, b""}


def has_records(servers: str, topic: str, count: int) -> bool:
    """Whether a topic is there, with so many committed records."""
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=WAIT_S).topics
    return topic in topics and len(read_all(servers, topic)) >= count


def has_line(file: Path, line: bytes) -> bool:
    """Whether a file has a line."""
    return file.exists() and line + b"\n" in file.read_bytes()


@contextmanager
def served(kind: str, directory: Path) -> Iterator[str]:
    """Bootstrap servers of a broker of its own."""
    if kind == "kafka":
        with KafkaNode(directory) as node:
            yield node.bootstrap_servers
    else:
        with txn.Broker(directory) as broker:
            yield broker.bootstrap_servers


@pytest.mark.parametrize(
    ("connect", "source", "target"),
    [
        pytest.param(CONNECT_4_2, "txn", "txn", id="4.2-txn-txn"),
        pytest.param(CONNECT_4_3, "txn", "txn", id="4.3-txn-txn"),
        pytest.param(CONNECT_4_3, "txn", "kafka", id="4.3-txn-kafka", marks=pytest.mark.peer),
        pytest.param(CONNECT_4_3, "kafka", "txn", id="4.3-kafka-txn", marks=pytest.mark.peer),
        pytest.param(CONNECT_4_3, "kafka", "kafka", id="4.3-kafka-kafka", marks=pytest.mark.peer),
    ],
)
def test_P1_P3_mirror_maker_copies_each_committed_record_once_over_kills(
    connect: JarSet, source: str, target: str, name: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(served(source, tmp_path / "source"))
        other = stack.enter_context(served(target, tmp_path / "target"))
        factors = [
            *("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic."),
            *("offset.storage.", "status.storage.", "config.storage."),
        ]
        settings = {
            "clusters": "one,other",
            "one.bootstrap.servers": one,
            "other.bootstrap.servers": other,
            "one->other.enabled": "true",
            "one->other.topics": name,
            "one->other.sync.group.offsets.enabled": "true",
            "other->one.enabled": "false",
            "other->one.emit.heartbeats.enabled": "false",
            "other.exactly.once.source.support": "enabled",
            "one.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_port()}",
            "one.consumer.isolation.level": "read_committed",
            "source.consumer.isolation.level": "read_committed",
            "refresh.topics.interval.seconds": 1,
            "refresh.groups.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.interval.seconds": 1,
            "offset.lag.max": 0,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "plugin.discovery": "service_load",
            **{f"{each}replication.factor": 1 for each in factors},
        }
        create_topic(one, name, 2)
        producer = transactional_producer(one, name)
        wanted: list[bytes] = []
        for turn in range(KILLS + 1):
            with java(
                "org.apache.kafka.connect.mirror.MirrorMaker", settings, tmp_path, connect
            ) as program:
                before = len(wanted)
                for batch in range(20):
                    values = [f"v{turn}-{batch}-{n}".encode() for n in range(50)]
                    producer.begin_transaction()
                    send(producer, name, values, partition=batch % 2)
                    if batch % 5 == 4:
                        producer.abort_transaction(WAIT_S)
                    else:
                        producer.commit_transaction(WAIT_S)
                        wanted += values
                least = len(wanted) if turn == KILLS else before + 1
                program.until(partial(has_records, other, f"one.{name}", least))
                if turn == KILLS:
                    commit_all(one, name)
                    program.until(lambda: sum(committed(other, "readers").values()) > 0)
        assert Counter(read_all(other, f"one.{name}")) == Counter(wanted)
        mirrored = committed(other, "readers")
        behind = [
            each
            for each in read_messages(other, f"one.{name}")
            if (each.offset() or 0) < mirrored[each.partition() or 0]
        ]
        assert behind, "the group goes on where it has read, and not at the beginning"


def commit_all(servers: str, topic: str) -> None:
    """A group commits the ends of both partitions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    for partition in (0, 1):
        place = TopicPartition(topic, partition)
        _, end = consumer.get_watermark_offsets(place, WAIT_S)
        consumer.commit(offsets=[TopicPartition(topic, partition, end)], asynchronous=False)
    consumer.close()
