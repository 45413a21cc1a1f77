"""A block commits the consumer's position after a seek and after an assignment by hand, too.

librdkafka tells no position from then on until the next record, and the block left the partition
out: its output was committed, and the records before the seek were read again.
"""

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicPartition,
)

import txn
from support.client_script import requires_abort, scripted
from txn.client.engine import EngineName
from txn.errors import AbortableError, InDoubtError, RejectedError, RetriableError
from txn.testing import TestBroker

WAIT_S = 30


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


def test_an_aborted_first_block_goes_back_behind_its_own_seek(
    consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        take(consumer, 6)
        consumer.seek(first(4))
        raise ZeroDivisionError
    with producer.transaction(consumer):
        again = take(consumer, 2)

    assert again == [b"0", b"1"]


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


def test_an_aborted_block_goes_back_to_the_seek_that_came_before_it(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    """A replay was skipped: the block went back to the committed offset, and found nothing."""
    commit_after(consumer, producer, 6)
    consumer.seek(first(1))

    aborted = [abort_after(consumer, producer, 3) for _ in range(2)]
    again = commit_after(consumer, producer, 3)

    assert [*aborted, again] == [[b"1", b"2", b"3"]] * 3
    assert broker.committed("g") == {("in", 0): 4}


def test_a_commit_ends_the_effect_of_a_seek(consumer: txn.Consumer, producer: txn.Producer) -> None:
    consumer.seek(first(1))
    commit_after(consumer, producer, 2)

    assert abort_after(consumer, producer, 1) == [b"3"]
    assert take(consumer, 1) == [b"3"]


@pytest.mark.parametrize("is_synchronous", [True, False])
def test_a_commit_outside_transactions_ends_the_effect_of_a_seek(
    consumer: txn.Consumer, producer: txn.Producer, is_synchronous: bool
) -> None:
    take(consumer, 6)
    consumer.seek(first(1))
    take(consumer, 2)
    consumer.commit(asynchronous=not is_synchronous)
    while consumer.committed([first()])[0].offset != 3:
        pass

    assert abort_after(consumer, producer, 1) == [b"3"]
    assert take(consumer, 1) == [b"3"]


def test_offsets_of_ones_own_end_the_effect_of_an_assignment_in_their_partitions(
    consumer: txn.Consumer, producer: txn.Producer
) -> None:
    consumer.assign([first(5), second(1)])
    with producer.transaction(consumer) as t:
        take(consumer, 3)
        t.send_offsets([first(6)], consumer)
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        raise ZeroDivisionError

    assert sorted(take(consumer, 2)) == [b"7", b"8"]


def test_an_aborted_block_goes_back_behind_its_own_seek_to_the_one_before_it(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    commit_after(consumer, producer, 6)
    consumer.seek(first(1))
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        take(consumer, 5)
        consumer.seek(first(4))
        raise ZeroDivisionError
    with producer.transaction(consumer):
        pass
    committed = broker.committed("g")

    assert committed == {("in", 0): 1}
    assert take(consumer, 1) == [b"1"]


def test_an_aborted_block_goes_back_behind_its_own_seek_to_what_is_committed(
    consumer: txn.Consumer, producer: txn.Producer
) -> None:
    commit_after(consumer, producer, 3)
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        consumer.seek(first(0))
        take(consumer, 1)
        raise ZeroDivisionError

    assert take(consumer, 1) == [b"3"]


def test_a_seek_of_one_partition_leaves_the_others_at_what_is_committed(
    consumer: txn.Consumer, producer: txn.Producer
) -> None:
    consumer.assign([first(), second()])
    commit_after(consumer, producer, 9)
    consumer.seek(first(4))

    assert abort_after(consumer, producer, 2) == [b"4", b"5"]
    assert consumer.consume(3, 1.0)[0].value() == b"4"


def test_a_relative_seek_before_the_block_counts_from_its_first_record(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    commit_after(consumer, producer, 6)
    consumer.seek(first(OFFSET_BEGINNING))
    replayed = [abort_after(consumer, producer, 2) for _ in range(2)]
    commit_after(consumer, producer, 6)
    consumer.seek(first(OFFSET_END))
    assert consumer.poll(0.5) is None
    broker.produce("in", "new", partition=0)
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        raise ZeroDivisionError

    assert replayed == [[b"0", b"1"]] * 2
    assert abort_after(consumer, producer, 1) == [b"new"]
    assert take(consumer, 1) == [b"new"]


@pytest.mark.parametrize("offset", [1, OFFSET_BEGINNING])
def test_an_aborted_block_goes_back_to_the_offset_of_the_assignment_before_it(
    consumer: txn.Consumer, producer: txn.Producer, offset: int
) -> None:
    commit_after(consumer, producer, 6)
    consumer.assign([first(offset)])

    assert abort_after(consumer, producer, 3) == take(consumer, 3)


def test_an_aborted_block_goes_back_behind_its_own_assignment(
    consumer: txn.Consumer, producer: txn.Producer
) -> None:
    commit_after(consumer, producer, 6)
    consumer.seek(first(1))
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        take(consumer, 1)
        consumer.assign([first(4)])
        raise ZeroDivisionError

    assert take(consumer, 1) == [b"1"]


def test_offsets_given_as_a_partition_comes_hold_over_an_abort_of_that_block(
    broker: TestBroker, producer: txn.Producer, consumer: txn.Consumer
) -> None:
    commit_after(consumer, producer, 6)
    consumer.unassign()

    def from_two(member: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        member.assign([TopicPartition(p.topic, p.partition, 2) for p in partitions])

    consumer.subscribe(["in"], on_assign=from_two)

    assert sorted(abort_after(consumer, producer, 5)) == [b"2", b"3", b"4", b"5", b"8"]
    assert sorted(take(consumer, 5)) == [b"2", b"3", b"4", b"5", b"8"]


def test_a_revocation_ends_the_effect_of_a_seek(broker: TestBroker, producer: txn.Producer) -> None:
    consumer, assigned = watched_member(broker)
    commit_after(consumer, producer, 9)
    consumer.pause([first()])
    consumer.seek(first(4))
    broker.rebalance("h")
    while len(assigned) < 2:
        consumer.poll(0.1)
    with pytest.raises(AbortableError, match="lost in-0"), producer.transaction(consumer):
        pass
    consumer.resume([first()])
    broker.produce("in", "new", partition=0)

    assert take(consumer, 1) == [b"new"]
    consumer.close()


def test_a_commit_in_doubt_goes_on_from_what_is_committed(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    """The replay may be committed, so going back to the seek would repeat it."""
    consumer.seek(first(1))
    answers = broker.hold_answer("EndTxn")
    with (
        pytest.raises(InDoubtError, match="had no answer within 4 s"),
        producer.transaction(consumer, timeout=4),
    ):
        take(consumer, 2)
    answers.release()

    assert take(consumer, 1) == [b"3"]


def test_an_abort_rewinds_each_consumer_whose_offsets_were_sent(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    """Only the consumer of `transaction(consumer)` was: the next block lost the records."""
    with pytest.raises(ZeroDivisionError), producer.transaction() as t:
        take(consumer, 4)
        consumer.seek(first(2))
        t.send_offsets([first(2)], consumer)
        raise ZeroDivisionError
    with producer.transaction() as t:
        again = take(consumer, 2)
        t.send_offsets([first(2)], consumer)
    committed = broker.committed("g")
    with pytest.raises(ZeroDivisionError), producer.transaction() as t:
        take(consumer, 4)
        t.send_offsets([first(6)], consumer)
        raise ZeroDivisionError

    assert again == [b"0", b"1"]
    assert committed == {("in", 0): 2}
    assert take(consumer, 1) == [b"2"]


def test_a_consumer_that_could_not_be_rewound_sends_no_offsets_until_it_is(
    broker: TestBroker,
    consumer: txn.Consumer,
    producer: txn.Producer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RetriableError("no answer")

    with (
        pytest.raises(ZeroDivisionError) as caught,
        monkeypatch.context() as patch,
        producer.transaction() as t,
    ):
        take(consumer, 2)
        t.send_offsets([first(2)], consumer)
        patch.setattr("txn.client.block_offsets.rewind", fail)
        raise ZeroDivisionError
    with pytest.raises(AbortableError, match="was not rewound"), producer.transaction() as t:
        take(consumer, 2)
        t.send_offsets([first(4)], consumer)
    with producer.transaction() as t:
        again = take(consumer, 2)
        t.send_offsets([first(2)], consumer)

    assert "could not be rewound (no answer)" in caught.value.__notes__[0]
    assert again == [b"0", b"1"]
    assert broker.committed("g") == {("in", 0): 2}


def test_records_lost_by_a_consumer_whose_offsets_were_sent_abort_the_block(
    broker: TestBroker, producer: txn.Producer
) -> None:
    consumer, assigned = watched_member(broker)
    with pytest.raises(AbortableError, match="changed partitions"), producer.transaction() as t:
        t.produce("out", take(consumer, 9)[0])
        consumer.pause([first(), second()])
        broker.rebalance("h")
        while len(assigned) < 2:
            consumer.poll(0.1)
        t.send_offsets([first(6), second(3)], consumer)
    consumer.close()

    assert broker.records("out") == []


def test_a_plain_consumer_that_is_not_the_blocks_own_stays_where_it_is(
    broker: TestBroker, producer: txn.Producer
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "plain"}
    consumer = confluent_kafka.Consumer(settings | {"enable.auto.commit": False})
    consumer.assign([first(0)])
    with pytest.raises(ZeroDivisionError), producer.transaction() as t:
        consumer.consume(2, WAIT_S)
        t.send_offsets([first(2)], consumer)
        raise ZeroDivisionError
    [message] = consumer.consume(1, WAIT_S)
    consumer.close()

    assert message.value() == b"2"


@pytest.mark.parametrize(
    ("answers", "kind", "value"),
    [
        ([requires_abort(KafkaError._INCONSISTENT)], AbortableError, b"1"),
        ([KeyboardInterrupt(), KeyboardInterrupt()], KeyboardInterrupt, b"5"),
    ],
)
def test_a_commit_that_has_failed_leaves_the_seek_before_it(
    consumer: txn.Consumer, answers: list[object], kind: type[BaseException], value: bytes
) -> None:
    """One that is not known to have failed may be done, as after a second Ctrl-C."""
    consumer.commit(offsets=[first(5)], asynchronous=False)
    consumer.assign([first(1)])
    producer, _ = scripted(commit_transaction=list(answers))
    with pytest.raises(kind), producer.transaction(consumer):
        take(consumer, 2)

    assert take(consumer, 1) == [value]
