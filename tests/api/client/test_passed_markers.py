"""Markers and aborted records that a position has passed are no records handed out."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition

import txn
from support.clients import WAIT_S, commit_values, send, transactional_producer
from txn.client.engine import EngineName
from txn.testing import TestBroker

OpenReader = Callable[..., txn.Consumer]


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        made.create_topic("other", partitions=1)
        made.create_topic("out", partitions=1)
        yield made


@pytest.fixture
def open_reader(broker: TestBroker, engine: EngineName) -> Iterator[OpenReader]:
    opened: list[txn.Consumer] = []

    def open_one(reset: str) -> txn.Consumer:
        made = txn.Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset=reset,
            engine=engine,
        )
        opened.append(made)
        made.subscribe(["in"])
        return made

    yield open_one
    for consumer in opened:
        consumer.close()


def abort_one(broker: TestBroker) -> None:
    producer = transactional_producer(broker.bootstrap_servers, "of another")
    producer.begin_transaction()
    send(producer, "in", [b"no"])
    producer.abort_transaction(WAIT_S)


def poll_until_position(consumer: txn.Consumer, offset: int) -> None:
    for _ in range(100):
        assert consumer.poll(0.1) is None
        if consumer.position([TopicPartition("in", 0)])[0].offset == offset:
            return
    raise AssertionError(consumer.position([TopicPartition("in", 0)]))


def take_away_and_give_back(consumer: txn.Consumer) -> None:
    for topic in ("other", "in"):
        consumer.subscribe([topic])
        while [each.topic for each in consumer.assignment()] != [topic]:
            assert consumer.poll(0.1) is None


def test_P1_a_rewind_under_latest_skips_nothing_behind_a_marker_that_was_passed(
    broker: TestBroker, open_reader: OpenReader
) -> None:
    """It went to the end, as nothing was committed: a record committed meanwhile was lost."""
    consumer = open_reader("latest")
    while not consumer.assignment():
        assert consumer.poll(0.1) is None
    assert consumer.poll(1) is None  # it has found the end
    abort_one(broker)
    poll_until_position(consumer, 2)
    commit_values(transactional_producer(broker.bootstrap_servers, "good"), "in", [b"1"])
    txn.rewind(consumer)
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.value() == b"1"


def test_a_partition_whose_markers_alone_were_passed_is_not_lost_with_its_revocation(
    broker: TestBroker, open_reader: OpenReader, producer: txn.Producer
) -> None:
    """The next block aborted: "it lost in-0 with records handed out and not committed"."""
    abort_one(broker)
    consumer = open_reader("earliest")
    poll_until_position(consumer, 2)
    take_away_and_give_back(consumer)
    with producer.transaction(consumer) as t:
        t.produce("out", b"1")
    assert [record.value for record in broker.records("out")] == [b"1"]


def test_nor_is_one_whose_records_were_committed_by_their_own_offsets(
    broker: TestBroker, open_reader: OpenReader, producer: txn.Producer, engine: EngineName
) -> None:
    if engine != "native":
        pytest.skip("librdkafka does not say what it has handed out")
    commit_values(transactional_producer(broker.bootstrap_servers, "good"), "in", [b"1"])
    consumer = open_reader("earliest")
    message = consumer.poll(WAIT_S)
    assert message is not None
    with producer.transaction() as t:
        t.send_offsets([TopicPartition("in", 0, 1)], consumer)
    poll_until_position(consumer, 2)
    take_away_and_give_back(consumer)
    with producer.transaction(consumer) as t:
        t.produce("out", b"1")
    assert [record.value for record in broker.records("out")] == [b"1"]
