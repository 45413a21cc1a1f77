"""The program's own words count while a partition waits for its group's pending offset."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

import txn
from support.clients import WAIT_S, transactional_producer
from txn.testing import TestBroker

PLACE = TopicPartition("in", 0)


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        made.produce("in", *"012345")
        yield made


@pytest.fixture
def pending(broker: TestBroker) -> confluent_kafka.Producer:
    """The producer of an open transaction that holds offset 4 of the group `g` pending."""
    made = transactional_producer(broker.bootstrap_servers, "t")
    made.begin_transaction()
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    reader = confluent_kafka.Consumer(settings)
    offsets = [TopicPartition("in", 0, 4)]
    made.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), WAIT_S)
    reader.close()
    return made


@pytest.fixture(params=["subscribes", "assigns in on_assign", "assigns"])
def consumer(
    broker: TestBroker, pending: confluent_kafka.Producer, request: pytest.FixtureRequest
) -> Iterator[txn.Consumer]:
    """A consumer whose only partition waits."""
    made = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    if request.param == "subscribes":
        made.subscribe(["in"])
    elif request.param == "assigns in on_assign":
        made.subscribe(["in"], on_assign=lambda member, places: member.assign(places))
    else:
        made.assign([PLACE])
    while not made.assignment():
        assert made.poll(0.1) is None
    assert made.poll(0.1) is None
    yield made
    made.close()


def read(consumer: txn.Consumer) -> bytes | None:
    message = consumer.poll(WAIT_S)
    assert message is not None
    return message.value()


def test_a_resume_does_not_begin_it(
    consumer: txn.Consumer, pending: confluent_kafka.Producer
) -> None:
    consumer.pause([PLACE])
    consumer.resume([PLACE])
    before = consumer.poll(0.5)
    pending.commit_transaction(WAIT_S)

    assert before is None
    assert read(consumer) == b"4"


def test_a_pause_outlasts_the_wait(
    consumer: txn.Consumer, pending: confluent_kafka.Producer
) -> None:
    consumer.pause([PLACE])
    pending.commit_transaction(WAIT_S)
    assert consumer.poll(3) is None  # which asks once more at least
    consumer.resume([PLACE])

    assert read(consumer) == b"4"


def test_a_seek_ends_the_wait(consumer: txn.Consumer) -> None:
    consumer.seek(TopicPartition("in", 0, 2))

    assert read(consumer) == b"2"


def test_an_assignment_at_an_offset_ends_the_wait(consumer: txn.Consumer) -> None:
    consumer.assign([TopicPartition("in", 0, 3)])

    assert read(consumer) == b"3"


def test_it_begins_at_the_reset_where_the_transaction_was_the_first_and_aborts(
    consumer: txn.Consumer, pending: confluent_kafka.Producer
) -> None:
    pending.abort_transaction(WAIT_S)

    assert read(consumer) == b"0"
