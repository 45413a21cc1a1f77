"""`send` of a producer and of a block returns a delivery, with both engines."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

import txn
from txn.client.engine import EngineName
from txn.client.reports import IDLE_SECONDS
from txn.testing import TestBroker

WAIT_S = 30.0
PROGRAM_S = 120.0

IN_A_FORK = """\
import os, sys, txn

servers, engine, topic = sys.argv[1:]
producer = txn.Producer(bootstrap_servers=servers, linger_ms=30000, engine=engine)
delivery = producer.send(topic, b"1")
child = os.fork()
if child == 0:
    try:
        delivery.result(1)
    except txn.ForkedError:
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
producer.close()
assert delivery.result(0).offset == 0
"""

ENDS_AT_ONCE = """\
import sys, txn

servers, engine = sys.argv[1:]
producer = txn.Producer(bootstrap_servers=servers, engine=engine)
producer.send("ended", b"1", on_delivery=lambda error, metadata: print(error, metadata.offset))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        yield made


@pytest.fixture
def plain(broker: TestBroker, engine: EngineName) -> Iterator[txn.Producer]:
    with txn.Producer(bootstrap_servers=broker.bootstrap_servers, engine=engine) as made:
        yield made


def has_thread() -> bool:
    return any(thread.name == "txn-deliveries" for thread in threading.enumerate())


def test_a_delivery_has_the_place_and_the_time_of_its_record(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"places-{engine}", partitions=2)
    sent = [
        plain.send(topic, b"%d" % number, partition=1, timestamp=1_700_000_000_000 + number)
        for number in range(20)
    ]
    places = [delivery.result(WAIT_S) for delivery in sent]
    assert places == [
        txn.RecordMetadata(topic, 1, number, 1_700_000_000_000 + number) for number in range(20)
    ]
    assert all(delivery.done() and delivery.exception() is None for delivery in sent)


def test_records_without_a_delivery_count_in_the_offsets_of_their_batch(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"mixed-{engine}", partitions=1)
    sent = []
    for number in range(30):
        plain.produce(topic, b"of nobody")
        sent.append(plain.send(topic, b"%d" % number))
    plain.flush()
    records = broker.records(topic)
    assert [records[delivery.result(0).offset].value for delivery in sent] == [
        b"%d" % number for number in range(30)
    ]


def test_the_time_is_the_brokers_where_the_topic_says_so(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"append-time-{engine}", message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    metadata = plain.send(topic, b"1", timestamp=1_600_000_000_000).result(WAIT_S)
    assert before_ms - 1 <= metadata.timestamp <= int(time.time() * 1000) + 1


def test_a_record_of_a_block_has_its_offset_before_the_commit(
    broker: TestBroker, producer: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"in-a-block-{engine}", partitions=1)
    with producer.transaction() as t:
        assert t.send(topic, b"1").result(WAIT_S).offset == 0
        assert broker.records(topic) == []
        last = t.send(topic, b"2")
    assert last.done()
    assert last.result(0).offset == 1
    assert [record.value for record in broker.records(topic)] == [b"1", b"2"]


def test_a_record_that_an_abort_drops_fails_with_the_advice_to_begin_another(
    broker: TestBroker, engine: EngineName
) -> None:
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id="drops",
        allow_auto_create_topics=False,
        engine=engine,
    ) as producer:
        # An abort waits for a first record to be stored, for at most the block's timeout.
        with pytest.raises(ZeroDivisionError), producer.transaction(timeout=0.5) as t:
            dropped = t.send("absent", b"never")
            raise ZeroDivisionError
        error = dropped.exception(WAIT_S)
    assert isinstance(error, txn.AbortableError)
    assert error.topic == "absent"
    assert "its transaction was aborted. Begin another" in str(error)


def test_a_callback_is_called_once_from_a_thread_although_the_program_does_nothing(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"callbacks-{engine}", partitions=1)
    called: list[tuple[txn.TxnError | None, txn.RecordMetadata | None]] = []
    is_called = threading.Event()

    def note(error: txn.TxnError | None, metadata: txn.RecordMetadata | None) -> None:
        called.append((error, metadata))
        is_called.set()

    delivery = plain.send(topic, b"1", on_delivery=note)
    assert is_called.wait(WAIT_S)
    plain.flush()
    assert called == [(None, delivery.result(0))]

    late: list[txn.Delivery] = []
    delivery.add_done_callback(late.append)
    assert late == [delivery]


def test_deliveries_are_awaited_in_asyncio(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"awaited-{engine}", partitions=1)

    async def send_all() -> list[int]:
        sent = [plain.send(topic, b"%d" % number) for number in range(50)]
        return [(await delivery).offset for delivery in sent]

    assert asyncio.run(send_all()) == list(range(50))


def test_an_await_that_is_cancelled_leaves_the_delivery_usable(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = broker.create_topic(f"cancelled-{engine}", partitions=1)
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=30_000, engine=engine
    ) as producer:
        delivery = producer.send(topic, b"1")

        async def give_up() -> None:
            async with asyncio.timeout(0.01):
                await delivery

        with pytest.raises(TimeoutError):
            asyncio.run(give_up())
        producer.flush()
        assert delivery.result(0).offset == 0


def test_a_time_out_says_that_the_record_is_still_on_its_way(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"late-{engine}", partitions=1)
    plain.send(topic, b"0").result(WAIT_S)
    broker.pause()
    try:
        delivery = plain.send(topic, b"1")
        with pytest.raises(txn.RetriableError, match=r"no answer for a record after 0\.05 s"):
            delivery.result(0.05)
        assert not delivery.done()
    finally:
        broker.resume()
    assert delivery.result(WAIT_S).offset == 1


def test_a_refused_record_fails_in_its_delivery_and_is_not_raised_again_by_flush(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"small-{engine}", partitions=1, max_message_bytes=1_000)
    refused = plain.send(topic, b"." * 5_000)
    with pytest.raises(txn.RejectedError, match=r"5000 bytes.*max\.message\.bytes of the topic"):
        refused.result(WAIT_S)
    plain.flush()


def test_a_refused_record_whose_delivery_nobody_has_asked_is_raised_by_flush(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"small-too-{engine}", partitions=1, max_message_bytes=1_000)
    plain.send(topic, b"." * 5_000)
    with pytest.raises(txn.RejectedError, match="5000 bytes"):
        plain.flush()


def test_a_block_fails_with_its_record_whoever_has_asked_the_delivery(
    broker: TestBroker, producer: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"small-block-{engine}", partitions=1, max_message_bytes=1_000)
    with (
        pytest.raises(txn.RejectedError, match="record of 5000 bytes"),
        producer.transaction() as t,
    ):
        assert isinstance(t.send(topic, b"." * 5_000).exception(WAIT_S), txn.RejectedError)


def test_offsets_behind_a_refused_record_raise_the_error_of_the_record(
    broker: TestBroker, producer: txn.Producer, engine: EngineName
) -> None:
    """It was "Erroneous state" with the advice to begin another, or an error without the record."""
    topic = broker.create_topic(f"small-offsets-{engine}", partitions=1, max_message_bytes=1_000)
    servers = broker.bootstrap_servers
    with (
        txn.Consumer(bootstrap_servers=servers, group_id="offsets") as consumer,
        pytest.raises(txn.RejectedError, match="record of 5000 bytes"),
        producer.transaction() as t,
    ):
        assert t.send(topic, b"." * 5_000).exception(WAIT_S) is not None
        t.send_offsets([TopicPartition("in", 0, 1)], consumer)


def test_a_callback_that_raises_is_logged_and_the_next_one_is_called(
    broker: TestBroker, plain: txn.Producer, engine: EngineName, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create_topic(f"raises-{engine}", partitions=1)
    delivery = plain.send(topic, b"1", on_delivery=lambda *_: 1 // 0)
    with caplog.at_level(logging.ERROR, "txn.client"):
        assert delivery.result(WAIT_S).offset == 0
        assert plain.send(topic, b"2").result(WAIT_S).offset == 1
    assert "A callback of a delivery of the producer raised" in caplog.text


def test_a_callback_that_waits_for_another_delivery_is_refused(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"waits-{engine}", partitions=1)
    told: list[BaseException] = []
    is_told = threading.Event()

    def wait(delivery: txn.Delivery) -> None:
        try:
            plain.send(topic, b"2").result(WAIT_S)
        except txn.RejectedError as error:
            told.append(error)
        is_told.set()

    plain.send(topic, b"1").add_done_callback(wait)
    assert is_told.wait(WAIT_S)
    assert "Add a callback to that one instead" in str(told[0])


def test_many_threads_wait_for_deliveries_of_one_producer(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"threads-{engine}", partitions=1)
    offsets: list[int] = []

    def send() -> None:
        for _ in range(25):
            offsets.append(plain.send(topic, b"x").result(WAIT_S).offset)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(100))


def test_closing_a_producer_ends_the_deliveries_that_it_gives_up(
    broker: TestBroker, engine: EngineName
) -> None:
    topic = broker.create_topic(f"given-up-{engine}", partitions=1)
    producer = txn.Producer(bootstrap_servers=broker.bootstrap_servers, engine=engine)
    producer.send(topic, b"0").result(WAIT_S)
    broker.pause()
    try:
        delivery = producer.send(topic, b"1")
        with pytest.raises(txn.RetriableError):
            producer.close(timeout=0.1)
        with pytest.raises(txn.RetriableError, match="closed before a record was known"):
            delivery.result(0)
    finally:
        broker.resume()


def test_the_thread_that_collects_reports_ends_when_there_is_nothing_to_wait_for(
    broker: TestBroker, plain: txn.Producer, engine: EngineName
) -> None:
    topic = broker.create_topic(f"idle-{engine}", partitions=1)
    unawaited = plain.send(topic, b"1")
    plain.flush()
    assert unawaited.done()
    deadline = time.monotonic() + WAIT_S
    while has_thread() and time.monotonic() < deadline:  # of the tests before
        time.sleep(IDLE_SECONDS / 10)
    assert not has_thread()
    plain.send(topic, b"2").result(WAIT_S)
    assert has_thread()
    while has_thread() and time.monotonic() < deadline:
        time.sleep(IDLE_SECONDS / 10)
    assert not has_thread()
    assert plain.send(topic, b"3").result(WAIT_S).offset == 2


def test_a_delivery_is_of_no_use_in_a_forked_child(broker: TestBroker, engine: EngineName) -> None:
    topic = broker.create_topic(f"forked-{engine}", partitions=1)
    command = [sys.executable, "-c", IN_A_FORK, broker.bootstrap_servers, engine, topic]
    subprocess.run(command, check=True, timeout=PROGRAM_S)


def test_a_program_that_ends_with_a_delivery_on_its_way_hears_of_it(
    broker: TestBroker, engine: EngineName
) -> None:
    command = [sys.executable, "-c", ENDS_AT_ONCE, broker.bootstrap_servers, engine]
    done = subprocess.run(
        command, check=True, timeout=PROGRAM_S, capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.startswith("None ")


def test_a_producer_that_hears_of_errors_only_refuses_to_send(broker: TestBroker) -> None:
    settings = {"delivery.report.only.error": True}
    with (
        txn.Producer(
            settings, bootstrap_servers=broker.bootstrap_servers, engine="confluent-kafka"
        ) as producer,
        pytest.raises(txn.ConfigError, match="leave that out, or use produce"),
    ):
        producer.send("in", b"1")


def test_a_transactional_producer_sends_inside_its_blocks_alone(producer: txn.Producer) -> None:
    with pytest.raises(txn.RejectedError, match=r"t\.send"):
        producer.send("in", b"1")
