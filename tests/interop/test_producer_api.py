"""`txn.Producer` against txn's broker and Apache Kafka: a block's promises, and its failures."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition

from support.clients import (
    WAIT_S,
    create_topic,
    ends,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from txn.client import Consumer, Producer
from txn.client.engine import EngineName, ProducerEngine
from txn.errors import AbortableError, Action, ConfigError, FencedError, RejectedError

Unique = Callable[[str], str]


@pytest.fixture
def source(bootstrap: str, unique: Unique) -> str:
    """A topic of two partitions with the values 0-9, even ones in partition 0."""
    name = unique("source")
    create_topic(bootstrap, name, partitions=2)
    producer = plain_producer(bootstrap)
    send(producer, name, [b"%d" % n for n in range(0, 10, 2)], partition=0)
    send(producer, name, [b"%d" % n for n in range(1, 10, 2)], partition=1)
    return name


@pytest.fixture
def sink(bootstrap: str, unique: Unique) -> str:
    name = unique("sink")
    create_topic(bootstrap, name)
    return name


@pytest.fixture
def producer(bootstrap: str, unique: Unique, engine: EngineName) -> Iterator[Producer]:
    transactional_id = unique("txn")
    with Producer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, engine=engine
    ) as made:
        yield made


@pytest.fixture(params=["txn.Consumer", "confluent_kafka.Consumer"])
def consumer(
    request: pytest.FixtureRequest, bootstrap: str, unique: Unique, source: str, engine: EngineName
) -> Iterator[confluent_kafka.Consumer]:
    made = open_consumer(request.param, bootstrap, unique("group"), engine)
    made.subscribe([source])
    yield made
    made.close()


def open_consumer(
    kind: str, bootstrap: str, group: str, engine: EngineName
) -> confluent_kafka.Consumer:
    """Open a consumer of a kind; a `txn.Consumer` on the producer's engine."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10000,
    }
    if kind == "txn.Consumer":
        return Consumer(settings, engine=engine)
    return confluent_kafka.Consumer(settings)


def take(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    """Read exactly so many records."""
    messages = consumer.consume(count, WAIT_S)
    assert len(messages) == count, f"{len(messages)} of {count} records came"
    return [message.value() or b"" for message in messages]


def values_in(bootstrap: str, topic: str) -> list[bytes]:
    return [value or b"" for value in read_all(bootstrap, topic)]


def committed(consumer: confluent_kafka.Consumer, topic: str) -> dict[int, int]:
    """The group's committed offsets, by partition; none for a partition without."""
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    answer = consumer.committed(places, WAIT_S)
    return {p.partition: p.offset for p in answer if p.offset >= 0}


def test_a_block_that_ends_well_commits_its_records(
    bootstrap: str, producer: Producer, sink: str
) -> None:
    with producer.transaction() as t:
        t.produce(sink, b"a", key=b"k", headers=[("h", b"1")], partition=0, timestamp=1234)
        t.produce(sink, value="b")
        before = read_all(bootstrap, sink)

    assert before == []
    assert read_all(bootstrap, sink) == [b"a", b"b"]


def test_timestamp_zero_is_refused_and_the_block_goes_on(
    bootstrap: str, producer: Producer, sink: str
) -> None:
    """librdkafka takes 0 for now, so the record was stored with the time of sending."""
    with producer.transaction() as t:
        with pytest.raises(RejectedError, match="cannot send timestamp 0 to"):
            t.produce(sink, b"a", timestamp=0)
        t.produce(sink, b"b", timestamp=1)

    assert read_all(bootstrap, sink) == [b"b"]


def test_a_block_that_raises_aborts_and_raises_the_same_exception(
    bootstrap: str, producer: Producer, sink: str
) -> None:
    with pytest.raises(ZeroDivisionError) as caught, producer.transaction() as t:
        t.produce(sink, b"lost")
        raise ZeroDivisionError("the program's own")
    with producer.transaction() as t:
        t.produce(sink, b"kept")

    assert not hasattr(caught.value, "__notes__")
    assert read_all(bootstrap, sink) == [b"kept"]


def test_an_abort_right_after_a_commit_leaves_the_producer_fit(
    bootstrap: str, producer: Producer, sink: str
) -> None:
    """A coordinator still writing the last markers refuses partitions, and then the abort too.

    librdkafka's issue 4849: the refused abort is fatal to the producer.
    """
    for n in range(20):
        with producer.transaction() as t:
            t.produce(sink, b"%d" % n)
        with pytest.raises(ZeroDivisionError), producer.transaction() as t:
            t.produce(sink, b"lost")
            threading.Event().wait(n / 1000)  # the refusal meets the abort at some point
            raise ZeroDivisionError

    assert values_in(bootstrap, sink) == [b"%d" % n for n in range(20)]


def test_ctrl_c_in_a_block_aborts(bootstrap: str, producer: Producer, sink: str) -> None:
    with pytest.raises(KeyboardInterrupt), producer.transaction() as t:
        t.produce(sink, b"lost")
        signal.raise_signal(signal.SIGINT)

    assert read_all(bootstrap, sink) == []


def test_an_empty_block_commits_nothing_and_costs_nothing(producer: Producer) -> None:
    with producer.transaction():
        pass
    with producer.transaction():
        pass


def test_output_and_the_offsets_of_what_was_read_commit_together(
    bootstrap: str,
    producer: Producer,
    consumer: confluent_kafka.Consumer,
    source: str,
    sink: str,
) -> None:
    with producer.transaction(consumer) as t:
        for value in take(consumer, 10):
            t.produce(sink, value)

    assert committed(consumer, source) == {0: 5, 1: 5}
    assert sorted(values_in(bootstrap, sink)) == [b"%d" % n for n in range(10)]


def test_records_read_before_the_block_are_covered_by_it(
    producer: Producer, consumer: confluent_kafka.Consumer, source: str, sink: str
) -> None:
    values = take(consumer, 10)

    with producer.transaction(consumer) as t:
        for value in values:
            t.produce(sink, value)

    assert committed(consumer, source) == {0: 5, 1: 5}


def test_only_what_was_handed_out_is_committed(
    producer: Producer, consumer: confluent_kafka.Consumer, source: str, sink: str
) -> None:
    with producer.transaction(consumer) as t:
        for value in take(consumer, 3):
            t.produce(sink, value)

    assert sum(committed(consumer, source).values()) == 3


def test_an_aborted_block_is_read_again_by_the_next(
    bootstrap: str,
    producer: Producer,
    consumer: confluent_kafka.Consumer,
    source: str,
    sink: str,
) -> None:
    with producer.transaction(consumer) as t:
        for value in take(consumer, 4):
            t.produce(sink, value)
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer) as t:
        for value in take(consumer, 6):
            t.produce(sink, value)
        raise ZeroDivisionError
    with producer.transaction(consumer) as t:
        for value in take(consumer, 6):
            t.produce(sink, value)

    assert committed(consumer, source) == {0: 5, 1: 5}
    assert sorted(values_in(bootstrap, sink)) == [b"%d" % n for n in range(10)]


def test_an_aborted_first_block_goes_back_to_the_first_record(
    producer: Producer, consumer: confluent_kafka.Consumer, source: str
) -> None:
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        first = take(consumer, 10)
        raise ZeroDivisionError

    assert sorted(take(consumer, 10)) == sorted(first)
    assert committed(consumer, source) == {}


def test_a_rewind_under_latest_goes_back_to_the_first_record_handed_out(
    bootstrap: str, producer: Producer, unique: Unique, sink: str, engine: EngineName
) -> None:
    feeder = plain_producer(bootstrap)
    send(feeder, sink, [b"before"])
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=unique("group"),
        auto_offset_reset="latest",
        enable_partition_eof=True,
        engine=engine,
    )
    consumer.assign([TopicPartition(sink, 0)])
    wait_for_end(consumer)

    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        send(feeder, sink, [b"1", b"2"])
        first = wait_for_end(consumer)
        raise ZeroDivisionError
    again = wait_for_end(consumer)
    consumer.close()

    assert first
    assert again == [b"1", b"2"]


def wait_for_end(consumer: confluent_kafka.Consumer) -> list[bytes]:
    """Read one partition to its end."""
    values: list[bytes] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            return values
        values.append(message.value() or b"")


def test_a_block_with_offsets_of_its_own_commits_those(
    producer: Producer, consumer: confluent_kafka.Consumer, source: str, sink: str
) -> None:
    with producer.transaction(consumer) as t:
        take(consumer, 10)
        t.produce(sink, b"x")
        t.send_offsets([TopicPartition(source, 0, 2)], consumer)

    assert committed(consumer, source) == {0: 2}


def test_an_idle_block_sends_nothing_twice(
    producer: Producer, consumer: confluent_kafka.Consumer, source: str
) -> None:
    with producer.transaction(consumer):
        take(consumer, 10)
    with producer.transaction(consumer) as idle:
        pass

    assert not idle._offsets.has_sent
    assert committed(consumer, source) == {0: 5, 1: 5}


def test_a_second_block_on_one_producer_is_refused_and_the_first_goes_on(
    bootstrap: str, producer: Producer, sink: str
) -> None:
    with producer.transaction() as t:
        with pytest.raises(RejectedError, match="open already"), producer.transaction():
            pass
        t.produce(sink, b"a")

    assert read_all(bootstrap, sink) == [b"a"]


def test_a_record_for_a_finished_block_is_refused(producer: Producer, sink: str) -> None:
    with producer.transaction() as t:
        pass

    with pytest.raises(RejectedError, match="transaction is over"):
        t.produce(sink, b"late")
    with pytest.raises(RejectedError, match="outside a transaction"):
        producer.produce(sink, b"late")


def test_a_record_that_is_too_large_keeps_a_block_that_caught_it_from_committing(
    bootstrap: str, producer: Producer, sink: str
) -> None:
    """The rest was committed, with the offsets of a consumer: the record was lost."""
    with pytest.raises(RejectedError, match="would be missing"), producer.transaction() as t:
        t.produce(sink, b"small")
        with pytest.raises(RejectedError, match="MSG_SIZE_TOO_LARGE"):
            t.produce(sink, b"x" * 2_000_000)
    with producer.transaction() as t:
        t.produce(sink, b"next")

    assert read_all(bootstrap, sink) == [b"next"]


def test_a_record_the_broker_refuses_aborts_the_block_and_is_named(
    bootstrap: str, producer: Producer, unique: Unique
) -> None:
    strict = unique("strict")
    create_topic(bootstrap, strict, max_message_bytes="1000")

    with pytest.raises(RejectedError, match=strict) as caught, producer.transaction() as t:
        t.produce(strict, b"small")
        t.produce(strict, b"x" * 5000)

    assert vars(caught.value)["topic"] == strict
    assert vars(caught.value)["partition"] == 0
    assert read_all(bootstrap, strict) == []


def test_a_zombie_is_fenced_and_stays_fenced(
    bootstrap: str, unique: Unique, sink: str, engine: EngineName
) -> None:
    name = unique("zombie")
    zombie = Producer(engine=engine, bootstrap_servers=bootstrap, transactional_id=name)
    with pytest.raises(FencedError, match=name) as caught, zombie.transaction() as t:
        t.produce(sink, b"by the zombie")
        successor = Producer(engine=engine, bootstrap_servers=bootstrap, transactional_id=name)
    with successor.transaction() as t:
        t.produce(sink, b"by the successor")

    assert caught.value.action is Action.GIVE_UP
    with pytest.raises(FencedError, match="can no longer be used; close it") as again:
        zombie.transaction().__enter__()
    assert again.value.action is Action.GIVE_UP
    assert read_all(bootstrap, sink) == [b"by the successor"]


def test_a_zombie_that_goes_on_producing_is_fenced_and_not_lost(
    bootstrap: str, unique: Unique, sink: str, engine: EngineName
) -> None:
    """librdkafka says "Fatal error" to each record then, and its cause elsewhere."""
    name = unique("zombie")
    zombie = Producer(engine=engine, bootstrap_servers=bootstrap, transactional_id=name)
    ends_s = time.monotonic() + WAIT_S
    with pytest.raises(FencedError, match=r"has been fenced|old epoch|PRODUCER_FENCED") as caught:
        produce_as_a_zombie(zombie, bootstrap, sink, until_s=ends_s)

    assert caught.value.action is Action.GIVE_UP
    assert caught.value.name == ("PRODUCER_FENCED" if engine == "native" else "_FENCED")


def produce_as_a_zombie(zombie: Producer, bootstrap: str, sink: str, *, until_s: float) -> None:
    with zombie.transaction() as t:
        t.produce(sink, b"x")
        zombie._handle.wait(WAIT_S)
        Producer(bootstrap_servers=bootstrap, transactional_id=zombie.transactional_id).close()
        while time.monotonic() < until_s:
            t.produce(sink, b"y")
            time.sleep(0.01)


def await_abort(bootstrap: str, topic: str) -> None:
    """Wait until the cluster has ended the transaction that holds readers of a topic back."""
    while True:
        last_stable, end = ends(bootstrap, topic)
        if 0 < last_stable == end:
            return


@pytest.mark.parametrize("then", ["commit", "produce"])
def test_a_transaction_that_outlived_its_timeout_is_told_with_both_numbers(
    bootstrap: str, unique: Unique, sink: str, then: str, engine: EngineName
) -> None:
    """The story: it was told as fenced by a newer instance, which nobody had started."""
    late = Producer(
        {"transaction.timeout.ms": 1000},
        engine=engine,
        bootstrap_servers=bootstrap,
        transactional_id=unique("a"),
    )
    with pytest.raises((AbortableError, FencedError)) as caught, late.transaction() as t:
        t.produce(sink, b"late")
        late._handle.wait(WAIT_S)
        await_abort(bootstrap, sink)
        if then == "produce":
            t.produce(sink, b"later")
            late._handle.wait(WAIT_S)

    told = caught.value
    assert isinstance(told, AbortableError | FencedError)
    assert told.timeout_ms == 1000
    assert told.open_ms is not None
    assert told.open_ms >= 1000
    assert "s, longer than transaction.timeout.ms=1000, so the cluster aborted it" in str(told)
    assert "raise transaction.timeout.ms" in str(told)
    assert told.action in (Action.ABORT_AND_REWIND, Action.REOPEN)
    assert read_all(bootstrap, sink) == []


def test_a_fatal_error_outlives_a_callback_that_handles_an_exception_of_its_own(
    bootstrap: str, unique: Unique, sink: str
) -> None:
    """The story: the call raised a SystemError without a cause, as the callback's replaced it."""

    def handle(_: str) -> None:
        with suppress(KeyError):
            raise KeyError

    late = Producer(
        {"transaction.timeout.ms": 1000, "statistics.interval.ms": 1, "stats_cb": handle},
        bootstrap_servers=bootstrap,
        engine="confluent-kafka",
        transactional_id=unique("a"),
    )
    outlive_timeout(late, bootstrap, sink)


def test_a_fatal_error_outlives_lines_of_the_log(bootstrap: str, unique: Unique, sink: str) -> None:
    """The story: the look for the logger's `log`, which only the object had, cleared the error."""
    late = Producer(
        {"transaction.timeout.ms": 1000, "debug": "eos,msg,broker,protocol"},
        bootstrap_servers=bootstrap,
        engine="confluent-kafka",
        transactional_id=unique("a"),
        logger=logging.getLogger("unheard"),
    )
    outlive_timeout(late, bootstrap, sink)


def outlive_timeout(late: Producer, bootstrap: str, sink: str) -> None:
    with (
        pytest.raises((AbortableError, FencedError), match=r"longer than transaction\.timeout\.ms"),
        late.transaction() as t,
    ):
        t.produce(sink, b"late")
        late._handle.wait(WAIT_S)
        await_abort(bootstrap, sink)
        t.produce(sink, b"later")
        late._handle.wait(WAIT_S)


def raise_after_timeout(late: Producer, bootstrap: str, sink: str) -> ZeroDivisionError:
    with pytest.raises(ZeroDivisionError) as caught, late.transaction() as t:
        t.produce(sink, b"late")
        late._handle.wait(WAIT_S)
        await_abort(bootstrap, sink)
        raise ZeroDivisionError
    return caught.value


def test_a_block_that_raises_after_its_timeout_notes_that_its_producer_is_lost(
    bootstrap: str, unique: Unique, sink: str
) -> None:
    """Version 1: librdkafka has no way to the new epoch of its producer."""
    late = Producer(
        {"transaction.timeout.ms": 1000},
        engine="confluent-kafka",
        bootstrap_servers=bootstrap,
        transactional_id=unique("a"),
    )
    raised = raise_after_timeout(late, bootstrap, sink)
    assert "longer than transaction.timeout.ms=1000, so the cluster" in raised.__notes__[0]


def test_a_native_producer_goes_on_after_a_block_that_raised_after_its_timeout(
    bootstrap: str, unique: Unique, sink: str
) -> None:
    """Version 2: its abort finds that the cluster has aborted, and begins the new epoch."""
    late = Producer(
        {"transaction.timeout.ms": 1000},
        engine="native",
        bootstrap_servers=bootstrap,
        transactional_id=unique("a"),
    )
    raised = raise_after_timeout(late, bootstrap, sink)
    assert not hasattr(raised, "__notes__")
    with late.transaction() as t:
        t.produce(sink, b"next")
    late.close()
    assert read_all(bootstrap, sink) == [b"next"]


def test_a_new_producer_aborts_what_its_predecessor_left_open(
    bootstrap: str, unique: Unique, sink: str, engine: EngineName
) -> None:
    name = unique("heir")
    predecessor = transactional_producer(bootstrap, name)
    predecessor.begin_transaction()
    send(predecessor, sink, [b"left open"])

    heir = Producer(engine=engine, bootstrap_servers=bootstrap, transactional_id=name)
    with heir.transaction() as t:
        t.produce(sink, b"mine")

    assert read_all(bootstrap, sink) == [b"mine"]


@pytest.mark.parametrize("kind", ["txn.Consumer", "confluent_kafka.Consumer"])
def test_a_block_aborts_when_a_rebalance_takes_away_what_it_has_read(
    bootstrap: str,
    producer: Producer,
    unique: Unique,
    source: str,
    sink: str,
    kind: str,
    engine: EngineName,
) -> None:
    group = unique("group")
    first = open_consumer(kind, bootstrap, group, engine)
    first.subscribe([source])
    second = open_consumer(kind, bootstrap, group, engine)

    with pytest.raises(AbortableError, match="partitions"), producer.transaction(first) as t:
        for value in take(first, 10):
            t.produce(sink, value)
        second.subscribe([source])
        share(first, second)
    with producer.transaction(first) as t:
        for value in take(first, 5):
            t.produce(sink, value)

    assert len(read_all(bootstrap, sink)) == 5
    assert sum(committed(first, source).values()) == 5
    second.close()
    first.close()


def test_a_rebalance_after_everything_was_committed_disturbs_nothing(
    bootstrap: str, producer: Producer, unique: Unique, source: str, sink: str, engine: EngineName
) -> None:
    group = unique("group")
    first = open_consumer("txn.Consumer", bootstrap, group, engine)
    second = open_consumer("txn.Consumer", bootstrap, group, engine)
    first.subscribe([source])
    with producer.transaction(first):
        take(first, 10)

    with producer.transaction(first) as t:
        t.produce(sink, b"a")
        second.subscribe([source])
        share(first, second)

    assert read_all(bootstrap, sink) == [b"a"]
    second.close()
    first.close()


def share(one: confluent_kafka.Consumer, other: confluent_kafka.Consumer) -> None:
    """Poll two members, reading nothing, until each has one of two partitions."""
    while not len(one.assignment()) == len(other.assignment()) == 1:
        for member in (one, other):
            message = member.poll(0.05)
            if message is not None:
                assert message.error() is None
                place = TopicPartition(str(message.topic()), int(message.partition() or 0))
                place.offset = message.offset() or 0
                member.seek(place)


def test_a_commit_by_a_member_that_was_left_behind_is_refused(
    bootstrap: str, producer: Producer, unique: Unique, source: str, sink: str, engine: EngineName
) -> None:
    consumer = open_consumer("txn.Consumer", bootstrap, unique("group"), engine)
    consumer.subscribe([source])
    member = _Departing(consumer)

    with pytest.raises(AbortableError, match="UNKNOWN_MEMBER_ID"), producer.transaction() as t:
        take(consumer, 10)
        t.produce(sink, b"x")
        t.send_offsets([TopicPartition(source, 0, 5)], member.leave())

    assert read_all(bootstrap, sink) == []


class _Departing:
    """A consumer that closes and still shows the metadata of when it was a member."""

    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer

    def leave(self) -> Any:
        metadata = self._consumer.consumer_group_metadata()
        self._consumer.close()
        self.consumer_group_metadata = lambda: metadata
        return self


def test_the_calls_of_confluent_kafkas_producer_tell_their_replacements(
    producer: Producer, sink: str
) -> None:
    old: Any = producer

    with pytest.raises(AttributeError, match="no 'poll': it polls by itself"):
        old.poll(0)
    with pytest.raises(AttributeError, match="use `with producer"):
        old.begin_transaction()
    with pytest.raises(AttributeError, match=r"has no 'pool'$"):
        old.pool(0)
    with pytest.raises(TypeError, match="'callback': a record that is not stored makes"):
        old.produce(sink, b"a", callback=print)
    with (
        producer.transaction() as t,
        pytest.raises(TypeError, match=r"call send\(topic, value, on"),
    ):
        cast("Any", t).produce(sink, b"a", on_delivery=print)


def test_without_a_transactional_id_flush_tells_what_was_not_stored(
    bootstrap: str, sink: str, unique: Unique, engine: EngineName
) -> None:
    strict = unique("strict")
    create_topic(bootstrap, strict, max_message_bytes="1000")
    producer = Producer(engine=engine, bootstrap_servers=bootstrap)

    producer.produce(sink, b"a")
    producer.flush()
    producer.produce(strict, b"x" * 5000)
    with pytest.raises(RejectedError, match=strict):
        producer.flush()
    producer.close()

    assert read_all(bootstrap, sink) == [b"a"]


def test_without_a_transactional_id_there_are_no_transactions(
    bootstrap: str, engine: EngineName
) -> None:
    producer = Producer(engine=engine, bootstrap_servers=bootstrap)

    with pytest.raises(ConfigError, match="transactional id"), producer.transaction():
        pass
    producer.close()


def test_ctrl_c_while_committing_tells_the_truth(
    bootstrap: str, producer: Producer, sink: str
) -> None:
    """The signal comes while librdkafka is inside its commit and swallows the answer."""
    block = producer.transaction()
    with pytest.raises(KeyboardInterrupt) as caught, block as t:
        t.produce(sink, b"a")
        handle = producer._handle
        handle.engine = _InterruptedCommit(handle.engine)

    assert "was committed" in caught.value.__notes__[0]
    assert read_all(bootstrap, sink) == [b"a"]


class _InterruptedCommit:
    """librdkafka's producer with a SIGINT that arrives during its first commit."""

    def __init__(self, real: ProducerEngine | None) -> None:
        assert real is not None
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit_transaction(self, timeout: float, /) -> None:
        self.commit_transaction = self._real.commit_transaction  # type: ignore[method-assign]
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()
        self._real.commit_transaction(timeout)


class _SignalAfterTaking(confluent_kafka.Consumer):
    """A consumer whose first poll takes a record and is interrupted before it returns it."""

    has_struck = False

    def poll(self, timeout: float = -1) -> confluent_kafka.Message | None:
        message = super().poll(timeout)
        if message is not None and not self.has_struck:
            self.has_struck = True
            raise KeyboardInterrupt
        return message


class _Interrupted(Consumer, _SignalAfterTaking):
    pass


@pytest.fixture
def interrupted(bootstrap: str, unique: Unique, source: str) -> Iterator[Consumer]:
    made = _Interrupted(
        bootstrap_servers=bootstrap, group_id=unique("group"), auto_offset_reset="earliest"
    )
    made.subscribe([source])
    yield made
    made.close()


def test_a_record_that_ctrl_c_swallowed_in_a_block_is_read_again(
    producer: Producer, interrupted: Consumer
) -> None:
    """The first record of a partition was lost: nobody had seen it, so nothing was rewound."""
    with pytest.raises(KeyboardInterrupt), producer.transaction(interrupted):
        interrupted.poll(WAIT_S)

    assert sorted(take(interrupted, 10)) == [b"%d" % n for n in range(10)]


def test_a_record_that_ctrl_c_swallowed_before_a_block_is_not_committed_by_it(
    producer: Producer, interrupted: Consumer, source: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted.poll(WAIT_S)

    with pytest.raises(AbortableError, match="swallowed"), producer.transaction(interrupted):
        take(interrupted, 9)

    assert committed(interrupted, source) == {}
    assert sorted(take(interrupted, 10)) == [b"%d" % n for n in range(10)]
