"""A group of the consumer protocol goes on when its directory moves to Apache Kafka, and back."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import txn
from api.groups.test_consumer_protocol import Member, settle
from harnesses.peers.jars import NODE_4_2, NODE_4_4, JarSet, run_java
from harnesses.peers.kafka import KafkaNode, free_port
from support.clients import create_topic, plain_producer, send

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

INTERVAL = {"group.consumer.heartbeat.interval.ms": "200"}
KAFKA = {**INTERVAL, "group.consumer.min.heartbeat.interval.ms": "200"}


class ReadBy:
    """The reading of some members."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members

    def two_each(self) -> bool:
        return all(len(one.owned) == 2 for one in self._members)

    def all_of(self, values: list[bytes]) -> bool:
        return {*values} <= {value for one in self._members for value in one.values}


@pytest.fixture
def members() -> Iterator[list[Member]]:
    made: list[Member] = []
    yield made
    for member in made:
        member.consumer.close()


@pytest.mark.parametrize(
    ("kafka", "begins_with_kafka"),
    [(NODE_4_2, False), (NODE_4_2, True), (NODE_4_4, False)],
    ids=["4.2 second", "4.2 first", "4.4 second"],
)
def test_a_group_goes_on_over_a_move_there_and_back(
    kafka: JarSet, begins_with_kafka: bool, tmp_path: Path, members: list[Member]
) -> None:
    """P8: the members keep their ids and their partitions; nobody is asked for one."""
    port = free_port()
    servers = f"127.0.0.1:{port}"
    members_read = ReadBy(members)
    kinds = [begins_with_kafka, not begins_with_kafka, begins_with_kafka]
    held: list[set[tuple[str, int]]] = []
    ids: list[str] = []
    for move, is_kafka in enumerate(kinds):
        if is_kafka:
            node: KafkaNode | txn.Broker = KafkaNode(tmp_path, KAFKA, port=port, jars=kafka)
        else:
            node = txn.Broker(tmp_path / "data", port=port, properties=INTERVAL)
        with node:
            if not move:
                create_topic(servers, "orders", 4)
                members += [Member(servers, "first"), Member(servers, "second", "^ord.*")]
                settle(members_read.two_each, *members)
                held = [set(one.owned) for one in members]
                ids = [one.consumer.memberid() for one in members]
                taken = [len(one.taken) for one in members]
            values = [f"{move}-{index}".encode() for index in range(4)]
            for index, value in enumerate(values):
                send(plain_producer(servers), "orders", [value], partition=index)
            settle(partial(members_read.all_of, values), *members)
            assert [one.owned for one in members] == held
            assert [len(one.taken) for one in members] == taken
            assert [one.consumer.memberid() for one in members] == ids


@pytest.mark.parametrize("subscription", [("--topic", "orders"), ("--include", "ord.*")])
def test_kafkas_console_consumer_reads_as_a_member(subscription: tuple[str, str]) -> None:
    with txn.Broker(properties=INTERVAL) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", 3)
        for partition in range(3):
            send(plain_producer(servers), "orders", [f"v{partition}".encode()], partition=partition)
        read = run_java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", servers, *subscription, "--group", "g", "--from-beginning"),
            *("--max-messages", "3", "--timeout-ms", "60000"),
            *("--command-property", "group.protocol=consumer"),
        )
        described = run_java(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", servers, "--describe", "--group", "g", "--state"),
        )
    assert sorted(read.split()) == ["v0", "v1", "v2"]
    assert "uniform" in described
    assert "Empty" in described
