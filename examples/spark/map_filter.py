"""Map and filter: the large orders, with their amounts in cents.

Input `--input`: orders such as {"id": 7, "customer": "ann", "amount": 120.5}.
Output `--output`: {"id": 7, "cents": 12050} under the key `ann`, for amounts from 100.

Exactly once: each large order is in the output once. A batch is in it whole, or not at all.
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
    order = f.from_json(f.col("value").cast("string"), "id bigint, customer string, amount double")
    large = (
        records.select(order.alias("order"))
        .where("order.amount >= 100")
        .selectExpr(
            "order.customer AS key",
            "to_json(struct(order.id, bigint(round(order.amount * 100)) AS cents)) AS value",
        )
    )
    return (
        large.writeStream.format("txn")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(__doc__, start, input="orders", output="large-orders")

if __name__ == "__main__":
    PROGRAM.main()
