"""`txn.Producer(engine="native")`: what it has beyond the suite that both engines pass."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

import txn
from txn.client.native import group_member
from txn.testing import TestBroker

PROGRAM_S = 120.0

IN_A_FORK = """\
import os, sys, txn

servers = sys.argv[1]
with txn.Producer(bootstrap_servers=servers, transactional_id="parent", engine="native") as parent:
    with parent.transaction() as t:
        t.produce("forked", b"before")
    child = os.fork()
    if child == 0:
        try:
            with parent.transaction() as t:
                t.produce("forked", b"of nobody")
        except txn.ForkedError:
            pass
        with txn.Producer(
            bootstrap_servers=servers, transactional_id="child", engine="native"
        ) as own, own.transaction() as t:
            t.produce("forked", b"child")
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with parent.transaction() as t:
        t.produce("forked", b"after")
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        made.produce("in", b"1")
        yield made


@pytest.fixture
def native(broker: TestBroker) -> Iterator[txn.Producer]:
    servers = broker.bootstrap_servers
    with txn.Producer(bootstrap_servers=servers, transactional_id="n", engine="native") as made:
        yield made


def test_a_block_commits_and_one_that_raises_leaves_nothing(
    broker: TestBroker, native: txn.Producer
) -> None:
    topic = broker.create_topic("blocks", partitions=3)
    for number in range(3):
        with native.transaction() as t:
            for partition in range(3):
                t.produce(topic, b"%d" % number, key=b"k", partition=partition)
        with pytest.raises(ZeroDivisionError), native.transaction() as t:
            t.produce(topic, b"never")
            raise ZeroDivisionError
    values = sorted(record.value or b"" for record in broker.records(topic))
    assert values == sorted([b"0", b"1", b"2"] * 3)


def test_offsets_are_committed_with_the_block(
    broker: TestBroker, native: txn.Producer, consumer: txn.Consumer
) -> None:
    topic = broker.create_topic("copies")
    with native.transaction(consumer) as t:
        [message] = consumer.consume(1, 60)
        t.produce(topic, message.value())
    assert broker.committed(consumer.group_id) == {("in", 0): 1}
    assert len(broker.records(topic)) == 1


def test_both_engines_put_a_key_into_the_same_partition(
    broker: TestBroker, native: txn.Producer
) -> None:
    topic = broker.create_topic("keys", partitions=7)
    keys = [b"", b"a", b"21", "ü".encode(), bytes(range(40))]
    servers = broker.bootstrap_servers
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id="o") as other,
        other.transaction() as mine,
        native.transaction() as t,
    ):
        for key in keys:
            mine.produce(topic, b"librdkafka", key=key)
            t.produce(topic, b"native", key=key)
    places: dict[bytes | None, set[int]] = {}
    for record in broker.records(topic):
        places.setdefault(record.key, set()).add(record.partition)
    assert [len(places[key]) for key in keys] == [1] * len(keys)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_are_read_as_they_were_written_with_every_codec(
    broker: TestBroker, codec: str
) -> None:
    topic = broker.create_topic(f"codec-{codec}")
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, compression_type=codec, engine="native"
    ) as producer:
        for number in range(500):
            producer.produce(
                topic, f"value {number}", key=str(number), headers={"h": b"x", "none": None}
            )
    records = broker.records(topic)
    assert [record.value for record in records] == [b"value %d" % n for n in range(500)]
    assert records[7].headers == (("h", b"x"), ("none", None))


def test_a_small_buffer_makes_produce_wait_and_loses_nothing(broker: TestBroker) -> None:
    topic = broker.create_topic("small-buffer")
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        buffer_memory=20_000,
        batch_size=2_000,
        engine="native",
    ) as producer:
        for number in range(2_000):
            producer.produce(topic, b"%06d" % number + b"." * 100)
    values = [record.value or b"" for record in broker.records(topic)]
    assert [int(value[:6]) for value in values] == list(range(2_000))


def test_an_answer_that_is_lost_neither_doubles_nor_loses_a_record(broker: TestBroker) -> None:
    topic = broker.create_topic("lost-answers")
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="lost", engine="native"
    ) as producer:
        for number, api in enumerate(("Produce", "EndTxn", "TxnOffsetCommit", "Produce")):
            if api != "TxnOffsetCommit":
                broker.lose_answer(api)
            with producer.transaction() as t:
                t.produce(topic, b"%d" % number)
    assert [record.value for record in broker.records(topic)] == [b"0", b"1", b"2", b"3"]


def test_ctrl_c_ends_a_wait_for_a_broker_that_is_silent(broker: TestBroker) -> None:
    topic = broker.create_topic("silent")
    producer = txn.Producer(bootstrap_servers=broker.bootstrap_servers, engine="native")
    producer.produce(topic, b"first")
    producer.flush()
    broker.pause()
    try:
        producer.produce(topic, b"second")
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            producer.flush(60.0)
        timer.join()
    finally:
        broker.resume()
    producer.close()
    assert [record.value for record in broker.records(topic)] == [b"first", b"second"]


def test_a_forked_child_opens_a_producer_of_its_own(broker: TestBroker) -> None:
    broker.create_topic("forked")
    command = [sys.executable, "-c", IN_A_FORK, broker.bootstrap_servers]
    subprocess.run(command, check=True, timeout=PROGRAM_S)
    values = [record.value for record in broker.records("forked")]
    assert values == [b"before", b"child", b"after"]


def test_a_callback_is_refused_with_the_engine_that_has_it() -> None:
    with pytest.raises(txn.ConfigError, match=r"on_delivery.*engine='confluent-kafka'"):
        txn.Producer(bootstrap_servers="h:1", engine="native", on_delivery=print)


def test_a_property_of_librdkafka_alone_is_refused_by_its_name() -> None:
    with pytest.raises(txn.ConfigError, match=r"knows no property 'linger\.mz'.*linger\.ms"):
        txn.Producer({"linger.mz": 1}, bootstrap_servers="h:1", engine="native")


def test_an_engine_that_does_not_exist_is_refused_with_those_that_do() -> None:
    name: object = "java"
    with pytest.raises(txn.ConfigError, match="'confluent-kafka', 'native'"):
        txn.Producer(bootstrap_servers="h:1", engine=name)  # type: ignore[arg-type]


def test_the_place_of_a_consumer_in_its_group_is_read_from_its_metadata(
    broker: TestBroker, consumer: txn.Consumer
) -> None:
    assert consumer.consume(1, 60)
    group, generation, member, instance = group_member(consumer.consumer_group_metadata())
    assert (group, member, instance) == (consumer.group_id, consumer.memberid(), None)
    assert generation > 0
    assert consumer.position([TopicPartition("in", 0)])[0].offset == 1
