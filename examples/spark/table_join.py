"""Stream-table join: orders with the city of their customer, from a table that changes.

Input `--input`: orders such as {"id": 7, "customer": "ann"}.
Table `--table`: the changes of the customers, as change data capture writes them. It has the value
{"city": "Oslo"} under the key `ann`, and no value when she is deleted. Best compacted.
Output `--output`: {"id": 7, "customer": "ann", "city": "Oslo"}; no city for an unknown customer.

Each batch reads the table anew, to its end at that moment. So an order meets all changes that were
committed before it was written, or newer ones. A transaction that is open in the table's topic
holds back the changes behind it. The table has to fit into memory.

Exactly once: each order is in the output once, with one state of its customer. A batch that was
decided is not joined again, though the table may have changed before a restart.
"""

from argparse import Namespace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from job import Program


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn").options(**given.source).option("subscribe", given.input)
    ).load()
    order = f.from_json(f.col("value").cast("string"), "id bigint, customer string")
    orders = records.select(order.alias("order")).select("order.*")
    joined = orders.join(f.broadcast(customers(spark, given)), "customer", "left")
    return (
        joined.selectExpr("customer AS key", "to_json(struct(*)) AS value")
        .writeStream.format("txn")
        .options(**given.sink)
        .option("topic", given.output)
        .trigger(**given.trigger)
        .start()
    )


def customers(spark: SparkSession, given: Namespace) -> DataFrame:
    """The table's present rows: the last change of each key, unless that is a deletion."""
    changes = spark.read.format("txn").options(**given.cluster).option("subscribe", given.table)
    last = changes.load().groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    city = f.get_json_object(f.col("value").cast("string"), "$.city")
    present = last.where("value IS NOT NULL")
    return present.select(f.col("key").cast("string").alias("customer"), city.alias("city"))


PROGRAM = Program(__doc__, start, input="orders", table="customers", output="orders-with-city")

if __name__ == "__main__":
    PROGRAM.main()
