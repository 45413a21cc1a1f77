"""A block that caught an error of `produce` or `send_offsets` does not commit without it."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

import txn
from txn.client.transaction import BlockResult
from txn.testing import TestBroker

TOO_LARGE = b"x" * 2_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        made.produce("in", b"1")
        yield made


@pytest.fixture
def topic(broker: TestBroker, request: pytest.FixtureRequest) -> str:
    return broker.create_topic(request.node.name.replace("[", "-").rstrip("]"), partitions=1)


def test_a_record_that_was_refused_and_caught_keeps_the_block_from_committing(
    broker: TestBroker, producer: txn.Producer, consumer: txn.Consumer, topic: str
) -> None:
    """The rest of the output was committed, and the offset of its input: it was lost."""
    transaction = producer.transaction(consumer)
    with (
        pytest.raises(
            txn.RejectedError, match=r"caught an error of produce.* a record would"
        ) as told,
        transaction as t,
    ):
        assert consumer.consume(1, 60)
        t.produce(topic, b"small")
        with pytest.raises(txn.RejectedError, match="MSG_SIZE_TOO_LARGE"):
            t.produce(topic, TOO_LARGE)

    assert transaction.result is BlockResult.ABORTED
    assert (told.value.topic, told.value.name) == (topic, "MSG_SIZE_TOO_LARGE")
    assert broker.records(topic) == []
    [again] = consumer.consume(1, 60)
    assert again.offset() == 0


def test_a_record_with_a_wrong_argument_that_was_caught_may_go_elsewhere(
    broker: TestBroker, producer: txn.Producer, topic: str
) -> None:
    value: Any = {"a": 1}
    with producer.transaction() as t:
        with pytest.raises(TypeError, match="value is bytes, str or None, not a dict"):
            t.produce(topic, value)
        with pytest.raises(txn.RejectedError, match="cannot send timestamp -5 to"):
            t.produce(topic, b"x", timestamp=-5)  # it was taken without a word
        t.produce(topic, b"dead letter")

    assert [record.value for record in broker.records(topic)] == [b"dead letter"]


def test_a_callback_whose_error_was_caught_keeps_the_block_from_committing(
    broker: TestBroker, topic: str
) -> None:
    """It is raised in front of a record, which is not sent then."""

    def audit(*_: object) -> None:
        raise OSError("the audit log is full")

    with (
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id="c",
            on_delivery=audit,
            engine="confluent-kafka",
        ) as producer,
        pytest.raises(txn.AbortableError, match=r"produce.* would be missing.*log is full"),
        producer.transaction() as t,
    ):
        is_caught = False
        while not is_caught:
            try:
                t.produce(topic, b"1")
            except OSError:
                is_caught = True

    assert broker.records(topic) == []


def test_offsets_that_were_refused_and_caught_keep_the_block_from_committing(
    broker: TestBroker, producer: txn.Producer, consumer: txn.Consumer, topic: str
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    offsets = [TopicPartition("in", 0, 1)]
    with (
        txn.Producer(settings, transactional_id="other") as other,
        pytest.raises(txn.RejectedError, match=r"caught an error of send_offsets.* offsets would"),
        producer.transaction() as t,
    ):
        t.produce(topic, b"1")
        with other.transaction(consumer), pytest.raises(txn.RejectedError, match="another open"):
            t.send_offsets(offsets, consumer)
    with txn.Producer(settings, transactional_id="other") as other, producer.transaction() as t:
        t.produce(topic, b"2")
        with other.transaction(consumer), pytest.raises(txn.RejectedError, match="another open"):
            t.send_offsets(offsets, consumer)
        t.send_offsets(offsets, consumer)  # sent after all

    assert [record.value for record in broker.records(topic)] == [b"2"]
