"""A data directory moves between txn and Apache Kafka, and back, with everything in it.

`Move` is one such journey. The first broker writes. The second serves a copy of its
directory and goes on writing, and the first kind serves a copy of that. Both journeys are made
once; each test looks at one thing that has to have survived. All brokers listen on one port, so
that a client of the first finds the second, as it would after a real move. Where Kafka is the
second it is killed, so that txn comes back to a directory that no broker has tidied up.
"""

import shutil
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)

import txn
from harnesses.peers.kafka import WRITES_IDLE_RECORDS, KafkaNode, free_port
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    ends,
    plain_producer,
    read_messages,
    send,
    transactional_producer,
)
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn._core import KafkaClient
from txn.config import BrokerSettings
from txn.coordinator.transaction.records import decode_key, decode_value, encode_key, encode_value
from txn.coordinator.transaction.states import Txn, TxnState
from txn.metadata.image import Topic
from txn.storage.ids import decode_id
from txn.storage.native import NativeStorage
from txn.wire.hashing import coordinator_partition

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

COMPACT_SOON = {"log.cleaner.backoff.ms": "100"}
KAFKA_PROPERTIES = {
    **WRITES_IDLE_RECORDS,
    **COMPACT_SOON,
    "metadata.log.max.snapshot.interval.ms": "1000",  # a snapshot of the metadata is there too
}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "200",
    "min_cleanable_dirty_ratio": "0.01",
    "max_compaction_lag_ms": "300",
}
TRANSACTIONS = ("open", "open2", "abandoned", "decided", "decided2", "undone")
"""Topics with one transaction each, of that id, and a group of that name with an offset in it."""

TRANSACTION_TIMEOUT_MS = 900_000
DESCRIBE_PRODUCERS = 61
KEYS = 5
COMPACTED_RECORDS = 100

Identity = tuple[int, int]
"""A producer id and its epoch."""


@dataclass(frozen=True)
class BrokerContents:
    """The contents that clients find in a broker.

    Records are (partition, offset, time, key, value, headers).
    """

    all: dict[str, list[tuple[Any, ...]]]
    committed: dict[str, list[tuple[Any, ...]]]
    ends: dict[str, tuple[int, int]]
    offsets: dict[str, dict[tuple[str, int], int]]
    settings: dict[str, dict[str, str]]
    producers: dict[str, list[tuple[int, ...]]]

    def values(self, topic: str) -> list[bytes]:
        return [record[4] for record in self.committed[topic]]

    def newest(self, topic: str) -> dict[bytes, bytes]:
        return {record[3]: record[4] for record in self.all[topic]}


@dataclass(frozen=True)
class Move:
    """Observations before a move, after it, when the second was left, and back at the first."""

    before: BrokerContents
    moved: BrokerContents
    left: BrokerContents
    back: BrokerContents
    written_at_last: list[int]
    has_metadata_snapshot: bool
    has_given_up_replicas: bool
    """Kafka's controller took a stop for one that may have lost records (KIP-966)."""


@contextmanager
def serving(kind: str, directory: Path, port: int, *, is_killed: bool = False) -> Iterator[str]:
    if kind == "txn":
        with txn.Broker(directory / "data", port=port, properties=COMPACT_SOON) as broker:
            yield broker.bootstrap_servers
    else:
        with KafkaNode(directory, KAFKA_PROPERTIES, port=port) as node:
            with pytest.raises(txn.DirectoryError, match="in use"):
                txn.Broker(node.data)
            yield node.bootstrap_servers
            if is_killed:
                node.kill()


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source / "data", target / "data")


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


# ---------------------------------------------------------------- writing


def write(servers: str) -> tuple[Producer, Identity]:
    """Fill a broker; return whose transactions are open in `open` and in `open2`."""
    create_topic(servers, "plain", partitions=2)
    create_topic(servers, "compacted", 1, **COMPACTED)
    for name in ("txns", "gone", *TRANSACTIONS):
        create_topic(servers, name, retention_ms="-1")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = plain_producer(servers, compression_type=codec, enable_idempotence=True)
        for number in range(10):
            producer.produce(
                "plain",
                key=b"%d" % number,
                value=codec.encode() * 20,
                partition=number % 2,
                headers=[("codec", codec.encode())],
            )
        assert producer.flush(WAIT_S) == 0
    write_compacted(servers)
    send(plain_producer(servers), "gone", [b"x"])
    commit_offset(servers, "readers", 3)
    ended = transactional_producer(servers, "ended")
    commit_values(ended, "txns", [b"committed"])
    ended.begin_transaction()
    send(ended, "txns", [b"aborted"])
    ended.abort_transaction(WAIT_S)
    for name in ("abandoned", "decided", "undone"):
        begin(servers, name)
    begin_in_version_2(servers, "decided2")
    return begin(servers, "open"), begin_in_version_2(servers, "open2")


def write_compacted(servers: str, first: int = 0) -> None:
    producer = plain_producer(servers)
    for number in range(first, COMPACTED_RECORDS):
        producer.produce("compacted", key=b"%d" % (number % KEYS), value=b"%d" % number)
        assert producer.flush(WAIT_S) == 0


def begin(servers: str, name: str) -> Producer:
    """Begin a transaction with an id and in a topic of one name, and an offset of such a group."""
    producer = transactional_producer(servers, name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    producer.begin_transaction()
    send(producer, name, [b"1", b"2"])
    consumer = Consumer({"bootstrap.servers": servers, "group.id": name})
    where = [TopicPartition("plain", 0, 7)]
    producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), WAIT_S)
    consumer.close()
    return producer


def begin_in_version_2(servers: str, name: str) -> Identity:
    """The same under transaction version 2, which Java's producer uses and librdkafka does not."""
    client = KafkaClient(servers)
    assert client.transaction_version == 2
    identity = client.init_producer_id(name, TRANSACTION_TIMEOUT_MS)
    client.add_offsets(name, *identity, name, [("plain", 0, 7)])
    writer = client.writer(name, *identity)
    for value in (b"1", b"2"):
        writer.write(name, 1, None, (struct.pack("<2i", 0, 1), value, None))
    assert writer.flush() == 2
    client.close()
    return identity


def commit_offset(servers: str, group: str, offset: int) -> None:
    """Commit an offset of `plain` as the one member of a classic group, which then leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["plain"])
    assert consumer.poll(WAIT_S) is not None
    consumer.commit(offsets=[TopicPartition("plain", 0, offset)], asynchronous=False)
    consumer.close()


def decide(directory: Path, transactional_id: str, state: TxnState) -> None:
    """Write a Prepare of an open transaction, as a coordinator does that stops right after it."""
    index = coordinator_partition(transactional_id, 50)
    metadata = directory / "data" / f"__transaction_state-{index}" / "partition.metadata"
    topic_id = decode_id(metadata.read_text().rpartition(" ")[2].strip())
    storage = NativeStorage.load(directory / "data", BrokerSettings(), was_clean=True)
    store = storage.open(Topic("__transaction_state", topic_id), index)
    found: list[Txn] = [
        decode_value(record.value)
        for batch in store.batches()
        for record in batch.records
        if record.key is not None and decode_key(record.key) == transactional_id and record.value
    ]
    assert found[-1].state is TxnState.ONGOING
    is_version_2 = found[-1].client_version == 2  # whose Prepare takes the next epoch
    epoch = found[-1].producer_epoch + is_version_2
    prepared = encode_value(found[-1]._replace(state=state, producer_epoch=epoch))
    store.append([(encode_key(transactional_id), prepared)], timestamp_ms=found[-1].updated_ms)
    store.close()
    storage.upkeep.write_recovery_points()  # the log ends where the stop says


def go_on(servers: str, owner: Producer, owner2: Identity) -> None:
    """Act on the second broker as clients of the first would."""
    owner.commit_transaction(WAIT_S)
    client = KafkaClient(servers)
    client.end_txn("open2", *owner2, True)
    client.close()
    transactional_producer(servers, "abandoned")
    commit_values(transactional_producer(servers, "ended"), "txns", [b"later"])
    send(plain_producer(servers, enable_idempotence=True), "plain", [b"later"])
    write_compacted(servers)
    commit_offset(servers, "readers", 5)
    create_topic(servers, "new", partitions=2)
    send(plain_producer(servers), "new", [b"new"], partition=1)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics(["gone"])["gone"].result(WAIT_S)
    change = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "plain", incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


# ---------------------------------------------------------------- looking


def look(servers: str) -> BrokerContents:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = sorted(name for name in admin.list_topics(timeout=WAIT_S).topics if name[0] != "_")
    return BrokerContents(
        all={topic: records(servers, topic, "read_uncommitted") for topic in topics},
        committed={topic: records(servers, topic, "read_committed") for topic in topics},
        ends={topic: ends(servers, topic) for topic in topics},
        offsets={group: offsets(admin, group) for group in ("readers", *TRANSACTIONS)},
        settings={topic: settings(admin, topic) for topic in topics},
        producers={topic: producers(servers, topic) for topic in topics},
    )


def records(servers: str, topic: str, isolation: str) -> list[tuple[Any, ...]]:
    return sorted(
        (m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers())
        for m in read_messages(servers, topic, isolation=isolation)
    )


def offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(WAIT_S).topic_partitions
    return {(entry.topic, entry.partition): entry.offset for entry in found}


def settings(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource("topic", topic)
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in found.items() if entry.source == own}


def producers(servers: str, topic: str) -> list[tuple[int, ...]]:
    """(producer id, epoch, last sequence, first offset of its transaction) in partition 0."""
    values = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    with RawConnection(servers) as connection:
        answer = connection.call(entity_builder(request(DESCRIBE_PRODUCERS, 0))(values))
    return sorted(
        (p.producer_id, p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
        for p in answer.topics[0].partitions[0].active_producers
    )


# ---------------------------------------------------------------- the journeys


@pytest.fixture(
    scope="module",
    params=[("txn", "kafka"), ("kafka", "txn")],
    ids=["txn-kafka-txn", "kafka-txn-kafka"],
)
def move(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Move:
    first, second = request.param
    root, port = tmp_path_factory.mktemp("exchange"), free_port()
    with serving(first, root / "1", port) as servers:
        owners = write(servers)
        wait_until(lambda: is_compacted(servers), "the broker compacts")
        before = look(servers)
    decide(root / "1", "decided", TxnState.PREPARE_COMMIT)
    decide(root / "1", "decided2", TxnState.PREPARE_COMMIT)
    decide(root / "1", "undone", TxnState.PREPARE_ABORT)
    copy(root / "1", root / "2")
    with serving(second, root / "2", port, is_killed=True) as servers:
        prepared = ("decided", "decided2", "undone")
        wait_until(lambda: is_ended(servers, *prepared), "every Prepare is finished")
        moved = look(servers)
        go_on(servers, *owners)
        wait_until(lambda: is_ended(servers, "txns", *TRANSACTIONS), "every marker is there")
        left = look(servers)
    copy(root / "2", root / "3")
    with serving(first, root / "3", port) as servers:
        back = look(servers)
        at_last = send(plain_producer(servers), "plain", [b"at last"])
    snapshots = (root / "2" / "data" / "__cluster_metadata-0").glob("*.checkpoint")
    has_given_up = any(gives_up_replicas(root / "3"))
    return Move(before, moved, left, back, at_last, any(snapshots), has_given_up)


def gives_up_replicas(directory: Path) -> Iterator[bool]:
    """Say of each stored change whether it takes away all eligible replicas, and no more."""
    storage = NativeStorage.load(directory / "data", BrokerSettings(), was_clean=True)
    topic = Topic("__cluster_metadata", uuid.UUID(int=1))
    for batch in storage.open(topic, 0).batches():
        for record in batch.records:
            yield (record.value or b"").endswith(bytes.fromhex("01060101"))


def is_compacted(servers: str) -> bool:
    """True if the oldest record is gone; the newest are written again, for segments to roll."""
    write_compacted(servers, COMPACTED_RECORDS - KEYS)
    return (read_messages(servers, "compacted")[0].offset() or 0) > 0


def is_ended(servers: str, *topics: str) -> bool:
    """True if no transaction is open in topics."""
    try:
        found = [ends(servers, topic) for topic in topics]
    except KafkaException:  # a Kafka that has just started does not lead yet
        return False
    return all(stable == end for stable, end in found)


@pytest.mark.parametrize("topic", ["plain", "txns", *TRANSACTIONS])
def test_P1_every_record_is_where_it_was(move: Move, topic: str) -> None:
    assert move.before.all[topic]
    assert move.moved.all[topic] == move.before.all[topic]


@pytest.mark.parametrize("topic", ["plain", "txns", "open", "open2", "abandoned", "undone"])
def test_P4_readers_of_committed_records_see_the_same(move: Move, topic: str) -> None:
    assert move.moved.committed[topic] == move.before.committed[topic]


def test_compacted_records_are_those_written_last(move: Move) -> None:
    """Only the newest of each key is sure to be there: either broker may compact at any time."""
    assert move.before.all["compacted"][0][1] > 0
    assert set(move.moved.all["compacted"]) <= set(move.before.all["compacted"])
    newest = {b"%d" % (n % KEYS): b"%d" % n for n in range(COMPACTED_RECORDS)}
    assert move.before.newest("compacted") == move.moved.newest("compacted") == newest
    assert move.left.newest("compacted") == move.back.newest("compacted") == newest


@pytest.mark.parametrize("topic", ["open", "open2", "abandoned"])
def test_P5_an_open_transaction_holds_the_stable_offset_as_before(move: Move, topic: str) -> None:
    assert move.moved.ends[topic] == move.before.ends[topic] == (0, 2)
    assert move.moved.offsets[topic] == {}


@pytest.mark.parametrize("topic", ["decided", "decided2"])
def test_P3_a_decided_commit_is_finished(move: Move, topic: str) -> None:
    assert (move.before.values(topic), move.moved.values(topic)) == ([], [b"1", b"2"])
    assert move.before.offsets[topic] == {}
    assert move.moved.offsets[topic] == {("plain", 0): 7}


def test_P3_a_decided_abort_is_finished(move: Move) -> None:
    assert move.moved.ends["undone"] == (3, 3)
    assert move.moved.values("undone") == []
    assert move.moved.offsets["undone"] == {}


@pytest.mark.parametrize("topic", ["open", "open2"])
def test_P2_an_open_transaction_is_committed_by_its_owner(move: Move, topic: str) -> None:
    assert move.left.values(topic) == [b"1", b"2"]
    assert move.left.offsets[topic] == {("plain", 0): 7}


def test_P5_a_new_producer_aborts_what_the_one_before_left_open(move: Move) -> None:
    assert move.left.ends["abandoned"] == (3, 3)
    assert move.left.values("abandoned") == []


def test_groups_and_their_offsets_are_there(move: Move) -> None:
    assert move.moved.offsets["readers"] == move.before.offsets["readers"] == {("plain", 0): 3}
    assert move.back.offsets["readers"] == {("plain", 0): 5}


@pytest.mark.parametrize("topic", ["plain", "txns", "open", "open2", "abandoned"])
def test_P6_P7_partitions_know_their_producers(move: Move, topic: str) -> None:
    assert move.before.producers[topic]
    assert move.moved.producers[topic] == move.before.producers[topic]


def test_topics_keep_their_settings_and_take_new_ones(move: Move) -> None:
    assert move.moved.settings == move.before.settings
    assert move.back.settings == move.left.settings
    assert move.back.settings["plain"] == {"retention.ms": "86400000"}


def test_what_the_second_broker_wrote_is_there_when_the_first_comes_back(move: Move) -> None:
    expected = replace(move.left, all=without_compacted(move.left.all))
    expected = replace(expected, committed=without_compacted(move.left.committed))
    found = replace(move.back, all=without_compacted(move.back.all))
    found = replace(found, committed=without_compacted(move.back.committed))
    assert found == expected


def without_compacted(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {topic: records for topic, records in found.items() if topic != "compacted"}


def test_topics_come_and_go_with_the_second_broker(move: Move) -> None:
    assert "gone" in move.before.all
    assert "gone" not in move.back.all
    assert move.back.values("new") == [b"new"]


def test_the_first_broker_writes_on(move: Move) -> None:
    assert move.written_at_last == [move.back.ends["plain"][1]]


def test_kafka_takes_a_stop_of_txn_for_a_clean_one(move: Move) -> None:
    """The clean mark named no broker epoch: every replica was given up, then elected again."""
    assert not move.has_given_up_replicas


def test_a_snapshot_of_kafkas_metadata_was_among_what_was_read(move: Move) -> None:
    assert move.has_metadata_snapshot
