"""A group of the consumer protocol goes on when its directory moves to Apache Kafka, and back."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

import txn
from api.groups.test_consumer_protocol import Member, settle
from api.groups.test_group_migration import CommittingMember
from harnesses.peers.jars import NODE_4_2, NODE_4_4, JarSet, run_java
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode, free_port
from support.clients import POLL_S, WAIT_S, create_topic, plain_producer, send

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

INTERVAL = {"group.consumer.heartbeat.interval.ms": "200"}
KAFKA = {**FEW_PARTITIONS, **INTERVAL, "group.consumer.min.heartbeat.interval.ms": "200"}

COOPERATIVE = {
    "group_protocol": "classic",
    "partition_assignment_strategy": "cooperative-sticky",
    "heartbeat_interval_ms": 200,
}


class ReadBy:
    """The reading of some members."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members

    def two_each(self) -> bool:
        return all(len(one.owned) == 2 for one in self._members)

    def four_in_all(self) -> bool:
        return sum(len(one.owned) for one in self._members) == 4

    def all_of(self, values: list[bytes]) -> bool:
        return {*values} <= {value for one in self._members for value in one.values}


@pytest.fixture
def members() -> Iterator[list[Member]]:
    made: list[Member] = []
    yield made
    for member in made:
        member.consumer.close()


def broker_on(directory: Path, port: int, kafka: JarSet | None) -> KafkaNode | txn.Broker:
    """A broker on the data of the one before: an Apache Kafka, or one of txn."""
    if kafka is not None:
        return KafkaNode(directory, KAFKA, port=port, jars=kafka)
    return txn.Broker(directory / "data", port=port, properties=INTERVAL)


def read_on(servers: str, move: int, members: list[Member]) -> None:
    """Send a record to each partition, and wait until the members have read all of them."""
    values = [f"{move}-{index}".encode() for index in range(4)]
    for index, value in enumerate(values):
        send(plain_producer(servers), "orders", [value], partition=index)
    settle(partial(ReadBy(members).all_of, values), *members)


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
        with broker_on(tmp_path, port, kafka if is_kafka else None):
            if not move:
                create_topic(servers, "orders", 4)
                members += [Member(servers, "first"), Member(servers, "second", "^ord.*")]
                settle(members_read.two_each, *members)
                held = [set(one.owned) for one in members]
                ids = [one.consumer.memberid() for one in members]
                taken = [len(one.taken) for one in members]
            read_on(servers, move, members)
            assert [one.owned for one in members] == held
            assert [len(one.taken) for one in members] == taken
            assert [one.consumer.memberid() for one in members] == ids


def test_a_group_of_both_protocols_goes_on_over_a_move_there_and_back(
    tmp_path: Path, members: list[Member]
) -> None:
    """P8: nobody is asked for a partition. The last broker makes the group a classic one."""
    port = free_port()
    servers = f"127.0.0.1:{port}"
    members_read = ReadBy(members)
    for move, is_kafka in enumerate((False, True, False, True)):
        with broker_on(tmp_path, port, NODE_4_4 if is_kafka else None):
            if not move:
                create_topic(servers, "orders", 4)
                members += [Member(servers, "first"), Member(servers, "second", **COOPERATIVE)]
                settle(members_read.two_each, *members)
                held = [set(one.owned) for one in members]
                taken = [len(one.taken) for one in members]
            read_on(servers, move, members)
            assert [one.owned for one in members] == held
            assert [len(one.taken) for one in members] == taken
            if move == 3:
                members.pop(0).consumer.close()
                settle(members_read.four_in_all, *members)
                assert len(members[0].taken) == taken[1]


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


@pytest.mark.parametrize("assignor", ["CooperativeStickyAssignor", "RangeAssignor"])
def test_kafkas_classic_consumer_goes_on_beside_one_of_the_consumer_protocol(
    assignor: str,
) -> None:
    """P3: each record is read once, while the group changes its protocol and changes it back."""
    with txn.Broker(properties=INTERVAL) as broker, ThreadPoolExecutor(1) as pool:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", 4)
        sent = [f"v{number}" for number in range(12)]
        reading = pool.submit(
            run_java,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", servers, "--topic", "orders", "--group", "g"),
            *("--from-beginning", "--max-messages", "10", "--timeout-ms", "60000"),
            *("--command-property", "group.protocol=classic"),
            *("--command-property", "heartbeat.interval.ms=200"),
            *("--command-property", "auto.commit.interval.ms=100"),
            *("--command-property", f"partition.assignment.strategy={PACKAGE}.{assignor}"),
            jars=NODE_4_4,
        )
        one_each(servers, sent[:4])
        await_commits(servers, 4)
        member = CommittingMember(servers, "beside")
        settle(lambda: len(member.owned) == 2, member)
        one_each(servers, sent[4:8])
        settle(lambda: len(member.values) == 2, member)
        await_commits(servers, 8)
        member.consumer.close()
        one_each(servers, sent[8:])
        read = reading.result(WAIT_S)
    assert sorted([*read.split(), *(value.decode() for value in member.values)]) == sorted(sent)


PACKAGE = "org.apache.kafka.clients.consumer"


def one_each(servers: str, values: list[str]) -> None:
    for partition, value in enumerate(values):
        send(plain_producer(servers), "orders", [value.encode()], partition=partition)


def await_commits(servers: str, records: int) -> None:
    """Wait until the group has committed so many records."""
    admin = AdminClient({"bootstrap.servers": servers})
    ends_s = time.monotonic() + WAIT_S
    committed = 0
    while committed < records:
        assert time.monotonic() < ends_s, f"{committed} of {records} records"
        time.sleep(POLL_S)
        asked = ConsumerGroupTopicPartitions("g")
        found = admin.list_consumer_group_offsets([asked])["g"].result(WAIT_S)
        committed = sum(max(place.offset, 0) for place in found.topic_partitions)
