"""The bytes of a `.snapshot` file: every producer's state at one offset of the log.

    version      i16   1
    crc          u32   CRC-32C of everything after it
    count        i32
    per producer (46 bytes):
      producer_id             i64
      producer_epoch          i16
      last_sequence           i32   -1 if none
      last_offset             i64   -1 if none
      offset_delta            i32   last offset - base offset of the newest batch
      timestamp_ms            i64
      coordinator_epoch       i32   -1 if none
      txn_first_offset        i64   -1 if no transaction is open

Big endian. Of the window only the newest batch is kept; `ProducerStateManager.backfill` finds the
others in the log. The offset is in the file's name, and means: everything below it is in.

We write producers in the order of their ids, so that equal state has equal bytes.

Pure. Source: Kafka's ProducerSnapshot message, version 1.
"""

import struct
from collections.abc import Mapping
from typing import Final

from txn.partition.producer_state_entry import (
    ProducerStateEntry,
    base_sequence_of,
)
from txn.wire.checksums import crc32c

VERSION: Final = 1
_PREFIX: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
_HEADER_BYTES: Final = _PREFIX.size + _COUNT.size


def encode_snapshot(producers: Mapping[int, ProducerStateEntry]) -> bytes:
    """Encode every producer's state, by producer id."""
    entries = [_COUNT.pack(len(producers))]
    for producer_id, state in sorted(producers.items()):
        newest = state.batches[-1] if state.batches else None
        entries.append(
            _PRODUCER.pack(
                producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_offset,
                newest[3] - newest[2] if newest else 0,
                state.last_timestamp_ms,
                state.coordinator_epoch,
                state.txn_first_offset,
            )
        )
    body = b"".join(entries)
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> dict[int, ProducerStateEntry]:
    """Decode a snapshot into the state of each producer id.

    Raises:
        ValueError: The bytes are no snapshot, or damaged; the message has the reason.
    """
    if len(data) < _HEADER_BYTES:
        raise ValueError(
            f"the producer snapshot is cut off: {len(data)} bytes, a header has {_HEADER_BYTES}"
        )
    version, stored_crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"the producer snapshot has version {version}; known is {VERSION}")
    actual_crc = crc32c(data[_PREFIX.size :])
    if stored_crc != actual_crc:
        raise ValueError(
            "the producer snapshot is damaged: its CRC-32C is "
            f"{stored_crc:#010x}, its bytes give {actual_crc:#010x}"
        )
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    if count < 0 or len(data) != _HEADER_BYTES + count * _PRODUCER.size:
        raise ValueError(
            f"the producer snapshot is damaged: {count} producers do not fill {len(data)} bytes"
        )
    producers: dict[int, ProducerStateEntry] = {}
    for entry in _PRODUCER.iter_unpack(data[_HEADER_BYTES:]):
        producer_id = entry[0]
        if producer_id in producers:
            raise ValueError(f"the producer snapshot names producer id {producer_id} twice")
        producers[producer_id] = _producer(*entry)
    return producers


def _producer(
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerStateEntry:
    if offset_delta < 0 or offset_delta > max(last_offset, 0):
        raise ValueError(
            f"the producer snapshot is damaged: producer id {producer_id} has offset delta "
            f"{offset_delta} at last offset {last_offset}"
        )
    state = ProducerStateEntry()
    state.producer_epoch = producer_epoch
    if last_offset >= 0:
        base_sequence = base_sequence_of(last_sequence, offset_delta + 1)
        base_offset = last_offset - offset_delta
        state.append(
            producer_epoch, base_sequence, last_sequence, base_offset, last_offset, timestamp_ms
        )
    state.last_timestamp_ms = timestamp_ms
    state.coordinator_epoch = coordinator_epoch
    state.txn_first_offset = max(txn_first_offset, -1)
    return state
