"""`txn.Producer(engine="native")`: what it has beyond the suite that both engines pass."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

import txn
from support.wire_client import RawConnection
from txn.client.group_metadata import read_place
from txn.testing import TestBroker
from txn.wire.api_keys import ApiKey

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
    topic = broker.create_topic()
    with native.transaction(consumer) as t:
        [message] = consumer.consume(1, 60)
        t.produce(topic, message.value())
    assert broker.committed(consumer.group_id) == {("in", 0): 1}
    assert len(broker.records(topic)) == 1


def test_offsets_that_replace_others_on_their_way_are_the_ones_committed(
    broker: TestBroker, native: txn.Producer, consumer: txn.Consumer
) -> None:
    """The late answer to the first offsets counted as that to the later ones, never sent."""
    broker.produce("in", b"2")
    with native.transaction() as t:
        read = 0
        while read < 2:
            read += len(consumer.consume(2, 60))
        held = broker.hold_answer("TxnOffsetCommit")
        with pytest.raises(txn.RetriableError):
            t.send_offsets([TopicPartition("in", 0, 1)], consumer, timeout=1)
        held.release()
        t.send_offsets([TopicPartition("in", 0, 2)], consumer)
    assert broker.committed(consumer.group_id) == {("in", 0): 2}


def test_offsets_are_committed_with_their_metadata_and_leader_epoch(
    broker: TestBroker, native: txn.Producer, consumer: txn.Consumer
) -> None:
    with native.transaction() as t:
        assert consumer.consume(1, 60)
        mine = TopicPartition("in", 0, 1, metadata="mine", leader_epoch=0)
        t.send_offsets([mine], consumer)
    # Asked for by hand: confluent-kafka writes and reads a text with bytes of memory behind it.
    wanted = [{"name": "in", "partition_indexes": [0]}]
    with RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.ask(
            ApiKey.OFFSET_FETCH, 7, group_id=consumer.group_id, topics=wanted, require_stable=True
        )
    [stored] = answer.topics[0].partitions
    assert stored.committed_offset == 1
    assert (stored.metadata, stored.committed_leader_epoch) == ("mine", 0)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_that_the_topic_does_not_take_is_split(broker: TestBroker, codec: str) -> None:
    topic = broker.create_topic(f"split-{codec}", partitions=1, max_message_bytes=2_000)
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=200,
        compression_type=codec,
        engine="native",
    ) as producer:
        sent = [
            producer.send(topic, os.urandom(100), key=b"%d" % n, headers={"n": b"%d" % n})
            for n in range(200)
        ]
        assert [each.result(60).offset for each in sent] == list(range(200))
    records = broker.records(topic)
    assert [record.key for record in records] == [b"%d" % number for number in range(200)]
    assert [record.headers for record in records] == [(("n", b"%d" % n),) for n in range(200)]


def test_a_commit_stands_although_the_next_epoch_is_refused() -> None:
    """Version 1 takes a new epoch after a lost answer; by then another instance had the id."""
    with TestBroker() as broker:
        servers = broker.bootstrap_servers
        lower = {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": 2}
        with RawConnection(servers) as connection:
            connection.ask(
                ApiKey.UPDATE_FEATURES,
                1,
                timeout=10_000,
                feature_updates=[lower],
                validate_only=False,
            )
        broker.create_topic("t")
        with txn.Producer(bootstrap_servers=servers, transactional_id="p", engine="native") as old:
            broker.lose_answer("AddPartitionsToTxn")
            held = broker.hold("InitProducerId")

            def take_over() -> None:
                held.wait()
                txn.Producer(bootstrap_servers=servers, transactional_id="p").close()
                held.release()

            successor = threading.Thread(target=take_over)
            successor.start()
            with old.transaction() as t:
                t.produce("t", b"1")
            successor.join()
            assert [record.value for record in broker.records("t")] == [b"1"]
            with pytest.raises(txn.FencedError):
                old.transaction().__enter__()


def test_records_of_a_producer_that_was_dropped_are_stored(broker: TestBroker) -> None:
    topic = broker.create_topic("dropped")
    producer = txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=200, engine="native"
    )
    for number in range(10):
        producer.produce(topic, b"%d" % number)
    del producer
    gc.collect()
    records = broker.wait_for_records(topic, 10)
    assert [record.value for record in records] == [b"%d" % number for number in range(10)]


def test_no_batch_is_larger_than_the_largest_message(broker: TestBroker) -> None:
    topic = broker.create_topic("narrow", max_message_bytes=100_000)
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        message_max_bytes=100_000,
        linger_ms=100,
        engine="native",
    ) as producer:
        for _ in range(500):
            producer.produce(topic, b"." * 1_000)
    assert len(broker.records(topic)) == 500


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


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("on_delivery", r"give on_delivery= to send\(\)"),
        ("error_cb", "a call raises the errors that concern it"),
        ("stats_cb", "it has no statistics"),
        ("throttle_cb", "a broker over its quota answers later"),
    ],
)
def test_a_callback_is_refused_with_what_to_do_and_the_engine_that_has_it(
    name: str, instead: str
) -> None:
    callback: dict[str, object] = {name: print}
    with pytest.raises(txn.ConfigError, match=rf"{name}.*{instead}.*engine='confluent-kafka'"):
        txn.Producer(callback, bootstrap_servers="h:1", engine="native")


def test_a_property_of_librdkafka_alone_is_refused_by_its_name() -> None:
    with pytest.raises(txn.ConfigError, match=r"knows no property 'linger\.mz'.*linger\.ms"):
        txn.Producer({"linger.mz": 1}, bootstrap_servers="h:1", engine="native")


@pytest.mark.parametrize(
    ("name", "value"), [("request.timeout.ms", 0), ("batch.size", 0), ("linger.ms", "inf")]
)
def test_a_number_that_does_not_fit_is_refused_with_its_least_value(
    name: str, value: object
) -> None:
    with pytest.raises(txn.ConfigError, match=f"{name}={value} is no whole number from [01] on"):
        txn.Producer({name: value}, bootstrap_servers="h:1", engine="native")


def test_an_engine_that_does_not_exist_is_refused_with_those_that_do() -> None:
    name: object = "java"
    with pytest.raises(txn.ConfigError, match="'confluent-kafka', 'native'"):
        txn.Producer(bootstrap_servers="h:1", engine=name)  # type: ignore[arg-type]


def test_the_place_of_a_consumer_in_its_group_is_read_from_its_metadata(
    broker: TestBroker, consumer: txn.Consumer
) -> None:
    assert consumer.consume(1, 60)
    group, generation, member, instance = read_place(consumer.consumer_group_metadata())
    assert (group, member, instance) == (consumer.group_id, consumer.memberid(), None)
    assert generation > 0
    assert consumer.position([TopicPartition("in", 0)])[0].offset == 1
