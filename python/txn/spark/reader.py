"""The source: which records a batch has, and their rows as columns.

Offsets are kept as in Spark's Kafka source, each the first offset that is still to be read, with
the ids of their topics: `txn.spark.mark`. Under read_committed the end of a partition is its last
stable offset, so a batch never waits for an open transaction.

The first batch of a query reads nothing of the partitions that start at "latest", since Spark
notes only the ends of batches. Otherwise a crash in that batch would move the start to a later
"latest", and the records in between would never be read.

# Records that are not there any more
With `failOnDataLoss=true` a DataLossError ends the query; with false, after a warning:

| found | while a batch is | it |
|---|---|---|
| another topic id | ended | starts the new topic at its beginning |
| a partition that ends before its place | ended | goes on there; without ids, at the start |
| no such topic or partition | ended | keeps its place, in case it comes back |
| the first records deleted | planned, read | goes on with the first that is left |
| another topic id | planned, read | reads nothing there; the next batch finds it |

A place that moves back does so in a batch without rows, under every trigger: that batch ends
where the next one starts.

Source: KafkaMicroBatchStream, KafkaOffsetRangeCalculator, Spark 4.2 (behaviour).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from txn._core import KafkaClient, KafkaError
from txn.errors import ConfigError, RetriableError
from txn.spark import kafka
from txn.spark.columns import record_batch
from txn.spark.errors import DataLossError
from txn.spark.kafka import code_of, shared_client
from txn.spark.logs import log
from txn.spark.mark import Mark, Offsets, Place, gone, id_text, made_anew, named, short, topics_of
from txn.spark.options import EARLIEST, LATEST, Boundary, SourceSettings
from txn.spark.python_worker import begin_task
from txn.spark.ranges import BatchDelay, Range, limited, split
from txn.spark.selection import Resolved, SelectedPartitions
from txn.wire.error_codes import ErrorCode


class RangePartition(InputPartition):
    """A range that one task reads."""

    def __init__(self, span: Range) -> None:
        super().__init__(span)
        self.value: Range


class _Reader:
    """The common part of batch and streaming readers; pickled to the tasks."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range as record batches."""
        begin_task()
        span = partition.value
        if span is None:  # Spark's stand-in for a batch read without partitions
            return
        with kafka.told("read", self._settings.connection):
            for columns in _Records(self._settings, span, self._schema.names):
                if columns["rows"]:
                    yield record_batch(columns, self._schema)

    def _partitions(self) -> SelectedPartitions:
        return SelectedPartitions(shared_client(self._settings.connection), self._settings)

    def _tasks(self, ranges: Sequence[Range]) -> list[InputPartition]:
        settings, checked = self._settings, self._checked(ranges)
        parts = split(checked, settings.partitions_min, settings.records_per_partition_max)
        return [RangePartition(part) for part in parts]

    def _checked(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges that have records, without those that are not there any more.

        Raises:
            DataLossError: something is missing and `failOnDataLoss` is true.
        """
        partitions, ranges = self._partitions(), [span for span in ranges if span.size > 0]
        described = partitions.describe(topics_of(span.place for span in ranges))
        counts = {topic: count for topic, (count, _) in described.items()}
        partitions.check_gone(
            [span.place for span in ranges if span.place[1] >= counts.get(span.place[0], 0)]
        )
        present = [span for span in ranges if self._is_present(span, described)]
        earliest = partitions.ends([span.place for span in present], EARLIEST)
        checked = []
        for span in present:
            first = earliest[span.place]
            if span.start < first:
                last = min(first, span.end)
                miss(
                    self._settings,
                    span.place,
                    f"offsets {span.start} to {last} (exclusive) of {named(span.place)} were "
                    "deleted before the query had read them: the topic's retention is shorter "
                    "than the query was away",
                )
            checked.append(replace(span, start=min(max(span.start, first), span.end)))
        return checked

    def _is_present(self, span: Range, described: Mapping[str, tuple[int, str | None]]) -> bool:
        """Say whether a range belongs to a topic that is there."""
        topic, number = span.place
        count, topic_id = described.get(topic, (0, None))
        if number < count and (None in (topic_id, span.topic_id) or topic_id == span.topic_id):
            return True
        what = "its topic was made anew" if number < count else "the partition is gone"
        miss(
            self._settings,
            span.place,
            f"offsets {span.start} to {span.end} (exclusive) of {named(span.place)} cannot be "
            f"read any more: {what}",
        )
        return False


def miss(settings: SourceSettings, place: Place, story: str) -> None:
    """Tell of records that are not there any more.

    Raises:
        DataLossError: `failOnDataLoss` is true.
    """
    if settings.fails_on_data_loss:
        raise DataLossError(
            f"{story}. The query stops, for it would go on without them. To go on with what is "
            "there, set failOnDataLoss=false",
            topic=place[0],
            partition=place[1],
        )
    log.warning("source.data_loss %s; the query goes on (failOnDataLoss=false)", story)


class _Records:
    """The chunks of a range."""

    def __init__(self, settings: SourceSettings, span: Range, columns: Sequence[str]) -> None:
        self._settings = settings
        self._span = span
        self._columns = columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        client = shared_client(self._settings.connection)
        try:
            yield from self._fetch(client, self._span.start)
        except KafkaError as error:
            match code_of(error):
                case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._tell_it_is_gone(client)
                case ErrorCode.OFFSET_OUT_OF_RANGE | ErrorCode.REQUEST_TIMED_OUT:
                    self._check_topic(client)
                    yield from self._fetch(client, self._next(client, error))
                case _:
                    raise
        self._check_topic(client)

    def _fetch(self, client: KafkaClient, start: int) -> Iterator[dict[str, Any]]:
        topic, partition = self._span.place
        self._start = start
        if start >= self._span.end:
            return
        for chunk in client.fetch(
            topic,
            partition,
            start,
            self._span.end,
            read_committed=self._settings.read_committed,
            max_bytes=self._settings.fetch_bytes,
            max_batch_bytes=self._settings.fetch_batch_bytes,
            include_keys="key" in self._columns,
            include_values="value" in self._columns,
            include_headers="headers" in self._columns,
        ):
            self._start = int(str(chunk["next_offset"]))
            yield chunk

    def _tell_it_is_gone(self, client: KafkaClient) -> None:
        SelectedPartitions(client, self._settings).check_gone([self._span.place])
        miss(
            self._settings,
            self._span.place,
            f"offsets {self._start} to {self._span.end} (exclusive) of {named(self._span.place)} "
            "cannot be read any more: the partition is gone",
        )

    def _check_topic(self, client: KafkaClient) -> None:
        """Check that the rows came from the topic they were planned for.

        Fetch names the topic, not its id. A topic that was replaced while it was read may have
        given rows of both. So the task fails under any `failOnDataLoss`. Its next attempt or the
        next batch is planned without this range.
        """
        topic, _ = self._span.place
        if self._span.topic_id is None:
            return
        (described,) = client.describe_topics([topic])
        if (
            described is not None
            and described[1] is not None
            and id_text(described[1]) != self._span.topic_id
        ):
            story = f"topic {topic!r} was deleted and made anew while it was read"
            if self._settings.fails_on_data_loss:
                miss(self._settings, self._span.place, story)
            raise RetriableError(f"{story}; the batch has to be planned again", topic=topic)

    def _next(self, client: KafkaClient, error: KafkaError) -> int:
        """Where to go on after records turned out to be missing."""
        place = topic, partition = self._span.place
        earliest = client.list_offsets(topic, [partition], EARLIEST)[0]
        high = client.list_offsets(topic, [partition], LATEST, read_committed=False)[0]
        if self._start < earliest:
            miss(
                self._settings,
                place,
                f"offsets {self._start} to {min(earliest, self._span.end)} (exclusive) of "
                f"{named(place)} were deleted while they were being read",
            )
            return earliest
        if high < self._span.end:
            miss(
                self._settings,
                place,
                f"offsets {max(self._start, high)} to {self._span.end} (exclusive) of "
                f"{named(place)} are not there any more: it ends at {high}",
            )
            if self._start < high:
                self._span = replace(self._span, end=high)
                return self._start
            return self._span.end
        raise error


class BatchReader(_Reader, DataSourceReader):
    """`spark.read.format("txn")`."""

    def partitions(self) -> list[InputPartition]:
        """The ranges from startingOffsets (earliest) to endingOffsets (latest)."""
        settings = self._settings
        with kafka.told("read", settings.connection):
            partitions = self._partitions()
            starting = settings.starting or Boundary("startingOffsets", EARLIEST)
            ending = settings.ending or Boundary("endingOffsets", LATEST)
            _check_batch_bounds(starting, ending)
            starts = partitions.resolve(starting).mark
            ends = partitions.resolve(ending).mark
            high = partitions.ends(list(starts.at), LATEST, read_committed=False)
            ranges = [
                self._within(place, start, ends.at[place], high[place], starts.ids.get(place[0]))
                for place, start in starts.at.items()
            ]
            if not ending.names(LATEST):
                _check_order(starting, ending, ranges)
            return self._tasks(ranges)

    def _within(self, place: Place, start: int, end: int, high: int, topic_id: str | None) -> Range:
        """A range without the part behind the end of the log.

        An end between the last stable offset and the end of the log is left. The task waits for the
        open transactions in front of it.
        """
        if max(start, end) > high:
            miss(
                self._settings,
                place,
                f"offsets {high} to {max(start, end)} (exclusive) of {named(place)} are asked for "
                f"and not there: it ends at {high}",
            )
        return Range(place, min(start, high), min(end, high), topic_id)


def _check_batch_bounds(starting: Boundary, ending: Boundary) -> None:
    if starting.names(LATEST):
        raise ConfigError(
            "startingOffsets cannot be latest (-1) in a batch read: there would be nothing to "
            "read. Use earliest (-2) or offsets",
            option="startingOffsets",
        )
    if ending.names(EARLIEST):
        raise ConfigError(
            "endingOffsets cannot be earliest (-2): there would be nothing to read. Use latest "
            "(-1) or offsets",
            option="endingOffsets",
        )
    first, last = starting.at, ending.at
    if starting.is_time != ending.is_time or isinstance(first, int) or isinstance(last, int):
        return
    for topic, partitions in first.items():
        for partition, start in partitions.items():
            end = last.get(topic, {}).get(partition, LATEST)
            if end != LATEST and start > end:
                raise ConfigError(
                    f"{starting.option} begins {named((topic, partition))} at {start}, behind "
                    f"{ending.option}, which ends it at {end}",
                    option=starting.option,
                )


def _check_order(starting: Boundary, ending: Boundary, ranges: Sequence[Range]) -> None:
    for span in ranges:
        if span.start > span.end:
            raise ConfigError(
                f"{starting.option} begins {named(span.place)} at offset {span.start}, behind "
                f"{ending.option}, which ends it at offset {span.end}. Correct one of the two",
                option=starting.option,
            )


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
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
        self._told: set[Place] = set()
        """Partitions whose absence was logged, for it lasts over many batches."""

    def initialOffset(self) -> dict[str, dict[str, Any]]:
        """Where a new query starts: the starting options, or latest."""
        with kafka.told("read", self._settings.connection):
            self._initial = self._partitions().resolve(self._starting)
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
        with kafka.told("read", self._settings.connection):
            now = self._target if self._target is not None else self._latest()
            self._seen = now
            kept = self._absent(begin, now)
            moved = self._moved(begin, now)
            left = [place for place in now.at if place not in moved]
            fresh = sorted(place for place in left if place not in begin.at)
            starts = begin.at | self._partitions().ends(fresh, EARLIEST)  # from their beginning
        ends = {
            place: starts[place] if place in pinned else max(now.at[place], starts[place])
            for place in left
        }
        if isinstance(limit, ReadMinRows) and not moved and not self._is_due(starts, ends):
            return start
        most = self._settings.offsets_per_trigger_max
        if isinstance(limit, ReadMaxRows | ReadMinRows) and most is not None:
            ends = limited(starts, ends, most)
        return Mark(kept.at | ends | moved, {**kept.ids, **now.ids}).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: at the present end of the topics."""
        with kafka.told("read", self._settings.connection):
            self._target = self._latest()

    def reportLatestOffset(self) -> dict[str, dict[str, Any]] | None:
        """Ends at the last look, for the query's progress."""
        return None if self._seen is None else Mark(self._seen.at, {}).to_json()

    def partitions(
        self, start: dict[str, dict[str, Any]], end: dict[str, dict[str, Any]]
    ) -> list[InputPartition]:
        """The ranges of one batch."""
        starts, ends = Mark.from_json(start), Mark.from_json(end)
        replaced = made_anew(starts, ends)  # this batch only moves them to their beginning
        fresh = sorted(ends.at.keys() - starts.at.keys())
        with kafka.told("read", self._settings.connection):
            earliest = self._partitions().ends(fresh, EARLIEST)
            # A place may move back where records are gone. It also may in the first batch of a
            # query that starts at "latest". That batch is empty, and may be planned again from a
            # later "latest".
            ranges = [
                Range(place, min((earliest | starts.at)[place], last), last, ends.ids.get(place[0]))
                for place, last in sorted(ends.at.items())
                if place[0] not in replaced
            ]
            return self._tasks(ranges)

    def commit(self, end: dict[str, dict[str, Any]]) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        """Nothing to do: the client is this process's, and ends with it."""

    def _latest(self) -> Mark:
        partitions = self._partitions()
        places, ids = partitions.look()
        return Mark(partitions.ends(places, LATEST), ids)

    def _absent(self, begin: Mark, now: Mark) -> Mark:
        """The places of partitions that are gone, to be kept in case they come back."""
        absent = gone(begin, now)
        topics = {topic for topic, _ in absent}
        partitions = self._partitions()
        partitions.check_all_are_there(list(now.at | begin.at))
        partitions.check_gone(sorted(set(absent) - self._told))
        for place in sorted(set(absent) - self._told):
            miss(
                self._settings,
                place,
                f"partition {named(place)}, which the query has read up to offset "
                f"{begin.at[place]}, is gone: its topic was deleted, or the options do not "
                "choose it any more",
            )
        self._told = set(absent)
        return Mark(
            {place: begin.at[place] for place in absent},
            {topic: id for topic, id in begin.ids.items() if topic in topics},
        )

    def _moved(self, begin: Mark, now: Mark) -> Offsets:
        """The places that move back, since the records read there are not there any more."""
        partitions = self._partitions()
        replaced = made_anew(begin, now)
        for topic in sorted(replaced):
            places = {place: at for place, at in begin.at.items() if place[0] == topic}
            miss(
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
            miss(
                self._settings,
                place,
                f"{named(place)} ends at offset {high[place]}, and the query has read it up to "
                f"{begin.at[place]}: the topic was made anew, or has lost its last records",
            )
            is_same = place[0] in begin.ids
            moved |= partitions.ends([place], LATEST if is_same else EARLIEST)
        return moved

    def _is_due(self, starts: Offsets, ends: Offsets) -> bool:
        """Say whether minOffsetsPerTrigger lets a batch begin."""
        now_ms = int(time.monotonic() * 1000)
        return self._delay is None or self._delay.is_due(starts, ends, now_ms)

    def _pinned(self, begin: Mark) -> frozenset[Place]:
        """The places that the first batch leaves alone, so that Spark notes where they start.

        Another look would place them elsewhere.
        """
        initial, self._initial = self._initial, None
        return initial.latest if initial is not None and begin == initial.mark else frozenset()
