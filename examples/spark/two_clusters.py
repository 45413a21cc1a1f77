"""Two clusters: read here, write there.

Input `--input` on `--bootstrap-servers`: any records.
Output `--output` on `--output-bootstrap-servers`: the same keys, values and headers.
Either cluster may be txn or an Apache Kafka.

Exactly once: each record is in the output once. The sink keeps its progress on the cluster of the
output, and the input cluster is only read.
"""

from argparse import Namespace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job import Program, access


def start(spark: SparkSession, given: Namespace) -> StreamingQuery:
    """Start the query."""
    records = (
        spark.readStream.format("txn")
        .options(**given.source)
        .option("subscribe", given.input)
        .option("includeHeaders", "true")
    ).load()
    config = given.output_command_config
    there = access(given.output_bootstrap_servers, Path(config) if config else None)
    return (
        records.select("key", "value", "headers")
        .writeStream.format("txn")
        .options(**there)
        .option("topic", given.output)
        .option("checkpointLocation", given.checkpoint)
        .trigger(**given.trigger)
        .start()
    )


PROGRAM = Program(
    __doc__,
    start,
    input="orders",
    output="orders",
    output_bootstrap_servers="127.0.0.1:9093",
    output_command_config="",
)

if __name__ == "__main__":
    PROGRAM.main()
