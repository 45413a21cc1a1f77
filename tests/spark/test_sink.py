"""The sink in a real session: its records, batch writes, offsets, status."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import txn.spark
from spark.jobs import finish, put, stream, texts, writing
from support import clients

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def save(rows: DataFrame, servers: str, **options: str) -> None:
    writer = rows.write.format("txn").option("kafka.bootstrap.servers", servers)
    writer.options(**options).mode("append").save()


def test_batch_write_puts_every_column_where_it_belongs(
    spark: SparkSession, servers: str, output: str
) -> None:
    rows = spark.sql(
        f"""SELECT 'k' AS key, binary('v') AS value, '{output}' AS topic, 1 AS partition,
            array(named_struct('key', 'h', 'value', binary('x'))) AS headers"""
    )
    save(rows, servers)
    (message,) = clients.read_messages(servers, output)
    assert (message.key(), message.value(), message.partition()) == (b"k", b"v", 1)
    assert message.headers() == [("h", b"x")]


def test_keys_go_where_javas_producer_would_put_them(
    spark: SparkSession, servers: str, output: str
) -> None:
    rows = spark.range(200).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    save(rows, servers, topic=output)
    producer = clients.plain_producer(servers, partitioner="murmur2_random")
    for message in clients.read_messages(servers, output):
        producer.produce(output, key=message.key(), value=b"again")
    producer.flush()
    places: dict[bytes | None, set[int | None]] = {}
    for message in clients.read_messages(servers, output):
        places.setdefault(message.key(), set()).add(message.partition())
    assert len(places) == 200
    assert all(len(found) == 1 for found in places.values())


def test_batch_write_that_fails_writes_nothing(
    spark: SparkSession, servers: str, output: str
) -> None:
    rows = spark.range(0, 1000, 1, 4).selectExpr(
        "if(id = 999, raise_error('the last row'), cast(id AS string)) AS value"
    )
    with pytest.raises(PySparkException, match="the last row"):
        save(rows, servers, topic=output)
    assert clients.read_all(servers, output) == []


def test_batch_writes_under_one_id_follow_each_other(
    spark: SparkSession, servers: str, output: str
) -> None:
    for number in range(3):
        save(
            spark.sql(f"SELECT '{number}' AS value"),
            servers,
            topic=output,
            **{"txn.id": f"batch-{output}"},
        )
    assert texts(servers, output) == ["0", "1", "2"]
    assert txn.spark.status(servers, f"batch-{output}").batch == 2


def test_unknown_option_is_refused_by_its_closest_name(
    spark: SparkSession, servers: str, output: str
) -> None:
    with pytest.raises(PySparkException, match=r"unknown option 'txn\.grop'.*txn\.group"):
        save(spark.sql("SELECT '1' AS value"), servers, topic=output, **{"txn.grop": "g"})


def test_topic_cannot_be_overwritten(spark: SparkSession, servers: str, output: str) -> None:
    rows = spark.sql("SELECT '1' AS value").write.format("txn")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        rows.options(**{"kafka.bootstrap.servers": servers, "topic": output}).mode(
            "overwrite"
        ).save()


def test_complete_mode_writes_all_groups_each_time(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["a", "b"])
    counts = (
        stream(spark, servers, topic)
        .groupBy("value")
        .count()
        .selectExpr("concat_ws('|', cast(value as string), count) AS value")
    )
    writer = writing(counts, servers, checkpoint, {"topic": output}).outputMode("complete")
    finish(writer)
    put(servers, topic, ["a"])
    finish(writer)
    assert texts(servers, output) == ["a|1", "a|2", "b|1", "b|1"]


def test_group_gets_the_source_offsets_with_the_rows(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["1", "2", "3"])
    rows = stream(spark, servers, topic).select("value")
    group = f"group-{output}"
    finish(writing(rows, servers, checkpoint, {"topic": output, "txn.group": group}))
    assert json.loads(txn.spark.offsets(servers, group)) == {topic: {"0": 3, "1": 0}}
    assert json.loads(txn.spark.offsets(servers, group, [topic])) == {topic: {"0": 3, "1": 0}}


@pytest.fixture
def named_sources(spark: SparkSession) -> Iterator[None]:
    """Spark's offset log in version 2, where sources have names."""
    settings = {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def named(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("txn").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.name("orders").load().select("value")


@pytest.mark.usefixtures("named_sources")
def test_group_gets_the_offsets_of_named_sources(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["1", "2", "3"])
    rows = named(spark, servers, topic)
    group = f"group-{output}"
    finish(writing(rows, servers, checkpoint, {"topic": output, "txn.group": group}))
    assert (checkpoint / "offsets" / "0").read_text().startswith("v2")
    assert json.loads(txn.spark.offsets(servers, group)) == {topic: {"0": 3, "1": 0}}


@pytest.mark.usefixtures("named_sources")
@pytest.mark.parametrize("path", ["format", "foreachBatch"])
def test_query_of_named_sources_does_not_read_its_own_progress(
    spark: SparkSession, servers: str, output: str, checkpoint: Path, path: str
) -> None:
    """Each batch made another one: 66 in 15 seconds, of two records."""
    save(spark.sql("SELECT 'v' AS value"), servers, topic=output)  # makes the progress topic
    rows = named(spark, servers, "__txn_spark")
    writer = writing(rows, servers, checkpoint, {"topic": output})
    if path == "foreachBatch":
        sink = txn.spark.sink(servers, output, id=output, checkpoint=checkpoint)
        writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(checkpoint))
    with pytest.raises(PySparkException, match="where its own sink keeps its progress"):
        finish(writer)


def test_query_restarts_from_its_group_when_the_checkpoint_is_lost(
    spark: SparkSession, servers: str, topic: str, output: str, tmp_path: Path
) -> None:
    put(servers, topic, ["1", "2"])
    group = f"group-{output}"
    options = {"topic": output, "txn.group": group}
    rows = stream(spark, servers, topic).select("value")
    finish(writing(rows, servers, tmp_path / "lost", options))
    put(servers, topic, ["3"])
    found = txn.spark.offsets(servers, group, [topic])
    again = stream(spark, servers, topic, startingOffsets=found).select("value")
    finish(writing(again, servers, tmp_path / "new", options))
    assert texts(servers, output) == ["1", "2", "3"]


def test_foreach_batch_can_have_a_group_when_told_the_checkpoint(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["1"])
    group = f"group-{output}"
    sink = txn.spark.sink(servers, output, id=output, checkpoint=checkpoint, txn_group=group)
    rows = stream(spark, servers, topic).select("value")
    finish(
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    assert json.loads(txn.spark.offsets(servers, group)) == {topic: {"0": 1, "1": 0}}


def test_sink_refuses_the_checkpoint_of_another_query(
    spark: SparkSession, servers: str, topic: str, output: str, tmp_path: Path
) -> None:
    put(servers, topic, ["1"])
    other = tmp_path / "other"
    other.mkdir()
    (other / "metadata").write_text('{"id":"another-query"}')
    sink = txn.spark.sink(servers, output, id=output, checkpoint=other)
    rows = stream(spark, servers, topic).select("value")
    with pytest.raises(PySparkException, match=r"is that of query another-query, but .* runs"):
        finish(
            rows.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "mine"))
            .trigger(availableNow=True)
        )
    assert texts(servers, output) == []


def test_status_of_an_unknown_id_is_empty(servers: str) -> None:
    found = txn.spark.status(servers, "nobody", progress_topic="no-such-progress")
    assert (found.state, found.batch, found.open) == (None, None, ())
