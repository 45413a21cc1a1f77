"""The same job on `format("kafka")` and `format("txn")`, for tests that compare the two."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.conftest import connector_jars

FORMATS = ("kafka", "txn")

Rows = list[tuple[Any, ...]]

Job = Callable[[str], Any]


def on_both(job: Job) -> tuple[Any, Any]:
    """The results of a job under the name of Spark's connector, and under txn's."""
    if not connector_jars():
        pytest.skip("Spark's Kafka connector cannot be fetched")
    stock, own = (job(name) for name in FORMATS)
    return stock, own


def loaded(spark: SparkSession, name: str, servers: str, **options: str) -> DataFrame:
    """A batch read."""
    reader = spark.read.format(name).option("kafka.bootstrap.servers", servers)
    return reader.options(**options).load()


def rows_of(frame: DataFrame) -> Rows:
    """(topic, partition, offset, value) of each row, sorted."""
    found = frame.select("topic", "partition", "offset", "value").collect()
    return sorted(tuple(row) for row in found)


def tasks_of(frame: DataFrame) -> Rows:
    """(topic, partition, first offset, last offset) of each task, sorted."""
    frame = frame.selectExpr("spark_partition_id() AS task", "topic", "partition", "offset")
    found = frame.groupBy("task", "topic", "partition").agg({"offset": "min", "*": "count"})
    return sorted(
        (row.topic, row.partition, row["min(offset)"], row["count(1)"]) for row in found.collect()
    )


def tasks_of_stream(
    spark: SparkSession, name: str, servers: str, checkpoint: Path, **options: str
) -> Rows:
    """The same of the only batch of a stream."""
    found: list[Rows] = []
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", servers)
    writer = reader.options(**options).load().writeStream
    writer = writer.foreachBatch(lambda rows, _: found.append(tasks_of(rows)))
    writer = writer.option("checkpointLocation", str(checkpoint / name))
    writer.trigger(availableNow=True).start().awaitTermination()
    (only,) = found
    return only


Batch = tuple[dict[str, dict[str, int]], int]


def batches_of(
    spark: SparkSession, name: str, servers: str, checkpoint: Path, **options: str
) -> list[Batch]:
    """Run a stream over the present records.

    Returns:
        Per batch with rows: the offsets it ends at, and its number of rows.
    """
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", servers)
    writer = reader.options(**options).load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(checkpoint / name))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found = [
        (json.loads(progress.sources[0].endOffset), progress.numInputRows)
        for progress in query.recentProgress
        if progress.numInputRows
    ]
    for offsets, _ in found:
        for key in [key for key, places in offsets.items() if not places]:  # notes of txn
            del offsets[key]
    return found
