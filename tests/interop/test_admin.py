"""`txn.admin` sees and changes the same on txn's broker and on Apache Kafka."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import txn
from support.clients import WAIT_S, commit_values, send, transactional_producer
from txn.admin import AbortPlan, Cluster, ConfigKind, NothingOpen, TxnState
from txn.errors import Action, ConfigError, RejectedError, UnreachableError

Unique = Callable[[str], str]


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with txn.admin.connect(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, bootstrap: str, unique: Unique) -> str:
    """Two partitions; partition 0 has three committed records, two aborted ones, and markers."""
    name = unique("orders")
    cluster.topics.create(name, partitions=2, configs={"retention.ms": "86400000"})
    producer = transactional_producer(bootstrap, unique("loader"))
    commit_values(producer, name, [b"1", b"2"])
    producer.begin_transaction()
    send(producer, name, [b"aborted", b"aborted too"])
    producer.abort_transaction(WAIT_S)
    commit_values(producer, name, [b"3"])
    return name


def commit(bootstrap: str, group: str, *places: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=list(places), asynchronous=False)
    consumer.close()


def test_a_topic_is_created_described_grown_and_deleted(cluster: Cluster, unique: Unique) -> None:
    name = unique("made")
    cluster.topics.create(name, partitions=2, configs={"cleanup.policy": "compact"})
    cluster.topics.add_partitions(name, 3)
    (made,) = cluster.topics.describe(name)
    assert [each.index for each in made.partitions] == [0, 1, 2]
    assert [(each.name, each.value) for each in made.configs] == [("cleanup.policy", "compact")]
    assert name in cluster.topics.list()
    assert {each.partition[0] for each in cluster.topics.sizes(name)} == {name}
    cluster.topics.delete(name)
    assert name not in cluster.topics.list()


def test_a_topic_that_is_only_validated_is_not_there(cluster: Cluster, unique: Unique) -> None:
    cluster.topics.create(unique("checked"), partitions=2, validate_only=True)
    assert unique("checked") not in cluster.topics.list()


def test_a_topic_that_exists_is_refused_by_its_name(cluster: Cluster, topic: str) -> None:
    with pytest.raises(RejectedError, match=f"topic '{topic}' is not made") as raised:
        cluster.topics.create(topic)
    assert (raised.value.name, raised.value.action) == ("TOPIC_ALREADY_EXISTS", Action.GIVE_UP)


def test_an_unknown_topic_is_refused_with_the_nearest_name(cluster: Cluster, topic: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no topic '{topic}x'; did you mean {topic}"):
        cluster.topics.describe(f"{topic}x")


def test_settings_are_set_and_removed(cluster: Cluster, topic: str) -> None:
    def value() -> str | None:
        entries = cluster.configs.describe(ConfigKind.TOPIC, topic)
        return next(each.value for each in entries if each.name == "retention.ms")

    before = value()
    cluster.configs.alter(ConfigKind.TOPIC, topic, {"retention.ms": "1000"}, validate_only=True)
    checked = value()
    cluster.configs.alter(ConfigKind.TOPIC, topic, {"retention.ms": None})
    assert (before, checked) == ("86400000", "86400000")
    assert value() == "604800000"


def test_the_lag_of_a_group_counts_committed_records(
    cluster: Cluster, bootstrap: str, topic: str, unique: Unique
) -> None:
    group = unique("shop")
    commit(bootstrap, group, TopicPartition(topic, 0, 1))
    (lag,) = cluster.groups.describe(group).lags
    assert (lag.committed_offset, lag.records, lag.offsets_left) == (1, 2, 7)
    assert group in [each.group_id for each in cluster.groups.list()]
    assert cluster.groups.committed_offsets(group) == {(topic, 0): 1}


@pytest.mark.parametrize(("offset", "expected"), [(1, False), (6, False), (7, True), (8, True)])
def test_a_group_is_drained_once_it_has_read_all_committed_records(
    cluster: Cluster, bootstrap: str, topic: str, unique: Unique, offset: int, expected: bool
) -> None:
    group = unique("shop")
    commit(bootstrap, group, TopicPartition(topic, 0, offset))
    assert cluster.groups.is_drained(group, [topic]) is expected


def test_a_group_without_an_offset_has_read_nothing(
    cluster: Cluster, topic: str, unique: Unique
) -> None:
    assert cluster.groups.is_drained(unique("nobody"), [topic]) is False


def test_a_group_beyond_the_end_is_not_known_to_be_drained(
    cluster: Cluster, bootstrap: str, topic: str, unique: Unique
) -> None:
    group = unique("shop")
    commit(bootstrap, group, TopicPartition(topic, 0, 99))
    assert cluster.groups.is_drained(group, [topic]) is None


def test_a_preview_of_a_reset_commits_nothing(
    cluster: Cluster, bootstrap: str, topic: str, unique: Unique
) -> None:
    group = unique("shop")
    commit(bootstrap, group, TopicPartition(topic, 0, 3))
    (change,) = cluster.groups.reset_offsets(group, to="earliest", preview=True)
    assert (change.partition, change.before, change.after) == ((topic, 0), 3, 0)
    assert cluster.groups.committed_offsets(group) == {(topic, 0): 3}
    cluster.groups.reset_offsets(group, to="earliest")
    assert cluster.groups.committed_offsets(group) == {(topic, 0): 0}


def test_a_reset_goes_to_every_partition_of_a_topic(
    cluster: Cluster, topic: str, unique: Unique
) -> None:
    cluster.groups.reset_offsets(unique("new"), [topic], to="latest")
    assert cluster.groups.committed_offsets(unique("new")) == {(topic, 0): 8, (topic, 1): 0}
    cluster.groups.reset_offsets(unique("new"), shift_by=-2)
    cluster.groups.reset_offsets(unique("new"), offsets={(topic, 1): 0})
    assert cluster.groups.committed_offsets(unique("new")) == {(topic, 0): 6, (topic, 1): 0}


def test_offsets_and_groups_are_deleted(
    cluster: Cluster, bootstrap: str, topic: str, unique: Unique
) -> None:
    group = unique("shop")
    commit(bootstrap, group, TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 0))
    assert cluster.groups.delete_offsets(group, [f"{topic}-0"]) == [(topic, 0)]
    assert cluster.groups.committed_offsets(group) == {(topic, 1): 0}
    cluster.groups.delete(group)
    assert group not in [each.group_id for each in cluster.groups.list()]
    with pytest.raises(ConfigError, match=f"there is no group '{group}'"):
        cluster.groups.delete(group)


def test_a_group_with_members_is_left_alone(
    cluster: Cluster, bootstrap: str, topic: str, unique: Unique
) -> None:
    group = unique("busy")
    with txn.Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        assert cluster.groups.describe(group).owners.keys() == {(topic, 0), (topic, 1)}
        with pytest.raises(RejectedError, match="is at work"):
            cluster.groups.reset_offsets(group, [topic], to="earliest")
        with pytest.raises(RejectedError) as raised:
            cluster.groups.delete(group)
    assert raised.value.name == "NON_EMPTY_GROUP"


def test_offsets_are_found_by_place(cluster: Cluster, topic: str) -> None:
    places = [cluster.records.offsets([f"{topic}-0"], at) for at in ("earliest", "2", "-3")]
    assert places == [{(topic, 0): 0}, {(topic, 0): 2}, {(topic, 0): 5}]
    assert cluster.records.offsets([topic], "1h-ago") == {(topic, 0): 0, (topic, 1): 0}
    assert cluster.records.ends([f"{topic}-0"])[topic, 0].last_stable_offset == 8


def test_records_are_deleted_from_the_start(cluster: Cluster, topic: str) -> None:
    (plan,) = cluster.records.delete({(topic, 0): 2}, preview=True)
    assert (plan.start_offset, plan.offset) == (0, 2)
    assert cluster.records.offsets([f"{topic}-0"], "earliest") == {(topic, 0): 0}
    cluster.records.delete({(topic, 0): 2})
    assert cluster.records.offsets([f"{topic}-0"], "earliest") == {(topic, 0): 2}


def test_an_open_transaction_is_listed_explained_and_aborted(
    cluster: Cluster, bootstrap: str, topic: str, unique: Unique
) -> None:
    name = unique("stuck")
    producer = transactional_producer(bootstrap, name)
    producer.begin_transaction()
    send(producer, topic, [b"open"], partition=1)
    (owner,) = cluster.transactions.list(prefix=name)
    (explained,) = cluster.transactions.explain([f"{topic}-1"])
    assert (owner.state, owner.partitions) == (TxnState.ONGOING, frozenset({(topic, 1)}))
    assert [each.owner and each.owner.transactional_id for each in explained.held] == [name]
    assert cluster.transactions.describe(name).owner.transactional_id == name
    assert cluster.transactions.find_hanging([topic]) == []
    plan = cluster.transactions.plan_abort(name)
    assert isinstance(plan, AbortPlan)
    assert cluster.transactions.abort(plan).startswith("aborted")
    assert isinstance(cluster.transactions.plan_abort(name), NothingOpen)
    with pytest.raises(RejectedError, match="nothing was aborted"):
        cluster.transactions.abort(plan)


def test_the_cluster_names_its_brokers(cluster: Cluster, bootstrap: str) -> None:
    found = cluster.describe()
    assert found.controller_id in [each.node_id for each in found.brokers]
    assert f"127.0.0.1:{found.brokers[0].port}" == bootstrap.replace("localhost", "127.0.0.1")


def test_an_address_without_a_broker_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match=r"Check bootstrap\.servers") as raised:
        txn.admin.connect("127.0.0.1:1", timeout=2.0)
    assert raised.value.action is Action.RETRY


@pytest.mark.parametrize(
    ("servers", "more", "message"),
    [
        ("nonsense", {}, "takes HOST:PORT"),
        (None, {}, "give the servers once"),
        ("a:1", {"bootstrap_servers": "b:2"}, "give the servers once"),
        ("a:1", {"security_protocl": "SSL"}, "did you mean"),
        ("a:1", {"sasl_mechanism": "PLAIN"}, "security.protocol"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_before_any_io(
    servers: str | None, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        txn.admin.connect(servers, **more)


def test_it_needs_neither_the_console_nor_the_broker() -> None:
    others = ("txn.console", "txn.broker", "txn.server.lifecycle", "typer", "confluent_kafka")
    program = (
        "import sys, txn; txn.admin.connect; "
        f"print([name for name in sys.modules if name.startswith({others})])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
