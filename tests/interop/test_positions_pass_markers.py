"""A group that has read a transactional topic to its end has a lag of 0, on each engine.

The position of the native engine stayed behind the last record that it had handed out, in front of
the marker. Once retention had deleted the marker, the group's next start was out of range.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition

import txn
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    send,
    transactional_producer,
)
from txn.client.engine import EngineName

Unique = Callable[[str], str]


@pytest.fixture
def topic(bootstrap: str, unique: Unique) -> str:
    name = unique("orders")
    create_topic(bootstrap, name)
    return name


@contextmanager
def reader(
    bootstrap: str, topic: str, group: str, engine: EngineName, reset: str = "earliest"
) -> Iterator[txn.Consumer]:
    consumer = txn.Consumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset=reset, engine=engine
    )
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def read_to(consumer: txn.Consumer, topic: str, offset: int) -> list[bytes | None]:
    """Poll until the position is an offset; return the values."""
    values = []
    ends_s = time.monotonic() + WAIT_S
    while consumer.position([TopicPartition(topic, 0)])[0].offset != offset:
        if (message := consumer.poll(0.1)) is not None:
            values.append(message.value())
        assert time.monotonic() < ends_s, consumer.position([TopicPartition(topic, 0)])
    return values


def abort_values(bootstrap: str, transactional_id: str, topic: str, values: list[bytes]) -> None:
    producer = transactional_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send(producer, topic, values)
    producer.abort_transaction(WAIT_S)


def test_the_position_passes_markers_and_aborted_records(
    bootstrap: str, topic: str, unique: Unique, engine: EngineName
) -> None:
    commit_values(transactional_producer(bootstrap, unique("one")), topic, [b"1"])
    abort_values(bootstrap, unique("two"), topic, [b"no"])
    with reader(bootstrap, topic, unique("shop"), engine) as consumer:
        assert read_to(consumer, topic, 4) == [b"1"]
        consumer.commit(asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
        assert committed.offset == 4


def test_so_it_does_where_no_record_is_shown(
    bootstrap: str, topic: str, unique: Unique, engine: EngineName
) -> None:
    abort_values(bootstrap, unique("two"), topic, [b"no", b"no"])
    with reader(bootstrap, topic, unique("shop"), engine) as consumer:
        assert read_to(consumer, topic, 3) == []


def test_a_group_loses_nothing_when_what_it_has_passed_is_deleted(
    bootstrap: str, topic: str, unique: Unique, engine: EngineName
) -> None:
    commit_values(transactional_producer(bootstrap, unique("one")), topic, [b"1"])
    with reader(bootstrap, topic, unique("shop"), engine) as consumer:
        read_to(consumer, topic, 2)
        consumer.commit(asynchronous=False)
    with txn.admin.connect(bootstrap) as cluster:
        cluster.records.delete({(topic, 0): 2})
    commit_values(transactional_producer(bootstrap, unique("two")), topic, [b"2"])
    with reader(bootstrap, topic, unique("shop"), engine, reset="latest") as consumer:
        assert read_to(consumer, topic, 4) == [b"2"]
