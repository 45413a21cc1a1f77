"""A batch that no client could read is refused, and nothing else is lost by it.

Acknowledged records are read by librdkafka: it would stop for ever at a batch that it cannot open.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import txn
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    create_topic,
    ends,
    plain_producer,
    read_all,
    read_messages,
    send,
)
from support.packed import (
    CODECS,
    CREATED_MS,
    around,
    gzip_bomb,
    produce,
    records,
    sealed,
    unreadable,
)
from support.wire_client import RawConnection
from support.wire_producer import WireProducer, identity
from txn import _core

INVALID_RECORD, MESSAGE_TOO_LARGE, TRANSACTION_ABORTABLE = 87, 10, 120
GOOD = [b"good"]


@pytest.mark.parametrize("name", unreadable())
def test_an_unreadable_batch_is_refused_and_the_next_one_is_stored(
    shared_servers: str, name: str
) -> None:
    topic = name.replace(" ", "-")
    create_topic(shared_servers, topic)
    with RawConnection(shared_servers) as connection:
        for version in (7, 8, 12):  # Zstandard came with 7
            (answer,) = produce(connection, unreadable()[name], version=version, topic=topic)
            assert (int(answer.error_code), answer.base_offset) == (INVALID_RECORD, -1)
        assert "cannot be read" in answer.error_message
        assert ends(shared_servers, topic) == (0, 0)
        (answer,) = produce(connection, around("none", 1, records((None, b"good"))), topic=topic)
        assert (int(answer.error_code), answer.base_offset) == (0, 0)
    assert read_all(shared_servers, topic) == GOOD


@pytest.fixture(scope="module")
def shared_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with txn.Broker(tmp_path_factory.mktemp("data"), durability="process") as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("size", [1, 1_000, 900_000])
def test_what_librdkafka_packs_is_stored_and_read(
    shared_servers: str, codec: str, size: int
) -> None:
    topic = f"packed-{codec}-{size}"
    create_topic(shared_servers, topic, max_message_bytes="2000000")
    producer = plain_producer(
        shared_servers, compression_type=codec, linger_ms=50, message_max_bytes=2_000_000
    )
    values = [bytes([n % 7]) * size for n in range(20 if size > 1_000 else 1_000)]
    send(producer, topic, values)
    assert read_all(shared_servers, topic) == values


def test_records_of_a_large_batch_are_stored_in_the_order_of_their_request(
    shared_servers: str,
) -> None:
    """The first batch is opened on a thread of its own; the second, for the same partition, has
    to come behind it."""
    create_topic(shared_servers, "large")
    producer = (4_711, 0)
    with RawConnection(shared_servers) as connection:
        first = around("gzip", 1, gzip_bomb(5_000_000), producer=producer, sequence=0)
        plain = records((b"k", b"second"))
        second = around("none", 1, plain, producer=producer, sequence=1)
        answers = produce(connection, first, second, topic="large")
        assert [(int(a.error_code), a.base_offset) for a in answers] == [(0, 0), (0, 1)]
        again = produce(connection, first, second, topic="large")
        assert [(int(a.error_code), a.base_offset) for a in again] == [(0, 0), (0, 1)]
    first_value, second_value = read_all(shared_servers, "large")
    assert first_value == bytes(5_000_000)
    assert second_value == b"second"


def test_a_large_batch_joins_its_transaction(shared_servers: str) -> None:
    create_topic(shared_servers, "joined")
    with WireProducer(shared_servers, "joins") as producer:
        who = identity(producer.start(two_phase=False))
        batch = large_transactional(who)
        (answer,) = produce(producer, batch, version=12, topic="joined", transactional_id="joins")
        assert int(answer.error_code) == 0
        identity(producer.end(who))
    (message,) = read_messages(shared_servers, "joined")
    assert message.value() == bytes(3_000_000)


def test_a_large_batch_of_a_transaction_without_its_partition_is_refused(
    shared_servers: str,
) -> None:
    create_topic(shared_servers, "not-added")
    with WireProducer(shared_servers, "forgets") as producer:
        batch = large_transactional(identity(producer.start(two_phase=False)))
        (answer,) = produce(
            producer, batch, version=11, topic="not-added", transactional_id="forgets"
        )
        assert int(answer.error_code) == TRANSACTION_ABORTABLE
    assert ends(shared_servers, "not-added") == (0, 0)


def large_transactional(producer: tuple[int, int]) -> bytes:
    bomb = gzip_bomb(3_000_000)
    return around("gzip", 1, bomb, producer=producer, sequence=0, is_transactional=True)


def test_records_that_come_to_too_much_are_refused(shared_servers: str) -> None:
    create_topic(shared_servers, "too-much")
    with RawConnection(shared_servers) as connection:
        (answer,) = produce(connection, around("gzip", 1, gzip_bomb(100_000_001)), topic="too-much")
        assert int(answer.error_code) == MESSAGE_TOO_LARGE
        assert "100000000 bytes after decompression" in answer.error_message
        (answer,) = produce(connection, around("gzip", 1, gzip_bomb(99_999_000)), topic="too-much")
        assert int(answer.error_code) == 0


def test_a_request_of_bombs_is_refused_where_it_comes_to_too_much(shared_servers: str) -> None:
    create_topic(shared_servers, "bombs")
    bomb = around("gzip", 1, gzip_bomb(100_000_001))
    with RawConnection(shared_servers) as connection:
        answers = produce(connection, *[bomb] * 12, topic="bombs")
        assert {int(answer.error_code) for answer in answers} == {MESSAGE_TOO_LARGE}
        assert "The request's batches come to more than" in answers[-1].error_message
        (answer,) = produce(connection, around("none", 1, records((None, b"good"))), topic="bombs")
        assert int(answer.error_code) == 0


def test_a_record_without_a_key_in_a_large_batch_is_refused_by_a_compacted_topic(
    shared_servers: str,
) -> None:
    create_topic(shared_servers, "keyed", cleanup_policy="compact")
    keyed, keyless = (b"k", bytes(2_000_000)), (None, b"v")
    with RawConnection(shared_servers) as connection:
        batch = around("gzip", 2, gzip.compress(records(keyed, keyless)))
        (answer,) = produce(connection, batch, topic="keyed")
        assert int(answer.error_code) == INVALID_RECORD
        assert "record 1: a compacted topic takes no record without a key" in answer.error_message
        batch = around("gzip", 2, gzip.compress(records(keyed, keyed)))
        (answer,) = produce(connection, batch, topic="keyed")
        assert int(answer.error_code) == 0


def test_the_largest_timestamp_is_that_of_the_records(shared_servers: str) -> None:
    create_topic(shared_servers, "times")
    batch = bytearray(around("gzip", 1, gzip.compress(records((None, b"v")))))
    batch[35:43] = (5).to_bytes(8, "big")
    with RawConnection(shared_servers) as connection:
        (answer,) = produce(connection, sealed(batch), topic="times")
        assert int(answer.error_code) == 0
    consumer = Consumer({"bootstrap.servers": shared_servers, "group.id": "times"})
    try:
        later = TopicPartition("times", 0, CREATED_MS)
        assert consumer.offsets_for_times([later], WAIT_S)[0].offset == 0
    finally:
        consumer.close()


def test_a_spark_worker_is_told_of_a_batch_that_comes_to_too_much(shared_servers: str) -> None:
    create_topic(shared_servers, "wide")
    with RawConnection(shared_servers) as connection:
        produce(connection, around("gzip", 1, gzip_bomb(5_000_000)), topic="wide")
        produce(connection, around("none", 1, records((b"k", b"v"))), topic="wide")
    client = _core.KafkaClient(shared_servers)
    assert [chunk["rows"] for chunk in client.fetch("wide", 0, 0, 2)] == [2]
    with pytest.raises(_core.KafkaError) as refused:
        list(client.fetch("wide", 0, 0, 2, max_batch_bytes=1_000_000))
    message = refused.value.args[0]
    assert "the batch of wide-0 at offset 0 cannot be read: more than 1000000 bytes" in message
    assert "fetch.batch.bytes" in message
    assert "start at offset 1" in message
    rest = client.fetch("wide", 0, 1, 2, max_batch_bytes=1_000_000)
    assert [chunk["rows"] for chunk in rest] == [1]


def test_a_stored_batch_that_nobody_can_read_is_told_to_its_readers_and_passed_by_searches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches as earlier versions stored them: only their readers notice."""
    with txn.Broker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        with RawConnection(broker.bootstrap_servers) as connection:
            produce(connection, around("none", 1, records((b"k", b"first"))))
            produce(connection, around("none", 1, records((b"k", b"second"))))
    segment = tmp_path / "orders-0" / f"{0:020}.log"
    spoiled = bytearray(segment.read_bytes())
    end = 12 + int.from_bytes(spoiled[8:12], "big")
    spoiled[22] |= CODECS["lz4"]
    spoiled[:end] = sealed(spoiled[:end])
    segment.write_bytes(spoiled)
    with txn.Broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        client = _core.KafkaClient(servers)
        with pytest.raises(_core.KafkaError, match=r"orders-0 at offset 0 .* start at offset 1"):
            list(client.fetch("orders", 0, 0, 2))
        assert client.list_offsets("orders", [0], CREATED_MS) == [1]
        assert [chunk["rows"] for chunk in client.fetch("orders", 0, 1, 2)] == [1]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_bombs_take_little_memory(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data")
    try:
        create_topic(process.bootstrap_servers, "orders")
        create_topic(process.bootstrap_servers, "keyed", cleanup_policy="compact")
        bomb = around("gzip", 1, gzip_bomb(99_999_000))
        with RawConnection(process.bootstrap_servers) as connection:
            produce(connection, around("none", 1, records((b"k", b"v"))))
            before = process.memory_peak
            for topic in ("orders", "keyed"):
                (answer,) = produce(connection, bomb, topic=topic)
                assert int(answer.error_code) == 0
        assert process.memory_peak - before < 20_000_000
    finally:
        assert process.stop() == 0
