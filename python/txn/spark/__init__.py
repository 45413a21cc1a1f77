"""Exactly-once Spark: a source and a sink for Kafka and txn, from Python alone.

    import txn.spark                                  # before the session is made

    txn.spark.register(spark)
    rows = spark.readStream.format("txn").option("kafka.bootstrap.servers", servers)...
    rows.writeStream.format("txn").option("topic", "out").option("checkpointLocation", ...)
    rows.writeStream.outputMode("update").foreachBatch(txn.spark.sink(servers, "out", id="q"))
    rows.select(txn.spark.from_registry("value", "http://registry:8081", "orders-value"))

Against txn and against Apache Kafka 3.0 and newer. Give Spark `local[N,4]` or a cluster:
`local[N]` never tries a failed task again. For writing set
`spark.sql.execution.arrow.maxRecordsPerBatch` to 65536.

Spark starts Python workers as `python3` from PATH unless PYSPARK_PYTHON says otherwise, and
they would not find this package when the environment is not activated. Importing this module
sets PYSPARK_PYTHON to the interpreter that runs, if it is not set.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

if TYPE_CHECKING:
    from txn.spark.connector_jars import jars
    from txn.spark.foreach_batch import ForeachBatchSink, sink
    from txn.spark.inspection import Status, offsets, status
    from txn.spark.listener import ProgressListener, offsets_behind
    from txn.spark.serdes.columns import from_registry, to_registry
    from txn.spark.session import register
    from txn.spark.supervise import run

__all__ = [
    "ForeachBatchSink",
    "ProgressListener",
    "Status",
    "from_registry",
    "jars",
    "offsets",
    "offsets_behind",
    "register",
    "run",
    "sink",
    "status",
    "to_registry",
]

_LAZY = {
    "ForeachBatchSink": "foreach_batch",
    "ProgressListener": "listener",
    "Status": "inspection",
    "from_registry": "serdes.columns",
    "jars": "connector_jars",
    "offsets": "inspection",
    "offsets_behind": "listener",
    "register": "session",
    "run": "supervise",
    "sink": "foreach_batch",
    "status": "inspection",
    "to_registry": "serdes.columns",
}
"""Loaded when first used: a planner process needs neither jars nor admin clients."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'txn.spark' has no attribute {name!r}")
    attribute = getattr(import_module(f"txn.spark.{_LAZY[name]}"), name)
    globals()[name] = attribute
    return attribute
