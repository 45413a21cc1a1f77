"""DeleteRecords against txn's broker and against Apache Kafka: same answers, same log starts."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.clients import (
    WAIT_S,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.entities import entity_builder
from support.wire_client import RawConnection, request

DELETE_RECORDS, VERSION = 21, 2
NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, INVALID_TOPIC, POLICY_VIOLATION = 0, 1, 3, 17, 44


def deleted(servers: str, topic: str, partition: int, offset: int) -> tuple[int, int]:
    """Delete up to an offset; return (log start, error code)."""
    wanted = {"partition_index": partition, "offset": offset}
    values: dict[str, Any] = {
        "topics": [{"name": topic, "partitions": [wanted]}],
        "timeout": 30_000,
    }
    with RawConnection(servers) as connection:
        answer = connection.call(entity_builder(request(DELETE_RECORDS, VERSION))(values))
    (found,) = answer.topics[0].partitions
    return found.low_watermark, int(found.error_code)


def watermarks(servers: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
    found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("policy", "offset", "answer", "start"),
    [
        ("delete", 3, (3, NONE), 3),
        ("delete", 0, (0, NONE), 0),
        ("delete", -1, (5, NONE), 5),
        ("delete", 5, (5, NONE), 5),
        ("delete", 6, (-1, OUT_OF_RANGE), 0),
        ("delete", -2, (-1, OUT_OF_RANGE), 0),
        ("compact,delete", 3, (3, NONE), 3),
        ("", 3, (3, NONE), 3),
        ("compact", 3, (-1, POLICY_VIOLATION), 0),
        ("compact", 9, (-1, POLICY_VIOLATION), 0),
    ],
)
def test_records_are_deleted_or_kept_as_by_kafka(
    bootstrap: str,
    unique: Callable[[str], str],
    policy: str,
    offset: int,
    answer: tuple[int, int],
    start: int,
) -> None:
    topic = unique("deleted")
    create_topic(bootstrap, topic, cleanup_policy=policy)
    producer = plain_producer(bootstrap)
    for number in range(5):
        producer.produce(topic, key=b"%d" % number, value=b"v")
    assert producer.flush(WAIT_S) == 0
    assert deleted(bootstrap, topic, 0, offset) == answer
    assert watermarks(bootstrap, topic) == (start, 5)


def test_what_is_not_there_or_internal_is_refused_as_by_kafka(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("small")
    create_topic(bootstrap, topic)
    transactional_producer(bootstrap, unique("makes-the-topic"))
    assert deleted(bootstrap, topic, 9, 0) == (-1, UNKNOWN_TOPIC)
    assert deleted(bootstrap, unique("nobody"), 0, 0) == (-1, UNKNOWN_TOPIC)
    assert deleted(bootstrap, "__cluster_metadata", 0, 0) == (-1, UNKNOWN_TOPIC)
    assert deleted(bootstrap, "__transaction_state", 0, -1) == (-1, INVALID_TOPIC)


def test_the_start_of_an_open_transaction_may_be_deleted_as_in_kafka(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("open")
    create_topic(bootstrap, topic)
    producer = transactional_producer(bootstrap, unique("deleting"))
    producer.begin_transaction()
    send(producer, topic, [b"a", b"b", b"c"])
    assert deleted(bootstrap, topic, 0, 2) == (2, NONE)
    producer.commit_transaction(WAIT_S)
    assert read_all(bootstrap, topic) == [b"c"]
