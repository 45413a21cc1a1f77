"""Small micro-batches: their rows come with the plan, so that no Python worker has to read them.

A task that reads from a source in Python costs Spark a Python worker, some 20 ms of CPU. So the
process that plans a query's batches also reads the small ones. It hands their rows over with the
plan, as Spark has it for `SimpleDataSourceStreamReader`. Spark keeps them as a block, and one task
takes them from there.

A larger batch over many partitions costs a worker for each. So there neighbouring partitions share
a task, with no more offsets in it than a small batch has.

The offsets of a batch are as ever, and so is a replay. The task knows its ranges too. Where the
block is lost it reads them itself. If the rows cannot be had now, or are more than a megabyte, each
range gets its task, which tells of the cause.

Source: PythonMicroBatchStream, PythonStreamingPartitionReaderFactory, Spark 4.2 (behaviour).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from txn._core import KafkaError
from txn.errors import TxnError
from txn.spark.ranges import Range, shared
from txn.spark.stream_reader import RangePartition, StreamReader

BYTES_MAX: Final = 1 << 20
"""More in one batch is read by tasks."""


OWN_TASKS_MAX: Final = 64
"""With more ranges in a batch, small ones share tasks; up to this each has its own."""


class RangesPartition(InputPartition):
    """Several ranges, or those of a whole batch, for one task."""

    def __init__(self, spans: Sequence[Range]) -> None:
        super().__init__(tuple(spans))


class SmallBatchReader(StreamReader):
    """A stream reader that plans small batches with their rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, or of several."""
        if not isinstance(partition, RangesPartition):
            yield from super().read(partition)
            return
        for span in partition.value:
            yield from super().read(InputPartition(span))

    def partitions(
        self, start: dict[str, dict[str, Any]], end: dict[str, dict[str, Any]]
    ) -> list[InputPartition]:
        """The ranges of one batch; of a small one as a single task, with its rows."""
        parts = super().partitions(start, end)
        spans = [part.value for part in parts]
        if not self._are_small(spans):
            return parts if len(spans) <= OWN_TASKS_MAX else self._shared(spans)
        whole = RangesPartition([part.value for part in parts])
        rows = self._rows_now(whole)
        if rows is None:
            return parts
        _ReaderWithRows.take(self, rows)
        return [whole]

    def _are_small(self, spans: Sequence[Range]) -> bool:
        return 0 < sum(span.size for span in spans) <= self._records_max

    def _shared(self, spans: Sequence[Range]) -> list[InputPartition]:
        groups = shared(spans, self._records_max)
        return [
            RangePartition(group[0]) if len(group) == 1 else RangesPartition(group)
            for group in groups
        ]

    @property
    def _records_max(self) -> int:
        """Offsets of a small batch, and of a task with several ranges."""
        settings = self._settings
        if settings.partitions_min is not None or settings.records_per_partition_max is not None:
            return 0  # the user chose the tasks
        return settings.small_batch_records

    def _rows_now(self, whole: RangesPartition) -> list[pa.RecordBatch] | None:
        """The rows; None if they cannot be had now, or are too large."""
        rows: list[pa.RecordBatch] = []
        size = 0
        try:
            for batch in self.read(whole):
                size += batch.nbytes
                if size > BYTES_MAX:
                    return None
                rows.append(batch)
        except (KafkaError, TxnError):
            return None
        return rows


class _ReaderWithRows(SmallBatchReader, _SimpleStreamReaderWrapper):
    """A reader between `partitions` and `getCache`, which Spark calls right after it.

    Spark asks only readers of this class for rows. But it does not ask them for the newest offsets
    (`reportLatestOffset`), so a reader is one for this moment alone.
    """

    _rows: list[pa.RecordBatch]

    @staticmethod
    def take(reader: SmallBatchReader, rows: list[pa.RecordBatch]) -> None:
        """Turn a reader into one that has these rows."""
        reader.__class__ = _ReaderWithRows
        assert isinstance(reader, _ReaderWithRows)
        reader._rows = rows

    def getCache(
        self, start: dict[str, dict[str, Any]], end: dict[str, dict[str, Any]]
    ) -> Iterator[Any]:
        """Give the rows away, and be a reader without rows again."""
        rows = self._rows
        del self._rows
        self.__class__ = SmallBatchReader  # type: ignore[assignment]
        return iter(rows)
