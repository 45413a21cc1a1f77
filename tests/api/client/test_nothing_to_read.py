"""A consumer that can never hand out a record says so, and returns no empty lists for ever."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Message, TopicPartition

import txn
from txn.testing import TestBroker

WAIT_S = 60

Read = Callable[[txn.Consumer], Message | list[Message] | None]

READS: list[Read] = [
    lambda consumer: consumer.poll(WAIT_S),
    lambda consumer: consumer.consume(1, WAIT_S),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker(auto_create_topics_enable="false") as made:
        made.create_topic("in", partitions=2)
        made.produce("in", b"1", partition=0)
        yield made


@pytest.fixture
def consumer(broker: TestBroker) -> Iterator[txn.Consumer]:
    made = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    yield made
    made.close()


@pytest.mark.parametrize("read", READS)
def test_a_consumer_without_topics_and_partitions_is_told_to_subscribe(
    consumer: txn.Consumer, read: Read
) -> None:
    with pytest.raises(txn.RejectedError, match=r"nothing to read from: call subscribe\("):
        read(consumer)
    consumer.subscribe(["in"])
    consumer.unsubscribe()
    with pytest.raises(txn.RejectedError, match="nothing to read from"):
        read(consumer)
    consumer.assign([TopicPartition("in", 0, 0)])
    assert read(consumer)
    consumer.incremental_unassign([TopicPartition("in", 0)])
    with pytest.raises(txn.RejectedError, match="nothing to read from"):
        read(consumer)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("offset", [0, -1001])
@pytest.mark.parametrize(
    ("topic", "told"),
    [
        ("in", r"partition 7 of 'in', which is not there: the topic has 2 partitions"),
        ("missing", "partition 7 of 'missing', which is not there: there is no such topic"),
    ],
)
def test_an_assigned_partition_that_is_not_there_is_named_each_time(
    consumer: txn.Consumer, read: Read, offset: int, topic: str, told: str
) -> None:
    consumer.assign([TopicPartition(topic, 7, offset)])
    for _ in range(2):
        with pytest.raises(txn.RetriableError, match=told):
            read(consumer)


def test_an_assigned_partition_that_comes_later_is_read(
    broker: TestBroker, consumer: txn.Consumer
) -> None:
    consumer.assign([TopicPartition("later", 0, 0)])
    with pytest.raises(txn.RetriableError, match="there is no such topic"):
        consumer.poll(WAIT_S)
    broker.create_topic("later", partitions=1)
    broker.produce("later", b"1")
    message = None
    while message is None:
        try:
            message = consumer.poll(1)
        except txn.RetriableError:  # librdkafka has not asked again
            continue

    assert message.value() == b"1"
