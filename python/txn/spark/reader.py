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
| a partition that the options do not choose any more | ended | keeps its place apart, logged once |
| the first records deleted | planned, read | goes on with the first that is left |
| those of a partition that is new to it | planned | starts with the first that is left |
| another topic id | planned, read | reads nothing there; the next batch finds it |

A place that moves back does so in a batch without rows, under every trigger: that batch ends
where the next one starts.

Source: KafkaMicroBatchStream, KafkaOffsetRangeCalculator, Spark 4.2 (behaviour).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txn._core import KafkaClient, KafkaError
from txn.identifiers import TopicPartition
from txn.spark import kafka
from txn.spark.columns import record_batch
from txn.spark.errors import DataLossError
from txn.spark.first_contact import await_cluster
from txn.spark.kafka import code_of, shared_client
from txn.spark.logs import log
from txn.spark.mark import id_text, named
from txn.spark.options import EARLIEST, LATEST, SourceSettings
from txn.spark.python_worker import begin_task
from txn.spark.ranges import Range, split
from txn.spark.selection import SelectedPartitions, settled
from txn.wire.error_codes import ErrorCode

_T = TypeVar("_T")

EXPLAINED: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Answers to a Fetch of records that may not be there any more."""

FAILURES_MAX: Final = 5
"""A range is given up after so many of them; retention and operators are slower."""


class Reader:
    """The common part of batch and streaming readers; pickled to the tasks."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = _arrow_schema(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range as record batches."""
        begin_task()
        with kafka.translate_errors("read", self._settings.connection):
            yield from self._rows_in(partition.value)

    def _rows_in(self, span: Range) -> Iterator[pa.RecordBatch]:
        for columns in _Records(self._settings, span, self._schema.names):
            if columns["rows"]:
                yield record_batch(columns, self._schema)

    def _planned(self, plan: Callable[[], _T]) -> _T:
        """The result of a plan of the driver.

        Raises:
            UnreachableError: no broker has answered this process yet, and none is within reach.
        """
        await_cluster(self._settings.connection)
        return self._settled(plan)

    def _settled(self, plan: Callable[[], _T]) -> _T:
        """The result of a plan, made again where a topic is deleted under it."""
        with kafka.translate_errors("read", self._settings.connection):
            return settled(plan, self._settings.connection.timeout_ms)

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
        described = partitions.describe_known([span.place for span in ranges])
        present = [span for span in ranges if self._is_present(span, described)]
        earliest = partitions.ends([span.place for span in present], EARLIEST)
        checked = []
        for span in present:
            first = earliest[span.place]
            if span.start < first:
                last = min(first, span.end)
                report_missing(
                    self._settings,
                    span.place,
                    f"offsets {span.start} to {last} (exclusive) of {named(span.place)} were "
                    "deleted before the query had read them, by the topic's retention or by hand",
                )
            checked.append(replace(span, start=min(max(span.start, first), span.end)))
        return checked

    def _is_present(self, span: Range, described: Mapping[str, tuple[int, str | None]]) -> bool:
        """Return True if a range belongs to a topic that is there."""
        topic, number = span.place
        count, topic_id = described.get(topic, (0, None))
        if number < count and (None in (topic_id, span.topic_id) or topic_id == span.topic_id):
            return True
        what = "its topic was made anew" if number < count else "the partition is gone"
        report_missing(
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


def report_missing(settings: SourceSettings, place: TopicPartition, story: str) -> None:
    """Report records that are not there any more.

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
        """Yield the chunks, all of them of the topic that they were planned for.

        Fetch names the topic, not its id. So a chunk may be of a topic that replaced it meanwhile.
        With `failOnDataLoss` that ends the query in any case, and it is enough to look at the end.
        Else each chunk is given away only after a look at the id: ids never come back. A look
        before the first one spares a wait for offsets that the new topic does not have yet.
        """
        client = shared_client(self._settings.connection)
        if self._settings.fails_on_data_loss:
            yield from self._chunks(client)
        elif not self._is_replaced(client):
            for chunk in self._chunks(client):
                if self._is_replaced(client):
                    break
                yield chunk
        if self._is_replaced(client):
            topic, _ = self._span.place
            story = f"topic {topic!r} was deleted and made anew while it was read"
            report_missing(self._settings, self._span.place, story)

    def _chunks(self, client: KafkaClient) -> Iterator[dict[str, Any]]:
        self._start = self._span.start
        failures: list[KafkaError] = []
        while True:
            try:
                if failures:
                    self._start = self._next(client, failures[-1])
                yield from self._fetch(client)
                return
            except KafkaError as error:
                is_final = error in failures or len(failures) == FAILURES_MAX
                if is_final or code_of(error) not in EXPLAINED:
                    raise
                failures.append(error)

    def _fetch(self, client: KafkaClient) -> Iterator[dict[str, Any]]:
        topic, partition = self._span.place
        if self._start >= self._span.end:
            return
        for chunk in client.fetch(
            topic,
            partition,
            self._start,
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

    def _is_replaced(self, client: KafkaClient) -> bool:
        """Return True if the topic has another id than the planned one."""
        topic, _ = self._span.place
        if self._span.topic_id is None:
            return False
        (described,) = client.describe_topics([topic])
        return (
            described is not None
            and described[1] is not None
            and id_text(described[1]) != self._span.topic_id
        )

    def _next(self, client: KafkaClient, error: KafkaError) -> int:
        """Where to go on after an error; at the end of the range if nothing of it is left.

        Raises:
            KafkaError: `error`, if no missing record explains it.
        """
        if self._is_replaced(client):
            return self._span.end  # the error is raised at the end
        if code_of(error) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return self._start if self._partition_exists(client) else self._span.end
        place = topic, partition = self._span.place
        earliest = client.list_offsets(topic, [partition], EARLIEST)[0]
        high = client.list_offsets(topic, [partition], LATEST, read_committed=False)[0]
        if self._start < earliest:
            report_missing(
                self._settings,
                place,
                f"offsets {self._start} to {min(earliest, self._span.end)} (exclusive) of "
                f"{named(place)} were deleted while they were being read",
            )
            return earliest
        if high < self._span.end:
            report_missing(
                self._settings,
                place,
                f"offsets {max(self._start, high)} to {self._span.end} (exclusive) of "
                f"{named(place)} are not there any more: it ends at {high}",
            )
            self._span = replace(self._span, end=max(self._start, high))
            return self._start
        raise error

    def _partition_exists(self, client: KafkaClient) -> bool:
        """Return True if the partition is there; a node that has just started may not know it."""
        topic, number = place = self._span.place
        described = SelectedPartitions(client, self._settings).describe_known([place])
        if number < described.get(topic, (0, None))[0]:
            return True
        report_missing(
            self._settings,
            place,
            f"offsets {self._start} to {self._span.end} (exclusive) of {named(place)} "
            "cannot be read any more: the partition is gone",
        )
        return False
