"""Fetch sessions with the real Java consumer, against txn and against Apache Kafka."""

import re
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from harnesses.peers.jars import CLIENTS_3_9, NODE_4_2, JarSet, class_path, java_executable
from support.clients import POLL_S, create_topic, plain_producer, send

PROGRAM = Path(__file__).parent / "java" / "FetchSessions.java"
SECONDS_MAX = 240.0
PARTITIONS = 30

pytestmark = [pytest.mark.java, pytest.mark.timeout(SECONDS_MAX + 60)]


class JavaConsumer:
    """The program `FetchSessions.java`, an order at a time."""

    def __init__(self, servers: str, topic: str, jars: JarSet) -> None:
        self._program = subprocess.Popen(
            [
                *(java_executable(), "-Xmx256m"),
                *("-Dlog4j2.level=OFF", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
                *("-cp", class_path(jars), str(PROGRAM), servers, topic, str(PARTITIONS)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, *lines: str) -> None:
        assert self._program.stdin is not None
        self._program.stdin.writelines(f"{line}\n" for line in lines)
        self._program.stdin.flush()

    def read(self, count: int) -> list[str]:
        """Read so many records; return PARTITION:OFFSET of each, sorted."""
        self.order(f"read {count}")
        assert self._program.stdout is not None
        return self._program.stdout.readline().split()

    def close(self) -> str:
        """Close the consumer; return the program's last output."""
        return self._program.communicate(timeout=SECONDS_MAX)[0]


@pytest.fixture
def broker() -> Iterator[txn.Broker]:
    with txn.Broker(metrics="127.0.0.1:0") as broker:
        yield broker


def sessions_and_partitions(broker: txn.Broker) -> tuple[int, int]:
    """The gauges of fetch sessions."""
    with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    names = ("numincrementalfetchsessions", "numincrementalfetchpartitionscached")
    found = [
        re.search(rf"^kafka_server_fetchsessioncache_{name} (\S+)$", text, re.MULTILINE)
        for name in names
    ]
    sessions, partitions = (float(match[1]) for match in found if match)
    return int(sessions), int(partitions)


def until(broker: txn.Broker, sessions: int, partitions: int) -> None:
    """Wait until there are so many sessions with so many partitions."""
    deadline = time.monotonic() + 60
    while (seen := sessions_and_partitions(broker)) != (sessions, partitions):
        assert time.monotonic() < deadline, seen
        time.sleep(POLL_S)


def places(offset: int, without: int | None = None) -> list[str]:
    return [f"{index:03d}:{offset}" for index in range(PARTITIONS) if index != without]


def append_to_each(servers: str, topic: str) -> None:
    producer = plain_producer(servers)
    for index in range(PARTITIONS):
        send(producer, topic, [b"value"], index)


def follow(consumer: JavaConsumer, servers: str, topic: str, broker: txn.Broker | None) -> None:
    """Append and read on; look at the sessions of txn's broker meanwhile."""
    append_to_each(servers, topic)
    assert consumer.read(PARTITIONS) == places(0)
    if broker is not None:
        until(broker, 1, PARTITIONS)
    consumer.order("pause 3")
    for offset in (1, 2):  # the consumer forgets the paused partition once it fetches again
        append_to_each(servers, topic)
        assert consumer.read(PARTITIONS - 1) == places(offset, without=3)
    if broker is not None:
        until(broker, 1, PARTITIONS - 1)
    consumer.order("resume 3")
    assert consumer.read(2) == ["003:1", "003:2"]
    assert consumer.close() == "closed\n"
    if broker is not None:
        until(broker, 0, 0)


@pytest.mark.parametrize("jars", [NODE_4_2, CLIENTS_3_9], ids=lambda jars: jars.name)
def test_a_java_consumer_follows_one_session_and_closes_it(
    broker: txn.Broker, jars: JarSet
) -> None:
    create_topic(broker.bootstrap_servers, "many", PARTITIONS)
    consumer = JavaConsumer(broker.bootstrap_servers, "many", jars)
    follow(consumer, broker.bootstrap_servers, "many", broker)


@pytest.mark.peer
def test_a_java_consumer_reads_the_same_from_apache_kafka(kafka_peer: str) -> None:
    topic = f"many-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_peer, topic, PARTITIONS)
    follow(JavaConsumer(kafka_peer, topic, NODE_4_2), kafka_peer, topic, None)
