"""DeleteRecords: records below an offset are gone for every reader, and stay gone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.entities import entity_builder
from support.served import SERVED_IN_PYTHON
from support.wire_client import RawConnection, request
from txn.wire.api_keys import ApiKey

OUT_OF_RANGE, UNKNOWN_TOPIC, INVALID_TOPIC, POLICY_VIOLATION = 1, 3, 17, 44
LOW, HIGH = SERVED_IN_PYTHON[ApiKey.DELETE_RECORDS]

Answers = list[tuple[int, int]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="module")
def servers(data: Path) -> Iterator[str]:
    """One broker for the whole module; every test has topics of its own."""
    with txn.Broker(data, durability="process") as broker:
        yield broker.bootstrap_servers


def deleted(servers: str, topic: str, *wanted: tuple[int, int], version: int = HIGH) -> Answers:
    """Delete up to offsets, by partition; return each (log start, error code)."""
    partitions = [{"partition_index": index, "offset": offset} for index, offset in wanted]
    values: dict[str, Any] = {
        "topics": [{"name": topic, "partitions": partitions}],
        "timeout": 30_000,
    }
    with RawConnection(servers) as connection:
        schema = request(ApiKey.DELETE_RECORDS, version)
        answer = connection.call(entity_builder(schema)(values))
    return [(entry.low_watermark, int(entry.error_code)) for entry in answer.topics[0].partitions]


def filled(servers: str, topic: str, partitions: int = 1, **settings: str) -> None:
    """A topic with ten records in partition 0, each a batch of its own."""
    create_topic(servers, topic, partitions, **settings)
    producer = plain_producer(servers)
    for number in range(10):
        send(producer, topic, [b"%d" % number])


def watermarks(servers: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
    consumer.close()
    return found


@pytest.mark.parametrize("version", range(LOW, HIGH + 1))
def test_every_version_deletes_or_says_why_not(servers: str, version: int) -> None:
    filled(servers, f"every-{version}", partitions=2)
    wanted = [(0, 3), (1, -1), (9, 0)]
    answers = deleted(servers, f"every-{version}", *wanted, version=version)
    assert answers == [(3, 0), (0, 0), (-1, UNKNOWN_TOPIC)]


@pytest.mark.parametrize("offset", [11, -2])
def test_an_offset_that_is_not_there_is_out_of_range(servers: str, offset: int) -> None:
    filled(servers, f"beyond{offset}")
    assert deleted(servers, f"beyond{offset}", (0, offset)) == [(-1, OUT_OF_RANGE)]
    assert watermarks(servers, f"beyond{offset}") == (0, 10)


def test_the_start_never_moves_back(servers: str) -> None:
    filled(servers, "forward")
    assert deleted(servers, "forward", (0, 5)) == [(5, 0)]
    assert deleted(servers, "forward", (0, 2)) == [(5, 0)]


def test_minus_one_deletes_everything_and_offsets_go_on(servers: str) -> None:
    filled(servers, "emptied")
    assert deleted(servers, "emptied", (0, -1)) == [(10, 0)]
    assert read_all(servers, "emptied") == []
    assert send(plain_producer(servers), "emptied", [b"next"]) == [10]
    assert read_all(servers, "emptied") == [b"next"]


def test_the_last_of_two_offsets_for_a_partition_counts(servers: str) -> None:
    filled(servers, "asked-twice")
    assert deleted(servers, "asked-twice", (0, 2), (0, 3)) == [(3, 0)]


@pytest.mark.parametrize(
    ("policy", "answer"),
    [("compact", (-1, POLICY_VIOLATION)), ("compact,delete", (3, 0)), ("", (3, 0))],
)
def test_a_topic_that_is_only_compacted_keeps_its_records(
    servers: str, policy: str, answer: tuple[int, int]
) -> None:
    topic = f"policy-{len(policy)}"
    create_topic(servers, topic, cleanup_policy=policy)
    producer = plain_producer(servers)
    for _ in range(3):
        producer.produce(topic, key=b"k", value=b"v")
    assert producer.flush(WAIT_S) == 0
    assert deleted(servers, topic, (0, 3)) == [answer]


def test_internal_topics_keep_their_records(servers: str) -> None:
    transactional_producer(servers, "makes-the-topic")
    assert deleted(servers, "__transaction_state", (0, -1)) == [(-1, INVALID_TOPIC)]
    assert deleted(servers, "__cluster_metadata", (0, -1)) == [(-1, UNKNOWN_TOPIC)]


def test_readers_below_the_start_are_told_and_begin_at_it(servers: str) -> None:
    filled(servers, "read")
    deleted(servers, "read", (0, 4))
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition("read", 0, 2)])
    told = consumer.poll(WAIT_S)
    consumer.close()
    error = None if told is None else told.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert watermarks(servers, "read") == (4, 10)
    assert read_all(servers, "read") == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_deleting_into_an_open_transaction_leaves_it_able_to_commit(servers: str) -> None:
    create_topic(servers, "open")
    producer = transactional_producer(servers, "deleting")
    producer.begin_transaction()
    send(producer, "open", [b"a", b"b"])
    assert deleted(servers, "open", (0, 1)) == [(1, 0)]
    producer.commit_transaction(WAIT_S)
    assert read_all(servers, "open") == [b"b"]


def test_the_admin_client_deletes(servers: str) -> None:
    filled(servers, "by-admin")
    place = TopicPartition("by-admin", 0, 7)
    admin = AdminClient({"bootstrap.servers": servers})
    assert admin.delete_records([place])[place].result(WAIT_S).low_watermark == 7


def test_segments_below_the_start_leave_the_disk(servers: str, data: Path) -> None:
    filled(servers, "rolled", internal_segment_bytes="100")
    deleted(servers, "rolled", (0, 8))
    bases = sorted(int(path.stem) for path in (data / "rolled-0").glob("*.log"))
    assert min(bases) > 0


@pytest.mark.crash
def test_P1_what_was_deleted_stays_deleted_after_a_sigkill(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data")
    filled(process.bootstrap_servers, "orders")
    assert deleted(process.bootstrap_servers, "orders", (0, 4)) == [(4, 0)]

    process.kill()
    process.restart()

    assert watermarks(process.bootstrap_servers, "orders") == (4, 10)
    assert deleted(process.bootstrap_servers, "orders", (0, -1)) == [(10, 0)]
    assert process.stop() == 0
    process.restart()
    assert watermarks(process.bootstrap_servers, "orders") == (10, 10)
    assert process.stop() == 0


@pytest.mark.crash
def test_a_topic_made_again_starts_at_zero_whatever_was_deleted_of_its_namesake(
    tmp_path: Path,
) -> None:
    """The old topic's log start stayed in the checkpoint and hid the new one's records."""
    process = BrokerProcess(tmp_path / "data")
    filled(process.bootstrap_servers, "orders")
    deleted(process.bootstrap_servers, "orders", (0, 5))
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result(WAIT_S)
    filled(process.bootstrap_servers, "orders")

    process.kill()
    process.restart()

    assert watermarks(process.bootstrap_servers, "orders") == (0, 10)
    assert process.stop() == 0
