"""The Spark job that gets killed: one of three, from its checkpoint to the end of the input.

Run as a process of its own; exit code 0 says that everything is through.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import txn.spark
from spark.sessions import session

# Spark is imported after txn.spark, which says which Python the workers are.
from pyspark.sql import Column, DataFrame, SparkSession  # isort: skip
from pyspark.sql import functions as f  # isort: skip
from pyspark.sql.streaming.query import StreamingQuery  # isort: skip

ROWS_PER_BATCH = {"map": 2_000, "dedup": 2_000, "update": 1_000}
SMALL_BATCHES = {"map": 256, "dedup": 2_000, "update": 256}
"""Batches of up to so many rows come with their plan; those of `dedup` are among them."""


def main() -> None:
    arguments = _arguments()
    spark = _session(arguments)
    query = JOBS[arguments.job](spark, arguments)
    query.awaitTermination()
    spark.stop()


def _session(arguments: argparse.Namespace) -> SparkSession:
    if arguments.master.startswith("sc://"):
        connected: SparkSession = SparkSession.builder.remote(arguments.master).getOrCreate()
        return connected
    return session(
        {
            "spark.master": arguments.master,
            "spark.app.name": f"kill-{arguments.job}",
            "spark.executor.memory": "512m",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        }
    )


def map_rows(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Stateless; a column that differs at every run, as any job may have."""
    rows = _input(spark, arguments).select(
        "key", f.concat_ws("|", _number(), f.rand().cast("string")).alias("value")
    )
    return _append(rows, arguments)


def deduplicate(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Every number is in the input twice, and comes out once; the state is Spark's."""
    rows = (
        _input(spark, arguments)
        .select(_number().alias("number"))
        .dropDuplicates(["number"])
        .select(f.col("number").alias("key"), f.col("number").alias("value"))
    )
    return _append(rows, arguments)


def update_groups(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Count and sum per group, every change once; only foreachBatch can do update mode."""
    groups = (
        _input(spark, arguments)
        .select(_number().cast("bigint").alias("number"))
        .groupBy((f.col("number") % 97).alias("group"))
        .agg(f.count("*").alias("count"), f.sum("number").alias("sum"))
        .select(
            f.col("group").cast("string").alias("key"),
            f.concat_ws("|", "group", "count", "sum").alias("value"),
        )
    )
    options = _access(arguments)
    servers = options.pop("kafka.bootstrap.servers")
    sink = txn.spark.sink(servers, arguments.output, id=f"kill-{arguments.output}", **options)
    return (
        groups.writeStream.outputMode("update")
        .foreachBatch(sink)
        .option("checkpointLocation", str(arguments.checkpoint))
        .trigger(availableNow=True)
        .start()
    )


JOBS = {"map": map_rows, "dedup": deduplicate, "update": update_groups}


def _input(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    return (
        spark.readStream.format("txn")
        .options(**_access(arguments))
        .option("subscribe", arguments.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH[arguments.job]))
        .option("small.batch.records", str(SMALL_BATCHES[arguments.job]))
        .load()
    )


def _number() -> Column:
    return f.col("value").cast("string")


def _append(rows: DataFrame, arguments: argparse.Namespace) -> StreamingQuery:
    return (
        rows.writeStream.format("txn")
        .options(**_access(arguments))
        .option("topic", arguments.output)
        .option("checkpointLocation", str(arguments.checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def _access(arguments: argparse.Namespace) -> dict[str, str]:
    options: dict[str, str] = {"kafka.bootstrap.servers": arguments.bootstrap}
    if arguments.options is not None:
        options |= json.loads(arguments.options.read_text())
    return options


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, choices=JOBS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--options", type=Path)
    parser.add_argument("--master", default="local[2,4]")
    return parser.parse_args()


if __name__ == "__main__":
    started = time.monotonic()
    main()
    print(f"through after {time.monotonic() - started:.1f} s")
