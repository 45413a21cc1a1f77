"""Consumers of confluent-kafka with both group protocols in one group, while they read."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

import txn
from api.groups.test_consumer_protocol import ORDERS, SETTINGS, Member, settle
from support.clients import WAIT_S, create_topic, plain_producer, send

CLASSIC: dict[str, Any] = {
    "group_protocol": "classic",
    "heartbeat_interval_ms": 200,
    "session_timeout_ms": 10_000,
}
COOPERATIVE = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}


class CommittingMember(Member):
    """A member that commits each record that it read."""

    def poll(self) -> None:
        before = len(self.values)
        super().poll()
        if len(self.values) > before:
            self.consumer.commit(asynchronous=False)


class Team:
    """The members of one group, and the records that they have to read."""

    def __init__(self, servers: str, stack: contextlib.ExitStack) -> None:
        self.servers = servers
        self.present: list[Member] = []
        self.sent: list[bytes] = []
        self._all: list[Member] = []
        self._stack = stack

    def join(self, name: str, **settings: Any) -> Member:
        member = CommittingMember(self.servers, name, **settings)
        self._stack.callback(member.consumer.close)
        self.present.append(member)
        self._all.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.present.remove(member)
        member.consumer.close()
        member.owned.clear()

    def share_all(self) -> None:
        """Wait until every partition has one reader, and everybody reads."""
        self.settle(self._is_shared)

    def _is_shared(self) -> bool:
        owned = [place for one in self.present for place in one.owned]
        return sorted(owned) == sorted(ORDERS) and all(one.owned for one in self.present)

    def settle(self, is_done: Callable[[], bool]) -> None:
        settle(is_done, *self.present)

    def read_some(self) -> None:
        """Send a record to each partition, and wait until they are read."""
        for _, partition in sorted(ORDERS):
            value = f"{len(self.sent)}".encode()
            self.sent.append(value)
            send(plain_producer(self.servers), "orders", [value], partition=partition)
        self.settle(lambda: {*self.sent} == {*self.read()})

    def read(self) -> list[bytes]:
        return [value for one in self._all for value in one.values]

    def type_of_group(self) -> ConsumerGroupType:
        """The protocol of the group, as it is listed."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        (group,) = admin.list_consumer_groups().result(WAIT_S).valid
        kind: ConsumerGroupType = group.type
        return kind


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(directory: Path) -> Iterator[txn.Broker]:
    with txn.Broker(directory, properties=SETTINGS) as broker:
        create_topic(broker.bootstrap_servers, "orders", 4)
        yield broker


@pytest.fixture
def team(broker: txn.Broker) -> Iterator[Team]:
    with contextlib.ExitStack() as stack:
        yield Team(broker.bootstrap_servers, stack)


def test_members_are_replaced_one_by_one_by_those_of_the_other_protocol(team: Team) -> None:
    """P3: a rolling upgrade, and the way back; each record is read once in spite of them."""
    old = [team.join("a", **CLASSIC), team.join("b", **CLASSIC)]
    team.share_all()
    team.read_some()
    assert team.type_of_group() is ConsumerGroupType.CLASSIC
    for member, name in zip(old, "cd", strict=True):
        team.join(name)
        team.share_all()
        team.read_some()
        assert team.type_of_group() is ConsumerGroupType.CONSUMER
        team.leave(member)
        team.share_all()
        team.read_some()
    new = [*team.present]
    for member, name in zip(new, "ef", strict=True):
        team.join(name, **COOPERATIVE)
        team.share_all()
        team.read_some()
        assert team.type_of_group() is ConsumerGroupType.CONSUMER
        team.leave(member)
        team.share_all()
        team.read_some()
    assert team.type_of_group() is ConsumerGroupType.CLASSIC
    assert sorted(team.read()) == sorted(team.sent)


def test_a_cooperative_member_keeps_reading_what_stays_with_it(team: Team) -> None:
    """A classic member between two of the consumer protocol is asked for nothing but its share."""
    second = team.join("second")
    team.share_all()
    first = team.join("first", **COOPERATIVE)
    team.share_all()
    held = set(first.owned)
    third = team.join("third")
    team.share_all()
    assert set().union(*first.taken) == held - first.owned
    taken, assignments = [*first.taken], first.assignments
    team.leave(third)
    # Before it knows the new epoch, the downgrade would fence it as Kafka's does.
    team.settle(lambda: first.assignments > assignments)
    team.share_all()
    team.leave(second)
    team.share_all()
    assert team.type_of_group() is ConsumerGroupType.CLASSIC
    assert first.owned == ORDERS
    assert first.taken == taken


def test_a_static_member_changes_the_protocol_under_its_instance_id(team: Team) -> None:
    """The group has one member at a time. It takes the place of the former one, up and down."""
    for name, settings in (("a", CLASSIC), ("b", {}), ("c", CLASSIC)):
        member = team.join(name, group_instance_id="i", **settings)
        team.share_all()
        team.read_some()
        team.leave(member)
    assert sorted(team.read()) == sorted(team.sent)


def test_a_group_of_both_protocols_goes_on_after_a_restart(
    broker: txn.Broker, directory: Path, team: Team
) -> None:
    """P8: nobody is asked for a partition. The group is downgraded by the other broker."""
    second = team.join("second")
    team.share_all()
    first = team.join("first", **COOPERATIVE)
    team.share_all()
    team.read_some()
    owned, taken = [set(one.owned) for one in (first, second)], (len(first.taken), 1)
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    broker.close()
    with txn.Broker(directory, port=port, properties=SETTINGS):
        team.read_some()
        assert [one.owned for one in (first, second)] == owned
        assert (len(first.taken), len(second.taken)) == taken
        team.leave(second)
        team.share_all()
        team.read_some()
        assert team.type_of_group() is ConsumerGroupType.CLASSIC
        for member in [*team.present]:
            team.leave(member)
    assert sorted(team.read()) == sorted(team.sent)
