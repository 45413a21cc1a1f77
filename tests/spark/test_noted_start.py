"""A checkpoint that has only the start of `format("kafka")`, and no batch.

Spark's Kafka source notes its start before the first batch is planned. A query that was killed in
between and went on with `format("txn")` started at another "latest", and the records in between
were in no batch.
"""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark.conftest import connector_jars
from spark.jobs import finish, put, stream, texts, writing
from txn.errors import ConfigError
from txn.spark import checkpoint as checkpoints

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def to_output(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path, start: str
) -> DataStreamWriter:
    rows = stream(spark, servers, topic, startingOffsets=start).select("value")
    return writing(rows, servers, checkpoint, {"topic": output})


def test_query_starts_where_sparks_kafka_source_noted_it_or_says_why_not(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["before"])
    note = f'{{"{topic}":{{"0":1,"1":0}}}}'
    noted = checkpoint / "sources" / "0" / "0"
    noted.parent.mkdir(parents=True)
    noted.write_bytes(b"\0v1\n" + note.encode())
    put(servers, topic, ["between"], 0)
    for start in ("latest", "earliest"):
        with pytest.raises(ConfigError, match=r"has no batch yet, only the start .*") as refused:
            to_output(spark, servers, topic, output, checkpoint, start).start()
        assert note in str(refused.value)
    by_keyword = to_output(spark, servers, topic, output, checkpoint.parent / "new", "latest")
    with pytest.raises(ConfigError, match="only the start"):
        by_keyword.start(checkpointLocation=str(checkpoint))
    finish(to_output(spark, servers, topic, output, checkpoint, note))
    put(servers, topic, ["after"], 1)
    finish(to_output(spark, servers, topic, output, checkpoint, "latest"))  # it has batches now
    assert texts(servers, output) == ["after", "between"]


def test_query_with_a_name_has_its_checkpoint_where_the_session_says(
    spark: SparkSession, servers: str, topic: str, output: str, tmp_path: Path
) -> None:
    noted = tmp_path / "named" / "sources" / "0" / "0"
    noted.parent.mkdir(parents=True)
    noted.write_text(f'v1\n{{"{topic}":{{"0":0,"1":0}}}}')
    rows = stream(spark, servers, topic, startingOffsets="latest").select("value")
    writer = rows.writeStream.format("txn").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", output).queryName("named").trigger(availableNow=True)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        with pytest.raises(ConfigError, match=rf"checkpoint {tmp_path}/named has no batch yet"):
            writer.start()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


def test_note_of_sparks_own_source_is_read_and_its_query_is_left_alone(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    if not connector_jars():
        pytest.skip("Spark's Kafka connector cannot be fetched")
    put(servers, topic, ["before"])

    def start_stock() -> None:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        rows = reader.option("subscribe", topic).load()  # at latest
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        finish(writer.trigger(availableNow=True))

    start_stock()
    for log in ("offsets", "commits"):  # as if it was killed before
        shutil.rmtree(checkpoint / log)
    note = f'{{"{topic}":{{"0":1,"1":0}}}}'
    assert checkpoints.noted_starts(str(checkpoint)) == [note]
    with pytest.raises(ConfigError, match="only the start"):
        to_output(spark, servers, topic, output, checkpoint, "latest").start()
    start_stock()


@pytest.mark.parametrize("content", ['v1\n{"path":"f","timestamp":1,"batchId":0}', "v1\n17", ""])
def test_notes_of_other_sources_are_none(tmp_path: Path, content: str) -> None:
    note = tmp_path / "sources" / "0" / "0"
    note.parent.mkdir(parents=True)
    note.write_text(content)
    assert checkpoints.noted_starts(str(tmp_path)) == []
