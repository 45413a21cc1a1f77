"""Snapshots of the metadata log, as Apache Kafka writes them, are found and read whole."""

import struct
from pathlib import Path

import pytest

from txn import _core
from txn.config import BrokerSettings
from txn.errors import CorruptLogError
from txn.metadata.image import Topic
from txn.storage.ids import decode_id
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog
from txn.wire.checksums import crc32c

TOPIC = Topic("__cluster_metadata", decode_id("AAAAAAAAAAAAAAAAAAAAAQ"), 1)
CONTROL = 0x20


def control_batch() -> bytes:
    """A batch like those a snapshot begins and ends with; its contents mean nothing here."""
    batch = bytearray(_core.encode_batch([(b"\0\0\0\3", b"\0\0")], 0))
    batch[22] |= CONTROL
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    return bytes(batch)


def snapshot(*values: bytes) -> bytes:
    data = _core.encode_batch([(None, value) for value in values], 0)
    return control_batch() + data + control_batch()


@pytest.fixture
def storage(tmp_path: Path) -> NativeStorage:
    return NativeStorage.load(tmp_path, BrokerSettings(), was_clean=False)


@pytest.fixture
def log(storage: NativeStorage) -> NativeLog:
    """A metadata log that ends at offset 9."""
    log = storage.open(TOPIC, 0)
    log.append([(None, b"%d" % n) for n in range(9)], timestamp_ms=0)
    return log


def put(storage: NativeStorage, end: int, data: bytes) -> None:
    name = f"{end:020d}-0000000001.checkpoint"
    (storage.root / "__cluster_metadata-0" / name).write_bytes(data)


def test_without_a_snapshot_the_log_is_everything(storage: NativeStorage, log: NativeLog) -> None:
    assert storage.metadata_snapshot(log) == (0, [])


def test_the_newest_snapshot_is_taken(storage: NativeStorage, log: NativeLog) -> None:
    put(storage, 4, snapshot(b"old"))
    put(storage, 7, snapshot(b"a", b"b"))
    assert storage.metadata_snapshot(log) == (7, [b"a", b"b"])


def test_a_snapshot_of_what_the_log_does_not_hold_is_left_alone(
    storage: NativeStorage, log: NativeLog
) -> None:
    put(storage, 7, snapshot(b"a"))
    put(storage, 10, snapshot(b"never committed"))
    assert storage.metadata_snapshot(log) == (7, [b"a"])


def test_other_files_are_no_snapshots(storage: NativeStorage, log: NativeLog) -> None:
    put(storage, 4, snapshot(b"a"))
    directory = storage.root / "__cluster_metadata-0"
    (directory / "bootstrap.checkpoint").write_bytes(b"")
    (directory / f"{5:020d}-0000000001.checkpoint.part").write_bytes(b"")
    assert storage.metadata_snapshot(log) == (4, [b"a"])


def test_a_snapshot_that_says_nothing_is_one(storage: NativeStorage, log: NativeLog) -> None:
    """Kafka makes one of offset 0 when a directory is formatted: it holds control records alone."""
    put(storage, 0, control_batch() + control_batch())
    assert storage.metadata_snapshot(log) == (0, [])


@pytest.mark.parametrize("left", [0, 30, -1, -len(control_batch())])
def test_P9_a_snapshot_that_ends_in_the_middle_is_refused(
    storage: NativeStorage, log: NativeLog, left: int
) -> None:
    log.delete_records(4)
    put(storage, 4, snapshot(b"a")[:left])
    with pytest.raises(CorruptLogError, match=r"0004-0000000001\.checkpoint ends in the middle"):
        storage.metadata_snapshot(log)


def test_P9_a_damaged_snapshot_is_refused(storage: NativeStorage, log: NativeLog) -> None:
    data = bytearray(snapshot(b"a"))
    data[len(control_batch()) + 65] ^= 1
    log.delete_records(4)
    put(storage, 4, bytes(data))
    with pytest.raises(CorruptLogError, match=r"0004-0000000001\.checkpoint"):
        storage.metadata_snapshot(log)


def test_a_damaged_snapshot_is_passed_over_where_something_else_has_its_contents(
    storage: NativeStorage, log: NativeLog
) -> None:
    put(storage, 7, snapshot(b"a")[:-1])
    assert storage.metadata_snapshot(log) == (0, [])
    put(storage, 4, snapshot(b"b"))
    assert storage.metadata_snapshot(log) == (4, [b"b"])
    log.delete_records(5)
    with pytest.raises(CorruptLogError, match=r"0007-0000000001\.checkpoint ends in the middle"):
        storage.metadata_snapshot(log)


def test_P9_a_log_whose_beginning_is_nowhere_is_refused(
    storage: NativeStorage, log: NativeLog
) -> None:
    log.delete_records(6)
    put(storage, 5, snapshot(b"a"))
    with pytest.raises(CorruptLogError, match="begins at offset 6 and holds no snapshot"):
        storage.metadata_snapshot(log)


def test_a_log_that_begins_where_its_snapshot_ends_is_whole(
    storage: NativeStorage, log: NativeLog
) -> None:
    log.delete_records(6)
    put(storage, 6, snapshot(b"a"))
    assert storage.metadata_snapshot(log) == (6, [b"a"])
