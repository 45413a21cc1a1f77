"""An argument that does not fit is told by its name, with the way out."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition

import txn
from txn.errors import RejectedError
from txn.testing import TestBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("orders")
        made.create_topic("small", max_message_bytes=1000)
        yield made


@pytest.fixture
def producer(broker: TestBroker) -> Iterator[txn.Producer]:
    with txn.Producer(bootstrap_servers=broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def consumer(broker: TestBroker) -> Iterator[txn.Consumer]:
    made = txn.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"value": {"a": 1}}, r"value is bytes, str or None, not a dict: give json.dumps(value)"),
        ({"value": 7}, "value is bytes, str or None, not an int: give json.dumps(value)"),
        ({"value": bytearray(b"x")}, "not a bytearray: give bytes(value)"),
        ({"key": object()}, "key is bytes, str or None, not an object: give its text"),
        ({"headers": "a"}, "headers are a dict or a list of pairs, not a str"),
        ({"headers": [["a", "b"]]}, "a header is a tuple of its name and its value, not a list"),
        ({"headers": {"a": 1}}, "the value of header 'a' is bytes, str or None, not an int"),
        ({"partition": "1"}, "partition is an int or None, not a str"),
        ({"timestamp": 1.7e9}, "not a float: give int(time.time() * 1000)"),
        ({"timestamp": datetime.now()}, "give int(timestamp.timestamp() * 1000)"),
        ({"topic": b"orders"}, "topic is a str, not a bytes"),
    ],
)
def test_an_argument_of_produce_is_told_by_its_name(
    producer: txn.Producer, arguments: dict[str, Any], told: str
) -> None:
    """It read: a bytes-like object is required, not 'dict'."""
    with pytest.raises(TypeError) as raised:
        producer.produce(**{"topic": "orders", **arguments})
    assert str(raised.value).startswith("produce(): ")
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda it: it.subscribe("orders"), "subscribe(): topics are a list of names, not a str"),
        (lambda it: it.subscribe([b"orders"]), "subscribe(): topics are a list of names, each a"),
        (lambda it: it.assign(["orders"]), "assign(): partitions are a list of TopicPartition"),
        (lambda it: it.seek(("orders", 0)), "seek(): partition is a TopicPartition, not a tuple"),
        (lambda it: it.poll(None), "poll(): timeout is a number of seconds, not None: -1 waits"),
        (lambda it: it.consume("7"), "consume(): num_messages is an int, not a str"),
    ],
)
def test_an_argument_of_a_consumer_is_told_by_its_name(
    consumer: txn.Consumer, call: Callable[[Any], object], told: str
) -> None:
    with pytest.raises(TypeError) as raised:
        call(consumer)
    assert told in str(raised.value)


def test_arguments_that_fit_are_taken_as_before(
    producer: txn.Producer, consumer: txn.Consumer
) -> None:
    producer.produce("orders", "a", b"k", headers=[("n", None)], timestamp=10**11, partition=0)
    producer.produce("orders", None, headers={"n": b"1"}, timestamp=int(time.time() * 1000))
    producer.flush()
    consumer.subscribe(["orders"])
    consumer.unsubscribe()
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [message.timestamp()[1] for message in consumer.consume(1, 30)] == [10**11]


def test_a_timestamp_that_may_count_seconds_is_warned_of(
    broker: TestBroker, producer: txn.Producer
) -> None:
    """It was stored as a day of January 1970, which retention by time soon deletes."""
    with pytest.warns(UserWarning, match=r"before March 1973.*give int\(seconds \* 1000\)") as told:
        producer.produce("orders", "x", timestamp=1_700_000_000)
    assert told[0].filename == __file__
    producer.produce("orders", "x", timestamp=1234)  # a warning is an error here


def test_a_record_that_its_producer_refuses_is_told_with_size_and_limit(
    producer: txn.Producer,
) -> None:
    with pytest.raises(
        RejectedError, match=r"a record of 1000003 bytes to 'orders'.*message\.max\.bytes=1000000"
    ) as raised:
        producer.produce("orders", b"x" * 1_000_000, "key")
    assert (raised.value.name, raised.value.topic) == ("MSG_SIZE_TOO_LARGE", "orders")


def test_a_record_that_its_topic_refuses_is_told_with_its_size_and_the_property(
    producer: txn.Producer,
) -> None:
    producer.produce("small", b"x" * 2000, "é")
    with pytest.raises(
        RejectedError, match=r"a record of 2002 bytes in 'small'.* max\.message\.bytes of the topic"
    ):
        producer.flush()
