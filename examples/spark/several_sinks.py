"""Several sinks of one query: valid and invalid orders in two topics, and all in an archive.

Input `--input`: orders such as {"id": 7, "amount": 120}; one without an amount is invalid.
Outputs `--valid`, `--invalid`, `--archive`: the orders as they were.

Exactly once, in two strengths:
- Valid and invalid are written by one sink, whose rows name their topic. They are decided together:
  after any crash both topics have a batch, or neither.
- The archive is a sink of its own, with an id of its own. Each order is in it once, too. But it is
  decided after the first one: after a crash in between it lacks a batch until the restart.

The second sink computes the batch anew, or takes it from `persist` while the program lives. After a
crash in between it gets the rows of the replay. So keep a job with several sinks deterministic.
"""

from argparse import Namespace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import txn.spark
from job import Program


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    servers = given.bootstrap_servers
    # An id names a sink: no other has it, and it stays over restarts.
    routed = txn.spark.sink(servers, id=f"routed-{given.valid}", **given.cluster)
    archive = txn.spark.sink(servers, given.archive, id=f"archive-{given.archive}", **given.cluster)
    amount = f.get_json_object(f.col("value").cast("string"), "$.amount")
    topic = f.when(amount.isNotNull(), given.valid).otherwise(given.invalid)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            routed(batch.select(topic.alias("topic"), "key", "value"), batch_id)
            archive(batch.select("key", "value"), batch_id)
        finally:
            batch.unpersist()

    return (
        records.writeStream.foreachBatch(write)
        .option("checkpointLocation", given.checkpoint)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(
    __doc__,
    start,
    input="orders",
    valid="valid-orders",
    invalid="invalid-orders",
    archive="all-orders",
)

if __name__ == "__main__":
    PROGRAM.main()
