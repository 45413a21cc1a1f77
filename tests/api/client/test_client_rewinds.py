"""An aborted block goes back to the position before it, also after a seek or an assignment."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    TopicPartition,
)

import txn
from api.client.positions import (
    WAIT_S,
    abort_after,
    commit_after,
    first,
    second,
    take,
    watched_member,
)
from support.client_script import requires_abort, scripted
from txn.client.engine import EngineName
from txn.errors import AbortableError, InDoubtError, RetriableError
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
