"""Groups of confluent-kafka under both protocols: the same results as on Apache Kafka 4.4."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

import txn
from api.groups.test_consumer_protocol import Member, Place, settle
from harnesses.peers.jars import NODE_4_4
from harnesses.peers.kafka import KafkaNode
from support.clients import WAIT_S, create_topic, plain_producer, send

SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
CLASSIC: Final = {"group_protocol": "classic", "heartbeat_interval_ms": 300}
PARTITIONS: Final = 4

Join = Callable[..., Member]


@pytest.fixture(scope="module", params=["txn", pytest.param("kafka", marks=pytest.mark.peer)])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    made: txn.Broker | KafkaNode
    if request.param == "txn":
        made = txn.Broker(properties=SETTINGS)
    else:
        made = KafkaNode(tmp_path_factory.mktemp("groups"), SETTINGS, jars=NODE_4_4)
    with made as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, unique: Callable[[str], str]) -> str:
    name = unique("orders")
    create_topic(servers, name, PARTITIONS)
    return name


@pytest.fixture
def join(servers: str, topic: str) -> Iterator[Join]:
    """Make members of the group that has the topic's name; they are closed at the end."""
    with contextlib.ExitStack() as stack:

        def made(name: str, **settings: Any) -> Member:
            member = Member(servers, name, topic, group_id=topic, **settings)
            stack.callback(member.consumer.close)
            return member

        yield made


def places(topic: str) -> set[Place]:
    return {(topic, number) for number in range(PARTITIONS)}


def share(topic: str, *members: Member) -> None:
    """Wait until each partition has a reader, and each member as many as the others."""
    each = PARTITIONS // len(members)
    settle(
        lambda: (
            set().union(*(one.owned for one in members)) == places(topic)
            and all(len(one.owned) == each for one in members)
        ),
        *members,
    )


def described(servers: str, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": servers})
    return admin.describe_consumer_groups([group])[group].result(WAIT_S)


def parts(assignment: Any) -> set[Place]:
    found = () if assignment is None else assignment.topic_partitions
    return {(one.topic, one.partition) for one in found}


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_with_a_classic_assignor_share_a_topic_and_are_described(
    servers: str, topic: str, join: Join, assignor: str
) -> None:
    settings = {**CLASSIC, "partition_assignment_strategy": assignor}
    members = [join("a", **settings)]
    share(topic, *members)
    members.append(join("b", **settings))
    share(topic, *members)
    group = described(servers, topic)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    assert (group.partition_assignor, group.is_simple_consumer_group) == (assignor, False)
    assert {one.client_id: parts(one.assignment) for one in group.members} == {
        name: one.owned for name, one in zip("ab", members, strict=True)
    }
    is_cooperative = assignor == "cooperative-sticky"
    assert all(len(taken) == 2 for taken in members[0].taken) is is_cooperative


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_with_an_assignor_of_the_broker_share_a_topic_and_are_described(
    servers: str, topic: str, join: Join, assignor: str
) -> None:
    members = [join("a", group_remote_assignor=assignor)]
    share(topic, *members)
    members.append(join("b", group_remote_assignor=assignor))
    share(topic, *members)
    assert [len(taken) for taken in members[0].taken] == [2]
    group = described(servers, topic)
    assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert group.partition_assignor == assignor
    shown = {one.client_id: (parts(one.assignment), one.group_instance_id) for one in group.members}
    assert shown == {name: (one.owned, None) for name, one in zip("ab", members, strict=True)}
    targets = {one.client_id: parts(one.target_assignment) for one in group.members}
    assert targets == {name: one.owned for name, one in zip("ab", members, strict=True)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_paused_partition_stays_paused_while_another_member_joins(
    servers: str, topic: str, join: Join, protocol: str
) -> None:
    """The rebalance is incremental: the first member never gives its other partitions back."""
    classic = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}
    settings = classic if protocol == "classic" else {}
    first = join("a", **settings)
    share(topic, first)
    first.consumer.pause([TopicPartition(topic, number) for number in range(PARTITIONS)])
    second = join("b", **settings)
    share(topic, first, second)
    assert [len(taken) for taken in first.taken] == [2]
    for number in range(PARTITIONS):
        send(plain_producer(servers), topic, [f"{number}".encode()], partition=number)
    of_second = {f"{number}".encode() for _, number in second.owned}
    settle(lambda: {*second.values} == of_second, first, second)
    assert first.values == []
    first.consumer.resume([TopicPartition(*place) for place in first.owned])
    of_first = {f"{number}".encode() for _, number in first.owned}
    settle(lambda: {*first.values} == of_first, first, second)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_comes_back_to_its_partitions(
    topic: str, join: Join, servers: str, protocol: str
) -> None:
    settings = CLASSIC if protocol == "classic" else {}
    first, second = (join(name, group_instance_id=name, **settings) for name in "ab")
    share(topic, first, second)
    kept, taken = set(second.owned), len(first.taken)
    second.consumer.close()
    again = join("b", group_instance_id="b", **settings)
    settle(lambda: again.owned == kept, first, again)
    assert len(first.taken) == taken
    instances = {one.group_instance_id for one in described(servers, topic).members}
    assert instances == {"a", "b"}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_finds_topics_that_are_made_later(
    servers: str, topic: str, protocol: str
) -> None:
    """The broker resolves it under the consumer protocol, the client under the classic one."""
    settings = {**CLASSIC, "topic_metadata_refresh_interval_ms": 500}
    member = Member(
        servers,
        "a",
        f"^{topic}.*",
        group_id=topic,
        **(settings if protocol == "classic" else {}),
    )
    with contextlib.closing(member.consumer):
        settle(lambda: member.owned == places(topic), member)
        later = f"{topic}-later"
        create_topic(servers, later, PARTITIONS)
        settle(lambda: member.owned == places(topic) | places(later), member)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_administrator_lists_alters_and_deletes_a_group(
    servers: str, topic: str, join: Join, protocol: str
) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    kind = ConsumerGroupType[protocol.upper()]
    settings = CLASSIC if protocol == "classic" else {}
    member = join("a", **settings)
    share(topic, member)
    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 1, 7)])
    altered = admin.alter_consumer_group_offsets([wanted])[topic].result(WAIT_S)
    codes = [None if one.error is None else one.error.code() for one in altered.topic_partitions]
    assert codes == [KafkaError.UNKNOWN_MEMBER_ID]
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    listed = admin.list_consumer_groups(types={kind}).result(WAIT_S)
    assert [(one.state, one.type) for one in listed.valid if one.group_id == topic] == [
        (ConsumerGroupState.STABLE, kind)
    ]
    member.consumer.close()
    empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(WAIT_S)
    assert topic in {one.group_id for one in empty.valid}
    admin.alter_consumer_group_offsets([wanted])[topic].result(WAIT_S)
    asked = [ConsumerGroupTopicPartitions(topic)]
    offsets = admin.list_consumer_group_offsets(asked)[topic].result(WAIT_S)
    assert [(one.partition, one.offset) for one in offsets.topic_partitions] == [(1, 7)]
    admin.delete_consumer_groups([topic])[topic].result(WAIT_S)
    left = admin.list_consumer_groups().result(WAIT_S)
    assert topic not in {one.group_id for one in left.valid}
