"""`txn.Consumer(engine="native")`: reading, positions, offsets and columns."""

import sys
import threading
import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)

import txn
from txn.testing import TestBroker

WAIT_S = 30.0

Open = Callable[..., txn.Consumer]


@pytest.fixture
def topic(broker: TestBroker) -> str:
    return broker.create_topic(f"t-{uuid.uuid4().hex[:8]}", partitions=2)


@pytest.fixture
def opened(broker: TestBroker) -> Iterator[Open]:
    made: list[txn.Consumer] = []

    def open_one(**settings: object) -> txn.Consumer:
        more: dict[str, object] = {
            "group_id": uuid.uuid4().hex,
            "auto_offset_reset": "earliest",
            **settings,
        }
        consumer = txn.Consumer(
            {str(name).replace("_", "."): value for name, value in more.items()},
            bootstrap_servers=broker.bootstrap_servers,
            engine="native",
        )
        made.append(consumer)
        return consumer

    yield open_one
    for consumer in made:
        consumer.close()


def values_of(consumer: txn.Consumer, count: int) -> list[bytes]:
    messages = consumer.consume(count, WAIT_S)
    assert len(messages) == count
    return [message.value() or b"" for message in messages]


def test_it_is_a_consumer_of_both_classes(opened: Open) -> None:
    consumer = opened()
    assert isinstance(consumer, txn.Consumer)
    assert isinstance(consumer, confluent_kafka.Consumer)
    assert consumer.engine == "native"


def test_a_record_has_what_confluent_kafkas_has(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    servers = broker.bootstrap_servers
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id="r") as producer,
        producer.transaction() as t,
    ):
        headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", None)]
        t.produce(topic, b"v", key=b"k", headers=headers, partition=1, timestamp=5)
        t.produce(topic, None, partition=1)
    seen = []
    for consumer in (opened(), None):
        reader = consumer or txn.Consumer(
            bootstrap_servers=servers, group_id="other", auto_offset_reset="earliest"
        )
        reader.assign([TopicPartition(topic, 1, 0)])
        first, second = reader.consume(2, WAIT_S)
        parts = (first.topic(), first.partition(), first.offset(), first.key(), first.value())
        more = (first.headers(), first.timestamp(), first.leader_epoch(), first.error())
        seen.append((parts, more, len(first), second.key(), second.value(), second.headers()))
        if consumer is None:
            reader.close()
    assert seen[0] == seen[1]
    assert seen[0][1][0] == [("a", b"1"), ("b", None)]


def test_records_of_aborted_transactions_and_markers_are_not_handed_out(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
    )
    producer.init_transactions(WAIT_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(WAIT_S)  # the records of an abort are in the log, too
        if number % 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
    assert len(broker.records(topic, isolation="read_uncommitted")) == 6
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    assert values_of(consumer, 3) == [b"0", b"2", b"4"]
    assert consumer.poll(0.1) is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(broker: TestBroker, topic: str, opened: Open, codec: str) -> None:
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, compression_type=codec
    ) as producer:
        for number in range(50):
            producer.produce(topic, b"%03d" % number * 20, partition=0)
        producer.flush(WAIT_S)
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0, 10)])
    assert values_of(consumer, 40) == [b"%03d" % number * 20 for number in range(10, 50)]


def test_a_batch_that_opens_to_too_much_is_an_error(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, compression_type="gzip"
    ) as producer:
        producer.produce(topic, b"0" * 100_000, partition=0)
        producer.flush(WAIT_S)
    consumer = opened(fetch_batch_bytes=1_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    with pytest.raises(txn.TxnError, match=r"fetch\.batch\.bytes.*seek to offset 1"):
        consumer.poll(WAIT_S)


def test_a_seek_goes_to_any_offset_and_drops_what_was_fetched(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, *"0123456789", partition=0)
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    assert values_of(consumer, 2) == [b"0", b"1"]
    consumer.seek(TopicPartition(topic, 0, 7))
    assert values_of(consumer, 3) == [b"7", b"8", b"9"]
    consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert values_of(consumer, 1) == [b"0"]
    consumer.assign([TopicPartition(topic, 0, -2002)])
    assert values_of(consumer, 2) == [b"8", b"9"]
    consumer.seek(TopicPartition(topic, 0, OFFSET_END))
    assert consumer.poll(0.3) is None
    with pytest.raises(KafkaException, match="not assigned"):
        consumer.seek(TopicPartition(topic, 1, 0))


def test_a_paused_partition_hands_out_nothing_until_it_is_resumed(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, *"01", partition=0)
    broker.produce(topic, *"ab", partition=1)
    consumer = opened()
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer.assign(both)
    consumer.pause(both[:1])
    assert values_of(consumer, 2) == [b"a", b"b"]
    assert consumer.poll(0.1) is None
    consumer.resume(both[:1])
    assert values_of(consumer, 2) == [b"0", b"1"]


def test_positions_commits_and_committed_offsets_agree(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, *"0123", partition=0)
    consumer = opened()
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    assert consumer.committed([place], WAIT_S)[0].offset < 0
    values_of(consumer, 3)
    assert consumer.position([place])[0].offset == 3
    consumer.commit(asynchronous=False)
    assert consumer.committed([place], WAIT_S)[0].offset == 3
    assert broker.committed(consumer.group_id) == {(topic, 0): 3}
    again = opened(group_id=consumer.group_id)
    again.assign([place])
    assert values_of(again, 1) == [b"3"]


def test_offsets_are_found_by_time_and_at_both_ends(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    servers = broker.bootstrap_servers
    with txn.Producer(bootstrap_servers=servers) as producer:
        for at in (1_000, 2_000, 3_000):
            producer.produce(topic, b"v", partition=0, timestamp=at)
        producer.flush(WAIT_S)
    consumer = opened()
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 3)
    wanted = [TopicPartition(topic, 0, 1_500), TopicPartition(topic, 1, 0)]
    found = consumer.offsets_for_times(wanted, WAIT_S)
    assert [(p.partition, p.offset) for p in found] == [(0, 1), (1, OFFSET_END)]
    assert set(consumer.list_topics(topic, WAIT_S).topics[topic].partitions) == {0, 1}


def test_an_offset_that_is_gone_is_an_error_if_the_settings_say_so(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, "0", partition=0)
    consumer = opened(auto_offset_reset="error")
    consumer.assign([TopicPartition(topic, 0, 100)])
    with pytest.raises(txn.TxnError, match="offset 100 is not in the log"):
        consumer.poll(WAIT_S)


def test_a_partition_that_is_not_there_is_an_error(opened: Open, topic: str) -> None:
    consumer = opened()
    consumer.assign([TopicPartition(topic, 9, 0)])
    with pytest.raises(txn.RetriableError, match="partition 9"):
        consumer.poll(WAIT_S)


def test_columns_have_the_same_records(broker: TestBroker, topic: str, opened: Open) -> None:
    servers = broker.bootstrap_servers
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id="c") as producer,
        producer.transaction() as t,
    ):
        t.produce(topic, b"v0", key=b"k", headers=[("h", b"1")], partition=0, timestamp=7)
        t.produce(topic, None, partition=0, timestamp=8)
        t.produce(topic, b"v2", partition=0, timestamp=9)
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    first = consumer.poll_arrow(2, WAIT_S)
    assert first is not None
    first.validate(full=True)
    assert first.column("value").to_pylist() == [b"v0", None]
    assert first.column("key").to_pylist() == [b"k", None]
    assert first.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}], []]
    assert first.column("topic").to_pylist() == [topic, topic]
    assert first.column("offset").to_pylist() == [0, 1]
    assert first.column("partition").to_pylist() == [0, 0]
    assert [at.timestamp() for at in first.column("timestamp").to_pylist()] != []
    second = consumer.poll_arrow(100, WAIT_S)
    assert second is not None
    assert second.column("value").to_pylist() == [b"v2"]
    assert consumer.poll_arrow(100, 0.1) is None


def test_columns_are_awaited_for_the_whole_time_out(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    """It was over after a second, a slice of the wait, so a new group got nothing."""
    consumer = opened()
    consumer.assign([TopicPartition(topic, 0)])
    late = threading.Timer(1.5, broker.produce, (topic, "late"), {"partition": 0})
    late.start()
    batch = consumer.poll_arrow(1, WAIT_S)
    late.join()
    assert batch is not None
    assert batch.column("value").to_pylist() == [b"late"]


def test_columns_and_a_transaction_commit_the_same_position(
    broker: TestBroker, topic: str, opened: Open
) -> None:
    broker.produce(topic, *"0123", partition=0)
    consumer = opened()
    consumer.subscribe([topic])
    with (
        txn.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer,
        producer.transaction(consumer),
    ):
        rows = 0
        while rows < 4:
            batch = consumer.poll_arrow(3, WAIT_S)
            rows += 0 if batch is None else batch.num_rows
    assert broker.committed(consumer.group_id)[topic, 0] == 4


def test_columns_are_of_the_native_engine_alone(broker: TestBroker) -> None:
    with (
        txn.Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="p", engine="confluent-kafka"
        ) as consumer,
        pytest.raises(txn.ConfigError, match="engine='native'"),
    ):
        consumer.poll_arrow(1, 0)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"group.protocol": "streams"}, "group.protocol"),
        ({"partition.assignment.strategy": "sticky"}, "partition.assignment.strategy"),
        ({"group.remote.assignor": "uniform"}, "group.remote.assignor"),
        ({"client.rack": "a"}, "client.rack"),
        ({"auto.offset.reset": "middle"}, "auto.offset.reset"),
        ({"fetch.max.bytes": 0}, "fetch.max.bytes"),
        ({"stats_cb": print}, "stats_cb"),
    ],
)
def test_a_setting_that_the_engine_does_not_have_is_refused(
    settings: dict[str, object], name: str
) -> None:
    with pytest.raises(txn.ConfigError) as raised:
        txn.Consumer(settings, bootstrap_servers="127.0.0.1:1", group_id="g", engine="native")
    assert raised.value.property == name


def test_a_wrong_address_is_an_error_within_seconds() -> None:
    with txn.Consumer(
        bootstrap_servers="127.0.0.1:1", group_id="g", engine="native", connect_timeout=0.5
    ) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(txn.UnreachableError):
            consumer.poll(WAIT_S)


def test_a_closed_consumer_says_so(opened: Open) -> None:
    consumer = opened()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.memberid()


def test_columns_without_pyarrow_are_refused_with_the_extra_and_take_no_record(
    opened: Open, broker: TestBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a ModuleNotFoundError of a module that the program does not know."""
    broker.produce(topic, "0", partition=0)
    consumer = opened()
    consumer.subscribe([topic])
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        without.delitem(sys.modules, "txn.client.arrow", raising=False)
        with pytest.raises(txn.ConfigError, match=r"pyarrow: run `pip install '\.\[arrow\]'`"):
            consumer.poll_arrow(1, WAIT_S)

    assert values_of(consumer, 1) == [b"0"]


def test_the_end_of_a_partition_is_told_after_its_records_and_again_after_an_aborted_block(
    opened: Open, broker: TestBroker
) -> None:
    topic = broker.create_topic(uuid.uuid4().hex, partitions=1)
    with (
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, engine="native"
        ) as producer,
        opened(enable_partition_eof=True, fetch_wait_max_ms=50) as consumer,
    ):
        with producer.transaction() as t:  # a marker is behind its record
            t.produce(topic, b"1")
        consumer.subscribe([topic])

        def found() -> list[object]:
            taken: list[object] = []
            while True:
                message = consumer.poll(WAIT_S)
                assert message is not None
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    assert (message.topic(), message.partition()) == (topic, 0)
                    return [*taken, message.offset()]
                taken.append(message.value())

        def read_and_fail() -> None:
            with producer.transaction(consumer):
                assert found() == [b"1", 2]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            read_and_fail()
        assert found() == [b"1", 2]
        assert consumer.poll(0.3) is None
        broker.produce(topic, b"2")
        assert found() == [b"2", 3]
