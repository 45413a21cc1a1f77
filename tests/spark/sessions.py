"""Spark sessions for tests: small, on loopback, and a Python worker that crashes leaves its stack.

Nothing of Spark is imported before `session`. So a harness can hand `SMALL` to a process.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: Final[Mapping[str, str]] = {
    "spark.master": "local[2,4]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
"""Settings of each session."""


def session(settings: Mapping[str, str], *, log_level: str = "ERROR") -> "SparkSession":
    """Return a session with `SMALL` and some settings over it."""
    import txn.spark  # noqa: F401 (before Spark: it says which Python the workers are)

    from pyspark.sql import SparkSession  # isort: skip

    spark = SparkSession.builder.config(map={**SMALL, **settings}).getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark
