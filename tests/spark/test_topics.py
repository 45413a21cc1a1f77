"""Topics that the sink writes to and that are not there yet, through the client alone."""

import struct
import time

import pytest

import txn
from support import clients
from txn._core import KafkaClient, KafkaError


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
