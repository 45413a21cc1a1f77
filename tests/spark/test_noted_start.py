"""A checkpoint that has only the start of `format("kafka")`, and no batch.

Spark's Kafka source notes its start before the first batch is planned. A query that was killed in
between and went on with `format("txn")` started at another "latest", and the records in between
were in no batch. Then such a checkpoint was refused; now the query goes on from the noted start.
"""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
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


def note_start(checkpoint: Path, note: str, source: int = 0) -> None:
    """Leave a checkpoint as Spark's Kafka source does before the first batch."""
    noted = checkpoint / "sources" / str(source) / "0"
    noted.parent.mkdir(parents=True)
    noted.write_bytes(b"\0v1\n" + note.encode())
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


@pytest.mark.parametrize("start", ["latest", "earliest", "the note"])
@pytest.mark.parametrize("is_keyword", [False, True])
def test_query_goes_on_where_sparks_kafka_source_noted_its_start(
    spark: SparkSession,
    servers: str,
    topic: str,
    output: str,
    checkpoint: Path,
    start: str,
    is_keyword: bool,
) -> None:
    put(servers, topic, ["before"])
    note = f'{{"{topic}":{{"0":1,"1":0}}}}'
    note_start(checkpoint, note)
    put(servers, topic, ["between"], 0)
    given = note if start == "the note" else start
    if is_keyword:
        elsewhere = checkpoint.parent / "new"
        writer = to_output(spark, servers, topic, output, elsewhere, given)
        writer.start(checkpointLocation=str(checkpoint)).awaitTermination()
    else:
        finish(to_output(spark, servers, topic, output, checkpoint, given))
    put(servers, topic, ["after"], 1)
    finish(to_output(spark, servers, topic, output, checkpoint, "latest"))  # it has batches now
    assert texts(servers, output) == ["after", "between"]


def test_no_record_is_lost_or_doubled_where_the_first_batch_fails(
    spark: SparkSession, servers: str, topic: str, checkpoint: Path
) -> None:
    put(servers, topic, ["before"])
    note_start(checkpoint, f'{{"{topic}":{{"0":1,"1":0}}}}')
    put(servers, topic, ["between"], 0)
    seen: list[str] = []
    failures = [0, 1]  # the batches that fail once: the one of the start, and the next

    def take(rows: DataFrame, batch: int) -> None:
        if batch in failures:
            failures.remove(batch)
            raise RuntimeError("killed")
        seen.extend(row.value.decode() for row in rows.select("value").collect())

    def run() -> None:
        rows = stream(spark, servers, topic, startingOffsets="latest")
        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        finish(writer.trigger(availableNow=True))

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="killed"):
            run()
    put(servers, topic, ["after"], 1)
    run()
    run()
    assert sorted(seen) == ["after", "between"]


def test_state_begins_with_the_noted_start(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """A start noted as a batch that is through would have no state to go on from."""
    put(servers, topic, ["a"])
    note_start(checkpoint, f'{{"{topic}":{{"0":1,"1":0}}}}')
    put(servers, topic, ["a", "b", "a"], 0)

    def run() -> None:
        counts = stream(spark, servers, topic, startingOffsets="latest").groupBy("value").count()
        rows = counts.selectExpr("concat(string(value), ' ', count) AS value")
        finish(writing(rows, servers, checkpoint, {"topic": output}).outputMode("complete"))

    run()
    put(servers, topic, ["b"], 1)
    run()
    assert set(texts(servers, output)[-4:]) <= {"a 2", "b 1", "b 2"}
    assert {"a 2", "b 2"} <= set(texts(servers, output))


def test_of_two_sources_each_goes_on_at_its_own_start(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """A source of another kind stands between them, and one of them has noted nothing."""
    put(servers, topic, ["before"])
    note_start(checkpoint, f'{{"{topic}":{{"0":1,"1":0}}}}', source=2)
    put(servers, topic, ["between"], 0)
    rate = spark.readStream.format("rate").load().selectExpr("encode('', 'utf-8') AS value")
    fresh = stream(spark, servers, topic, startingOffsets="earliest").select("value")
    noted = stream(spark, servers, topic, startingOffsets="latest").select("value")
    both = fresh.union(rate.where("false")).union(noted)
    for _ in range(2):  # the other source knows no AvailableNow: each run is one batch
        finish(writing(both, servers, checkpoint, {"topic": output}))
    assert texts(servers, output) == ["before", "between", "between"]


@pytest.mark.parametrize("reason", ["a log of version 2", "other inner names", "no id"])
def test_a_start_that_cannot_be_taken_over_is_refused_and_told(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path, reason: str
) -> None:
    note = f'{{"{topic}":{{"0":0,"1":0}}}}'
    note_start(checkpoint, note)
    writer = to_output(spark, servers, topic, output, checkpoint, "latest")
    version = "2" if reason == "a log of version 2" else "1"
    if reason == "no id":
        (checkpoint / "metadata").unlink()
    packages = "txn.spark.noted_start.CHECKPOINTING"
    known = "org.apache.spark.sql.execution.streaming.checkpointing"
    with (
        setting(spark, "spark.sql.streaming.offsetLog.formatVersion", version),
        patch(packages, "org.apache.nowhere" if reason == "other inner names" else known),
        pytest.raises(ConfigError, match=r"has no batch yet, only the start .*") as refused,
    ):
        writer.start()
    assert note in str(refused.value)
    finish(to_output(spark, servers, topic, output, checkpoint, note))


def test_query_with_a_name_has_its_checkpoint_where_the_session_says(
    spark: SparkSession, servers: str, topic: str, output: str, tmp_path: Path
) -> None:
    note_start(tmp_path / "named", f'{{"{topic}":{{"0":0,"1":0}}}}')
    put(servers, topic, ["between"])
    rows = stream(spark, servers, topic, startingOffsets="latest").select("value")
    writer = rows.writeStream.format("txn").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", output).queryName("named").trigger(availableNow=True)
    with setting(spark, "spark.sql.streaming.checkpointLocation", str(tmp_path)):
        finish(writer)
    assert texts(servers, output) == ["between"]


def test_note_of_sparks_own_source_is_taken_over_and_its_query_is_left_alone(
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
    assert checkpoints.noted_starts(str(checkpoint)) == {0: f'{{"{topic}":{{"0":1,"1":0}}}}'}
    start_stock()
    for log in ("offsets", "commits"):
        shutil.rmtree(checkpoint / log)
    put(servers, topic, ["between"], 0)
    finish(to_output(spark, servers, topic, output, checkpoint, "latest"))
    assert texts(servers, output) == ["between"]
    start_stock()  # the way back


@pytest.mark.parametrize("content", ['v1\n{"path":"f","timestamp":1,"batchId":0}', "v1\n17", ""])
def test_notes_of_other_sources_are_none(tmp_path: Path, content: str) -> None:
    note = tmp_path / "sources" / "0" / "0"
    note.parent.mkdir(parents=True)
    note.write_text(content)
    assert checkpoints.noted_starts(str(tmp_path)) == {}
