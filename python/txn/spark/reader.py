"""The source: which records a batch has, and their rows as columns.

Offsets are kept as in Spark's Kafka source, each the first offset that is still to be read, with
the ids of their topics: `txn.spark.mark`. Under read_committed the end of a partition is its last
stable offset, so a batch never waits for an open transaction.

# Records that are not there any more
With `failOnDataLoss=true` a DataLossError ends the query; with false, after a warning:

| found | while a batch is | it |
|---|---|---|
| another topic id | ended | starts the new topic at its beginning |
| a partition that ends before its place | ended | goes on there; without ids, at the start |
| no such topic or partition | ended | keeps its place, in case it comes back |
| a partition that the options do not choose any more | ended | keeps its place apart, told once |
| the first records deleted | planned, read | goes on with the first that is left |
| those of a partition that is new to it | planned | starts with the first that is left |
| another topic id | planned, read | reads nothing there; the next batch finds it |

A place that moves back does so in a batch without rows, under every trigger: that batch ends
where the next one starts.

Source: KafkaMicroBatchStream, KafkaOffsetRangeCalculator, Spark 4.2 (behaviour).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txn._core import KafkaClient, KafkaError
from txn.errors import RetriableError
from txn.spark import kafka
from txn.spark.columns import record_batch
from txn.spark.errors import DataLossError
from txn.spark.kafka import code_of, shared_client
from txn.spark.logs import log
from txn.spark.mark import Place, id_text, named, topics_of
from txn.spark.options import EARLIEST, LATEST, SourceSettings
from txn.spark.python_worker import begin_task
from txn.spark.ranges import Range, split
from txn.spark.selection import SelectedPartitions
from txn.wire.error_codes import ErrorCode


class Reader:
    """The common part of batch and streaming readers; pickled to the tasks."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = _arrow_schema(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range as record batches."""
        begin_task()
        with kafka.told("read", self._settings.connection):
            yield from self._rows_in(partition.value)

    def _rows_in(self, span: Range) -> Iterator[pa.RecordBatch]:
        for columns in _Records(self._settings, span, self._schema.names):
            if columns["rows"]:
                yield record_batch(columns, self._schema)

    def _partitions(self) -> SelectedPartitions:
        return SelectedPartitions(shared_client(self._settings.connection), self._settings)

    def _parts(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges as the tasks have them, without records that are not there any more."""
        settings, checked = self._settings, self._checked(ranges)
        return split(checked, settings.partitions_min, settings.records_per_partition_max)

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
                    "deleted before the query had read them, by the topic's retention or by hand",
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


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Arrow's types of the columns; times are in UTC, where PySpark before 4.2 has no choice."""
    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


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
