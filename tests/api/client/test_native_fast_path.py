"""`poll` of the native engine hands ready records out on a fast path, and no rule is lost there."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, TopicPartition

import txn
from txn.client.reading import Reading
from txn.testing import TestBroker

WAIT_S = 30.0
COUNT = 200

Open = Callable[..., txn.Consumer]


@pytest.fixture(scope="module")
def topic(broker: TestBroker) -> str:
    """Topic whose partition 0 has the numbers up to `COUNT`, and partition 1 three more."""
    name = broker.create_topic("ready", partitions=2)
    with txn.Producer(bootstrap_servers=broker.bootstrap_servers, engine="native") as producer:
        for number in range(COUNT):
            producer.produce(name, b"%d" % number, partition=0)
        for number in range(COUNT, COUNT + 3):
            producer.produce(name, b"%d" % number, partition=1)
        producer.flush()
    return name


@pytest.fixture
def opened(broker: TestBroker) -> Iterator[Open]:
    made: list[txn.Consumer] = []

    def open_one(
        group: str | None = None, on_commit: object = None, **settings: object
    ) -> txn.Consumer:
        config = {str(name).replace("_", "."): value for name, value in settings.items()}
        consumer = txn.Consumer(
            config if on_commit is None else config | {"on_commit": on_commit},
            bootstrap_servers=broker.bootstrap_servers,
            group_id=group or uuid.uuid4().hex,
            auto_offset_reset="earliest",
            engine="native",
        )
        made.append(consumer)
        return consumer

    yield open_one
    for consumer in made:
        consumer.close()


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry of each read that does not take the fast path."""
    seen: list[None] = []
    read = Reading.read

    def count(*args: object) -> object:
        seen.append(None)
        return read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Reading, "read", count)
    return seen


def numbers(consumer: txn.Consumer, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = consumer.poll(WAIT_S)
        assert message is not None
        found.append(int(message.value() or b""))
    return found


def test_ready_records_take_the_fast_path_in_their_order(
    topic: str, opened: Open, slow_reads: list[None]
) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    assert numbers(consumer, COUNT) == list(range(COUNT))
    assert len(slow_reads) < COUNT / 10
    assert consumer.poll(0) is None


def test_a_partition_without_records_keeps_no_other_one_from_the_fast_path(
    broker: TestBroker, topic: str, opened: Open, slow_reads: list[None]
) -> None:
    empty = broker.create_topic(uuid.uuid4().hex, partitions=4)
    consumer = opened()
    consumer.subscribe([topic, empty])
    assert sorted(numbers(consumer, COUNT + 3)) == list(range(COUNT + 3))
    assert len(slow_reads) < COUNT / 10


def test_a_block_commits_exactly_what_its_polls_returned(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    group = uuid.uuid4().hex
    consumer = opened(group)
    consumer.assign([TopicPartition(topic, 0)])
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="fast", engine="native"
    ) as producer:
        with producer.transaction(consumer):
            assert numbers(consumer, 20) == list(range(20))
        with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
            assert numbers(consumer, 30) == list(range(20, 50))
            raise ZeroDivisionError
        with producer.transaction(consumer):
            assert numbers(consumer, 10) == list(range(20, 30))
            consumer.seek(TopicPartition(topic, 0, 150))
            assert numbers(consumer, 1) == [150]
    consumer.close()
    other = opened(group)
    begin = {p.partition: p.offset for p in other.committed([TopicPartition(topic, 0)], WAIT_S)}
    assert begin == {0: 151}


def test_an_aborted_block_without_a_committed_offset_goes_back_to_each_first_record(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    consumer = opened()
    consumer.subscribe([topic])
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="back", engine="native"
    ) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
            numbers(consumer, COUNT + 3)
            raise ZeroDivisionError
        with producer.transaction(consumer):
            assert sorted(numbers(consumer, COUNT + 3)) == list(range(COUNT + 3))


def test_the_answer_to_a_commit_is_reported_between_ready_records(topic: str, opened: Open) -> None:
    answers: list[KafkaError | None] = []
    consumer = opened(on_commit=lambda error, _: answers.append(error))
    consumer.assign([TopicPartition(topic, 0, 0)])
    numbers(consumer, 10)
    consumer.commit(asynchronous=True)
    other = opened()
    for _ in range(COUNT // 2):
        if answers:
            break
        numbers(consumer, 1)
        other.committed([TopicPartition(topic, 0)], WAIT_S)  # takes as long as a commit
    assert answers == [None]


def test_a_rebalance_is_heard_between_ready_records(
    topic: str, opened: Open, slow_reads: list[None]
) -> None:
    group = uuid.uuid4().hex
    revoked: list[int] = []
    first = opened(group, heartbeat_interval_ms=100, group_protocol="classic")
    first.subscribe(
        [topic], on_revoke=lambda _, places: revoked.extend(p.partition for p in places)
    )
    numbers(first, 10)
    second = opened(group, heartbeat_interval_ms=100, group_protocol="classic")
    second.subscribe([topic])
    ends = time.monotonic() + WAIT_S
    while not revoked and time.monotonic() < ends:
        second.poll(0)
        message = first.poll(0.01)
        if message is not None and message.offset() == 100:
            first.seek(TopicPartition(topic, message.partition() or 0, 20))  # more are ready
    assert sorted(revoked) == [0, 1]
    assert len(first.assignment()) < 2


def test_a_closed_consumer_hands_out_no_ready_record(topic: str, opened: Open) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    numbers(consumer, 10)
    consumer.close()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(WAIT_S)


def test_a_wrong_time_out_is_refused_although_a_record_is_ready(topic: str, opened: Open) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    numbers(consumer, 10)
    with pytest.raises(TypeError, match="timeout is a number of seconds, not a str"):
        consumer.poll("1")  # type: ignore[arg-type]
    assert numbers(consumer, 1) == [10]


def test_a_partition_that_is_not_there_is_an_error_beside_ready_records(
    topic: str, opened: Open
) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0, 0)])
    numbers(consumer, 10)
    consumer.incremental_assign([TopicPartition(topic, 7, 0)])
    with pytest.raises(txn.RetriableError, match=r"partition 7 .* is not there"):
        for _ in range(1_000):
            if consumer.poll(0.5) is None:
                consumer.seek(TopicPartition(topic, 0, 10))


def test_a_block_that_forgets_its_consumer_is_warned_of_whichever_read_was_fast(
    broker: TestBroker, topic: str, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = opened("one"), opened("other")
    for consumer in (one, other):
        consumer.assign([TopicPartition(topic, 0)])
        numbers(consumer, 10)
    for consumer in (one, other, other):
        numbers(consumer, 1)
        caplog.clear()
        name = uuid.uuid4().hex
        with (
            txn.Producer(
                bootstrap_servers=broker.bootstrap_servers, transactional_id=name, engine="native"
            ) as producer,
            producer.transaction() as t,
        ):
            numbers(consumer, 1)
            t.produce(topic, b"0", partition=1)
        [line] = [each.getMessage() for each in caplog.records if each.name == "txn.client"]
        assert f"the consumer of group {consumer.group_id!r}" in line
