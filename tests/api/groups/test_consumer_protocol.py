"""Consumers of confluent-kafka with `group.protocol=consumer` (KIP-848)."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

import txn
from support.clients import WAIT_S, create_topic, plain_producer, send, transactional_producer

SETTINGS = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 50,
}
ORDERS = {("orders", index) for index in range(4)}

Place = tuple[str, int]


class Member:
    """A consumer that notes what it is given and what is taken away."""

    def __init__(self, servers: str, name: str, *topics: str, **settings: Any) -> None:
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **dotted,
            }
        )
        self.owned: set[Place] = set()
        self.assignments = 0
        """Number of assignments that it got, also those that changed nothing."""
        self.taken: list[set[Place]] = []
        self.values: list[bytes] = []
        self.consumer.subscribe(
            [*(topics or ("orders",))],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def _on_assign(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.assignments += 1
        self.owned |= {(one.topic, one.partition) for one in places}

    def _on_revoke(self, _: Consumer, places: list[TopicPartition]) -> None:
        taken = {(one.topic, one.partition) for one in places}
        self.owned -= taken
        self.taken.append(taken)

    def poll(self) -> None:
        for message in self.consumer.consume(100, 0.05):
            if message.error() is None:
                self.values.append(message.value() or b"")


def settle(is_done: Callable[[], bool], *members: Member) -> None:
    """Let members poll until something has happened."""

    ends_s = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < ends_s, [(one.owned, one.taken) for one in members]
        for member in members:
            member.poll()


@pytest.fixture
def broker() -> Iterator[txn.Broker]:
    with txn.Broker(properties=SETTINGS) as broker:
        create_topic(broker.bootstrap_servers, "orders", 4)
        yield broker


@pytest.fixture
def join(broker: txn.Broker) -> Iterator[Callable[..., Member]]:
    """Make members of the group, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def made(name: str, *topics: str, **settings: Any) -> Member:
            member = Member(broker.bootstrap_servers, name, *topics, **settings)
            stack.callback(member.consumer.close)
            return member

        yield made


Join = Callable[..., Member]


def test_members_share_the_partitions_and_keep_what_they_have(
    broker: txn.Broker, join: Join
) -> None:
    """Nobody stops reading a partition that stays with it."""
    first = join("first")
    settle(lambda: first.owned == ORDERS, first)
    second = join("second")
    settle(lambda: len(second.owned) == 2, first, second)
    assert first.owned | second.owned == ORDERS
    assert first.taken == [second.owned]
    described = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    facts = described.describe_consumer_groups(["g"])["g"].result(WAIT_S)
    assert facts.state is ConsumerGroupState.STABLE
    owners = {
        one.client_id: {(each.topic, each.partition) for each in one.assignment.topic_partitions}
        for one in facts.members
    }
    assert owners == {"first": first.owned, "second": second.owned}
    second.consumer.close()
    settle(lambda: first.owned == ORDERS, first)
    assert len(first.taken) == 1


def test_a_static_member_comes_back_without_a_rebalance(broker: txn.Broker, join: Join) -> None:
    other = join("other")
    settle(lambda: other.owned == ORDERS, other)
    static = join("static", group_instance_id="i")
    settle(lambda: len(static.owned) == 2, other, static)
    held = set(static.owned)
    static.consumer.close()
    again = join("again", group_instance_id="i")
    settle(lambda: again.owned == held, other, again)
    assert other.taken == [held]


def test_a_pattern_follows_new_topics(broker: txn.Broker, join: Join) -> None:
    member = join("member", "^pay.*")
    settle(lambda: bool(member.consumer.memberid()), member)
    create_topic(broker.bootstrap_servers, "payments", 1)
    create_topic(broker.bootstrap_servers, "refunds", 1)
    settle(lambda: member.owned == {("payments", 0)}, member)


def test_new_partitions_find_their_readers(broker: txn.Broker, join: Join) -> None:
    member = join("member")
    settle(lambda: member.owned == ORDERS, member)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions("orders", 6)])["orders"].result(WAIT_S)
    settle(lambda: len(member.owned) == 6, member)
    assert member.taken == []


def test_a_group_goes_on_over_a_restart(tmp_path: Path) -> None:
    """P8: the same members own the same partitions, and were asked for none."""
    with txn.Broker(tmp_path / "data", properties=SETTINGS) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", 4)
        members = [Member(servers, name) for name in ("first", "second")]
        settle(lambda: all(len(one.owned) == 2 for one in members), *members)
        held = [set(one.owned) for one in members]
        taken = [len(one.taken) for one in members]
    port = int(servers.rpartition(":")[2])
    with txn.Broker(tmp_path / "data", port=port, properties=SETTINGS) as broker:
        send(plain_producer(servers), "orders", [b"after"], partition=3)
        settle(lambda: any(b"after" in one.values for one in members), *members)
        assert [one.owned for one in members] == held
        assert [len(one.taken) for one in members] == taken
        for one in members:
            one.consumer.close()


def test_offsets_in_transactions_are_fenced_by_the_member_epoch(
    broker: txn.Broker, join: Join
) -> None:
    """Exactly once: a member that lost its partitions commits nothing for them."""
    servers = broker.bootstrap_servers
    send(plain_producer(servers), "orders", [b"1", b"2"])
    create_topic(servers, "out")
    producer = transactional_producer(servers, "t")
    member = join("member")
    settle(lambda: len(member.values) == 2, member)
    metadata = member.consumer.consumer_group_metadata()
    producer.begin_transaction()
    producer.produce("out", b"3")
    position = [TopicPartition("orders", 0, 2)]
    producer.send_offsets_to_transaction(position, metadata, WAIT_S)
    producer.commit_transaction(WAIT_S)
    (committed,) = member.consumer.committed([TopicPartition("orders", 0)], WAIT_S)
    assert committed.offset == 2
    member.consumer.close()
    other = join("other")
    settle(lambda: other.owned == ORDERS, other)
    producer.begin_transaction()
    producer.produce("out", b"4")
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 0)], metadata, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S)
    (committed,) = other.consumer.committed([TopicPartition("orders", 0)], WAIT_S)
    assert committed.offset == 2
