"""The Spark program: flights in, enriched flights and delay statistics out.

`python -m txn.demo.job` is the process that `txn demo` kills and starts again. It keeps nothing but
Spark's checkpoints; `--stock` swaps txn's source and sink for Spark's own and changes nothing else.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import txn.spark
from txn.demo.flights import AIRLINES, AIRPORTS, FLIGHTS, PLANES, WEATHER, Table
from txn.demo.topics import output_topics

SPARK_TYPES = {int: "bigint", float: "double"}

COLUMNS = {
    AIRLINES.name: "carrier name",
    AIRPORTS.name: "faa name",
    PLANES.name: "tailnum year manufacturer model seats",
    WEATHER.name: "origin time_hour temp wind_speed visib",
    FLIGHTS.name: "carrier flight tailnum origin dest time_hour dep_delay arr_delay",
}
"""Columns of each table that the job reads."""


def main() -> None:
    """Run both queries until all flights are through."""
    arguments = _arguments()
    spark = _session(arguments.stock)
    job = Job(spark, arguments.bootstrap_servers, arguments.directory, is_stock=arguments.stock)
    queries = [job.enrich(arguments.per_batch), job.statistics(arguments.per_batch)]
    for query in queries:
        query.awaitTermination()
    spark.stop()


class Job:
    """The two queries over one Kafka."""

    def __init__(
        self, spark: SparkSession, bootstrap_servers: str, directory: Path, *, is_stock: bool
    ) -> None:
        self.spark = spark
        self.bootstrap_servers = bootstrap_servers
        self.checkpoints = directory / ("checkpoints-stock" if is_stock else "checkpoints")
        self.is_stock = is_stock
        self.format = "kafka" if is_stock else "txn"
        self.enriched_topic, self.statistics_topic = output_topics(is_stock=is_stock)

    def enrich(self, per_batch: int) -> StreamingQuery:
        """Join every flight with its airline, destination, plane and weather."""
        airlines = self._table(AIRLINES).withColumnRenamed("name", "airline")
        airports = self._table(AIRPORTS).select(
            f.col("faa").alias("dest"), f.col("name").alias("destination")
        )
        planes = self._table(PLANES).withColumnRenamed("year", "plane_year")
        weather = self._table(WEATHER)
        rows = (
            self._flights(per_batch)
            .join(f.broadcast(airlines), "carrier", "left")
            .join(f.broadcast(airports), "dest", "left")
            .join(f.broadcast(planes), "tailnum", "left")
            .join(f.broadcast(weather), ["origin", "time_hour"], "left")
        )
        records = rows.select(
            f.concat_ws("|", "carrier", "flight").alias("key"),
            f.to_json(f.struct("*")).alias("value"),
        )
        return (
            records.writeStream.format(self.format)
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("topic", self.enriched_topic)
            .option("checkpointLocation", str(self.checkpoints / "enrich"))
            .trigger(availableNow=True)
            .start()
        )

    def statistics(self, per_batch: int) -> StreamingQuery:
        """Count and sum delays per carrier and hour; every change is one update."""
        hour = f.window(f.to_timestamp("time_hour"), "1 hour")
        groups = (
            self._flights(per_batch)
            .groupBy("carrier", hour.alias("hour"))
            .agg(
                f.count("*").alias("flights"),
                f.count("dep_delay").alias("departed"),
                _total("dep_delay"),
                _total("arr_delay"),
                f.max("dep_delay").alias("dep_delay_max"),
            )
        )
        start = f.date_format("hour.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
        records = groups.select(
            f.concat_ws("|", "carrier", start).alias("key"),
            f.to_json(
                f.struct(
                    "carrier",
                    start.alias("hour"),
                    "flights",
                    "departed",
                    "dep_delay_total",
                    "arr_delay_total",
                    "dep_delay_max",
                )
            ).alias("value"),
        )
        return (
            records.writeStream.outputMode("update")
            .foreachBatch(self._statistics_sink())
            .option("checkpointLocation", str(self.checkpoints / "statistics"))
            .trigger(availableNow=True)
            .start()
        )

    def _statistics_sink(self) -> Callable[[DataFrame, int], None]:
        if not self.is_stock:
            sink: Callable[[DataFrame, int], None] = txn.spark.sink(
                self.bootstrap_servers, topic=self.statistics_topic, id="demo-statistics"
            )
            return sink

        def write(batch: DataFrame, _batch_id: int) -> None:
            (
                batch.write.format("kafka")
                .option("kafka.bootstrap.servers", self.bootstrap_servers)
                .option("topic", self.statistics_topic)
                .save()
            )

        return write

    def _flights(self, per_batch: int) -> DataFrame:
        records = (
            self.spark.readStream.format(self.format)
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", FLIGHTS.name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(per_batch))
            .load()
        )
        return _parsed(records, FLIGHTS, "id bigint, ")

    def _table(self, table: Table) -> DataFrame:
        records = (
            self.spark.read.format(self.format)
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", table.name)
            .load()
        )
        return _parsed(records, table).cache()


def _total(column: str) -> Column:
    return f.sum(column).alias(f"{column}_total")


def _parsed(records: DataFrame, table: Table, prefix: str = "") -> DataFrame:
    types = {name: SPARK_TYPES.get(kind, "string") for name, kind in table.types.items()}
    columns = (f"{name} {types.get(name, 'string')}" for name in COLUMNS[table.name].split())
    schema = prefix + ", ".join(columns)
    return records.select(f.from_json(f.col("value").cast("string"), schema).alias("row")).select(
        "row.*"
    )


def _session(is_stock: bool) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2,4]")
        .appName("txn-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.minBatchesToRetain", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    )
    if is_stock:
        builder = builder.config("spark.jars", ",".join(txn.spark.jars()))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    txn.spark.register(spark)
    return spark


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--directory", required=True, type=Path, help="holds the checkpoints")
    parser.add_argument("--per-batch", type=int, default=30_000, help="flights per micro-batch")
    parser.add_argument("--stock", action="store_true", help="use Spark's own source and sink")
    return parser.parse_args()


if __name__ == "__main__":
    main()
