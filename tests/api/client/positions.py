"""Consumers at positions that a test gives, and the records that they read."""

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    TopicPartition,
)

import txn
from txn.testing import TestBroker

WAIT_S = 30


def first(offset: int = OFFSET_INVALID) -> TopicPartition:
    return TopicPartition("in", 0, offset)


def second(offset: int = OFFSET_INVALID) -> TopicPartition:
    return TopicPartition("in", 1, offset)


def watched_member(broker: TestBroker) -> tuple[txn.Consumer, list[object]]:
    """A member of the group "h", and a list that grows with each of its assignments."""
    assigned: list[object] = []
    consumer = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="h", auto_offset_reset="earliest"
    )
    consumer.subscribe(["in"], on_assign=lambda _, places: assigned.append(places))
    return consumer, assigned


def take(consumer: txn.Consumer, count: int) -> list[bytes]:
    messages = consumer.consume(count, WAIT_S)
    assert len(messages) == count
    return [message.value() or b"" for message in messages]


def abort_after(consumer: txn.Consumer, producer: txn.Producer, count: int) -> list[bytes]:
    """The records that an aborted block took."""
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        values = take(consumer, count)
        raise ZeroDivisionError
    return values


def commit_after(consumer: txn.Consumer, producer: txn.Producer, count: int) -> list[bytes]:
    """The records that a committed block took."""
    with producer.transaction(consumer):
        return take(consumer, count)
