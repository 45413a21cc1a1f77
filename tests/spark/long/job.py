"""The Spark program of the long run: two queries over the flights, both with state.

`rows` writes each flight once, though some are in the input twice
(`dropDuplicatesWithinWatermark`). `totals` counts flights and delays per day, origin and carrier,
without the second ones (append mode: a day comes out when the watermark has passed it).

Runs until SIGTERM.
"""

import argparse
import signal
import sys
import threading
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import txn.spark
from spark.sessions import session

# Spark is imported after txn.spark, which says which Python the workers are.
from pyspark.sql import DataFrame, SparkSession  # isort: skip
from pyspark.sql import functions as f  # isort: skip
from pyspark.sql.streaming.query import StreamingQuery  # isort: skip

LATENESS = "30 days"
"""Rows come out of order by a transaction of the input: two days at 20 years an hour."""

STATE_STORE: dict[str, dict[str, str]] = {
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "memory": {},
}


def main() -> None:
    given = _given()
    spark = session(_settings(given.state_store))
    txn.spark.register(spark)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threads = [
        threading.Thread(
            target=txn.spark.run, args=(partial(start, spark, given),), kwargs={"stop": stop}
        )
        for start in (QUERIES[name] for name in given.queries.split(","))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.stop()


def rows(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Write each flight once."""
    lines = _once(spark, given).select(
        f.col("carrier").alias("key"),
        f.concat_ws("|", "id", f.unix_timestamp("at"), "origin", "carrier", "delay").alias("value"),
    )
    return _start(lines, given, "rows")


def totals(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Write the totals of each day, origin and carrier once."""
    days = (
        _once(spark, given)
        .groupBy(f.window("at", "1 day").alias("day"), "origin", "carrier")
        .agg(f.count("*").alias("flights"), f.sum("delay").alias("delay"))
    )
    lines = days.select(
        f.col("carrier").alias("key"),
        f.concat_ws(
            "|", f.unix_timestamp("day.start"), "origin", "carrier", "flights", "delay"
        ).alias("value"),
    )
    return _start(lines, given, "totals")


QUERIES = {"rows": rows, "totals": totals}


def _once(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    """The flights without the second ones."""
    records = (
        spark.readStream.format("txn")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("subscribe", given.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(given.per_batch))
        .option("columns", "value")
        .load()
    )
    fields = "id bigint, at bigint, origin string, carrier string, dep_delay bigint"
    return (
        records.select(f.from_json(f.col("value").cast("string"), fields).alias("row"))
        .select(
            "row.id",
            f.timestamp_seconds("row.at").alias("at"),
            "row.origin",
            "row.carrier",
            f.coalesce("row.dep_delay", f.lit(0)).alias("delay"),
        )
        .withWatermark("at", LATENESS)
        .dropDuplicatesWithinWatermark(["id"])
    )


def _start(lines: DataFrame, given: argparse.Namespace, name: str) -> StreamingQuery:
    return (
        lines.writeStream.format("txn")
        .outputMode("append")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("topic", getattr(given, name))
        .option("checkpointLocation", str(given.checkpoints / name))
        .trigger(processingTime=given.every)
        .start()
    )


def _settings(state_store: str) -> dict[str, str]:
    return {
        "spark.app.name": "txn-long",
        # A driver lives for minutes: compiling its code to the full costs more than it saves.
        "spark.driver.extraJavaOptions": (
            # The JVM's default is 48 MiB at this level. Spark's code for each batch fills that in
            # half an hour, and from then on nothing is compiled.
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        ),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        **STATE_STORE[state_store],
    }


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for word in ("--bootstrap-servers", "--input", "--rows", "--totals"):
        parser.add_argument(word, required=True)
    parser.add_argument("--checkpoints", required=True, type=Path)
    parser.add_argument("--every", default="5 seconds", help="between batches")
    parser.add_argument("--per-batch", type=int, default=60_000, help="records at most")
    parser.add_argument("--queries", default="rows,totals")
    parser.add_argument("--state-store", choices=STATE_STORE, default="rocksdb")
    return parser.parse_args()


if __name__ == "__main__":
    main()
