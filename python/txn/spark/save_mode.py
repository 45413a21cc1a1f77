"""`df.write.format("txn").save()` without a mode.

Spark's default mode, `errorifexists`, appends with `format("kafka")`. For a data source in Python
Spark refuses it before it asks the source. So txn passes `append` to `save` instead.
"""

import functools
from typing import Any, Final

from pyspark.sql import SparkSession

from txn.spark.datasource import TxnDataSource

_DEFAULTS: Final = frozenset({"", "default", "error", "errorifexists"})

_patched: set[type] = set()


def append_by_default(spark: SparkSession) -> None:
    """Make `save` append to `format("txn")` unless another mode is chosen, in this process.

    Every other format is as before.
    """
    writer = _writer_class(spark)
    if writer in _patched:
        return
    _patched.add(writer)
    original = writer.save

    @functools.wraps(original)
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        *others: Any,
        **options: Any,
    ) -> None:
        source, chosen = _chosen(self)
        is_ours = (format or source).lower() == TxnDataSource.name()
        if is_ours and (mode or chosen).lower() in _DEFAULTS:
            mode = "append"
        original(self, path, format, mode, *others, **options)

    writer.save = save


def _writer_class(spark: SparkSession) -> Any:
    if ".connect." in type(spark).__module__:
        from pyspark.sql.connect.readwriter import DataFrameWriter as ConnectWriter

        return ConnectWriter
    from pyspark.sql.readwriter import DataFrameWriter

    return DataFrameWriter


def _chosen(writer: Any) -> tuple[str, str]:
    """The format and the mode that a writer was given; empty for the defaults."""
    if hasattr(writer, "_write"):  # Connect's
        return writer._write.source or "", writer._write.mode or ""
    return writer._jwrite.source() or "", writer._jwrite.curmode().name()
