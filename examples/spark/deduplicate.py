"""Deduplication: each event once, though its sender may have sent it again.

Input `--input`: events such as {"id": "e7", "time": "2026-05-01T10:03:00Z"}, some of them twice.
Output `--output`: the first of each id, as it was.

dropDuplicatesWithinWatermark keeps an id until the watermark has passed its time, by ten minutes
or more. Events of one id have to be within ten minutes of each other.

Exactly once: each id is in the output once. An event older than the watermark is dropped as late.
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
    event = f.from_json(f.col("value").cast("string"), "id string, time timestamp")
    unique = (
        records.select("key", "value", event.alias("event"))
        .select("key", "value", "event.*")
        .withWatermark("time", "10 minutes")
        .dropDuplicatesWithinWatermark(["id"])
        .select("key", "value")
    )
    return (
        unique.writeStream.format("txn")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(__doc__, start, input="events", output="unique-events")

if __name__ == "__main__":
    PROGRAM.main()
