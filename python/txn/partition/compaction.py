"""The next part of a log that compaction may take, and the choice of the log that needs it most.

A log has a clean part, up to where earlier cleanings came, and a dirty part behind it. Of the dirty
part only whole sealed segments below the last stable offset may be cleaned, since undecided records
may yet be aborted. Cleaning stops at the first segment whose newest record is younger than
`min.compaction.lag.ms`:

    log start        first dirty offset           end                   log end
       |    clean            |      cleanable       |  not yet cleanable   |

A log is cleaned when its cleanable part is more than `min.cleanable.dirty.ratio` of the bytes
before `end`. It is also cleaned when a dirty segment began longer than `max.compaction.lag.ms` ago.
The log with the largest ratio goes first.

Pure. Source: Kafka, `LogCleanerManager`, `LogToClean`; KIP-58, KIP-354.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

Log = TypeVar("Log")


class SealedSegment(NamedTuple):
    """A segment to which nothing is appended any more.

    `end_offset` is exclusive; timestamps are -1 when no batch has one, the first is that of
    the first batch.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    first_timestamp_ms: int
    largest_timestamp_ms: int


class Lag(NamedTuple):
    """The least age of a record to be cleaned, and the greatest age without a cleaning."""

    min_ms: int
    max_ms: int


class Cleanable(NamedTuple):
    """The range of a log that a cleaning would take.

    Attributes:
        first_dirty_offset: Where the dirty part begins.
        end: Where a cleaning has to end; the base offset of a segment, or the first dirty offset.
        clean_bytes: Size of the segments before the dirty part.
        dirty_bytes: Size of the segments from there to `end`.
        is_overdue: Whether it should not wait for more.
    """

    first_dirty_offset: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty part's share of everything before `end`; 0 if that is nothing."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, dirty_ratio_min: float) -> bool:
        """True if a cleaning is worth its cost."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > dirty_ratio_min)


def segment_ms(cleanup_policies: Collection[str], segment_ms: int, max_lag_ms: int) -> int:
    """The time for which a segment may grow: one that is to be compacted in time has to be sealed
    in time.
    """
    return min(segment_ms, max_lag_ms) if "compact" in cleanup_policies else segment_ms


def first_dirty_offset(cleaned_end: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Find where the dirty part begins: where the last cleaning ended, if that is in the log.

    A checkpoint beyond the log's end is of a log that lost its tail: everything is dirty.
    """
    if cleaned_end is None or not log_start_offset <= cleaned_end <= log_end_offset:
        return log_start_offset
    return cleaned_end


def cleanable(
    segments: Sequence[SealedSegment],
    *,
    first_dirty_offset: int,
    last_stable_offset: int,
    lag: Lag,
    now_ms: int,
) -> Cleanable:
    """Decide which part of a log may be cleaned. `segments` are all sealed ones, oldest first."""
    clean = [segment for segment in segments if segment.end_offset <= first_dirty_offset]
    dirty = segments[len(clean) :]
    taken: list[SealedSegment] = []
    for segment in dirty:
        is_young = lag.min_ms > 0 and segment.largest_timestamp_ms > now_ms - lag.min_ms
        if segment.end_offset > last_stable_offset or is_young:
            break
        taken.append(segment)
    oldest_ms = min((s.first_timestamp_ms for s in dirty if s.first_timestamp_ms > 0), default=None)
    return Cleanable(
        first_dirty_offset,
        max((segment.end_offset for segment in taken), default=first_dirty_offset),
        sum(segment.size_bytes for segment in clean),
        sum(segment.size_bytes for segment in taken),
        oldest_ms is not None and oldest_ms < now_ms - lag.max_ms,
    )


class LogToClean(NamedTuple, Generic[Log]):
    """A log, its cleanable part, and its `min.cleanable.dirty.ratio`."""

    log: Log
    cleanable: Cleanable
    dirty_ratio_min: float


def dirtiest(candidates: Iterable[LogToClean[Log]]) -> LogToClean[Log] | None:
    """Choose the log to clean next; None if none is worth it."""
    due = (each for each in candidates if each.cleanable.is_due(each.dirty_ratio_min))
    return max(due, key=lambda each: each.cleanable.dirty_ratio, default=None)
