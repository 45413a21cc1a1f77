"""Data directories with some of everything, as a broker leaves them that is stopped or killed.

`make_left` runs a real broker, txn or Apache Kafka. It keeps the directory twice: as a SIGKILL
leaves it, and after the clean stop that follows. Only clients and settings known to both brokers
fill it. Its files are small, so a test can start a broker on a copy in milliseconds.
"""

import os
import shutil
import signal
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from harnesses.peers.kafka import WRITES_IDLE_RECORDS, KafkaNode
from support.brokers import BrokerProcess
from support.clients import WAIT_S, create_topic, plain_producer, transactional_producer
from support.shown import ShownReader

SMALL: Final[Mapping[str, str]] = {
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.flush.scheduler.interval.ms": "100",
    "transaction.max.timeout.ms": "86400000",
}
KAFKA_ONLY: Final[Mapping[str, str]] = {
    "log.index.size.max.bytes": "4096",  # they are preallocated
    "log.initial.task.delay.ms": "100",
}
SEGMENTS: Final[Mapping[str, str]] = {"internal_segment_bytes": "1500", "retention_ms": "-1"}
SYNCED, UNSYNCED = "1", str((1 << 63) - 1)
"""Values of flush.messages: every batch is synced, and none is for being written."""

TOPICS: Final = ("plain", "packed", "compacted", "txns", "seats")
TRANSACTION_TIMEOUT_MS = 86_400_000
"""Longer than any run of all cases, so that no start aborts the open transaction."""
OFFSETS: Final = "__consumer_offsets"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
DELETED_TO: Final = 15
SYNCED_TO: Final[Mapping[str, int]] = {"plain": 30, "packed": 60}
"""Offsets that the recovery points have to reach, by topic."""

GROUP: Final = "readers"


@dataclass(frozen=True)
class LeftDirectory:
    """Copies of one directory.

    Attributes:
        killed: As a SIGKILL leaves it, in this boot of the machine.
        closed: After a clean stop.
        committed: The values that were committed, by topic, in the order of each partition.
    """

    killed: Path
    closed: Path
    committed: Mapping[str, list[bytes]]


def make_left(broker: str, directory: Path) -> LeftDirectory:
    """Fill a directory by `broker`, "txn" or "kafka"; copy it as it is left."""
    directory.mkdir(parents=True)
    return _make_txn(directory) if broker == "txn" else _make_kafka(directory)


def _make_txn(directory: Path) -> LeftDirectory:
    data = directory / "data"
    options = [f"{name}={value}" for name, value in SMALL.items()]
    process = BrokerProcess(data, *options, durability="commit")
    committed = fill(process.bootstrap_servers, data)
    killed = _copy_as_killed(process.pid, data, directory)
    assert process.stop() == 0
    return LeftDirectory(killed, data, committed)


def _make_kafka(directory: Path) -> LeftDirectory:
    node = KafkaNode(directory / "node", {**WRITES_IDLE_RECORDS, **SMALL, **KAFKA_ONLY})
    with node:
        committed = fill(node.bootstrap_servers, node.data)
        killed = _copy_as_killed(node.pid, node.data, directory)
    return LeftDirectory(killed, node.data, committed)


def _copy_as_killed(pid: int, data: Path, directory: Path) -> Path:
    """Copy the files of a process that stands still; a SIGKILL would leave the same bytes."""
    os.kill(pid, signal.SIGSTOP)
    try:
        return Path(shutil.copytree(data, directory / "killed"))
    finally:
        os.kill(pid, signal.SIGCONT)


def let_checkpoints_be_older(data: Path, topic: str) -> None:
    """Note in the checkpoints that a topic ends before its last batch.

    A SIGKILL soon after that batch leaves these files.
    """
    place = f"{topic}-0"
    log = max((data / place).glob("*.log")).read_bytes()
    [last] = BATCH_OFFSET.unpack_from(log, batch_positions(log)[-1])
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        noted = checkpoint_of(data, name)
        _write_checkpoint(data / name, noted | {place: min(noted[place], last)})


def _write_checkpoint(path: Path, noted: Mapping[str, int]) -> None:
    entries = [" ".join((*place.rsplit("-", 1), str(noted[place]))) for place in noted]
    path.write_text("\n".join(("0", str(len(entries)), *entries, "")))


# ---------------------------------------------------------------- writing


def fill(servers: str, data: Path) -> dict[str, list[bytes]]:
    """Write records of every kind, let the broker sync them, then some that it does not sync.

    Several segments; idempotent, compressed and keyed records; transactions that are committed,
    aborted and left open, over two topics. Offsets of a group, plain and of a transaction; deleted
    records; a topic that the cleaner passed.
    """
    for topic in TOPICS:
        settings = {**SEGMENTS, "flush_messages": SYNCED}
        if topic == "compacted":
            settings |= {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        create_topic(servers, topic, 1, **settings)
    committed: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    plain = plain_producer(servers, enable_idempotence=True)
    packed = plain_producer(servers, compression_type="zstd", linger_ms=5)
    payer = transactional_producer(servers, "payer", transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    hanging = transactional_producer(
        servers, "hanging", transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )

    committed["plain"] += _send(plain, "plain", _values("plain", 30))
    committed["packed"] += _send(packed, "packed", _values("packed", 60), each=10)
    _send(plain, "compacted", _values("compacted", 60), keys=7)
    _await_cleaning(data)
    _pay(payer, committed, range(9))
    hanging.begin_transaction()
    _send(hanging, "seats", [b"never decided"])
    _pay(payer, committed, range(9, 12))
    _commit_offset(servers, payer, committed)
    _delete_records(servers)
    _await_recovery_points(data, SYNCED_TO)

    _alter_flushing(servers, UNSYNCED)
    committed["plain"] += _send(plain, "plain", _values("late", 3))
    committed["packed"] += _send(packed, "packed", _values("late", 20), each=10)
    _send(plain, "compacted", _values("late", 3), keys=7)
    _pay(payer, committed, range(12, 15))
    committed["plain"] = committed["plain"][DELETED_TO:]
    with ShownReader(servers) as observer:
        assert observer.await_settled(), "a decided transaction was not completed in time"
    written = [f"{OFFSETS}-0", *(f"{topic}-0" for topic in TOPICS)]
    both = HIGH_WATERMARKS, RECOVERY_POINTS
    _await(
        lambda: all(checkpoint_of(data, name).keys() >= {*written} for name in both),
        "both checkpoints tell of every partition",
    )
    return committed


def _values(name: str, count: int) -> list[bytes]:
    return [b"%s %d %s" % (name.encode(), number, b"v" * 90) for number in range(count)]


def _send(
    producer: Producer, topic: str, values: list[bytes], *, each: int = 1, keys: int = 1 << 30
) -> list[bytes]:
    """Send values, so many to a batch; return them."""
    failed: list[KafkaError] = []

    def settle(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    for number, value in enumerate(values):
        key = b"key-%d" % (number % keys)
        producer.produce(topic, value=value, key=key, partition=0, on_delivery=settle)
        if number % each == each - 1:
            assert producer.flush(WAIT_S) == 0
    assert producer.flush(WAIT_S) == 0
    assert not failed, failed[0]
    return values


def _pay(payer: Producer, committed: dict[str, list[bytes]], turns: range) -> None:
    """Transactions over two topics, every third of which is aborted."""
    for turn in turns:
        payer.begin_transaction()
        for topic in ("txns", "seats"):
            values = _send(payer, topic, _values(f"{topic} {turn}", 2))
            committed[topic] += values if turn % 3 else []
        if turn % 3:
            payer.commit_transaction(WAIT_S)
        else:
            payer.abort_transaction(WAIT_S)


def _commit_offset(servers: str, payer: Producer, committed: dict[str, list[bytes]]) -> None:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False}
    )
    try:
        _await(lambda: _has_committed(consumer), "the coordinator of the group is loaded")
        payer.begin_transaction()
        committed["txns"] += _send(payer, "txns", [b"copied"])
        offsets = [TopicPartition("packed", 0, 11)]
        payer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
        payer.commit_transaction(WAIT_S)
    finally:
        consumer.close()


def _has_committed(consumer: Consumer) -> bool:
    try:
        consumer.commit(offsets=[TopicPartition("plain", 0, 7)], asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            return False
        raise
    return True


def _delete_records(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_records([TopicPartition("plain", 0, DELETED_TO)]).values():
        done.result(WAIT_S)


def _alter_flushing(servers: str, messages: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    operation = AlterConfigOpType.SET
    resources = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry("flush.messages", messages, incremental_operation=operation)
            ],
        )
        for topic in TOPICS
    ]
    for done in admin.incremental_alter_configs(resources).values():
        done.result(WAIT_S)


def _await_cleaning(data: Path) -> None:
    checkpoint = data / "cleaner-offset-checkpoint"
    _await(lambda: "compacted 0 " in _text(checkpoint), "the cleaner passes the topic")


def _await_recovery_points(data: Path, wanted: Mapping[str, int]) -> None:
    def is_noted() -> bool:
        noted = checkpoint_of(data, RECOVERY_POINTS)
        starts = checkpoint_of(data, "log-start-offset-checkpoint")
        return (
            all(noted.get(f"{topic}-0", 0) >= offset for topic, offset in wanted.items())
            and starts.get("plain-0") == DELETED_TO
        )

    _await(is_noted, f"recovery points of {dict(wanted)}")


def _await(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.02)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def checkpoint_of(data: Path, name: str) -> dict[str, int]:
    """The offsets of a checkpoint by the name of a partition's directory."""
    lines = _text(data / name).splitlines()[2:]
    found: dict[str, int] = {}
    for line in lines:
        topic, index, offset = line.split()
        found[f"{topic}-{index}"] = int(offset)
    return found


# ---------------------------------------------------------------- files of a log

BATCH: Final = struct.Struct(">qi")
"""Base offset, and how many bytes follow."""
BATCH_OFFSET: Final = struct.Struct(">q")


def batch_positions(log: bytes | bytearray) -> list[int]:
    """Where the whole batches of a segment begin."""
    found, position = [], 0
    while position + BATCH.size <= len(log):
        size = BATCH.size + BATCH.unpack_from(log, position)[1]
        if size <= BATCH.size or position + size > len(log):
            break
        found.append(position)
        position += size
    return found


def let_the_power_fail(data: Path) -> None:
    """Say that the directory was last used in another boot of the machine.

    A directory of Apache Kafka has no such note.
    """
    (data / ".lock").write_text("11111111-2222-3333-4444-555555555555\n")
