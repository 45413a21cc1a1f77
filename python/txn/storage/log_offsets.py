"""The checkpoints of logs: their start, their end, their recovery point and their cleaned end.

Each class keeps the entries of one checkpoint, or of the two that prove how far a log has come. It
asks the logs that are open, and remembers the entries of the others. Any thread may call it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Self

from txn.identifiers import TopicPartition
from txn.storage.checkpoints import (
    CLEANED_ENDS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Checkpoint,
    read_checkpoint,
)

if TYPE_CHECKING:
    from txn._core import PartitionLog

METADATA: Final[TopicPartition] = ("__cluster_metadata", 0)


class _OpenLogs:
    """The open logs that are asked, and the bounds of those that are being truncated."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._limits: dict[TopicPartition, int] = {}

    def lift_limit(self, topic: str, index: int) -> None:
        """Remove the limit: the next checkpoint follows the open log again."""
        self._limits.pop((topic, index), None)


class _OneCheckpoint(_OpenLogs):
    """The entries of one checkpoint."""

    FILE: ClassVar[str]
    KEEPS_ROOM: ClassVar[bool] = False

    def __init__(self, path: Path, stored: dict[TopicPartition, int]) -> None:
        super().__init__()
        self._checkpoint = Checkpoint(
            path, self._current, stored=stored, keeps_room=self.KEEPS_ROOM
        )
        self._entries = dict(stored)
        self._lock = Lock()

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read the checkpoint of a data directory."""
        return cls(root / cls.FILE, read_checkpoint(root / cls.FILE))

    def of(self, topic: str, index: int) -> int | None:
        """The entry of a partition; None if there is none."""
        return self._entries.get((topic, index))

    def names_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic that have an entry."""
        return [place for place in self._entries.copy() if place[0] == topic]

    def forget(self, topic: str, index: int) -> None:
        """Leave a deleted partition out of the next checkpoint."""
        with self._lock:
            self._logs.pop((topic, index), None)
            self._entries.pop((topic, index), None)

    def leave_out(self, is_known: Callable[[TopicPartition], bool]) -> bool:
        """Drop entries of unknown partitions; return True if the checkpoint had any."""
        with self._lock:
            gone = [place for place in self._entries if not is_known(place)]
            for place in gone:
                del self._entries[place]
        return bool(gone)

    def write(self) -> None:
        """Write all entries to the disk. Raises OSError."""
        self._checkpoint.write()

    def _current(self) -> dict[TopicPartition, int]:
        with self._lock:
            return self._entries.copy()


class LogStart(NamedTuple):
    """Where a log is to start; `truncations` were counted when that was found."""

    log: "PartitionLog"
    offset: int
    truncations: int


class LogStarts(_OneCheckpoint):
    """Where logs start, in `log-start-offset-checkpoint`.

    An entry is written before anything below it is removed, and within a second of a log's first
    record. So a log whose first segment lies behind its entry has lost one. A log without an entry
    proves nothing. The entry of an open log is the start that it was given.

    Deviation from Kafka, which leaves out a log whose first file's name tells, and notes a start
    after the removal. Kafka reads such a file as its own.
    """

    FILE = LOG_STARTS
    KEEPS_ROOM = True

    def add(self, place: TopicPartition, log: "PartitionLog") -> None:
        """Ask this log from now on."""
        if place == METADATA:
            return
        with self._lock:
            self._logs[place] = log
            if log.log_end_offset == 0:
                self._entries.pop(place, None)  # a power failure took it all
            elif place in self._entries:
                self._entries[place] = log.log_start_offset  # the next runs believe this start

    def note(self, starts: Mapping[TopicPartition, LogStart]) -> None:
        """Make starts of open logs durable, before anything below is removed; blocks.

        Nothing is noted of a log that was deleted or truncated since. Raises OSError.
        """
        with self._lock:
            stored = self._checkpoint.stored
            if all(start.offset <= stored.get(place, -1) for place, start in starts.items()):
                return
            for place, (log, offset, truncations) in starts.items():
                is_open = self._logs.get(place) is log and place not in self._limits
                if is_open and log.truncations == truncations:
                    self._entries[place] = max(self._entries.get(place, 0), offset)
        self.write()

    def keep_only(self, is_known: Callable[[TopicPartition], bool]) -> None:
        """Leave out, durably, entries of unknown partitions. Raises OSError."""
        if self.leave_out(is_known):
            self.write()

    def move(self, topic: str, index: int, first: int, end: int) -> None:
        """Clamp a partition's entry to `[first, end]`; the next checkpoint writes it."""
        with self._lock:
            if (topic, index) in self._entries:
                self._entries[topic, index] = min(max(self._entries[topic, index], first), end)

    def limit(self, topic: str, index: int, offset: int) -> None:
        """Keep a log start at or below an offset, durably, until `lift_limit`. Raises OSError.

        With a limit of 0 the log may be gone, and its entry is removed.
        """
        with self._lock:
            self._limits[topic, index] = offset
            start = self._entries.get((topic, index))
            if start is not None and (offset == 0 or start > offset):
                del self._entries[topic, index]
        self.write()

    def _current(self) -> dict[TopicPartition, int]:
        with self._lock:
            starts, limits, logs = self._entries.copy(), self._limits.copy(), self._logs.copy()
        for place, opened in logs.items():
            if place not in limits and opened.log_end_offset > 0:
                starts[place] = max(starts.get(place, 0), opened.log_start_offset)
        return starts


class CleanedEnds(_OneCheckpoint):
    """Where the cleanings of compacted logs ended, in `cleaner-offset-checkpoint`.

    A log without an entry counts as dirty from its start. An entry, even one of 0, says that the
    log was cleaned once: it may have gaps.
    """

    FILE = CLEANED_ENDS

    def add(self, place: TopicPartition, log: "PartitionLog") -> None:
        """Read the entry from this open log from now on."""
        self._logs[place] = log

    def note(self, topic: str, index: int, log: "PartitionLog", end: int) -> None:
        """Note, durably, where a cleaning of a log ended; nothing of a deleted one.

        Raises OSError.
        """
        place: TopicPartition = (topic, index)
        with self._lock:
            if self._logs.get(place) is not log:
                return
            self._entries[place] = min(end, log.log_end_offset)  # it may be truncated since
        self.write()

    def lower(self, topic: str, index: int, bound: int) -> None:
        """Have, durably, no entry beyond a bound. Raises OSError."""
        place: TopicPartition = (topic, index)
        with self._lock:
            if self._entries.get(place, 0) <= bound:
                return
            self._entries[place] = bound
        self.write()


class RecoveryPoints(_OpenLogs):
    """Up to where open logs are on the disk, and where they end, in the checkpoints of both.

    Both prove how far a log has come. Where logs end is written first, so that no recovery
    point lies beyond it.

    Deviation from Kafka, whose raft layer looks after the metadata log: that one is among the
    recovery points too. So its part on the disk is never cut as a torn tail. Kafka passes over an
    entry for it.
    """

    def __init__(
        self, root: Path, points: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> None:
        super().__init__()
        self.deleted: set[str] = set()
        """Names of topics which the checkpoints may still list, though they are gone."""
        self._points = Checkpoint(root / RECOVERY_POINTS, lambda: self._next_points, stored=points)
        self._ends = Checkpoint(root / HIGH_WATERMARKS, lambda: self._next_ends, stored=ends)
        self._next_points: dict[TopicPartition, int] = {}
        self._next_ends: dict[TopicPartition, int] = {}
        self._earlier = dict(points)
        """Points of partitions that are not open yet."""
        self._earlier_ends = dict(ends)
        self._unnamed: set[TopicPartition] = set()
        """Open logs that were not yet found in both checkpoints."""
        self._writing = Lock()

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read the checkpoints of a data directory."""
        points, ends = (read_checkpoint(root / name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS))
        return cls(root, points, ends)

    def of(self, topic: str, index: int) -> int:
        """The recovery point that an earlier run left of a partition's log, 0 if none."""
        return self._earlier.get((topic, index), 0)

    def end_of(self, topic: str, index: int) -> int:
        """Where an earlier run says that a partition's log ended, 0 if nowhere."""
        return self._earlier_ends.get((topic, index), 0)

    def unreadable(self) -> list[Path]:
        """The checkpoints that say nothing, though a clean stop has written them."""
        both = [self._points, *([self._ends] if self._points.stored.keys() - {METADATA} else [])]
        return [checkpoint.path for checkpoint in both if not checkpoint.stored]

    def forget_earlier(self, topic: str, index: int) -> None:
        """Leave an earlier run's entry of a partition out of the next checkpoint."""
        self._forget_earlier((topic, index))

    def distrust_ends(self) -> None:
        """Let no stored log end count as a proof."""
        self._earlier_ends.clear()

    def names_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic that are not open and that an earlier run listed."""
        return [place for place in {*self._earlier, *self._earlier_ends} if place[0] == topic]

    def add(self, place: TopicPartition, log: "PartitionLog") -> None:
        """Ask this log from now on."""
        self._logs[place] = log
        self._unnamed.add(place)
        self._forget_earlier(place)

    def forget(self, topic: str, index: int) -> None:
        """Leave a deleted partition out of the next checkpoint."""
        self.deleted.add(topic)
        self._logs.pop((topic, index), None)
        self._unnamed.discard((topic, index))
        self._forget_earlier((topic, index))

    def keep_only(self, is_known: Callable[[TopicPartition], bool]) -> None:
        """Leave out, durably, entries of unknown partitions. Raises OSError."""
        gone = {*self._earlier, *self._earlier_ends}
        gone = {place for place in gone if not is_known(place)}
        for place in gone:
            self._forget_earlier(place)
        if gone:
            self.write()

    def are_behind(self) -> bool:
        """Return True if the checkpoints lack a log that was written, or some of the metadata log.

        A log that no checkpoint names may vanish without a trace.
        """
        metadata = self._logs.get(METADATA)
        stored = self._points.stored.get(METADATA, 0)
        if metadata is not None and metadata.recovery_point > stored:
            return True
        return any(self._lack(place) for place in self._unnamed.copy())

    def _lack(self, place: TopicPartition) -> bool:
        log = self._logs.get(place)
        is_noted, is_end_noted = place in self._points.stored, place in self._ends.stored
        if log is None or (is_noted and (is_end_noted or place == METADATA)):
            self._unnamed.discard(place)
            return False
        is_written = log.proven_end > 0 and place != METADATA
        return (is_written and not is_end_noted) or (log.recovery_point > 0 and not is_noted)

    def write(self) -> None:
        """Write both checkpoints. Raises OSError."""
        with self._writing:
            self._next_points = self._recovery_points()
            self._next_ends = self._log_ends()
            self._ends.write()
            self._points.write()

    def limit(self, topic: str, index: int, offset: int) -> None:
        """Have, durably, no entry of a log beyond an offset, until `lift_limit`. Raises OSError."""
        self._limits[topic, index] = offset
        self.write()

    def logs(self) -> "dict[TopicPartition, PartitionLog]":
        """The open logs."""
        return self._logs.copy()

    def _forget_earlier(self, place: TopicPartition) -> None:
        self._earlier.pop(place, None)
        self._earlier_ends.pop(place, None)

    def _recovery_points(self) -> dict[TopicPartition, int]:
        points = self._earlier.copy()
        points |= {place: log.recovery_point for place, log in self.logs().items()}
        points = _limited(points, self._limits)
        return {place: point for place, point in points.items() if point > 0}

    def _log_ends(self) -> dict[TopicPartition, int]:
        ends = self._earlier_ends.copy()
        ends |= {place: log.proven_end for place, log in self.logs().items()}
        ends = _limited(ends, self._limits)
        ends.pop(METADATA, None)
        return {place: end for place, end in ends.items() if end > 0}


def _limited(
    offsets: Mapping[TopicPartition, int], limits: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint, none beyond the limit of its log."""
    limits = limits.copy()
    return {place: min(offset, limits.get(place, offset)) for place, offset in offsets.items()}
