"""The source: which records a batch has, and their rows as columns.

Offsets are kept as in Spark's Kafka source, each the first offset that is still to be read, with
the ids of their topics: `txn.spark.mark`. Under read_committed the end of a partition is its last
stable offset, so a batch never waits for an open transaction.

A query that starts at "latest" begins with an empty batch, since Spark notes only the ends of
batches. Without it a crash in the first batch would move the start to a later "latest", and the
records in between would never be read.

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

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

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
from txn.errors import ConfigError, RetriableError
from txn.spark import kafka
from txn.spark.columns import record_batch
from txn.spark.errors import DataLossError
from txn.spark.kafka import code_of, shared_client
from txn.spark.logs import log
from txn.spark.mark import Mark, Offsets, Place, gone, id_text, made_anew, short, topics_of
from txn.spark.options import (
    EARLIEST,
    LATEST,
    PROGRESS_TOPIC,
    Positions,
    SourceSettings,
)
from txn.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Range:
    """Some records of one partition: offsets [start, end)."""

    place: Place
    start: int
    end: int
    topic_id: str | None = None
    """The topic these offsets belong to; None if the cluster gives topics no id."""

    @property
    def size(self) -> int:
        """Number of offsets; markers and aborted records among them have no row."""
        return self.end - self.start


class RangePartition(InputPartition):
    """A range that one task reads."""

    def __init__(self, span: Range) -> None:
        super().__init__(span)
        self.value: Range


def limited(start: Mapping[Place, int], latest: Mapping[Place, int], rows_max: int) -> Offsets:
    """The end of a batch of at most about `rows_max` offsets, shared out by the waiting records.

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
        parts += [replace(span, start=start, end=end) for start, end in itertools.pairwise(bounds)]
    return parts


class SelectedPartitions:
    """The cluster's view of the chosen topics."""

    def __init__(self, client: KafkaClient, settings: SourceSettings) -> None:
        self._client = client
        self._settings = settings

    def look(self) -> tuple[list[Place], dict[str, str]]:
        """The partitions that are there to read, and the ids of their topics."""
        topics = self._settings.topics
        names: Sequence[str] = topics.names
        if topics.pattern is not None:
            names = self._matching(re.compile(topics.pattern))
        elif topics.assigned is not None:
            names = list(topics.assigned)
        described = self.describe(names)
        places = [
            (name, number)
            for name, (count, _) in described.items()
            for number in (range(count) if topics.assigned is None else topics.assigned[name])
            if number < count
        ]
        return places, {name: id for name, (_, id) in described.items() if id is not None}

    def describe(
        self, topics: Sequence[str], *, is_patient: bool = False
    ) -> dict[str, tuple[int, str | None]]:
        """Partition count and id of the topics that are there."""
        if not topics:
            return {}
        answers = self._client.describe_topics(topics, is_patient=is_patient)
        return {
            name: (answer[0], None if answer[1] is None else id_text(answer[1]))
            for name, answer in zip(topics, answers, strict=True)
            if answer is not None
        }

    def check_gone(self, places: Sequence[Place]) -> None:
        """Check that partitions are gone, and not only unknown to a node that has just started.

        Raises:
            RetriableError: one is there after all.
        """
        described = self.describe(topics_of(places), is_patient=True)
        for topic, number in places:
            if number < described.get(topic, (0, None))[0]:
                raise RetriableError(
                    f"a node did not know partition {named((topic, number))} for a moment; the "
                    "batch has to be planned again",
                    topic=topic,
                    partition=number,
                )

    def check_all_are_there(self, places: Sequence[Place]) -> None:
        """Check that everything named is among the partitions that are there.

        Raises:
            ConfigError: a topic or partition that an option names is not there.
        """
        chosen = self._settings.topics
        counts = dict.fromkeys((*chosen.names, *(chosen.assigned or ())), 0)
        for name, _ in places:
            counts[name] = counts.get(name, 0) + 1
        for name, count in counts.items():
            option = "subscribe" if chosen.assigned is None else "assign"
            if count == 0 and not self.describe([name]):
                self._no_topic(name, option)
        for name, numbers in (chosen.assigned or {}).items():
            missing = sorted({(name, number) for number in numbers} - set(places))
            if missing and (described := self.describe([name]).get(name)):
                count = described[0]
                raise ConfigError(
                    f"assign names partition {missing[0][1]} of topic {name!r}, which has {count}, "
                    "numbered from 0. Correct the option assign, or add partitions",
                    option="assign",
                    topic=name,
                )

    def ends(
        self, places: Sequence[Place], which: int, *, read_committed: bool | None = None
    ) -> Offsets:
        """The earliest or latest offset of each partition."""
        ends: Offsets = {}
        committed = self._settings.read_committed if read_committed is None else read_committed
        for topic in topics_of(places):
            numbers = [number for name, number in places if name == topic]
            offsets = self._client.list_offsets(topic, numbers, which, read_committed=committed)
            ends |= {(topic, n): offset for n, offset in zip(numbers, offsets, strict=True)}
        return ends

    def resolve(self, positions: Positions, option: str) -> Mark:
        """The offsets that an option means, of all partitions.

        Raises:
            ConfigError: a topic is not there, or the option names partitions that are not read,
                or misses some.
        """
        places, ids = self.look()
        self.check_all_are_there(places)
        if isinstance(positions, int):
            return Mark(self.ends(places, positions), ids)
        resolved = {
            (name, n): offset for name, each in positions.items() for n, offset in each.items()
        }
        strange = sorted(resolved.keys() - set(places))
        left = sorted(set(places) - resolved.keys())
        if strange or left:
            what = f"names {strange[0]}, which is not read" if strange else f"misses {left[0]}"
            raise ConfigError(
                f"{option} {what}: it has to name every partition of the topics, "
                f"which are {Mark(dict.fromkeys(places, LATEST), {}).to_json()}",
                option=option,
            )
        for symbol in (EARLIEST, LATEST):
            named = [place for place, offset in resolved.items() if offset == symbol]
            resolved |= self.ends(named, symbol)
        return Mark(resolved, ids)

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Topics that match, without Kafka's own and the sink's: a query would feed itself."""
        hidden = {PROGRESS_TOPIC, self._settings.progress_topic}
        names = set(self._client.topics()) - hidden
        return sorted(name for name in names if pattern.fullmatch(name))

    def _no_topic(self, topic: str, option: str) -> NoReturn:
        raise ConfigError(
            f"there is no topic {topic!r} at {self._settings.connection.bootstrap_servers}. "
            f"Create it first, or correct the option {option}",
            topic=topic,
            option=option,
        )


class _Reader:
    """The common part of batch and streaming readers; pickled to the tasks."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range as record batches."""
        span = partition.value
        if span is None:  # Spark's stand-in for a batch read without partitions
            return
        with kafka.told("read", self._settings.connection):
            for columns in _Records(self._settings, span, self._schema.names):
                if columns["rows"]:
                    yield record_batch(columns, self._schema)

    def _partitions(self) -> SelectedPartitions:
        return SelectedPartitions(shared_client(self._settings.connection), self._settings)

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


def named(place: Place) -> str:
    """A partition as Kafka's log lines name it."""
    return f"{place[0]}-{place[1]}"


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
            starting = EARLIEST if settings.starting is None else settings.starting
            ending = LATEST if settings.ending is None else settings.ending
            _check_batch_offsets(starting, ending)
            starts = partitions.resolve(starting, "startingOffsets")
            ends = partitions.resolve(ending, "endingOffsets")
            high = partitions.ends(list(starts.at), LATEST, read_committed=False)
            ranges = [
                self._within(place, start, ends.at[place], high[place], starts.ids.get(place[0]))
                for place, start in starts.at.items()
            ]
            return [
                RangePartition(span)
                for span in split(self._checked(ranges), settings.partitions_min)
            ]

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
        return Range(place, start, max(start, min(end, high)), topic_id)


def _check_batch_offsets(starting: Positions, ending: Positions) -> None:
    if starting == LATEST or _names(starting, LATEST):
        raise ConfigError(
            "startingOffsets cannot be latest (-1) in a batch read: there would be nothing to "
            "read. Use earliest (-2) or offsets",
            option="startingOffsets",
        )
    if _names(ending, EARLIEST):
        raise ConfigError(
            "endingOffsets cannot be earliest (-2): there would be nothing to read. Use latest "
            "(-1) or offsets",
            option="endingOffsets",
        )
    if isinstance(starting, int) or isinstance(ending, int):
        return
    for topic, partitions in starting.items():
        for partition, start in partitions.items():
            end = ending.get(topic, {}).get(partition, LATEST)
            if end != LATEST and start > end:
                raise ConfigError(
                    f"startingOffsets begins {named((topic, partition))} at {start}, behind "
                    f"endingOffsets, which ends it at {end}",
                    option="startingOffsets",
                )


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("txn")`: where batches end, and their ranges."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        if settings.ending is not None:
            raise ConfigError(
                "endingOffsets is for batch reads (spark.read): a stream has no end. Remove it, "
                "or use trigger(availableNow=True) to stop at what is there now",
                option="endingOffsets",
            )
        self._initial: Mark | None = None
        """Set while the start of a new query is not in Spark's offset log yet."""
        self._target: Mark | None = None
        """Under Trigger.AvailableNow, where the query ends."""
        self._seen: Mark | None = None
        self._told: set[Place] = set()
        """Partitions whose absence was logged, for it lasts over many batches."""

    def initialOffset(self) -> dict[str, dict[str, Any]]:
        """Where a new query starts: startingOffsets, or latest."""
        starting = LATEST if self._settings.starting is None else self._settings.starting
        with kafka.told("read", self._settings.connection):
            self._initial = self._partitions().resolve(starting, "startingOffsets")
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """MaxOffsetsPerTrigger."""
        limit = self._settings.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, dict[str, Any]], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends.

        Raises:
            DataLossError: records up to `start` are not there any more, and `failOnDataLoss`.
            ConfigError: a topic that was never read is not there.
        """
        begin = Mark.from_json(start)
        if self._is_to_be_noted(begin):
            return start
        with kafka.told("read", self._settings.connection):
            now = self._target if self._target is not None else self._latest()
            self._seen = now
            kept = self._absent(begin, now)
            moved = self._moved(begin, now)
            left = [place for place in now.at if place not in moved]
            fresh = sorted(place for place in left if place not in begin.at)
            starts = begin.at | self._partitions().ends(fresh, EARLIEST)  # from their beginning
        ends = {place: max(now.at[place], starts[place]) for place in left}
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
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
            checked = self._checked(ranges)
        return [RangePartition(span) for span in split(checked, self._settings.partitions_min)]

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

    def _is_to_be_noted(self, begin: Mark) -> bool:
        """Say whether to end the first batch where it starts, so that Spark notes the start.

        Only a start that another look would place elsewhere needs that.
        """
        starting = self._settings.starting
        is_moving = starting is None or starting == LATEST or _names(starting, LATEST)
        is_first = self._initial is not None and begin == self._initial
        self._initial = None
        return is_first and is_moving


def _names(positions: Positions, symbol: int) -> bool:
    return isinstance(positions, Mapping) and any(
        offset == symbol for partitions in positions.values() for offset in partitions.values()
    )
