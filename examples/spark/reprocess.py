"""Reprocessing: a topic's results computed anew by a new rule, and the switch to them.

Input `--input`: orders such as {"id": 7, "amount": 120.5}, from the first one that is kept.
Output `--output`: the results of the new rule, in a new topic: {"id": 7, "tax": 22.9}.
Switch `--switch`: a compacted topic; under the key `--name` it has the topic that readers use.

The job of the old rule goes on beside it. This program first catches up with the input, then writes
the name of its output to the switch, then goes on as the live job. Readers look the topic up when
they start. Once they have moved, stop the old job and delete its topic.

Exactly once: each order has one result in the new topic, also if it came during the switch. One
checkpoint serves both phases. The switch has one record per change, and may have it twice after a
crash; a reader takes the last one.
"""

from argparse import Namespace
from threading import Event

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import txn.spark
from job import Program


def run(spark: SparkSession, given: Namespace, stop: Event) -> None:
    """Catch up, switch, go on."""
    catching_up = Namespace(**{**vars(given), "trigger": {"availableNow": True}})
    txn.spark.run(lambda: start(spark, catching_up), stop=stop)
    if not stop.is_set() and current(spark, given) != given.output:
        record = spark.createDataFrame([(given.name, given.output)], "key string, value string")
        record.write.format("txn").options(**given.cluster).option("topic", given.switch).save()
    if not given.available_now:
        txn.spark.run(lambda: start(spark, given), stop=stop)


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    order = f.from_json(f.col("value").cast("string"), "id bigint, amount double")
    results = records.select("key", order.alias("order")).selectExpr(
        "key", "to_json(struct(order.id, round(order.amount * 0.19, 2) AS tax)) AS value"
    )
    return (
        results.writeStream.format("txn")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


def current(spark: SparkSession, given: Namespace) -> str | None:
    """The topic that readers use now."""
    switch = spark.read.format("txn").options(**given.cluster).option("subscribe", given.switch)
    named = switch.load().where(f.col("key").cast("string") == given.name)
    last = named.agg(f.max_by("value", "offset").cast("string")).first()
    return None if last is None else last[0]


PROGRAM = Program(
    __doc__, run=run, input="orders", output="taxes.v2", switch="current-topics", name="taxes"
)

if __name__ == "__main__":
    PROGRAM.main()
