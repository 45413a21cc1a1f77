"""Stream-stream join: orders with their payments, and those not paid within an hour.

Input `--orders`: {"id": 7, "time": "2026-05-01T10:03:00Z"}.
Input `--payments`: {"order": 7, "sum": 120, "time": "2026-05-01T10:40:00Z"}.
Output `--output`: {"id": 7, "sum": 120}, or {"id": 7} for an order without a payment in its hour.

Both streams have a watermark of ten minutes. An order stays in the state until the slower
of the two has passed its hour. Without a payment it then comes out as unpaid.

Exactly once: each pair, and each unpaid order, is in the output once.
"""

from argparse import Namespace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from job import Program


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""

    def stream(topic: str, schema: str) -> DataFrame:
        reader = spark.readStream.format("txn").options(**given.source)
        records = reader.option("subscribe", topic).load()
        row = f.from_json(f.col("value").cast("string"), schema)
        return records.select(row.alias("row")).select("row.*")

    orders = stream(given.orders, "id bigint, time timestamp")
    payments = stream(given.payments, "order bigint, sum bigint, time timestamp")
    orders = orders.withWatermark("time", "10 minutes").alias("orders")
    payments = payments.withWatermark("time", "10 minutes").alias("payments")
    within_the_hour = f.expr(
        "orders.id = payments.order "
        "AND payments.time BETWEEN orders.time AND orders.time + INTERVAL 1 HOUR"
    )
    joined = orders.join(payments, within_the_hour, "left_outer")
    return (
        joined.selectExpr("string(id) AS key", "to_json(struct(id, sum)) AS value")
        .writeStream.format("txn")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(__doc__, start, orders="orders", payments="payments", output="orders-paid")

if __name__ == "__main__":
    PROGRAM.main()
