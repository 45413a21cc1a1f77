"""The streaming source: where batches end, and the ranges of one.

The first batch of a query reads nothing of the partitions that start at "latest", since Spark
notes only the ends of batches. Otherwise a crash in that batch would move the start to a later
"latest", and the records in between would never be read.

PySpark 4.2 is the first to pass to a source in Python where a batch starts and how large it may be,
so this module cannot be imported with an older one. `txn.spark.reader` is for all of them.

Source: KafkaMicroBatchStream, Spark 4.2 (behaviour).
"""

import time
from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from txn.errors import ConfigError
from txn.identifiers import TopicPartition
from txn.spark.mark import Mark, Offsets, gone, made_anew, named, short
from txn.spark.options import EARLIEST, LATEST, Boundary, SourceSettings
from txn.spark.ranges import BatchDelay, Range, limited
from txn.spark.reader import Reader, report_missing
from txn.spark.selection import Resolved


class RangePartition(InputPartition):
    """A range that one task reads."""

    def __init__(self, span: Range) -> None:
        super().__init__(span)
        self.value: Range


class StreamReader(Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("txn")`: where batches end, and their ranges."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        if settings.ending is not None:
            raise ConfigError(
                f"{settings.ending.option} is for batch reads (spark.read): a stream has no end. "
                "Remove it, or use trigger(availableNow=True) to stop at what is there now",
                option=settings.ending.option,
            )
        self._starting = settings.starting or Boundary("startingOffsets", LATEST)
        least = settings.offsets_per_trigger_min
        self._delay = None if least is None else BatchDelay(least, settings.trigger_delay_ms_max)
        self._initial: Resolved | None = None
        """Set while the start of a new query is not in Spark's offset log yet."""
        self._target: Mark | None = None
        """Under Trigger.AvailableNow, where the query ends."""
        self._seen: Mark | None = None
        self._reported: set[TopicPartition] = set()
        """Partitions whose absence was logged, for it lasts over many batches."""

    def initialOffset(self) -> dict[str, dict[str, Any]]:
        """Where a new query starts: the starting options, or latest."""
        self._initial = self._planned(lambda: self._partitions().resolve(self._starting))
        return self._initial.mark.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """MinOffsetsPerTrigger and maxOffsetsPerTrigger; Python has no limit for both.

        Spark gives it back in `latestOffset`, unless its trigger has a limit of its own.
        """
        least, most = self._settings.offsets_per_trigger_min, self._settings.offsets_per_trigger_max
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, dict[str, Any]], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends.

        Raises:
            DataLossError: records up to `start` are not there any more, and `failOnDataLoss`.
            ConfigError: a topic that was never read is not there.
        """
        begin = Mark.from_json(start)
        pinned = self._pinned(begin)
        end = self._planned(lambda: self._next_end(begin, pinned, limit))
        return start if end is None else end.to_json()

    def _next_end(
        self, begin: Mark, pinned: frozenset[TopicPartition], limit: ReadLimit
    ) -> Mark | None:
        """Where the next batch ends; None if it has to wait for more records."""
        now = self._end(begin)
        begin = begin.choosing(now.at)
        kept = self._absent(begin, now)
        ids = {**kept.ids, **now.ids}
        self._seen = Mark(now.at, ids, kept.left_out)
        moved = self._moved(begin, now)
        left = [place for place in now.at if place not in moved]
        fresh = sorted(place for place in left if place not in begin.at)
        starts = begin.at | self._partitions().ends(fresh, EARLIEST)  # from their beginning
        ends = {
            place: starts[place] if place in pinned else max(now.at[place], starts[place])
            for place in left
        }
        if isinstance(limit, ReadMinRows) and not moved and not self._is_due(starts, ends):
            return None
        most = self._settings.offsets_per_trigger_max
        if isinstance(limit, ReadMaxRows | ReadMinRows) and most is not None:
            ends = limited(starts, ends, most)
        return Mark(kept.at | ends | moved, ids, kept.left_out)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: at the present end of the topics."""
        self._target = self._planned(self._latest)

    def reportLatestOffset(self) -> dict[str, dict[str, Any]] | None:
        """Ends at the last look, for the query's progress.

        Equal to the end of a batch that has read everything, as with Spark's Kafka source.
        """
        return None if self._seen is None else self._seen.to_json()

    def partitions(
        self, start: dict[str, dict[str, Any]], end: dict[str, dict[str, Any]]
    ) -> list[InputPartition]:
        """The ranges of one batch."""
        ends = Mark.from_json(end)
        if ends.is_beginning:
            return []
        starts = Mark.from_json(start).choosing(ends.at)
        replaced = made_anew(starts, ends)  # this batch only moves them to their beginning

        # A partition that is new to the query has no start, and its records count from offset 0 on.
        # A place may move back where records are gone. It also may in the first batch of a query
        # that starts at "latest". That batch is empty, and may be planned again from a later
        # "latest".
        ranges = [
            Range(place, min(starts.at.get(place, 0), last), last, ends.ids.get(place[0]))
            for place, last in sorted(ends.at.items())
            if place[0] not in replaced
        ]
        return [RangePartition(part) for part in self._planned(lambda: self._parts(ranges))]

    def commit(self, end: dict[str, dict[str, Any]]) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        """Nothing to do: the client is this process's, and ends with it."""

    def _end(self, begin: Mark) -> Mark:
        """Where the chosen partitions end now, or where the query ends under AvailableNow."""
        known = begin.at.keys() - self._reported
        if self._target is None:
            return self._latest(known)
        if known - self._target.at.keys():
            now = self._latest(known)  # a node may not have known them when the target was fixed
            at = {place: now.at[place] for place in known & now.at.keys()} | self._target.at
            self._target = Mark(at, {**now.ids, **self._target.ids})
        return self._target

    def _latest(self, known: Iterable[TopicPartition] = ()) -> Mark:
        partitions = self._partitions()
        places, ids = partitions.find(known)
        return Mark(partitions.ends(places, LATEST), ids)

    def _absent(self, begin: Mark, now: Mark) -> Mark:
        """The places of partitions that are not read now, to be kept in case they come back."""
        partitions, absent = self._partitions(), gone(begin, now)
        chosen = {place for place in absent if partitions.chooses(place)}
        unreported = sorted(set(absent) - self._reported)
        partitions.check_all_are_there(list(now.at | begin.at))
        for place in unreported:
            report_missing(self._settings, place, _absence(place, begin.at[place], place in chosen))
        self._reported = set(absent)
        replaced = made_anew(begin, now)
        left_out = {place: at for place, at in begin.left_out.items() if place[0] not in replaced}
        left_out |= {place: begin.at[place] for place in absent if place not in chosen}
        topics = {topic for topic, _ in (*chosen, *left_out)}
        return Mark(
            {place: begin.at[place] for place in chosen},
            {topic: id for topic, id in begin.ids.items() if topic in topics},
            left_out,
        )

    def _moved(self, begin: Mark, now: Mark) -> Offsets:
        """The places that move back, since the records read there are not there any more."""
        partitions = self._partitions()
        replaced = made_anew(begin, now)
        for topic in sorted(replaced):
            places = {place: at for place, at in begin.at.items() if place[0] == topic}
            report_missing(
                self._settings,
                next(iter(places), (topic, 0)),
                f"topic {topic!r} was deleted and made anew (its id was {begin.ids[topic]} and is "
                f"{now.ids[topic]}); of the old one the query had read up to "
                f"{Mark(places, {}).to_json().get(topic, {})}, of the new one nothing",
            )
        moved = partitions.ends([place for place in now.at if place[0] in replaced], EARLIEST)
        suspects = short(begin, now)
        # The end may only be that of read_committed readers, or of an earlier look (AvailableNow).
        high = partitions.ends(suspects, LATEST, read_committed=False)
        for place in suspects:
            if high[place] >= begin.at[place]:
                continue
            report_missing(
                self._settings,
                place,
                f"{named(place)} ends at offset {high[place]}, and the query has read it up to "
                f"{begin.at[place]}: the topic was made anew, or has lost its last records",
            )
            is_same = place[0] in begin.ids
            moved |= partitions.ends([place], LATEST if is_same else EARLIEST)
        return moved

    def _is_due(self, starts: Offsets, ends: Offsets) -> bool:
        """Return True if minOffsetsPerTrigger lets a batch begin."""
        now_ms = int(time.monotonic() * 1000)
        return self._delay is None or self._delay.is_due(starts, ends, now_ms)

    def _pinned(self, begin: Mark) -> frozenset[TopicPartition]:
        """The places that the first batch leaves alone, so that Spark notes where they start.

        Another look would place them elsewhere.
        """
        initial, self._initial = self._initial, None
        return initial.latest if initial is not None and begin == initial.mark else frozenset()


def _absence(place: TopicPartition, offset: int, is_chosen: bool) -> str:
    if is_chosen:
        return (
            f"partition {named(place)}, which the query has read up to offset {offset}, is gone: "
            "its topic was deleted"
        )
    return (
        f"the options do not choose partition {named(place)} any more, and the query has read its "
        f"records only up to offset {offset}"
    )
