"""A block commits the consumer's position after a seek and after an assignment by hand, too.

librdkafka tells no position from then on until the next record, and the block left the partition
out: its output was committed, and the records before the seek were read again.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaException,
)

import txn
from api.client.positions import first, second, take, watched_member
from txn.client.engine import EngineName
from txn.errors import AbortableError, RejectedError
from txn.testing import TestBroker


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=2)
        made.create_topic("out", partitions=1)
        made.produce("in", *"012345", partition=0)
        made.produce("in", *"678", partition=1)
        yield made


@pytest.fixture
def consumer(broker: TestBroker, engine: EngineName) -> Iterator[txn.Consumer]:
    made = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        engine=engine,
    )
    made.assign([first()])
    yield made
    made.close()


def test_records_put_back_by_a_seek_are_not_committed_and_those_before_are(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction(consumer) as t:
        for value in take(consumer, 6)[:4]:
            t.produce("out", value)
        consumer.seek(first(4))
    committed = broker.committed("g")
    with producer.transaction(consumer):
        rest = take(consumer, 2)

    assert committed == {("in", 0): 4}
    assert rest == [b"4", b"5"]
    assert broker.committed("g") == {("in", 0): 6}


def test_records_read_after_a_seek_count_and_not_its_target(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction(consumer):
        take(consumer, 1)
        consumer.seek(first(3))
        take(consumer, 2)

    assert broker.committed("g") == {("in", 0): 5}


def test_a_seek_that_librdkafka_refuses_moves_nothing(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction(consumer):
        take(consumer, 2)
        with pytest.raises(KafkaException, match="_STATE"):
            consumer.seek(second(1))

    assert broker.committed("g") == {("in", 0): 2}


def test_a_block_whose_records_were_left_by_a_relative_seek_aborts(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with (
        pytest.raises(RejectedError, match="in-0 to no offset that the transaction could commit"),
        producer.transaction(consumer) as t,
    ):
        t.produce("out", take(consumer, 2)[0])
        consumer.seek(first(OFFSET_BEGINNING))
    with producer.transaction(consumer) as t:
        t.produce("out", take(consumer, 1)[0])

    assert [record.value for record in broker.records("out")] == [b"0"]
    assert broker.committed("g") == {("in", 0): 1}


def test_a_relative_seek_is_fine_before_records_and_with_offsets_of_ones_own(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction(consumer) as t:
        take(consumer, 2)
        consumer.seek(first(OFFSET_BEGINNING))
        t.send_offsets([first(2)], consumer)
    with producer.transaction(consumer):
        pass
    with producer.transaction(consumer):
        again = take(consumer, 3)
    consumer.seek(first(OFFSET_BEGINNING))
    with producer.transaction(consumer):
        pass

    assert again == [b"0", b"1", b"2"]
    assert broker.committed("g") == {("in", 0): 3}


def test_records_of_partitions_that_the_program_unassigned_are_committed(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction(consumer):
        take(consumer, 6)
        consumer.assign([second()])
        take(consumer, 2)
        consumer.incremental_unassign([second()])
    with producer.transaction(consumer):
        pass

    assert broker.committed("g") == {("in", 0): 6, ("in", 1): 2}


def test_records_of_an_assignment_that_was_given_up_are_committed(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction(consumer):
        take(consumer, 2)
        consumer.unassign()

    assert broker.committed("g") == {("in", 0): 2}


def test_a_partition_assigned_again_at_an_offset_is_committed_there(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction(consumer):
        take(consumer, 6)
        consumer.assign([first(4), second()])

    assert broker.committed("g") == {("in", 0): 4}


def test_a_partition_assigned_again_without_an_offset_after_its_records_aborts(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with (
        pytest.raises(RejectedError, match="assigned again, in in-0"),
        producer.transaction(consumer) as t,
    ):
        t.produce("out", take(consumer, 6)[0])
        consumer.assign([first()])
    with producer.transaction(consumer):
        again = take(consumer, 6)

    assert len(again) == 6
    assert broker.records("out") == []


def test_a_block_whose_partitions_were_taken_away_after_a_seek_aborts(
    broker: TestBroker, producer: txn.Producer
) -> None:
    """The next owner begins before the seek."""
    consumer, assigned = watched_member(broker)
    with (
        pytest.raises(AbortableError, match="changed partitions"),
        producer.transaction(consumer) as t,
    ):
        t.produce("out", take(consumer, 9)[0])
        consumer.pause([first(), second()])
        consumer.seek(first(4))
        consumer.seek(second(1))
        broker.rebalance("h")
        while len(assigned) < 2:
            consumer.poll(0.1)
    consumer.close()

    assert broker.records("out") == []
