"""A data source and a sink in Python that do nothing: the least that Spark asks of any.

`idle` hands its rows over with the plan of a batch, as Spark's `SimpleDataSourceStreamReader` does,
so a batch is one task and no Python worker reads. `idle-tasks` has a task, and a Python worker,
for each of its partitions. In a batch read `idle` has the rows of option `rows`, prepared once in
each task. The sink reads its rows to the end and keeps none.
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
    def __init__(self, partitions: int, rows: int) -> None:
        self._partitions = partitions
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        columns = [pa.array([each] * CHUNK_ROWS) for each in (b"k" * 8, b"v" * 104)]
        chunk = pa.record_batch(columns, names=["key", "value"])
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
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return _PlannedRows(int(self.options["partitions"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _PreparedRows(int(self.options["partitions"]), int(self.options["rows"]))

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
