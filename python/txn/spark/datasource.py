"""`format("txn")`: the class that Spark finds by name, and its readers and writers."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from txn.errors import ConfigError
from txn.spark.options import (
    COLUMNS,
    SinkSettings,
    SourceSettings,
    sink_settings,
    source_settings,
)
from txn.spark.python_worker import begin_request
from txn.spark.tokens import NO_TOKENS, Tokens

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

TYPES: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
}
"""The columns of Spark's Kafka source."""

assert tuple(TYPES) == COLUMNS


class TxnDataSource(DataSource):
    """An exactly-once source and sink for Kafka and txn.

    Spark makes one object per query on the driver and pickles it for the process that commits
    micro-batches. For the process that plans the tasks of a micro-batch it makes a new one each
    time. The two have to do different things when asked for a writer, and this distinguishes them.
    """

    tokens: ClassVar[Tokens] = NO_TOKENS
    """The functions that the option `txn.token` may name, in a class that `register` has made."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._is_copy = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._is_copy = True

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "txn"

    def schema(self) -> StructType:
        """The columns of the reader."""
        return StructType([StructField(name, TYPES[name]) for name in self._source().columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read the records present now."""
        from txn.spark.batch_reader import BatchReader

        begin_request()
        return BatchReader(self._source(), _known(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read records as they come."""
        _check_version((4, 2), "reading a stream")
        from txn.spark.small_batches import SmallBatchReader

        begin_request()
        return SmallBatchReader(self._source(), _known(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Write once, all rows or none."""
        from txn.spark import writer

        begin_request()
        if overwrite:
            raise ConfigError("a topic cannot be overwritten; use mode('append')")
        return writer.begin_batch(self._sink(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Write every micro-batch exactly once; complete mode writes all groups each time."""
        _check_version((4, 1), "writing a stream")
        from txn.spark import writer

        begin_request()
        settings = self._sink()
        if self._is_copy:
            return writer.committer(settings)
        return writer.begin_stream(settings, schema)

    def _source(self) -> SourceSettings:
        return source_settings(dict(self.options), self.tokens)

    def _sink(self) -> SinkSettings:
        return sink_settings(dict(self.options), self.tokens)


def with_tokens(tokens: Tokens) -> type[TxnDataSource]:
    """The data source with functions for `txn.token`, to be registered in a session.

    Spark pickles a class that no module has by its content, so they go wherever it goes.
    """
    return type("TxnDataSourceWithTokens", (TxnDataSource,), {"tokens": dict(tokens)})


def _check_version(least: tuple[int, int], what: str) -> None:
    """Report a PySpark whose data sources in Python lack a part that is needed.

    Raises:
        ConfigError: it is older than `least`.
    """
    major, minor = (int(part) for part in pyspark.__version__.split(".")[:2])
    if (major, minor) < least:
        raise ConfigError(
            f"{what} with format('txn') needs PySpark {least[0]}.{least[1]} or newer, and this is "
            f"{pyspark.__version__}. Install a newer one; docs/spark.md says what older ones can do"
        )


def _known(schema: StructType) -> StructType:
    for field in schema.fields:
        if TYPES.get(field.name) != field.dataType:
            raise ConfigError(
                f"the source has no column {field.name} {field.dataType.simpleString()}: its "
                "columns are fixed. Leave schema() out, and choose with the option columns"
            )
    return schema
