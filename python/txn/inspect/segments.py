"""Segments as the Rust extension reads them: batches, records, and their faults."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Any, Final

from txn import _core
from txn.partition.producer_state_entry import last_sequence_of

READ_BYTES: Final = 1 << 22
"""Bytes read at once."""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_LOG_APPEND_TIME: Final = 1 << 3
_TRANSACTIONAL: Final = 1 << 4
_CONTROL: Final = 1 << 5
_DELETE_HORIZON: Final = 1 << 6


class UnreadableBatchError(Exception):
    """A batch's records cannot be read; says why."""


@dataclass(frozen=True, slots=True)
class SegmentBatch:
    """One stored batch; offsets are inclusive.

    `fault` describes its wrong checksum, None if it is right. `delete_horizon_ms` is set by
    compaction: when markers and tombstones in the batch may go.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    crc: int
    fault: str | None

    @property
    def codec(self) -> str:
        """Kafka's name of it."""
        number = self.attributes & 7
        return CODECS[number] if number < len(CODECS) else f"unknown {number}"

    @property
    def is_transactional(self) -> bool:
        """True if it belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True if it holds a marker or another record that no application sees."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        """True if the broker set its time."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop its markers and tombstones; None if that is not set."""
        return self.base_timestamp_ms if self.attributes & _DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, or -1."""
        return last_sequence_of(self.base_sequence, self.last_offset - self.base_offset + 1)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes in `[position, end)` that are no batch."""

    position: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def walk(path: Path) -> Iterator[SegmentBatch | Damage]:
    """Read a segment, or a snapshot of the metadata log, from end to end. Raises OSError."""
    reader = _core.SegmentReader(str(path))
    size = path.stat().st_size
    position = 0
    while position < size:
        seen, damaged, position = reader.batches(position, READ_BYTES)
        batches: Iterator[SegmentBatch | Damage] = (_batch(each) for each in seen)
        stretches: Iterator[SegmentBatch | Damage] = (Damage(*each) for each in damaged)
        yield from merge(batches, stretches, key=lambda found: found.position)


def records_of(path: Path, batch: SegmentBatch) -> list[SegmentRecord]:
    """Read the records of a batch. Raises UnreadableBatchError, OSError."""
    try:
        records = _core.SegmentReader(str(path)).records(batch.position)
    except _core.CorruptLogError as error:
        raise UnreadableBatchError(error.args[0]) from error
    return [
        SegmentRecord(offset, timestamp_ms, key, value, tuple(headers))
        for offset, timestamp_ms, key, value, headers in records
    ]


def check(
    path: Path, base_offset: int, index: bytes, time_index: bytes, *, is_deep: bool
) -> _core.SegmentCheck:
    """Begin to check a segment. Raises OSError."""
    return _core.SegmentCheck(str(path), base_offset, index, time_index, is_deep=is_deep)


def refusal_of(
    directory: Path, settings: dict[str, Any], past: dict[str, Any]
) -> tuple[str, Path, int] | None:
    """Return why a start would refuse a partition, as (reason, file, position); None: it would not.

    Raises:
        OSError: something cannot be read.
    """
    try:
        _core.examine_log(str(directory), settings, past)
    except _core.CorruptLogError as error:
        message, path, position = error.args
        return message.removeprefix(f"{path} is damaged at byte {position}: "), Path(path), position
    return None


def _batch(seen: "_core.SeenBatch") -> SegmentBatch:
    position, size, base_offset, last_offset, count, leader_epoch, attributes = seen[:7]
    producer, timestamps, crc = seen[7:]
    return SegmentBatch(
        position,
        size,
        base_offset,
        last_offset,
        count,
        leader_epoch,
        attributes,
        *producer,
        *timestamps,
        *crc,
    )
