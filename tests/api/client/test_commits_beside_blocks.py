"""No offsets of a `txn.Consumer` are committed beside the transaction that reads from it.

A `commit` in an open block was sent at once. When the block aborted, its records were behind the
group's committed offset, and nobody read them again. librdkafka keeps the offset of the last record
it handed out, also over a seek. So a commit without arguments after an aborted block did the same.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import txn
from txn.client.engine import EngineName
from txn.errors import Action, RejectedError
from txn.testing import TestBroker

WAIT_S = 30

RECORDS = [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        made.create_topic("out", partitions=1)
        made.produce("in", *RECORDS, partition=0)
        yield made


def assigned(broker: TestBroker, **more: Any) -> txn.Consumer:
    made = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        **more,
    )
    made.assign([TopicPartition("in", 0)])
    return made


def assigned_plain(broker: TestBroker) -> confluent_kafka.Consumer:
    made = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.assign([TopicPartition("in", 0)])
    return made


@pytest.fixture
def consumer(broker: TestBroker, engine: EngineName) -> Iterator[txn.Consumer]:
    made = assigned(broker, engine=engine)
    yield made
    made.close()


def take(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    messages = consumer.consume(count, WAIT_S)
    assert len(messages) == count
    return [message.value() or b"" for message in messages]


def in_partition_0(offset: int) -> list[TopicPartition]:
    return [TopicPartition("in", 0, offset)]


COMMITS: dict[str, Callable[[txn.Consumer], object]] = {
    "and waits": lambda consumer: consumer.commit(asynchronous=False),
    "and goes on": lambda consumer: consumer.commit(asynchronous=True),
    "offsets of its own": lambda consumer: consumer.commit(
        offsets=in_partition_0(3), asynchronous=False
    ),
    "stores offsets": lambda consumer: consumer.store_offsets(offsets=in_partition_0(3)),
}


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS.keys())
@pytest.mark.parametrize("stores", [True, False])
def test_a_commit_in_a_block_is_refused_and_loses_nothing(
    broker: TestBroker,
    producer: txn.Producer,
    engine: EngineName,
    commit: Callable[[txn.Consumer], object],
    stores: bool,
) -> None:
    consumer = assigned(broker, engine=engine, enable_auto_offset_store=stores)
    with (
        pytest.raises(RejectedError, match=r"group 'g' cannot .* in the block of a transaction"),
        producer.transaction(consumer) as t,
    ):
        t.produce("out", take(consumer, 3)[0])
        commit(consumer)
    assert broker.committed("g") == {}
    with producer.transaction(consumer):
        again = take(consumer, 6)
    consumer.close()

    assert again == RECORDS
    assert broker.committed("g") == {("in", 0): 6}


def test_a_commit_of_a_message_in_a_block_is_refused(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with pytest.raises(RejectedError, match="cannot commit"), producer.transaction(consumer):
        [message] = consumer.consume(1, WAIT_S)
        consumer.commit(message=message, asynchronous=False)

    assert broker.committed("g") == {}
    assert take(consumer, 1) == [b"0"]


def test_a_commit_in_a_callback_of_the_block_is_refused(
    broker: TestBroker, engine: EngineName, producer: txn.Producer
) -> None:
    """Programs without transactions commit when partitions are revoked."""
    broker.create_topic("more", partitions=1)  # one partition each: the second member gets one
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "engine": engine,
    }
    consumer, other = (txn.Consumer(group_id="g", **settings) for _ in range(2))
    revoked: list[object] = []

    def commit_once(member: confluent_kafka.Consumer, places: object) -> None:
        revoked.append(places)
        if len(revoked) == 1:
            member.commit(asynchronous=False)

    consumer.subscribe(["in", "more"], on_revoke=commit_once)
    with pytest.raises(RejectedError, match="cannot commit"), producer.transaction(consumer):
        take(consumer, 3)
        other.subscribe(["in", "more"])
        ends_s = time.monotonic() + WAIT_S
        while time.monotonic() < ends_s:
            other.poll(0.1)
            consumer.poll(0.1)
    committed = broker.committed("g")
    consumer.close()
    other.close()

    assert committed == {}


def test_a_commit_without_arguments_after_an_aborted_block_commits_nothing_of_it(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        take(consumer, 3)
        raise ZeroDivisionError
    with pytest.raises(KafkaException) as told:
        consumer.commit(asynchronous=False)

    assert told.value.args[0].code() == KafkaError._NO_OFFSET
    assert broker.committed("g") == {}
    assert take(consumer, 2) == [b"0", b"1"]
    consumer.commit(asynchronous=False)
    assert broker.committed("g") == {("in", 0): 2}


def test_offsets_stored_outside_a_block_are_those_that_a_commit_takes(
    broker: TestBroker, engine: EngineName
) -> None:
    consumer = assigned(broker, engine=engine, enable_auto_offset_store=False)
    take(consumer, 4)
    consumer.store_offsets(offsets=in_partition_0(2))
    consumer.commit(asynchronous=False)
    consumer.close()

    assert broker.committed("g") == {("in", 0): 2}


def test_a_block_does_not_send_offsets_of_a_consumer_that_committed_since_it_began(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with (
        pytest.raises(RejectedError, match="has committed outside of the open transaction"),
        producer.transaction() as t,
    ):
        t.produce("out", take(consumer, 3)[0])
        consumer.commit(asynchronous=False)
        t.send_offsets(in_partition_0(3), consumer)

    assert broker.records("out") == []


def test_a_consumer_whose_offsets_a_block_has_sent_commits_no_more_in_it(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    with producer.transaction() as t:
        take(consumer, 3)
        t.send_offsets(in_partition_0(3), consumer)
        with pytest.raises(RejectedError, match="cannot commit"):
            consumer.commit(asynchronous=False)
    take(consumer, 1)
    consumer.commit(asynchronous=False)

    assert broker.committed("g") == {("in", 0): 4}


@pytest.mark.parametrize("is_plain", [True, False])
def test_two_open_blocks_cannot_read_from_one_consumer(
    broker: TestBroker, engine: EngineName, producer: txn.Producer, is_plain: bool
) -> None:
    """The inner block committed the records of the outer one, which then aborted."""
    servers = broker.bootstrap_servers
    consumer = assigned_plain(broker) if is_plain else assigned(broker, engine=engine)
    with txn.Producer(bootstrap_servers=servers, transactional_id="other") as other:
        with (
            pytest.raises(RejectedError, match="producer 'other' cannot use the consumer of ano"),
            producer.transaction(consumer),
        ):
            take(consumer, 2)
            with other.transaction(consumer):
                pass
        with other.transaction(consumer):
            again = take(consumer, 6)
    consumer.close()

    assert again == RECORDS


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_consumer_closed_in_its_block_aborts_it_in_words(
    broker: TestBroker, engine: EngineName, producer: txn.Producer, is_plain: bool
) -> None:
    """It was a RuntimeError, and the abort told of a consumer that would be rewound later."""
    consumer = assigned_plain(broker) if is_plain else assigned(broker, engine=engine)
    with (
        pytest.raises(RejectedError, match="is closed, and the block has to ask") as told,
        producer.transaction(consumer) as t,
    ):
        t.produce("out", take(consumer, 2)[0])
        consumer.close()

    assert told.value.action is Action.GIVE_UP
    assert told.value.__notes__ == ["See: txn docs errors/rejected"]
    assert broker.committed("g") == {}
    assert broker.records("out") == []


def test_a_consumer_that_could_not_be_rewound_commits_only_after_a_rewind(
    broker: TestBroker,
    consumer: txn.Consumer,
    producer: txn.Producer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> list[TopicPartition]:
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    with monkeypatch.context() as patch:
        patch.setattr(consumer, "committed", fail)
        with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
            take(consumer, 3)
            raise ZeroDivisionError
    with pytest.raises(RejectedError, match=r"Call `txn.rewind\(consumer\)` first"):
        consumer.commit(asynchronous=False)
    txn.rewind(consumer)
    take(consumer, 1)
    consumer.commit(asynchronous=False)
    with producer.transaction(consumer):  # which goes on behind that commit
        again = take(consumer, 5)

    assert again == RECORDS[1:]


def test_a_block_that_is_gone_leaves_its_consumer_to_the_next_one(
    broker: TestBroker, consumer: txn.Consumer, producer: txn.Producer
) -> None:
    """A signal between the begin and the body leaves one."""
    producer.transaction(consumer).__enter__()
    take(consumer, 2)
    gc.collect()
    with pytest.raises(RejectedError, match="it could not be rewound"):
        consumer.commit(asynchronous=False)
    with producer.transaction(consumer):
        again = take(consumer, 6)

    assert again == RECORDS


def test_a_commit_that_answers_later_is_told_to_a_callback_given_by_keyword(
    broker: TestBroker,
    engine: EngineName,
) -> None:
    answers: list[KafkaError | None] = []
    consumer = assigned(broker, engine=engine, on_commit=lambda error, _: answers.append(error))
    take(consumer, 3)
    consumer.commit()
    ends_s = time.monotonic() + WAIT_S
    while not answers and time.monotonic() < ends_s:
        consumer.poll(0.1)
    consumer.close()

    assert answers == [None]
    assert broker.committed("g") == {("in", 0): 3}
