"""Small streaming jobs on txn's source and sink, for tests."""

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from support import clients

Options = dict[str, str]


def put(servers: str, topic: str, values: Iterable[str], partition: int = 0) -> None:
    """Write values without a transaction."""
    clients.send(
        clients.plain_producer(servers), topic, (value.encode() for value in values), partition
    )


def texts(servers: str, topic: str) -> list[str]:
    """Records that a read_committed reader finds, sorted."""
    return sorted((value or b"").decode() for value in clients.read_all(servers, topic))


def stream(spark: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    """Read a topic from its start."""
    reader = spark.readStream.format("txn").option("kafka.bootstrap.servers", servers)
    given = {"subscribe": topic, "startingOffsets": "earliest", **options}
    return reader.options(**given).load()


def table(spark: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    """Read the present records of a topic."""
    reader = spark.read.format("txn").option("kafka.bootstrap.servers", servers)
    return reader.options(**{"subscribe": topic, **options}).load()


def writing(rows: DataFrame, servers: str, checkpoint: Path, options: Options) -> DataStreamWriter:
    """To `format("txn")`, until the present records are through."""
    return (
        rows.writeStream.format("txn")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
    )


def finish(writer: DataStreamWriter) -> StreamingQuery:
    """Start, and wait for the end."""
    query = writer.start()
    query.awaitTermination()
    return query


def forget_last_commit(checkpoint: Path) -> None:
    """Make Spark believe that it died after the sink's commit and before its own."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
