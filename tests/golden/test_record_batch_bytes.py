"""The bytes of record batches, markers and index files, from Kafka's protocol guide.

Written out by hand field by field, and held against an independent codec (kio).
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

from kio.records.readers import read_batch

from txn import _core
from txn.partition import ProducerStateManager
from txn.wire.checksums import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
COORDINATOR_EPOCH = 0x0102


def batch(records: bytes, count: int, *, attributes: int = 0, timestamp_ms: int = 1000) -> bytes:
    """A batch of producer 7, epoch 2, sequence 9, around encoded records."""
    covered = struct.pack(
        ">hiqqqhii", attributes, count - 1, timestamp_ms, timestamp_ms, 7, 2, 9, count
    )
    crc = crc32c(covered + records)
    head = struct.pack(">qiibI", 0, 9 + len(covered) + len(records), -1, 2, crc)
    return head + covered + records


# length 8 · attributes · timestamp delta · offset delta · key "k" · value "v" · no headers
KEY_AND_VALUE = bytes.fromhex("10 00 00 00 02 6b 02 76 00")
# length 6 · attributes · timestamp delta · offset delta 1 · null · null · no headers
NULLS = bytes.fromhex("0c 00 00 02 01 01 00")


def test_a_batch_has_the_bytes_of_the_protocol_guide() -> None:
    encoded = _core.encode_batch([(b"k", b"v"), (None, None)], 1000, 7, 2, 9, True)
    assert encoded == batch(KEY_AND_VALUE + NULLS, 2, attributes=0x10)


def test_kio_reads_what_is_encoded() -> None:
    encoded = _core.encode_batch([(b"k", b"v"), (None, b"x" * 300)], 1_700_000_000_123, 7, 2, 9)
    read, size = read_batch(encoded, 0)
    assert size == len(encoded)
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 2, 9)
    assert (read.base_offset, read.last_offset_delta, read.attributes) == (0, 1, 0)
    assert [(r.offset, r.key, r.value) for r in read.records] == [
        (0, b"k", b"v"),
        (1, None, b"x" * 300),
    ]
    assert (read.base_timestamp, read.max_timestamp) == (1_700_000_000_123, 1_700_000_000_123)


def test_a_marker_has_the_bytes_kafka_writes(tmp_path: Path) -> None:
    log = _core.PartitionLog(str(tmp_path / "orders-0"), ProducerStateManager())
    log.append_marker(7, 2, COORDINATOR_EPOCH, False, 1000)
    stored = log.read(0, 1)
    fields = HEADER.unpack_from(stored)
    base_offset, length, leader_epoch, magic, _, attributes, last_delta, *rest = fields
    assert (base_offset, length, leader_epoch, magic) == (0, 66, 0, 2)
    assert (attributes, last_delta) == (0x30, 0)  # transactional and control
    assert rest == [1000, 1000, 7, 2, -1, 1]  # base sequence -1, one record
    # length 16 · attributes · deltas · key: version 0, type 0 (abort) · value: version 0, epoch
    assert stored[61:] == bytes.fromhex("20 00 00 00 08 0000 0000 0c 0000 00000102 00")
    (decoded,) = _core.decode_batches(stored)
    assert decoded[4] == 2


def test_compressed_batches_are_decoded() -> None:
    xerial = bytes.fromhex("82534e4150505900 00000001 00000001")
    # One snappy block of nine literal bytes: the length, then a literal tag, then the bytes.
    block = bytes([9, (9 - 1) << 2]) + KEY_AND_VALUE
    frames = {
        1: gzip.compress(KEY_AND_VALUE),
        2: xerial + struct.pack(">i", len(block)) + block,
        # lz4: magic · version 1, independent blocks, 64 KiB · header checksum ·
        #      a block stored as it is · end mark
        3: bytes.fromhex("04224d18 60 40 82 09000080") + KEY_AND_VALUE + bytes(4),
        # zstd: magic · one segment of 9 bytes · last block, raw, 9 bytes
        4: bytes.fromhex("28b52ffd 20 09 490000") + KEY_AND_VALUE,
    }
    batches = [batch(frame, 1, attributes=codec) for codec, frame in frames.items()]
    batches.append(batch(block, 1, attributes=2))  # a bare snappy block
    expected = (0, 0, 7, 2, 0, [(0, 1000, b"k", b"v")])
    assert _core.decode_batches(b"".join(batches)) == [expected] * 5


def test_index_files_have_kafkas_layout(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = _core.PartitionLog(str(directory), ProducerStateManager(), {"index.interval.bytes": 100})
    for timestamp_ms in (1000, 3000, 2000, 4000):
        log.append(_core.encode_batch([(None, b"x" * 60), (None, b"y")], timestamp_ms))
    size = log.size_bytes // 4
    log.close()
    base = directory / f"{0:020}"
    # An entry comes with the batch that follows more than an interval: its last offset, its
    # position. It also has the largest timestamp so far, with the last offset of the batch that has
    # it.
    assert size > 100
    entries = [(1 + 2 * nth, size * nth) for nth in (1, 2, 3)]
    assert base.with_suffix(".index").read_bytes() == b"".join(
        struct.pack(">II", *entry) for entry in entries
    )
    assert base.with_suffix(".timeindex").read_bytes() == b"".join(
        struct.pack(">qI", *entry) for entry in [(3000, 3), (4000, 7)]
    )


def test_the_transaction_index_has_kafkas_layout(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = _core.PartitionLog(str(directory), ProducerStateManager())
    log.append(_core.encode_batch([(None, b"x")], 0, 6, 0, is_transactional=True))
    log.append(_core.encode_batch([(None, b"x"), (None, b"x")], 0, 7, 0, is_transactional=True))
    log.append_marker(7, 0, 1, False, 0)
    # version 0 · producer id · first offset · the marker's offset · last stable offset
    entry = struct.pack(">hqqqq", 0, 7, 1, 3, 0)
    assert (directory / f"{0:020}.txnindex").read_bytes() == entry


def test_the_files_beside_the_segments_have_kafkas_text(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    metadata = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    log = _core.PartitionLog(str(directory), ProducerStateManager(), partition_metadata=metadata)
    log.append(_core.encode_batch([(None, b"x")], 0))
    # version 0 · one entry · epoch 0 from offset 0 on
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert (directory / "partition.metadata").read_text() == metadata
