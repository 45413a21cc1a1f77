"""A partition costs nothing until it is first touched, in memory as on the disk."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.command_line import run_txn
from txn.metadata.image import OFFSETS_TOPIC
from txn.server.lifecycle.broker import service_of
from txn.wire.hashing import coordinator_partition

COUNT = 1000


def opened(broker: txn.Broker, topic: str) -> list[int]:
    return [store.index for store in service_of(broker).node.partitions[topic].opened()]


def directories(broker: txn.Broker) -> list[str]:
    return sorted(path.name for path in broker.path.glob("idle-*"))


def group_member(broker: txn.Broker) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})


def test_partitions_are_opened_by_what_touches_them_and_by_nothing_else(tmp_path: Path) -> None:
    """Each idle partition had a log, its rules and their dicts: 2.3 kB, at 10,000 of them."""
    with txn.Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "idle", partitions=COUNT)
        assert (opened(broker, "idle"), directories(broker)) == ([], [])
        send(plain_producer(servers), "idle", [b"a"], 7)
        assert (opened(broker, "idle"), directories(broker)) == ([7], ["idle-7"])

    with txn.Broker(tmp_path / "data") as broker:
        assert opened(broker, "idle") == [7]
        send(plain_producer(broker.bootstrap_servers), "idle", [b"b"], COUNT - 1)
        assert opened(broker, "idle") == [7, COUNT - 1]
        assert set(read_all(broker.bootstrap_servers, "idle")) == {b"a", b"b"}


def test_a_group_opens_its_own_partition_of_the_offsets_and_no_other(tmp_path: Path) -> None:
    """Every start opened all fifty, a tenth of its time; so did every commit in a transaction."""
    of_group = coordinator_partition("g", 50)
    with txn.Broker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "idle", partitions=1)
        assert opened(broker, OFFSETS_TOPIC) == []
        consumer = group_member(broker)
        consumer.commit(offsets=[TopicPartition("idle", 0, 5)], asynchronous=False)
        assert opened(broker, OFFSETS_TOPIC) == [of_group]

    with txn.Broker(tmp_path / "data") as broker:
        assert opened(broker, OFFSETS_TOPIC) == [of_group]
        (committed,) = group_member(broker).committed([TopicPartition("idle", 0)], WAIT_S)
        assert committed.offset == 5


def test_a_look_for_what_hangs_opens_nothing(tmp_path: Path) -> None:
    """DescribeProducers of every partition opened them all."""
    with txn.Broker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "idle", partitions=COUNT)
        send(plain_producer(broker.bootstrap_servers), "idle", [b"a"], 7)
        code, out, _ = run_txn(
            *("transactions", "hanging", "--topic", "idle"),
            *("--bootstrap", broker.bootstrap_servers),
        )
        assert (code, out) == (0, f"nothing hangs on {COUNT:,} partitions\n")
        assert opened(broker, "idle") == [7]


def test_a_topic_that_is_deleted_and_made_again_begins_anew(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "idle", partitions=3)
        send(plain_producer(servers), "idle", [b"before"], 1)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_topics(["idle"])["idle"].result(WAIT_S)
        create_topic(servers, "idle", partitions=3)
        assert opened(broker, "idle") == []
        send(plain_producer(servers), "idle", [b"after"], 1)
        assert read_all(servers, "idle") == [b"after"]
