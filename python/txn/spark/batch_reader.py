"""The batch source: `spark.read.format("txn")`, a table that each action reads anew.

Spark asks a source in Python for its tasks once for each `load()`. It runs them for each action on
that table, which may be days later: a query joins it with every micro-batch. So tasks store no
offsets. Each task resolves the options when it runs, and reads its cut of that range.

# Cuts
A task with a whole partition reads everything between the two boundaries. Where `minPartitions`
or `maxRecordsPerPartition` cut a partition, the places of the cuts are fixed. The first part has
everything before, the last one everything behind. So parts neither overlap nor leave a gap,
wherever the partition begins and ends by then. A topic that was made anew has other records at
these places: there the last part reads the whole partition, and the others nothing.

The last task also reads the partitions that have no task. They were empty at the first action, or
were added since, with their topic or alone.

# One end
A task asks once where a partition ends, before it reads it. Under read_committed that is the last
stable offset. A task that Spark runs again asks again, and may find more.

Source: KafkaBatch, KafkaOffsetReaderAdmin, Spark 4.2 (behaviour).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from txn.errors import ConfigError
from txn.identifiers import TopicPartition
from txn.spark import kafka
from txn.spark.mark import named
from txn.spark.options import EARLIEST, LATEST, Boundary, SourceSettings
from txn.spark.python_worker import begin_task
from txn.spark.ranges import Range
from txn.spark.reader import Reader, report_missing
from txn.spark.selection import check_all_are_named

OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TableTask:
    """The part of a table that one task reads."""

    cut: Range | None
    """Its part of a partition, whose first and last part are open; None if it has none."""
    others_than: frozenset[TopicPartition] | None = None
    """It also reads every partition but these; None if another task does."""


class BatchReader(Reader, DataSourceReader):
    """`spark.read.format("txn")`."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._starting = settings.starting or Boundary("startingOffsets", EARLIEST)
        self._ending = settings.ending or Boundary("endingOffsets", LATEST)

    def partitions(self) -> list[InputPartition]:
        """The tasks of each action; at least one."""
        _check_bounds(self._starting, self._ending)
        cuts = self._planned(lambda: _opened(self._parts(self._others(frozenset()))))
        tasks = [TableTask(cut) for cut in cuts[:-1]]
        last = cuts[-1] if cuts else None
        tasks.append(TableTask(last, frozenset(cut.place for cut in cuts)))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a task has now as record batches."""
        begin_task()
        task: TableTask = partition.value
        if (cut := task.cut) is not None:
            yield from self._rows_now(lambda: self._within(cut))
        if (places := task.others_than) is not None:
            yield from self._rows_now(lambda: self._others(places))

    def _rows_now(self, plan: Callable[[], Sequence[Range]]) -> Iterator[pa.RecordBatch]:
        spans = self._settled(lambda: self._checked(plan()))
        with kafka.translate_errors("read", self._settings.connection):
            for span in spans:
                yield from self._rows_in(span)

    def _within(self, cut: Range) -> list[Range]:
        """The range of a cut now; none if the partition is not chosen any more."""
        topic, number = cut.place
        partitions = self._partitions()
        count, topic_id = partitions.describe_known([cut.place]).get(topic, (0, None))
        if number >= count:
            partitions.check_all_are_there(partitions.find()[0])
            return []
        if None not in (topic_id, cut.topic_id) and topic_id != cut.topic_id:
            if cut.end < OFFSET_MAX:
                return []
            cut = replace(cut, start=0)
        (span,) = self._ranges([cut.place], {} if topic_id is None else {topic: topic_id})
        return [replace(span, start=max(span.start, cut.start), end=min(span.end, cut.end))]

    def _others(self, places: frozenset[TopicPartition]) -> list[Range]:
        """The present ranges of all partitions but some."""
        partitions = self._partitions()
        present, ids = partitions.find()
        partitions.check_all_are_there(present)
        for boundary in (self._starting, self._ending):
            check_all_are_named(boundary, present)
        return self._ranges([place for place in present if place not in places], ids)

    def _ranges(self, places: Sequence[TopicPartition], ids: dict[str, str]) -> list[Range]:
        """The offsets between the two boundaries, as they are now."""
        partitions = self._partitions()
        starts, _ = partitions.offsets(self._starting, places)
        ends, _ = partitions.offsets(self._ending, places)
        high = partitions.ends(places, LATEST, read_committed=False)
        ranges = [
            self._to_the_end(
                Range(place, starts[place], ends[place], ids.get(place[0])), high[place]
            )
            for place in places
        ]
        if not self._ending.names(LATEST):
            _check_order(self._starting, self._ending, ranges)
        return ranges

    def _to_the_end(self, span: Range, high: int) -> Range:
        """A range without the part behind the end of the log.

        An end between the last stable offset and the end of the log is left. The task waits for the
        open transactions in front of it.
        """
        last = max(span.start, span.end)
        if last > high:
            report_missing(
                self._settings,
                span.place,
                f"offsets {high} to {last} (exclusive) of {named(span.place)} are asked for "
                f"and not there: it ends at {high}",
            )
        return replace(span, start=min(span.start, high), end=min(span.end, high))


def _opened(parts: Sequence[Range]) -> list[Range]:
    """The parts of all partitions, each partition's first and last one open."""
    cuts = []
    for number, part in enumerate(parts):
        is_first = number == 0 or parts[number - 1].place != part.place
        is_last = number + 1 == len(parts) or parts[number + 1].place != part.place
        start, end = 0 if is_first else part.start, OFFSET_MAX if is_last else part.end
        cuts.append(replace(part, start=start, end=end))
    return cuts


def _check_bounds(starting: Boundary, ending: Boundary) -> None:
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
