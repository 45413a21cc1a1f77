"""Compacted topics through real clients: the last value of every key, and a log that stays small.

Work of the cleaner's threads elsewhere is called here, so nothing waits for a clock.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from kio.schema.offset_commit.v2.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64, i64Timedelta

import txn
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_messages,
    send,
    transactional_producer,
)
from support.compacted import ON_CALL, Pair, compact, compacted_topic, fill, put, roll
from support.compacted import SEGMENT_BYTES as COMPACTED_SEGMENT_BYTES
from support.packed import CODECS, sealed
from support.wire_client import RawConnection
from txn.inspect.verify import verify
from txn.server.lifecycle.broker import service_of

SEGMENT_BYTES = 16_384
SMALL: dict[str, Any] = {
    **ON_CALL,
    "log.cleaner.min.cleanable.ratio": "0",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": SEGMENT_BYTES,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.segment.bytes": SEGMENT_BYTES,
}


def open_broker(path: Path, **more: Any) -> txn.Broker:
    return txn.Broker(path, durability="process", properties=SMALL | more)


def pairs_of(messages: Sequence[Message]) -> list[Pair]:
    def text(data: str | bytes | None) -> str | None:
        return data.decode() if isinstance(data, bytes) else data

    return [(text(message.key()) or "", text(message.value())) for message in messages]


def log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.log"))


def test_a_compacted_topic_is_read_back_as_the_last_value_of_every_key(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        compacted_topic(broker, "prices")
        producer = plain_producer(broker.bootstrap_servers, enable_idempotence=True)
        for lap in range(50):
            put(producer, "prices", [(f"key-{n}", f"value-{n}-{lap}") for n in range(20)])
        put(producer, "prices", [("key-3", None)])
        roll(producer, "prices")
        before = read_messages(broker.bootstrap_servers, "prices")
        compact(broker)
        roll(producer, "prices")
        compact(broker)  # delete.retention.ms is over, so the tombstone goes
        after = read_messages(broker.bootstrap_servers, "prices")

    expected = {f"key-{n}": f"value-{n}-49" for n in range(20) if n != 3}
    found = [pair for pair in pairs_of(after) if pair[0] != "roll"]
    assert len(before) == 50 * 20 + 1 + 2
    assert sorted(found) == sorted(expected.items())
    offsets = {message.offset(): message.value() for message in before}
    kept = [message for message in after if message.key() != b"roll"]
    assert all(offsets[message.offset()] == message.value() for message in kept)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_stay_readable_after_they_were_thinned_out(
    tmp_path: Path, codec: str
) -> None:
    with open_broker(tmp_path) as broker:
        compacted_topic(broker, "prices")
        producer = plain_producer(
            broker.bootstrap_servers, compression_type=codec, linger_ms=20, batch_num_messages=25
        )
        for lap in range(20):
            put(producer, "prices", [(f"key-{n % 40}", f"{lap} {'v' * 50}") for n in range(70)])
        roll(producer, "prices")
        roll(producer, "prices")
        compact(broker)
        found = read_messages(broker.bootstrap_servers, "prices")

    pairs = [pair for pair in pairs_of(found) if pair[0] != "roll"]
    assert dict(pairs) == {f"key-{n}": f"19 {'v' * 50}" for n in range(40)}
    assert len(pairs) < 20 * 70 // 4


def test_P4_aborted_transactions_are_gone_and_committed_ones_complete(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        compacted_topic(broker, "prices")
        servers = broker.bootstrap_servers
        producer = transactional_producer(servers, "pay")
        for lap in range(60):
            producer.begin_transaction()
            put(producer, "prices", [(f"key-{n}", f"{lap}") for n in range(5)])
            if lap % 3 == 0:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
        roll(plain_producer(servers), "prices")
        compact(broker)
        compact(broker)
        read = {
            isolation: pairs_of(read_messages(servers, "prices", isolation=isolation))
            for isolation in ("read_committed", "read_uncommitted")
        }

    expected = {f"key-{n}": "57" for n in range(5)}
    committed = [pair for pair in read["read_committed"] if pair[0] != "roll"]
    uncommitted = [pair for pair in read["read_uncommitted"] if pair[0] != "roll"]
    assert dict(committed) == expected
    assert len(uncommitted) == len(committed)


def test_P8_a_replay_of_a_compacted_log_knows_what_the_broker_knew(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        fill(broker, "prices")
        compact(broker)
        roll(plain_producer(broker.bootstrap_servers), "prices")
        compact(broker)
        before = producer_state_of(broker, "prices")
        read = pairs_of(read_messages(broker.bootstrap_servers, "prices"))
    for leftover in (*tmp_path.glob("prices-0/*.snapshot"), tmp_path / ".kafka_cleanshutdown"):
        leftover.unlink()
    with open_broker(tmp_path) as broker:
        after = producer_state_of(broker, "prices")
        read_again = pairs_of(read_messages(broker.bootstrap_servers, "prices"))

    assert after == before
    assert read_again == read


def test_verify_finds_nothing_wrong_after_a_cleaning_that_was_broken_off(tmp_path: Path) -> None:
    """A stop in the middle of a cleaning leaves clean segments beyond the checkpoint; verify took
    the offsets missing in them for lost."""
    with open_broker(tmp_path) as broker:
        fill(broker, "prices")
        compact(broker)
    (tmp_path / "cleaner-offset-checkpoint").unlink()  # as it was before that cleaning

    assert verify(tmp_path, is_deep=True).findings == []


def test_a_compacted_topic_refuses_records_without_a_key(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        compacted_topic(broker, "prices")
        producer = plain_producer(broker.bootstrap_servers)
        with pytest.raises(KafkaException, match="INVALID_RECORD"):
            send(producer, "prices", [b"no key"])


def test_a_batch_that_nobody_can_read_is_kept_and_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier versions took such batches, and gave the topic up until the next start."""
    with open_broker(tmp_path) as broker:
        compacted_topic(broker, "prices")
        send_keyed(broker, lap=0)
    segment = tmp_path / "prices-0" / f"{0:020}.log"
    spoiled = bytearray(segment.read_bytes())
    end = 12 + int.from_bytes(spoiled[8:12], "big")
    spoiled[22] |= CODECS["zstd"]
    first = spoiled[:end] = sealed(spoiled[:end])
    segment.write_bytes(spoiled)

    for lap in (1, 2):
        with open_broker(tmp_path) as broker:
            send_keyed(broker, lap)
            compact(broker)
            size = log_bytes(tmp_path / "prices-0")
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"g{lap}"}
            )
            consumer.assign([TopicPartition("prices", 0, 1)])
            message = consumer.poll(WAIT_S)
            consumer.close()
            assert message is not None
            assert not message.error()
        assert segment.read_bytes()[:end] == first
        assert size < 8 * COMPACTED_SEGMENT_BYTES

    lines = [line for line in caplog.messages if line.startswith("log.unreadable_batches_kept")]
    assert len(lines) == 1
    for fact in (
        "topic=prices",
        "partition=0",
        "batches=1",
        str(segment),
        "position=0",
        "offset=0",
    ):
        assert fact in lines[0]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def send_keyed(broker: txn.Broker, lap: int) -> None:
    producer = plain_producer(broker.bootstrap_servers)
    put(producer, "prices", [("first", f"{lap}")])
    for number in range(50):
        put(producer, "prices", [(f"key-{n}", f"{lap}-{number}") for n in range(20)])
    roll(producer, "prices")


def test_a_cleaning_goes_on_where_the_last_one_ended_after_a_restart(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        compacted_topic(broker, "prices")
        producer = plain_producer(broker.bootstrap_servers)
        for lap in range(50):
            put(producer, "prices", [(f"key-{n}", f"{lap}") for n in range(20)])
        roll(producer, "prices")
        assert compact(broker) > 0
    checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text().splitlines()
    with open_broker(tmp_path) as broker:
        assert compact(broker) == 0
        found = dict(pairs_of(read_messages(broker.bootstrap_servers, "prices")))

    topics = [line.split()[0] for line in checkpoint[2:]]
    assert checkpoint[0] == "0"
    assert "prices" in topics
    assert {key: value for key, value in found.items() if key != "roll"} == {
        f"key-{n}": "49" for n in range(20)
    }


def test_committed_offsets_stay_small_under_a_long_load(tmp_path: Path) -> None:
    commits = 20_000
    with open_broker(tmp_path) as broker, RawConnection(broker.bootstrap_servers) as raw:
        create_topic(broker.bootstrap_servers, "in")
        for number in range(commits):
            raw.call(offset_commit(f"group-{number % 10}", "in", number))
            if number % 1000 == 999:
                compact(broker)
        size = log_bytes(tmp_path / "__consumer_offsets-0")
    with open_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        found = {number: committed(servers, f"group-{number}", "in") for number in range(10)}

    assert found == {number: commits - 10 + number for number in range(10)}
    assert size < 3 * SEGMENT_BYTES


def test_transactions_and_their_offsets_stay_small_under_a_long_load(tmp_path: Path) -> None:
    transactions = 3_000
    with open_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "in", partitions=7)
        create_topic(servers, "out")
        producers = [transactional_producer(servers, f"pay-{number}") for number in range(5)]
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        group = consumer.consumer_group_metadata()
        for number in range(transactions):
            producer = producers[number % 5]
            producer.begin_transaction()
            producer.produce("out", value=b"v", partition=0)
            position = [TopicPartition("in", number % 7, number)]
            producer.send_offsets_to_transaction(position, group, WAIT_S)
            if number % 10 == 9:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
            if number % 300 == 299:
                compact(broker)
        consumer.close()
        ended = number_ended(transactions)
        sizes = {
            name: log_bytes(tmp_path / f"{name}-0")
            for name in ("__transaction_state", "__consumer_offsets")
        }
    with open_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        found = {index: committed(servers, "g", "in", index) for index in range(7)}
        again = transactional_producer(servers, "pay-0")
        commit_values(again, "out", [b"after the restart"])
        states = sorted(
            name for name, _ in service_of(broker).node.transactions.transactions.items()
        )

    assert found == {index: max(n for n in ended if n % 7 == index) for index in range(7)}
    assert states == [f"pay-{number}" for number in range(5)]
    # More than 200 bytes a transaction were written; the markers of the last few hundred are still
    # there.
    assert max(sizes.values()) < 6 * SEGMENT_BYTES, sizes


def producer_state_of(broker: txn.Broker, topic: str) -> tuple[object, ...]:
    """The state of a partition's rules: its producers, and the batches whose retry is known."""
    producer_state = service_of(broker).node.partitions[topic][0].producer_state
    return (
        sorted(producer_state.describe()),
        sorted(producer_state.last_batches()),
        producer_state.first_unstable_offset(),
    )


def number_ended(transactions: int) -> list[int]:
    """The numbers of the transactions that were committed."""
    return [number for number in range(transactions) if number % 10 != 9]


def offset_commit(group_id: str, topic: str, offset: int) -> Any:
    """A commit by nobody's member, of partition 0."""
    partition = OffsetCommitRequestPartition(
        partition_index=i32(0), committed_offset=i64(offset), committed_metadata=None
    )
    return OffsetCommitRequest(
        group_id=GroupId(group_id),
        generation_id_or_member_epoch=i32(-1),
        member_id="",
        retention_time=i64Timedelta.parse(timedelta(0)),
        topics=(OffsetCommitRequestTopic(name=TopicName(topic), partitions=(partition,)),),
    )


def committed(servers: str, group_id: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id})
    try:
        found = consumer.committed([TopicPartition(topic, partition)], timeout=WAIT_S)
        return int(found[0].offset)
    finally:
        consumer.close()
