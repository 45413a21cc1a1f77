"""Batches as they lie in the segments of a log."""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from txn import _core
from txn.storage.base import BatchKind, Record, StoredBatch

HEADER_BYTES = 61
LENGTH = struct.Struct(">qi")


class LocatedBatch(NamedTuple):
    """A batch as it lies in a segment."""

    base_offset: int
    name: str
    """The segment's file."""
    position: int
    data: bytes


def batches_in(name: str, segment: bytes) -> Iterator[LocatedBatch]:
    """The whole batches of a segment, up to a torn one."""
    position = 0
    while position + HEADER_BYTES <= len(segment):
        base, length = LENGTH.unpack_from(segment, position)
        end = position + LENGTH.size + length
        if length < HEADER_BYTES - LENGTH.size or end > len(segment):
            return
        yield LocatedBatch(base, name, position, segment[position:end])
        position = end


def batches_of(files: Mapping[str, bytes]) -> list[LocatedBatch]:
    """The whole batches in the segments of a directory, in order."""
    names = sorted(name for name in files if name.endswith(".log"))
    return [found for name in names for found in batches_in(name, files[name])]


def is_sound(batch: LocatedBatch) -> bool:
    """False if its checksum is wrong."""
    try:
        decoded(batch.data)
    except _core.CorruptLogError:
        return False
    return True


def decoded(data: bytes) -> StoredBatch:
    """One batch. Raises `_core.CorruptLogError`."""
    ((base, _, producer_id, producer_epoch, kind, records),) = _core.decode_batches(data)
    is_marker = kind >= BatchKind.ABORT_MARKER
    return StoredBatch(
        base,
        producer_id,
        producer_epoch,
        BatchKind(kind),
        () if is_marker else tuple(Record(*each) for each in records),
    )
