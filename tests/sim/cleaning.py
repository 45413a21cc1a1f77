"""The real cleaner on a simulated log.

The batches of a file are written as segments, the bytes that Kafka would have there.
`_core.PartitionLog` opens them as after a crash, the rules of `txn.partition.compaction` choose the
part to clean, and `_core.Cleaner` cleans it. The result is read back, and put into the simulated
file group by group some time later: meanwhile the log grows, and the process may die between two
groups.

Every record of a client has one of few keys, and some are tombstones. Both follow from the value,
by which the checkers know a record; only the cleaner sees a tombstone without it.
"""

import shutil
import struct
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from txn import _core
from txn.partition.compaction import Lag, SealedSegment, cleanable, first_dirty_offset
from txn.partition.producer_state_manager import ProducerStateManager, ReplayedBatch
from txn.storage.base import BatchKind, Record, StoredBatch
from txn.wire.checksums import crc32c

DELETE_RETENTION_MS: Final = 200
KEYS: Final = 4
LAG: Final = Lag(min_ms=0, max_ms=1 << 62)
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and largest
timestamp, producer id and epoch, base sequence, record count."""
LENGTH: Final = struct.Struct(">qi")
CRC: Final = struct.Struct(">I")
CRC_AT, ATTRIBUTES_AT = 17, 21
CONTROL: Final = 0x20
MARKER_KEY, MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")
IN_MEMORY: Final = Path("/dev/shm")
SEGMENT_BYTES: Final = 400
"""Cleaned segments are merged into segments of this size."""


def key_of(value: bytes) -> bytes:
    """The key of a client's record."""
    return b"key-%d" % (crc32(value) % KEYS)


def is_tombstone(value: bytes) -> bool:
    """True if a client's record deletes the value of its key."""
    return crc32(value) // KEYS % 6 == 0


class Left(NamedTuple):
    """The rest of one batch after a cleaning."""

    batch: StoredBatch
    replay: ReplayedBatch | None
    data: bytes


class Cleaned(NamedTuple):
    """A cleaning that is done but for putting its segments in their places."""

    ends: list[int]
    """Where each group of segments ended; offsets, exclusive."""
    left: list[Left]
    forgotten: list[int]
    """The markers of the aborted transactions of which nothing is left."""
    end: int
    """Where the dirty part begins when it is done."""
    now_ms: int


class CleanersProducerState(ProducerStateManager):
    """The parts of the live log's producer state that the cleaner asks for."""

    __slots__ = ("_live", "forgotten")

    def __init__(self, live: ProducerStateManager) -> None:
        super().__init__()
        self._live = live
        self.forgotten: list[int] = []

    def last_batches(self) -> list[tuple[int, int, int]]:
        return self._live.last_batches()

    def forget_aborted(self, last_offsets: Sequence[int]) -> None:
        super().forget_aborted(last_offsets)
        self.forgotten += last_offsets


class Uncleaned(NamedTuple):
    """A log before a cleaning."""

    batches: Sequence[StoredBatch]
    replays: Sequence[ReplayedBatch | None]
    ends: Mapping[int, int]
    """Base offset of each batch → offset behind it."""
    data: Mapping[int, bytes]
    """Base offset → bytes, of those that were cleaned before."""
    cleaned_end: int
    producer_state: ProducerStateManager
    is_of_clients: bool


def clean(log: Uncleaned, batches_per_segment: int, now_ms: int) -> Cleaned | None:
    """Clean a log; None if there is nothing to clean."""
    directory = Path(tempfile.mkdtemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    try:
        return _clean_in(directory, log, batches_per_segment, now_ms)
    finally:
        shutil.rmtree(directory)


def _clean_in(
    directory: Path, log: Uncleaned, batches_per_segment: int, now_ms: int
) -> Cleaned | None:
    base_offset = 0
    for first in range(0, len(log.batches), batches_per_segment):
        some = range(first, min(first + batches_per_segment, len(log.batches)))
        data = b"".join(_bytes_of(log, position) for position in some)
        (directory / f"{base_offset:020}.log").write_bytes(data)
        base_offset = log.ends[log.batches[some[-1]].base_offset]
    producer_state = CleanersProducerState(log.producer_state)
    settings = {"segment.bytes": SEGMENT_BYTES}
    native = _core.PartitionLog(str(directory), producer_state, settings, may_have_gaps=True)
    segments = [SealedSegment(*segment) for segment in native.sealed_segments()]
    allowed = cleanable(
        segments,
        first_dirty_offset=first_dirty_offset(log.cleaned_end, 0, native.log_end_offset),
        last_stable_offset=native.last_stable_offset,
        lag=LAG,
        now_ms=now_ms,
    )
    if not allowed.dirty_bytes:
        return None
    done = _core.Cleaner(map_bytes=1 << 16, load_factor=0.9, bytes_per_second=1e12).clean(
        native,
        first_dirty_offset=allowed.first_dirty_offset,
        end=allowed.end,
        delete_retention_ms=DELETE_RETENTION_MS,
        now_ms=now_ms,
    )
    assert done is not None, "nobody stopped it"
    paths = sorted(directory.glob("*.log"))
    starts = [int(path.stem) for path in paths]
    left = [each for path in paths for each in _read(path.read_bytes(), log)]
    return Cleaned(
        [start for start in starts[1:] if start <= allowed.end],
        [each for each in left if each.batch.base_offset < allowed.end],
        producer_state.forgotten,
        done[0],
        now_ms,
    )


# -------------------------------------------------------------------- bytes


def _bytes_of(log: Uncleaned, position: int) -> bytes:
    batch, replay = log.batches[position], log.replays[position]
    if batch.base_offset in log.data:
        return log.data[batch.base_offset]
    if replay is not None and batch.kind >= BatchKind.ABORT_MARKER:
        data = _marker(replay)
    else:
        timestamp_ms = batch.records[0].timestamp_ms
        data = _core.encode_batch(
            [(record.key, _stored_value(record, log)) for record in batch.records],
            timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            -1 if replay is None else replay[4],
            batch.kind is BatchKind.TRANSACTIONAL,
        )
    return struct.pack(">q", batch.base_offset) + data[8:]


def _stored_value(record: Record, log: Uncleaned) -> bytes | None:
    value = record.value
    return None if value is not None and log.is_of_clients and is_tombstone(value) else value


def _marker(replay: ReplayedBatch) -> bytes:
    _, _, producer_id, producer_epoch, _, timestamp_ms, kind, coordinator_epoch = replay
    key = MARKER_KEY.pack(0, kind == BatchKind.COMMIT_MARKER)
    value = MARKER_VALUE.pack(0, coordinator_epoch)
    data = bytearray(
        _core.encode_batch([(key, value)], timestamp_ms, producer_id, producer_epoch, -1, True)
    )
    data[ATTRIBUTES_AT + 1] |= CONTROL
    CRC.pack_into(data, CRC_AT, crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytes(data)


def _read(segment: bytes, log: Uncleaned) -> Iterator[Left]:
    known = {record.offset: record for batch in log.batches for record in batch.records}
    replays = {r[0]: r for r in log.replays if r is not None}
    position = 0
    while position < len(segment):
        header = HEADER.unpack_from(segment, position)
        data = segment[position : position + LENGTH.size + header[1]]
        position += len(data)
        ((base, last, producer_id, producer_epoch, kind, records),) = _core.decode_batches(data)
        is_marker = kind >= BatchKind.ABORT_MARKER
        batch = StoredBatch(
            base,
            producer_id,
            producer_epoch,
            BatchKind(kind),
            ()
            if is_marker
            else tuple(_recognized(Record(*each), known.get(each[0]), log) for each in records),
        )
        replay = None
        if kind != BatchKind.PLAIN:
            coordinator_epoch = replays[base][7] if base in replays else -1
            replay = (
                *(base, last, producer_id, producer_epoch),
                *(header[11], header[8], kind, coordinator_epoch),
            )
        yield Left(batch, replay, data)


def _recognized(record: Record, known: Record | None, log: Uncleaned) -> Record:
    """The record as the checkers know it; unchanged if it differs from the former one."""
    if known is not None and record == known._replace(value=_stored_value(known, log)):
        return known
    return record


def position_of(batches: Sequence[StoredBatch], offset: int) -> int:
    """Number of batches that begin below an offset."""
    return bisect_left(batches, offset, key=lambda batch: batch.base_offset)
