"""Writes the topic `orders` to `capitals`, each row once, however often the pipeline is killed.

Spark finds txn by itself where it is installed beside PySpark. The address is that in the
environment variable SERVERS.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

cluster = {"kafka.bootstrap.servers": os.environ.get("SERVERS", "localhost:9092")}

dp.create_sink("capitals", "txn", {**cluster, "topic": "capitals"})


@dp.append_flow(target="capitals")
def orders_in_capitals() -> DataFrame:
    """Every order, as it comes."""
    spark = SparkSession.active()
    orders = spark.readStream.format("txn").options(**cluster, subscribe="orders")
    rows = orders.option("startingOffsets", "earliest").load()
    return rows.selectExpr("key", "upper(string(value)) AS value")
