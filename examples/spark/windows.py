"""Windowed aggregation: the views of each page in windows of ten minutes.

Input `--input`: views such as {"page": "/home", "time": "2026-05-01T10:03:00Z"}.
Output `--output`: {"page": "/home", "start": …, "views": 7} under the key `/home`.

Append mode: a window comes out when the watermark has passed its end, ten minutes behind the
newest view. Views that come later still are dropped; `late_events.py` keeps those, too.

Exactly once: each window is in the output once, and has each view once that was not late.
"""

from argparse import Namespace

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from job import Program


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    view = f.from_json(f.col("value").cast("string"), "page string, time timestamp")
    windows = (
        records.select(view.alias("view"))
        .select("view.*")
        .withWatermark("time", "10 minutes")
        .groupBy("page", f.window("time", "10 minutes"))
        .agg(f.count("*").alias("views"))
        .selectExpr(
            "page AS key",
            "to_json(struct(page, window.start, views)) AS value",
        )
    )
    return (
        windows.writeStream.format("txn")
        .outputMode("append")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(__doc__, start, input="views", output="views-per-window")

if __name__ == "__main__":
    PROGRAM.main()
