"""A data source and a sink in Python that do nothing: the least that Spark asks of any.

`idle` hands its rows over with the plan of a batch, as Spark's `SimpleDataSourceStreamReader` does,
so a batch is one task and no Python worker reads. `idle-tasks` has a task, and a Python worker,
for each of its partitions. In a batch read `idle` has the rows of option `rows`, prepared once in
each task; option `all` gives them all columns of a Kafka source. The sink reads its rows to the
end and keeps none.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

SCHEMA: Final = "key binary, value binary"
ROWS: Final = pa.record_batch([pa.array([b"k"]), pa.array([b"v" * 100])], names=["key", "value"])
"""The rows of one partition in one batch."""
CHUNK_ROWS: Final = 31_250
"""Rows of a chunk in a batch read, some 4 MB, as txn's source has them."""

WIDE_SCHEMA: Final = (
    f"{SCHEMA}, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
WIDE_ROW: Final = {
    "key": pa.scalar(b"k" * 8),
    "value": pa.scalar(b"v" * 104),
    "topic": pa.scalar("rows"),
    "partition": pa.scalar(0, pa.int32()),
    "offset": pa.scalar(0, pa.int64()),
    "timestamp": pa.scalar(0, pa.timestamp("us", "UTC")),
    "timestampType": pa.scalar(0, pa.int32()),
}

Offset = dict[str, int]


def _rows(partitions: int) -> Iterator[Any]:
    return iter([ROWS] * partitions)


class _PlannedRows(SimpleDataSourceStreamReader):
    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def initialOffset(self) -> Offset:
        return {"batch": 0}

    def read(self, start: Offset) -> tuple[Iterator[Any], Offset]:
        return _rows(self._partitions), {"batch": start["batch"] + 1}

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[Any]:
        return _rows((end["batch"] - start["batch"]) * self._partitions)

    def commit(self, end: Offset) -> None:
        pass


class _ReadRows(DataSourceStreamReader):
    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._batch = 0

    def initialOffset(self) -> Offset:
        return {"batch": 0}

    def latestOffset(self) -> Offset:  # type: ignore[override]
        self._batch += 1
        return {"batch": self._batch}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _rows(1)

    def commit(self, end: Offset) -> None:
        pass


class _PreparedRows(DataSourceReader):
    def __init__(self, partitions: int, rows: int, columns: Sequence[str]) -> None:
        self._partitions = partitions
        self._rows = rows
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        chunk = pa.record_batch(
            {name: pa.repeat(WIDE_ROW[name], CHUNK_ROWS) for name in self._columns}
        )
        left = self._rows // self._partitions
        while left:
            yield chunk.slice(0, left)
            left -= min(left, CHUNK_ROWS)


class _DrainedBatch(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class _Drained(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


class Idle(DataSource):
    """Both directions; `partitions` is the number of rows in a batch."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def schema(self) -> str:
        return WIDE_SCHEMA if "all" in self.options else SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return _PlannedRows(int(self.options["partitions"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _PreparedRows(
            int(self.options["partitions"]), int(self.options["rows"]), schema.names
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return _Drained()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _DrainedBatch()


class IdleTasks(Idle):
    """The same with a reading task for each partition."""

    @classmethod
    def name(cls) -> str:
        return "idle-tasks"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _ReadRows(int(self.options["partitions"]))
