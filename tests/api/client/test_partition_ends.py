"""`enable.partition.eof` and patterns of classic groups, with both engines."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

import txn
from txn.client.engine import EngineName
from txn.testing import TestBroker

WAIT_S = 30.0

Open = Callable[..., txn.Consumer]


@pytest.fixture
def topic(broker: TestBroker) -> str:
    name = broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions=1)
    broker.produce(name, b"0", b"1", b"2")
    return name


@pytest.fixture
def opened(broker: TestBroker, engine: EngineName) -> Iterator[Open]:
    made: list[txn.Consumer] = []

    def open_one(**settings: object) -> txn.Consumer:
        consumer = txn.Consumer(
            {str(name).replace("_", "."): value for name, value in settings.items()},
            bootstrap_servers=broker.bootstrap_servers,
            group_id=uuid.uuid4().hex,
            auto_offset_reset="earliest",
            engine=engine,
        )
        made.append(consumer)
        return consumer

    yield open_one
    for consumer in made:
        consumer.close()


def next_of(consumer: txn.Consumer) -> bytes | int:
    """The next record's value, or the offset of an end."""
    message = consumer.poll(WAIT_S)
    assert message is not None
    error = message.error()
    if error is None:
        return message.value() or b""
    assert error.code() == KafkaError._PARTITION_EOF
    assert message.topic()
    assert message.partition() == 0
    return message.offset() or 0


def test_the_end_comes_behind_the_last_record_and_again_behind_later_ones(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    consumer = opened(enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0)])
    assert [next_of(consumer) for _ in range(4)] == [b"0", b"1", b"2", 3]
    assert consumer.poll(0.2) is None
    broker.produce(topic, b"3")
    assert [next_of(consumer) for _ in range(2)] == [b"3", 4]
    consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert [next_of(consumer) for _ in range(5)] == [b"0", b"1", b"2", b"3", 4]


def test_the_end_of_an_empty_partition_comes_too(broker: TestBroker, opened: Open) -> None:
    empty = broker.create_topic(uuid.uuid4().hex, partitions=1)
    consumer = opened(enable_partition_eof=True)
    consumer.assign([TopicPartition(empty, 0)])
    assert next_of(consumer) == 0


def test_an_open_transaction_ends_what_can_be_read(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    consumer = opened(enable_partition_eof=True)
    with (
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="open", engine="native"
        ) as producer,
        producer.transaction() as t,
    ):
        t.send(topic, b"3").result(WAIT_S)
        consumer.assign([TopicPartition(topic, 0)])
        assert [next_of(consumer) for _ in range(4)] == [b"0", b"1", b"2", 3]
    assert next_of(consumer) == b"3"
    assert next_of(consumer) == 5  # behind the marker


def test_no_end_comes_without_the_setting(topic: str, opened: Open) -> None:
    consumer = opened(enable_partition_eof=False)
    consumer.assign([TopicPartition(topic, 0)])
    assert [next_of(consumer) for _ in range(3)] == [b"0", b"1", b"2"]
    assert consumer.poll(1) is None


def test_a_pattern_of_a_classic_group_finds_topics_that_are_there_and_later_ones(
    broker: TestBroker, opened: Open, engine: EngineName
) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    first = broker.create_topic(f"{prefix}-a", partitions=1)
    broker.create_topic(f"not-{prefix}", partitions=1)
    age: dict[str, object] = {"topic_metadata_refresh_interval_ms": 300}
    if engine == "native":
        age = {"metadata_max_age_ms": 300}
    consumer = opened(group_protocol="classic", heartbeat_interval_ms=200, **age)
    consumer.subscribe([f"^{prefix}.*"])
    poll_until(consumer, {first})
    second = broker.create_topic(f"{prefix}-b", partitions=1)
    broker.produce(second, b"new")
    values = poll_until(consumer, {first, second})
    values += [] if values else [consumer.poll(WAIT_S).value()]  # type: ignore[union-attr]
    assert values == [b"new"]


def poll_until(consumer: txn.Consumer, topics: set[str]) -> list[bytes | None]:
    """Poll until the topics are assigned; return the values."""
    values = []
    ends = time.monotonic() + WAIT_S
    while {place.topic for place in consumer.assignment()} != topics:
        assert time.monotonic() < ends, consumer.assignment()
        message = consumer.poll(0.1)
        if message is not None:
            values.append(message.value())
    return values
