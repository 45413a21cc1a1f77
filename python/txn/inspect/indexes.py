"""The entries of `.index`, `.timeindex` and `.txnindex` files.

All numbers are big endian:

    .index      relative last offset u32, position of the batch u32
    .timeindex  timestamp in ms i64, relative offset u32
    .txnindex   version i16 (0), producer id i64, first offset i64, last offset i64,
                last stable offset i64

Kafka reserves an index at its full size while it is written, so an index that was not closed ends
in zeros. `without_reserve` removes them.

Pure. Sources: Kafka's OffsetIndex, TimeIndex and TransactionIndex.
"""

import struct
from typing import Final, NamedTuple

OFFSET_ENTRY: Final = struct.Struct(">II")
TIME_ENTRY: Final = struct.Struct(">qI")
ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
ABORTED_VERSION: Final = 0


class OffsetEntry(NamedTuple):
    """The batch at a position ends with an offset."""

    position: int
    last_offset: int
    batch_position: int


class TimeEntry(NamedTuple):
    """Nothing up to an offset is younger than a timestamp."""

    position: int
    timestamp_ms: int
    offset: int


class AbortedEntry(NamedTuple):
    """An aborted transaction: first record, marker, and the last stable offset after it."""

    position: int
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def offset_entries(data: bytes, base_offset: int) -> list[OffsetEntry]:
    """Read an offset index; a partial entry at the end is left out."""
    return [
        OffsetEntry(position, base_offset + relative, batch_position)
        for position, (relative, batch_position) in _entries(OFFSET_ENTRY, data)
    ]


def time_entries(data: bytes, base_offset: int) -> list[TimeEntry]:
    """Read a time index; a partial entry at the end is left out."""
    return [
        TimeEntry(position, timestamp_ms, base_offset + relative)
        for position, (timestamp_ms, relative) in _entries(TIME_ENTRY, data)
    ]


def aborted_entries(data: bytes) -> list[AbortedEntry]:
    """Read a transaction index; a partial entry at the end is left out."""
    return [AbortedEntry(position, *fields) for position, fields in _entries(ABORTED_ENTRY, data)]


def without_reserve(data: bytes, layout: struct.Struct) -> bytes:
    """Cut the zeros off that stand behind the last entry; a first entry may be zero."""
    used = len(data.rstrip(b"\0"))
    whole = -(-used // layout.size) * layout.size  # an entry may end with zeros itself
    return data if len(data) - whole < layout.size else data[:whole]


def _entries(layout: struct.Struct, data: bytes) -> list[tuple[int, tuple[int, ...]]]:
    whole = len(data) - len(data) % layout.size
    return [
        (nth * layout.size, fields) for nth, fields in enumerate(layout.iter_unpack(data[:whole]))
    ]
