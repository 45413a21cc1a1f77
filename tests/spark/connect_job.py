"""A job on Spark Connect, as users write it for the classic session; run as a process of its own.

    python connect_job.py sc://HOST:PORT BROKER:PORT DIRECTORY

Prints a line of JSON: the finding of each part, by the part's name. Checkpoints are in the
directory.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import txn.spark
from spark.jobs import forget_last_commit
from txn.spark.session import REDACTION

# Spark is imported after txn.spark, as the documentation has it.
from pyspark.errors import PySparkException, SparkNoSuchElementException  # isort: skip
from pyspark.sql import SparkSession  # isort: skip
from pyspark.sql.streaming.query import StreamingQuery  # isort: skip
from pyspark.sql.streaming.readwriter import DataStreamWriter  # isort: skip

STARTS_MAX = 12


def main(address: str, servers: str, place: Path) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    txn.spark.register(spark)
    txn.spark.register(spark)  # a notebook's cell runs again
    access = {"kafka.bootstrap.servers": servers}

    def put(*values: str) -> None:
        rows = spark.createDataFrame(
            [(value[0], value) for value in values], "key string, value string"
        )
        rows.write.format("txn").options(**access, topic="fruits").save()

    def texts(topic: str) -> list[str]:
        table = spark.read.format("txn").options(**access, subscribe=topic).load()
        return sorted(row.value for row in table.selectExpr("string(value)").collect())

    fruits = spark.readStream.format("txn").options(**access, subscribe="fruits")
    rows = fruits.option("startingOffsets", "earliest").load()

    def copy() -> StreamingQuery:
        writer = rows.writeStream.format("txn").options(**access, topic="fruit-copies")
        writer = writer.option("checkpointLocation", str(place / "copy"))
        return writer.trigger(availableNow=True).start()

    def count() -> StreamingQuery:
        totals = rows.groupBy("key").count().selectExpr("key", "string(count) AS value")
        sink = txn.spark.sink(servers, topic="fruit-totals", id="fruits")
        writer = totals.writeStream.outputMode("update").foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(place / "count"))
        return _started(writer.trigger(availableNow=True))

    found: dict[str, Any] = {}
    put("apple", "avocado", "banana")
    found["batch"] = texts("fruits")
    for query in (copy, count):
        txn.spark.run(query)
        forget_last_commit(place / query.__name__)
    put("blueberry")
    for query in (copy, count):
        txn.spark.run(query)
    copy().awaitTermination()  # nothing is left to copy
    found["copies"], found["totals"] = texts("fruit-copies"), texts("fruit-totals")
    found["status"] = txn.spark.status(servers, "fruits").state
    found["mistake"] = _failure_of(
        lambda: spark.read.format("txn").options(**access, subscribes="fruits").load().count()
    )
    spark.conf.set(REDACTION, "url|password")
    with suppress(SparkNoSuchElementException):
        found["redaction"] = spark.conf.get(REDACTION)  # Connect hides it, for its `password`
    txn.spark.register(spark)
    print(json.dumps(found))
    spark.stop()


def _started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query with foreachBatch; Spark gives its Python process only ten seconds."""
    for _ in range(STARTS_MAX):
        with suppress(PySparkException):
            return writer.start()
    return writer.start()


def _failure_of(job: Callable[[], object]) -> str:
    try:
        job()
    except PySparkException as error:
        return str(error)
    return "none"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
