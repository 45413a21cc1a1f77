"""Topics that the sink writes to and that are not there yet, through the client alone."""

import struct
import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

import txn
from support import clients
from txn._core import KafkaClient, KafkaError
from txn.spark.options import LATEST


@pytest.fixture(params=["txn", pytest.param("kafka", marks=pytest.mark.peer)])
def cluster(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("servers" if request.param == "txn" else "kafka_peer")
    return found


def write(client: KafkaClient, topic: str, partition: int | None = None) -> None:
    producer = client.init_producer_id(f"t-{topic}", 60_000)
    writer = client.writer(f"t-{topic}", *producer)
    chosen = None if partition is None else struct.pack("<i", partition)
    writer.write(topic, 1, None, (struct.pack("<2i", 0, 1), b"x", None), None, chosen)
    writer.flush()
    client.end_txn(f"t-{topic}", *producer, commit=True)


def test_topic_that_is_not_there_is_made_as_for_a_java_producer(cluster: str) -> None:
    name = f"made-{time.time_ns()}"
    client = KafkaClient(cluster)
    write(client, name)
    client.close()
    assert clients.read_all(cluster, name) == [b"x"]


def test_cluster_that_makes_no_topics_is_told_apart_within_seconds() -> None:
    with txn.Broker(auto_create_topics_enable=False) as broker:
        client = KafkaClient(broker.bootstrap_servers)
        began = time.monotonic()
        with pytest.raises(KafkaError, match=r"no topic 'none', and .*auto\.create\.topics\.ena"):
            write(client, "none")
        client.close()
        assert time.monotonic() - began < clients.WAIT_S


@pytest.mark.parametrize("partition", [1, -2])
def test_partition_that_is_not_there_is_named(servers: str, partition: int) -> None:
    name = f"one-{time.time_ns()}"
    clients.create_topic(servers, name)
    client = KafkaClient(servers)
    with pytest.raises(KafkaError, match=rf"'{name}' has no partition {partition}; it has 1"):
        write(client, name, partition)
    client.close()


def test_partition_minus_one_is_any(servers: str) -> None:
    name = f"one-{time.time_ns()}"
    clients.create_topic(servers, name)
    client = KafkaClient(servers)
    write(client, name, -1)
    client.close()
    assert clients.read_all(servers, name) == [b"x"]


def written_partitions(servers: str, client: KafkaClient, topic: str, age_ms: int) -> set[int]:
    """Write rows of 40 keys, as a task of a long-lived worker does; return their partitions."""
    who = (topic, *client.init_producer_id(topic, 60_000))
    keys = [f"key {number}".encode() for number in range(40)]
    ends = [sum(map(len, keys[:number])) for number in range(41)]
    column = (struct.pack("<41i", *ends), b"".join(keys), None)
    observer = KafkaClient(servers)  # asking the client itself would renew its knowledge
    places = list(range(observer.partition_count(topic)))
    before = observer.list_offsets(topic, places, LATEST, read_committed=False)
    writer = client.writer(*who, metadata_max_age_ms=age_ms)
    writer.write(topic, 40, column, column)
    writer.flush()
    after = observer.list_offsets(topic, places, LATEST, read_committed=False)
    client.end_txn(*who, commit=True)
    observer.close()
    return {place for place in places if after[place] > before[place]}


def test_added_partitions_are_counted_by_a_client_that_knew_the_topic_before(cluster: str) -> None:
    """A worker's client counted the partitions of its first task for ever.

    A newer worker counts the added ones, so one batch had rows of the same key in two partitions.
    """
    name = f"added-{time.time_ns()}"
    clients.create_topic(cluster, name)
    client = KafkaClient(cluster)
    assert written_partitions(cluster, client, name, 0) == {0}
    admin = AdminClient({"bootstrap.servers": cluster})
    admin.create_partitions([NewPartitions(name, 4)])[name].result(clients.WAIT_S)
    while KafkaClient(cluster).partition_count(name) < 4:
        pass  # Kafka answers before its nodes know
    assert written_partitions(cluster, client, name, 300_000) == {0}
    assert written_partitions(cluster, client, name, 0) == {0, 1, 2, 3}
    client.close()


def test_topics_are_described_with_their_ids(cluster: str) -> None:
    first, second = (f"{name}-{time.time_ns()}" for name in ("first", "second"))
    clients.create_topic(cluster, first, 3)
    clients.create_topic(cluster, second)
    client = KafkaClient(cluster)
    three, none, one = client.describe_topics([first, "no-such-topic", second])
    client.close()
    assert three is not None
    assert one is not None
    assert (three[0], none, one[0]) == (3, None, 1)
    assert three[1] is not None
    assert three[1] != one[1]
    assert len(three[1]) == 16
