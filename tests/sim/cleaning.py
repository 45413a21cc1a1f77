"""The real cleaner on a log of the simulation.

The rules of `txn.partition.compaction` choose the part to clean, and `_core.Cleaner` cleans it. It
works on a thread of its own, only while the simulation waits for it. When its first output is
written it waits, for as long as the plan says. Meanwhile the log grows, and the process may die; it
may also die at each change that puts the output in place.

Every record of a client has one of few keys, and some are tombstones. Both follow from the value,
by which the checkers know a record; only the log holds a tombstone without it.
"""

import struct
import threading
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from sim.segments import LocatedBatch, batches_in
from txn import _core
from txn.partition.compaction import Cleanable, Lag, SealedSegment, cleanable, first_dirty_offset
from txn.storage.base import BatchKind

if TYPE_CHECKING:
    from sim.disk import Disk, SimFile, SimLog

DELETE_RETENTION_MS: Final = 200
KEYS: Final = 4
SEQUENCE: Final = struct.Struct(">i")
SEQUENCE_AT: Final = 53
LAG: Final = Lag(min_ms=0, max_ms=1 << 62)


def key_of(value: bytes) -> bytes:
    """The key of a client's record."""
    return b"key-%d" % (crc32(value) % KEYS)


def is_tombstone(value: bytes) -> bool:
    """True if a client's record deletes the value of its key."""
    return crc32(value) // KEYS % 6 == 0


def stored_value(value: bytes | None) -> bytes | None:
    """The value of a client's record in its log."""
    return None if value is None or is_tombstone(value) else value


class SimCleaning:
    """One pass of the cleaner."""

    def __init__(self, disk: "Disk", log: "SimLog", file: "SimFile", now_ms: int) -> None:
        self.log = log
        self.end = 0
        """End of the part that may be cleaned."""
        self.has_failed = False
        self._disk = disk
        self._file = file
        self._now_ms = now_ms
        self._is_paused = self._has_waited = False
        self._waits = threading.Semaphore(0)
        """Released when the cleaner waits, or has ended."""
        self._goes_on = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)

    @classmethod
    def begun(
        cls, disk: "Disk", log: "SimLog", file: "SimFile", now_ms: int
    ) -> "SimCleaning | None":
        """Clean up to the first pause; None if there is nothing to clean."""
        cleaning = cls(disk, log, file, now_ms)
        allowed = cleaning.allowed(limit_of(log))
        if not allowed.dirty_bytes:
            return None
        cleaning.end = allowed.end
        file.note_outdated()
        disk.cleaning = cleaning
        cleaning._thread.start()
        cleaning._waits.acquire()
        return cleaning

    def allowed(self, last_stable_offset: int) -> Cleanable:
        """The part that may be cleaned."""
        native = self.log.log
        return cleanable(
            [SealedSegment(*segment) for segment in native.sealed_segments()],
            first_dirty_offset=first_dirty_offset(
                self._file.cleaned_end, native.log_start_offset, native.log_end_offset
            ),
            last_stable_offset=last_stable_offset,
            lag=LAG,
            now_ms=self._now_ms,
        )

    def go_on(self) -> None:
        """Put the output in place; returns when the cleaner has ended."""
        if self._is_paused:
            self._is_paused = False
            self._file.cleanings.append((self.end, self._now_ms))
            self._goes_on.release()
            self._waits.acquire()
        self._thread.join()
        self._disk.cleaning = None

    def abandon(self) -> None:
        """End it after the death of its process, whose changes are all refused."""
        if self._is_paused:
            self._is_paused = False
            self._goes_on.release()
        self._thread.join()
        self._disk.cleaning = None

    def before(self, kind: str, directory: str, name: str) -> None:
        """Called before each change; the first sync of the cleaner is that of its output."""
        is_own = threading.current_thread() is self._thread
        if is_own and kind == "sync" and name.endswith(".log.cleaned"):
            self._look_over(directory, name)
            if not self._has_waited:
                self._has_waited = self._is_paused = True
                self._waits.release()
                self._goes_on.acquire()

    def _look_over(self, directory: str, name: str) -> None:
        content = self._disk.machine.files(directory, name)
        first = [each for each in self._file.found() if f"{each.name}.cleaned" == name]
        left = [each.data for each in batches_in(name, content[name])]
        wanted = b"".join(output_of(CleanedSegment(self.log, first, left)))
        if wanted != content[name]:
            self._disk.machine.replace(directory, name, wanted)

    def _run(self) -> None:
        try:
            allowed = self.allowed(limit_of(self.log))
            done = _core.Cleaner(map_bytes=1 << 16, load_factor=0.9, bytes_per_second=1e12).clean(
                self.log.log,
                first_dirty_offset=allowed.first_dirty_offset,
                end=allowed.end,
                delete_retention_ms=delete_retention_ms(),
                now_ms=self._now_ms,
            )
            assert done is not None, "nobody stopped it"
            self._file.cleaned_end = done[0]
        except (OSError, _core.LogRefusedError, _core.CorruptLogError):
            self.has_failed = True
        finally:
            self._waits.release()


# -------------------------------------------------------------------- for broken rules


class CleanedSegment(NamedTuple):
    """One segment that the cleaner has written."""

    log: "SimLog"
    first_segment: list[LocatedBatch]
    """The batches of the first segment that it replaces."""
    left: list[bytes]


def output_of(output: CleanedSegment) -> list[bytes]:
    """The batches that take the place of the cleaned ones."""
    return output.left


def limit_of(log: "SimLog") -> int:
    """The offset up to which a log may be cleaned."""
    return log.last_stable_offset


def delete_retention_ms() -> int:
    """Time that the cleaner leaves a tombstone."""
    return DELETE_RETENTION_MS


def moved_up(batch: bytes) -> bytes:
    """A batch whose records have the offsets behind its first one, without gaps."""
    ((base, _, producer_id, producer_epoch, kind, records),) = _core.decode_batches(batch)
    if kind > BatchKind.TRANSACTIONAL or not records:
        return batch
    (sequence,) = SEQUENCE.unpack_from(batch, SEQUENCE_AT)
    data = _core.encode_batch(
        [(key, value) for _, _, key, value in records],
        records[0][1],
        producer_id,
        producer_epoch,
        sequence,
        kind == BatchKind.TRANSACTIONAL,
    )
    return struct.pack(">q", base) + data[8:]
