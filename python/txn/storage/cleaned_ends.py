"""Where the cleanings of compacted logs ended, in `cleaner-offset-checkpoint`.

A log without an entry counts as dirty from its start. An entry, even one of 0, says that the log
was cleaned once: it may have gaps.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Protocol, Self

from txn.storage.checkpoints import CLEANED_ENDS, Checkpoint, Place, read_checkpoint


class _Log(Protocol):
    @property
    def log_end_offset(self) -> int: ...


class CleanedEnds:
    """The entries of all partitions. Any thread may call it."""

    def __init__(self, path: Path, stored: dict[Place, int]) -> None:
        self._logs: dict[Place, _Log] = {}
        self._checkpoint = Checkpoint(path, lambda: self._ends.copy(), stored=stored)
        self._ends = dict(stored)
        self._lock = Lock()

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read the checkpoint of a data directory."""
        return cls(root / CLEANED_ENDS, read_checkpoint(root / CLEANED_ENDS))

    def of(self, topic: str, index: int) -> int | None:
        """Where the last cleaning of a partition ended; None if there was none."""
        return self._ends.get((topic, index))

    def names_of(self, topic: str) -> list[Place]:
        """The partitions of a topic that have an entry."""
        return [place for place in self._ends.copy() if place[0] == topic]

    def add(self, topic: str, index: int, log: _Log) -> None:
        """Take entries of this log from now on."""
        self._logs[topic, index] = log

    def note(self, topic: str, index: int, log: _Log, end: int) -> None:
        """Note, durably, where a cleaning of a log ended; nothing of a deleted one.

        Raises OSError.
        """
        place: Place = (topic, index)
        with self._lock:
            if self._logs.get(place) is not log:
                return
            self._ends[place] = min(end, log.log_end_offset)  # it may be truncated since
        self._checkpoint.write()

    def lower(self, topic: str, index: int, bound: int) -> None:
        """Have, durably, no entry beyond a bound. Raises OSError."""
        place: Place = (topic, index)
        with self._lock:
            if self._ends.get(place, 0) <= bound:
                return
            self._ends[place] = bound
        self._checkpoint.write()

    def forget(self, topic: str, index: int) -> None:
        """Leave a deleted partition out of the next checkpoint."""
        with self._lock:
            self._logs.pop((topic, index), None)
            self._ends.pop((topic, index), None)

    def keep_only(self, is_known: Callable[[Place], bool]) -> None:
        """Leave out entries of unknown partitions in the next checkpoint."""
        with self._lock:
            self._ends = {place: end for place, end in self._ends.items() if is_known(place)}

    def write(self) -> None:
        """Have all entries on the disk. Raises OSError."""
        self._checkpoint.write()
