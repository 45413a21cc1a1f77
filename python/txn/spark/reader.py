"""The source: which records a batch has, and their rows as columns.

Offsets are kept as Spark's Kafka source keeps them, `{"topic": {"0": 23}}`, each the first
offset that is still to be read. Under read_committed the end of a partition is its last
stable offset, so a batch never waits for an open transaction.

A query that starts at "latest" begins with an empty batch: Spark notes only where batches
end, so without it a crash in the first batch would move the start to a later "latest", and
what came between would never be read.

Source: KafkaMicroBatchStream, KafkaOffsetRangeCalculator, Spark 4.2 (behaviour).
"""

import itertools
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from txn._core import KafkaClient, KafkaError
from txn.errors import ConfigError
from txn.spark import kafka
from txn.spark.columns import record_batch
from txn.spark.errors import DataLossError
from txn.spark.kafka import code_of, shared_client
from txn.spark.options import EARLIEST, LATEST, Positions, SourceSettings

log = logging.getLogger("txn.spark")

Place = tuple[str, int]
"""(topic, partition)."""

Offsets = dict[Place, int]


@dataclass(frozen=True, slots=True)
class Range:
    """Some records of one partition: offsets [start, end)."""

    place: Place
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; markers and aborted records among them have no row."""
        return self.end - self.start


class RangePartition(InputPartition):
    """A range that one task reads."""

    def __init__(self, span: Range) -> None:
        super().__init__(span)
        self.value: Range


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets as Spark gives them back."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def limited(start: Mapping[Place, int], latest: Mapping[Place, int], rows_max: int) -> Offsets:
    """Where a batch of at most about `rows_max` offsets ends, shared out by what is waiting.

    A partition with anything waiting moves by at least one, so none is starved.
    """
    waiting = {place: max(0, end - start[place]) for place, end in latest.items()}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(latest)
    ends = {}
    for place, size in waiting.items():
        share = rows_max * size / total
        ends[place] = start[place] + min(size, math.ceil(share) if share < 1 else int(share))
    return ends


def split(ranges: Sequence[Range], partitions_min: int | None) -> list[Range]:
    """Split ranges until there are about `partitions_min`, the larger into more parts."""
    ranges = [span for span in ranges if span.size > 0]
    if partitions_min is None or len(ranges) >= partitions_min:
        return list(ranges)
    total = sum(span.size for span in ranges)
    parts: list[Range] = []
    for span in ranges:
        count = min(span.size, max(1, round(span.size / total * partitions_min)))
        bounds = [span.start + span.size * number // count for number in range(count + 1)]
        parts += [Range(span.place, start, end) for start, end in itertools.pairwise(bounds)]
    return parts


class Partitions:
    """What the cluster has of the chosen topics."""

    def __init__(self, client: KafkaClient, settings: SourceSettings) -> None:
        self._client = client
        self._settings = settings

    def places(self) -> list[Place]:
        """The partitions to read.

        Raises:
            ConfigError: a topic that was named is not there.
        """
        topics = self._settings.topics
        if topics.assigned is not None:
            return [(name, number) for name in topics.assigned for number in topics.assigned[name]]
        names: Sequence[str] = topics.names
        if topics.pattern is not None:
            pattern = re.compile(topics.pattern)
            names = sorted(name for name in self._client.topics() if pattern.fullmatch(name))
        return [(name, number) for name in names for number in range(self._count(name))]

    def ends(self, places: Sequence[Place], which: int) -> Offsets:
        """The earliest or latest offset of each partition."""
        found: Offsets = {}
        for topic in dict.fromkeys(topic for topic, _ in places):
            numbers = [number for name, number in places if name == topic]
            offsets = self._client.list_offsets(
                topic, numbers, which, read_committed=self._settings.read_committed
            )
            found |= {(topic, n): offset for n, offset in zip(numbers, offsets, strict=True)}
        return found

    def resolve(self, positions: Positions, option: str, missing: int | None) -> Offsets:
        """The offsets that an option means.

        Args:
            positions: The option's value.
            option: Its name, for the message.
            missing: What a partition gets that the option does not name; None: all have to be.

        Raises:
            ConfigError: the option names partitions that are not read, or misses some.
        """
        places = self.places()
        if isinstance(positions, int):
            return self.ends(places, positions)
        given = {
            (name, n): offset for name, each in positions.items() for n, offset in each.items()
        }
        strange = sorted(given.keys() - set(places))
        left = sorted(set(places) - given.keys())
        if strange or (left and missing is None):
            what = f"names {strange[0]}, which is not read" if strange else f"misses {left[0]}"
            raise ConfigError(
                f"{option} {what}: it has to name every partition of the topics, "
                f"which are {to_json(dict.fromkeys(places, LATEST))}",
                option=option,
            )
        if missing is not None:
            given = dict.fromkeys(left, missing) | given
        for symbol in (EARLIEST, LATEST):
            named = [place for place, offset in given.items() if offset == symbol]
            given |= self.ends(named, symbol)
        return given

    def _count(self, topic: str) -> int:
        try:
            return self._client.partition_count(topic)
        except KafkaError as error:
            if code_of(error) != kafka.UNKNOWN_TOPIC:
                raise
            raise ConfigError(
                f"there is no topic {topic!r} at {self._settings.connection.bootstrap_servers}. "
                "Create it first, or correct the option subscribe",
                topic=topic,
            ) from error


class _Reader:
    """What batch and streaming readers share; pickled to the tasks."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range as record batches."""
        span = partition.value
        if span is None:  # Spark's stand-in for a batch read without partitions
            return
        assert isinstance(span, Range)
        for columns in _Records(self._settings, span, self._schema.names):
            if columns["rows"]:
                yield record_batch(columns, self._schema)

    def _partitions(self) -> Partitions:
        return Partitions(shared_client(self._settings.connection), self._settings)

    def _checked(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges without what is not there any more.

        Raises:
            DataLossError: something is missing and `failOnDataLoss` is true.
        """
        places = [span.place for span in ranges]
        earliest = self._partitions().ends(places, EARLIEST)
        checked = []
        for span in ranges:
            first = earliest[span.place]
            if span.start < first:
                self._miss(span.place, span.start, min(first, span.end), "were deleted")
            checked.append(Range(span.place, min(max(span.start, first), span.end), span.end))
        return checked

    def _miss(self, place: Place, start: int, end: int, what: str) -> None:
        story = f"offsets {start} to {end} (exclusive) of {place[0]}-{place[1]} {what}"
        if self._settings.fails_on_data_loss:
            raise DataLossError(
                f"{story}: the query would go on without them. The topic's retention is shorter "
                "than the query was away, or the topic was made anew. To go on with what is "
                "there, set failOnDataLoss=false",
                topic=place[0],
                partition=place[1],
            )
        log.warning("source.data_loss %s", story)


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
            if code_of(error) != kafka.OFFSET_OUT_OF_RANGE:
                raise
            yield from self._fetch(client, self._next(client))

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
            include_keys="key" in self._columns,
            include_values="value" in self._columns,
            include_headers="headers" in self._columns,
        ):
            self._start = int(str(chunk["next_offset"]))
            yield chunk

    def _next(self, client: KafkaClient) -> int:
        topic, partition = self._span.place
        earliest = client.list_offsets(topic, [partition], EARLIEST)[0]
        if self._settings.fails_on_data_loss:
            raise DataLossError(
                f"offset {self._start} of {topic}-{partition} was deleted while it was being read; "
                f"the first one left is {earliest}. To go on with what is there, set "
                "failOnDataLoss=false",
                topic=topic,
                partition=partition,
            )
        log.warning(
            "source.data_loss topic=%s partition=%s start=%s earliest=%s",
            *(topic, partition, self._start, earliest),
        )
        return max(self._start, earliest)


class BatchReader(_Reader, DataSourceReader):
    """`spark.read.format("txn")`."""

    def partitions(self) -> list[InputPartition]:
        """The ranges from startingOffsets (earliest) to endingOffsets (latest)."""
        settings, partitions = self._settings, self._partitions()
        starting = EARLIEST if settings.starting is None else settings.starting
        if starting == LATEST:
            raise ConfigError("startingOffsets cannot be latest in a batch read: nothing is there")
        ending = LATEST if settings.ending is None else settings.ending
        starts = partitions.resolve(starting, "startingOffsets", None)
        ends = partitions.resolve(ending, "endingOffsets", None)
        ranges = [Range(place, start, max(start, ends[place])) for place, start in starts.items()]
        return [
            RangePartition(span) for span in split(self._checked(ranges), settings.partitions_min)
        ]


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("txn")`: where batches end, and their ranges."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        if settings.ending is not None:
            raise ConfigError("endingOffsets is for batch reads; use Trigger.AvailableNow here")
        self._initial: Offsets | None = None
        """Set while the start of a new query is not in Spark's offset log yet."""
        self._target: Offsets | None = None
        """Under Trigger.AvailableNow, where the query ends."""
        self._seen: Offsets | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Where a new query starts: startingOffsets, or latest."""
        starting = LATEST if self._settings.starting is None else self._settings.starting
        self._initial = self._partitions().resolve(starting, "startingOffsets", None)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """MaxOffsetsPerTrigger."""
        limit = self._settings.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends."""
        begin = from_json(start)
        if self._is_to_be_noted(begin):
            return start
        latest = self._target if self._target is not None else self._latest()
        self._seen = latest
        for place in begin.keys() - latest.keys():
            self._miss(place, begin[place], begin[place], "are gone with their partition")
        fresh = sorted(latest.keys() - begin.keys())
        begin |= self._partitions().ends(fresh, EARLIEST)  # a new partition is read from its start
        for place, end in latest.items():
            if end < begin[place] and self._target is None:
                self._miss(place, end, begin[place], "were there and are not any more")
        latest = {place: max(end, begin[place]) for place, end in latest.items()}
        if isinstance(limit, ReadMaxRows):
            latest = limited(begin, latest, limit.max_rows)
        return to_json(latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where the query ends: at what is there now."""
        self._target = self._latest()

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """What was there at the last look, for the query's progress."""
        return None if self._seen is None else to_json(self._seen)

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[InputPartition]:
        """The ranges of one batch."""
        starts, ends = from_json(start), from_json(end)
        fresh = sorted(ends.keys() - starts.keys())
        starts |= self._partitions().ends(fresh, EARLIEST)
        # The first batch of a query that starts at "latest" is empty, and may be planned again
        # from a later "latest".
        ranges = [
            Range(place, min(starts[place], last), last) for place, last in sorted(ends.items())
        ]
        checked = self._checked(ranges)
        return [RangePartition(span) for span in split(checked, self._settings.partitions_min)]

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        """Nothing to do: the client is this process's, and ends with it."""

    def _latest(self) -> Offsets:
        partitions = self._partitions()
        return partitions.ends(partitions.places(), LATEST)

    def _is_to_be_noted(self, begin: Offsets) -> bool:
        """Say whether to end the first batch where it starts, so that Spark notes the start.

        Only a start that another look would place elsewhere needs that.
        """
        starting = self._settings.starting
        is_moving = starting is None or starting == LATEST or _names_latest(starting)
        is_first = self._initial is not None and begin == self._initial
        self._initial = None
        return is_first and is_moving


def _names_latest(positions: Positions) -> bool:
    return isinstance(positions, Mapping) and any(
        offset == LATEST for partitions in positions.values() for offset in partitions.values()
    )
