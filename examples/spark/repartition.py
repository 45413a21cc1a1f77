"""Repartition by key: all orders of a customer in one partition.

Input `--input`: orders such as {"id": 7, "customer": "ann"}, under any key or none.
Output `--output`: the same values under the key `ann`.

The key alone decides the partition, by Kafka's hash, so Spark need not shuffle. The output may have
another number of partitions than the input. The orders of one customer from one input partition
keep their order, as one task reads them.

Exactly once: each order is in the output once.
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
    customer = f.get_json_object(f.col("value").cast("string"), "$.customer")
    return (
        records.select(customer.alias("key"), "value")
        .writeStream.format("txn")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(__doc__, start, input="orders", output="orders-by-customer")

if __name__ == "__main__":
    PROGRAM.main()
