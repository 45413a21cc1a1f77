"""ListOffsets by time: a search opens batches, and costs nobody else a thing."""

import gzip
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import txn
from support.brokers import BrokerProcess
from support.varints import varint
from support.wire_client import RawConnection
from txn._core import encode_batch
from txn.server.lifecycle.broker import service_of

PRODUCE, METADATA, LIST_OFFSETS, FIND_COORDINATOR, CREATE_TOPICS = 0, 3, 2, 10, 19
INVALID_REQUEST = 42
PARTITIONS = 60
EARLY_MS, LATE_MS = 1_000, 2_000


def create(connection: RawConnection, name: str, partitions: int) -> None:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    topics = [topic | {"assignments": (), "configs": ()}]
    connection.ask(CREATE_TOPICS, 4, topics=topics, timeout=30_000, validate_only=False)


def produce(connection: RawConnection, partition: int, batch: bytes) -> None:
    data = [{"name": "orders", "partition_data": [{"index": partition, "records": batch}]}]
    produced = connection.ask(
        PRODUCE, 9, transactional_id=None, acks=-1, timeout=1000, topic_data=data
    )
    assert int(produced.responses[0].partition_responses[0].error_code) == 0


def offsets_since(wanted: Iterable[tuple[int, int]]) -> Mapping[str, Any]:
    """The fields of ListOffsets 1 for these (partition, timestamp)."""
    partitions = [{"partition_index": index, "timestamp": time} for index, time in wanted]
    return {"replica_id": -1, "topics": [{"name": "orders", "partitions": partitions}]}


def bomb(records: int, record_bytes: int) -> bytes:
    """A batch that is small and holds much, and a record that is later than all before it."""

    def body(number: int) -> bytes:
        later_ms = LATE_MS - EARLY_MS if number == records - 1 else 0
        value = varint(record_bytes) + bytes(record_bytes)
        return b"\0" + varint(later_ms) + varint(number) + varint(-1) + value + b"\0"

    bodies = map(body, range(records))
    content = gzip.compress(b"".join(varint(len(one)) + one for one in bodies), 9)
    fields = (1, records - 1, EARLY_MS, LATE_MS, -1, -1, -1, records)
    checked = struct.pack(">hiqqqhii", *fields) + content
    plain = bytearray(encode_batch([(None, b"")], EARLY_MS)[:21])
    struct.pack_into(">i", plain, 8, len(checked) + 9)
    return bytes(plain[:17]) + struct.pack(">I", crc32c(checked)) + checked


def crc32c(data: bytes) -> int:
    """CRC-32C, by its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _table() -> Iterator[int]:
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        yield crc


TABLE = tuple(_table())


def test_a_partition_listed_twice_is_refused_once_and_the_others_are_answered() -> None:
    with txn.Broker() as broker, RawConnection(broker.bootstrap_servers) as connection:
        create(connection, "orders", 2)
        produce(connection, 0, encode_batch([(None, b"v")], EARLY_MS))
        produce(connection, 1, encode_batch([(None, b"v")], EARLY_MS))
        wanted = offsets_since([(0, -1), (1, EARLY_MS), (0, EARLY_MS), (0, -2)])
        (topic,) = connection.ask(LIST_OFFSETS, 1, **wanted).topics
    found = [(p.partition_index, int(p.error_code), p.offset) for p in topic.partitions]
    assert found == [(0, INVALID_REQUEST, -1), (1, 0, 0)]


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 0), (-2, 0), (0, -1), (EARLY_MS, -1)])
def test_what_was_never_written_is_listed_without_being_opened(timestamp: int, offset: int) -> None:
    with txn.Broker() as broker, RawConnection(broker.bootstrap_servers) as connection:
        create(connection, "orders", 500)
        wanted = offsets_since((index, timestamp) for index in range(500))
        (topic,) = connection.ask(LIST_OFFSETS, 1, **wanted).topics
        assert {p.offset for p in topic.partitions} == {offset}
        node = service_of(broker).node
        assert all(node.replicas.is_untouched("orders", index) for index in range(500))


def test_a_search_of_bombs_holds_nobody_up_and_little_memory(tmp_path: Path) -> None:
    """One request of 2.4 KB held the control loop for 11 s: transaction timeouts waited."""
    broker = BrokerProcess(tmp_path / "data")
    servers = broker.bootstrap_servers
    with RawConnection(servers) as hostile, RawConnection(servers) as other:
        create(hostile, "orders", PARTITIONS)
        batch = bomb(records=60, record_bytes=990_000)
        for partition in range(PARTITIONS):
            produce(hostile, partition, batch)
        before = rss_bytes(broker.pid)
        wanted = offsets_since((index, EARLY_MS + 1) for index in range(PARTITIONS))
        hostile.send(LIST_OFFSETS, 1, **wanted)
        other.ask(METADATA, 1, topics=[{"name": "orders"}])
        other.ask(FIND_COORDINATOR, 0, key="group")
        assert hostile.has_nothing()
        hostile.socket.settimeout(60)
        (topic,) = hostile.receive(LIST_OFFSETS, 1).topics
        grown = rss_bytes(broker.pid) - before
    assert broker.stop() == 0
    assert len(topic.partitions) == PARTITIONS
    # It gave up in the batch that has such a record, before one it had not looked at.
    assert {(p.timestamp, 20 < p.offset < 60) for p in topic.partitions} == {(LATE_MS, True)}
    assert grown < 32 << 20


def rss_bytes(pid: int) -> int:
    """The most bytes a process has had in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"{pid} has no memory")
