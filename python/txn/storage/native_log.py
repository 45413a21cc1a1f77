"""The log of one partition on disk: `NativeLog` wraps `_core.PartitionLog`.

The wrapper turns records into batches, refusals into `StorageError` and damage into
`CorruptLogError`.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from threading import Lock
from typing import Any, Final

from txn import _core
from txn.config import split_list
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.logs import log
from txn.partition import ActiveProducer, ProducerStateManager
from txn.partition.compaction import segment_ms
from txn.storage.base import BatchKind, Marker, Record, StoredBatch
from txn.storage.ids import encode_id
from txn.storage.log_offsets import METADATA, CleanedEnds, LogStart, LogStarts, RecoveryPoints

READ_BYTES = 1 << 20

OFFSET_OUT_OF_RANGE = 1

_REMOVALS: Final = [Lock() for _ in range(16)]
"""Held while a log is truncated or deleted, so that a deleted one leaves no limit. A lock for each
log would take 88 bytes of each."""


def _begin_in_child() -> None:
    """Replace the locks in a forked child, which threads of the parent may hold."""
    _REMOVALS[:] = [Lock() for _ in _REMOVALS]


os.register_at_fork(after_in_child=_begin_in_child)


def _removal_of(topic: str, index: int) -> Lock:
    return _REMOVALS[hash((topic, index)) % len(_REMOVALS)]


def advice_on_damage(root: Path, topic: str, index: int, *, is_after_kill: bool) -> str:
    """Return an operator's options for a damaged partition.

    After a kill the storage may have lost its cache, which takes no loss at all to mend.
    """
    data = quote(str(root))
    advice = f"Stop the broker and put back a copy of {root / f'{topic}-{index}'}"
    if is_after_kill:
        advice = (
            "If the storage lost its cache (a volume was detached, or a file system failed and "
            f"was mounted again), stop the broker and say so: txn log lost-cache {data}. Else stop "
            f"it and put back a copy of {root / f'{topic}-{index}'}"
        )
    if (topic, index) == METADATA:
        return advice
    return f"{advice}, or give up what is lost: txn log accept-loss {data} {topic}-{index}"


class NativeLog:
    """A `PartitionLog` in `<root>/<topic>-<index>/`; nothing is there before the first append."""

    __slots__ = (
        "_cleaned_ends",
        "_log_starts",
        "_recovery_points",
        "index",
        "log",
        "producer_state",
        "topic",
    )

    def __init__(
        self,
        root: Path,
        topic: str,
        index: int,
        *,
        topic_id: uuid.UUID,
        settings: Mapping[str, Any],
        past: Mapping[str, Any],
        log_starts: LogStarts,
        recovery_points: RecoveryPoints,
        cleaned_ends: CleanedEnds,
        syncs_before_close: bool,
        lock_file: tuple[int, int] | None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.producer_state = ProducerStateManager()
        self._log_starts = log_starts
        self._recovery_points = recovery_points
        self._cleaned_ends = cleaned_ends
        try:
            self.log = _core.PartitionLog(
                str(root / f"{topic}-{index}"),
                self.producer_state,
                log_settings(settings),
                partition_metadata=f"version: 0\ntopic_id: {encode_id(topic_id)}\n",
                **past,
                syncs_before_close=syncs_before_close,
                lock_file=lock_file,
            )
        except _core.CorruptLogError as error:
            message, path, position = error.args
            is_after_kill = not (past.get("was_clean") or past.get("power_failed"))
            advice = advice_on_damage(root, topic, index, is_after_kill=is_after_kill)
            raise CorruptLogError(f"{message}. {advice}", path=path, position=position) from error
        except OSError as error:
            raise StorageError(f"cannot open partition {topic}-{index}: {error}") from error
        place = topic, index  # one tuple for all three
        recovery_points.add(place, self.log)
        log_starts.add(place, self.log)
        cleaned_ends.add(place, self.log)
        for path, position, size, first_offset, why in self.log.cuts():
            log.warning(
                "log.tail_cut",
                topic=topic,
                partition=index,
                path=path,
                position=position,
                bytes=size,
                first_offset=first_offset,
                why=why,
            )

    @property
    def log_start_offset(self) -> int:
        """The first offset that is stored."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the records for a read_uncommitted reader."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of the records for a read_committed reader."""
        return self.log.last_stable_offset

    @property
    def synced_end(self) -> int:
        """Everything below this offset is on the disk."""
        return self.log.recovery_point

    @property
    def size_bytes(self) -> int:
        """The size of the segments."""
        return self.log.size_bytes

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Apply the topic settings in force; they count from the next batch on."""
        self.log.configure(log_settings(settings))

    @property
    def leader_epoch(self) -> int:
        """The epoch it is led in, and its batches are written in."""
        return self.log.leader_epoch

    def lead(self, leader_epoch: int) -> None:
        """Lead in an epoch from now on, if it is later than that of the newest batch."""
        if leader_epoch > 0:  # it may follow a power failure or an accepted loss
            self.producer_state.note_loss()
        self.log.lead(leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was or will be written."""
        return self.log.epoch_of(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The latest epoch up to the given one and the offset where it ends."""
        return self.log.end_of_epoch(epoch)

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None = None,
    ) -> int:
        """Append (key, value) records as one batch; return its base offset."""
        try:
            return self.log.append_records(records, timestamp_ms, producer)
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("append to", error) from error

    def append_marker(self, marker: Marker) -> int:
        """Append a transaction marker; return its offset."""
        try:
            return self.log.append_marker(*marker)  # the same fields in the same order
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("append a marker to", error) from error

    def block_txn(self, producer_id: int, holder: object = None) -> int:
        """Block a producer's open transaction; return the offset behind its batches."""
        self.producer_state.block_txn(producer_id, holder)
        self._settle()
        return self.producer_state.end_of(producer_id)

    def batches(self, start: int = 0) -> Iterator[StoredBatch]:
        """Read stored batches in order, from the one that contains `start` or the log's first."""
        offset = max(start, self.log_start_offset)
        while offset < self.log_end_offset:
            try:
                decoded = _core.decode_batches(self.log.read(offset, READ_BYTES))
            except _core.CorruptLogError as error:
                message, *place = error.args
                where = dict(zip(("path", "position"), place, strict=False))
                raise CorruptLogError(f"{self.topic}-{self.index}: {message}", **where) from error
            if not decoded:
                return
            for base, last, producer_id, producer_epoch, kind, records in decoded:
                is_marker = kind >= BatchKind.ABORT_MARKER
                yield StoredBatch(
                    base,
                    producer_id,
                    producer_epoch,
                    BatchKind(kind),
                    () if is_marker else tuple(Record(*record) for record in records),
                )
                offset = last + 1

    def offset_for_timestamp(self, timestamp_ms: int, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the first record below `end` at or after a time."""
        with self._searching():
            return self.log.offset_for_timestamp(timestamp_ms, end)

    def offset_of_max_timestamp(self, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the record below `end` with the largest timestamp."""
        with self._searching():
            return self.log.offset_of_max_timestamp(end)

    @contextmanager
    def _searching(self) -> Iterator[None]:
        try:
            yield
        except _core.CorruptLogError as error:
            message, path, position = error.args
            raise CorruptLogError(message, path=path, position=position) from error
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("search", error) from error

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset`, durably; blocks."""
        try:
            return self.log.delete_records(offset, self._note_start)
        except IndexError as error:
            raise StorageError(
                str(error), topic=self.topic, partition=self.index, code=OFFSET_OUT_OF_RANGE
            ) from error
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("delete records of", error) from error

    def _note_start(self, offset: int) -> None:
        start = LogStart(self.log, offset, self.log.truncations)
        self._log_starts.note({(self.topic, self.index): start})

    def truncate_to(self, offset: int) -> int:
        """Remove every batch of a follower that ends above `offset`; return the log end. Blocks.

        Durable when it returns. The log's entries in all checkpoints are lowered first. A crash
        would else leave one above the log's end, which a start takes for damage.

        Raises:
            StorageError: the log follows no leader, or the disk failed.
        """
        return self._truncate(lambda lower: self.log.truncate_to(offset, lower))

    def truncate_fully_and_start_at(self, offset: int) -> int:
        """Remove everything of a follower and begin at `offset`; the rest is as `truncate_to`."""
        return self._truncate(lambda lower: self.log.truncate_fully_and_start_at(offset, lower))

    def _truncate(self, truncate: Callable[[Callable[[int], None]], int]) -> int:
        log_end_offset, high_watermark = self.log_end_offset, self.high_watermark
        try:
            with _removal_of(self.topic, self.index):
                try:
                    end = truncate(self._limit_checkpoints)
                finally:
                    self._recovery_points.lift_limit(self.topic, self.index)
                    self._log_starts.lift_limit(self.topic, self.index)
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("truncate", error) from error
        if end < high_watermark:
            log.warning(
                "log.truncated_below_high_watermark",
                topic=self.topic,
                partition=self.index,
                log_end_offset=log_end_offset,
                truncated_to=end,
                high_watermark=high_watermark,
            )
        return end

    def _limit_checkpoints(self, bound: int) -> None:
        """Have, durably, no entry of this log beyond a bound, while it is truncated."""
        self._recovery_points.limit(self.topic, self.index, bound)
        self._log_starts.limit(self.topic, self.index, bound)
        self._cleaned_ends.lower(self.topic, self.index, bound)

    def producers(self) -> list[ActiveProducer]:
        """List the producers that the log knows, as its stored batches make them."""
        self._settle()
        return self.producer_state.describe()

    def _settle(self) -> None:
        """Wait for the append that is under way, and restore the producers from the stored
        batches."""
        try:
            self.log.settle()
        except OSError as error:
            raise self._failure("look into", error) from error

    def sync(self) -> None:
        """Force appended batches to the disk; blocks."""
        try:
            self.log.sync()
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("sync", error) from error

    def sync_failure(self, reason: str) -> StorageError:
        """Return the error to raise when another thread could not sync its log."""
        return self._failure("sync", OSError(reason))

    def close(self) -> None:
        """Sync and close, leaving the files that the next start needs."""
        try:
            self.log.close()
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("close", error) from error

    def delete(self) -> None:
        """Remove the partition for ever."""
        try:
            with _removal_of(self.topic, self.index):
                self.log.delete()
                self._log_starts.forget(self.topic, self.index)
                self._recovery_points.forget(self.topic, self.index)
                self._cleaned_ends.forget(self.topic, self.index)
        except (_core.LogRefusedError, OSError) as error:
            raise self._failure("delete", error) from error

    def _failure(self, verb: str, error: Exception) -> StorageError:
        reason, code = str(error), StorageError.code
        if isinstance(error, _core.LogRefusedError):
            reason, code = error.args
        return StorageError(
            f"could not {verb} partition {self.topic}-{self.index}: {reason}",
            topic=self.topic,
            partition=self.index,
            code=code,
        )


def log_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Topic settings as the log goes by them."""
    policies = split_list(settings["cleanup.policy"])
    lag_ms = settings["max.compaction.lag.ms"]
    return {**settings, "segment.ms": segment_ms(policies, settings["segment.ms"], lag_ms)}
