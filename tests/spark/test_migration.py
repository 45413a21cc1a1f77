"""`format("kafka")` → `format("txn")` is the whole migration: the same jobs under both names.

Each job runs with Spark's own connector too, so that the expected rows here are Spark's. Where the
connector cannot be fetched, those runs are skipped. `DIFFERENCES` at the end are all that a job may
have to know.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark.conftest import connector_jars
from spark.jobs import put, texts
from support import clients
from txn._core import KafkaClient
from txn.spark.mark import Mark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture(params=["kafka", "txn"])
def name(request: pytest.FixtureRequest) -> str:
    """A format, the one word that a migration changes."""
    if request.param == "kafka" and not connector_jars():
        pytest.skip("Spark's Kafka connector cannot be fetched")
    found: str = request.param
    return found


Record = tuple[bytes | None, bytes | None, Any]


def records(servers: str, topic: str) -> list[Record]:
    """(key, value, headers), in order."""
    return [(m.key(), m.value(), m.headers()) for m in clients.read_messages(servers, topic)]


def save(rows: DataFrame, name: str, servers: str, **options: str) -> None:
    writer = rows.write.format(name).option("kafka.bootstrap.servers", servers)
    writer.options(**options).mode("append").save()


def load(spark: SparkSession, name: str, servers: str, **options: str) -> DataFrame:
    reader = spark.read.format(name).option("kafka.bootstrap.servers", servers)
    return reader.options(**options).load()


# ---------------------------------------------------------------- writing

WRITES: dict[str, tuple[str, dict[str, str], list[Record]]] = {
    "surplus columns": (
        "SELECT 'k' AS key, 'v' AS value, 7L AS offset, now() AS timestamp, 0 AS timestampType",
        {},
        [(b"k", b"v", None)],
    ),
    "names in another case": (
        "SELECT 'v' AS value, 1 AS Key, 2 AS Topic, 3 AS PARTITION",
        {},
        [(None, b"v", None)],
    ),
    "null value": ("SELECT 'k' AS key, string(null) AS value", {}, [(b"k", None, None)]),
    "option topic overrules a column that is no text": (
        "SELECT 'v' AS value, 7 AS topic",
        {},
        [(None, b"v", None)],
    ),
    "no partition": (
        "SELECT 'v' AS value, int(null) AS partition",
        {},
        [(None, b"v", None)],
    ),
    "headers whatever includeHeaders says": (
        "SELECT 'v' AS value, array(named_struct('key', 'h', 'value', binary('x'))) AS headers",
        {"includeHeaders": "false"},
        [(None, b"v", [("h", b"x")])],
    ),
    "options that tune a producer": (
        "SELECT 'v' AS value",
        {
            "kafka.acks": "all",
            "kafka.batch.size": "1000",
            "kafka.compression.type": "gzip",
            "kafka.linger.ms": "1",
            "kafka.max.request.size": "2000000",
        },
        [(None, b"v", None)],
    ),
    "options of the reader": (
        "SELECT 'v' AS value",
        {"subscribe": "in", "startingOffsets": "earliest", "failOnDataLoss": "false"},
        [(None, b"v", None)],
    ),
}


@pytest.mark.parametrize("job", WRITES)
def test_write_puts_the_same_records(
    spark: SparkSession, servers: str, output: str, name: str, job: str
) -> None:
    query, options, expected = WRITES[job]
    given = {"topic": "{}", **options}
    save(spark.sql(query), name, servers, **{k: v.format(output) for k, v in given.items()})
    assert records(servers, output) == expected


def test_row_of_the_source_is_written_as_it_is(
    spark: SparkSession, servers: str, topic: str, output: str, name: str
) -> None:
    """README's example did this, and failed: "the column 'offset' cannot be written"."""
    put(servers, topic, ["a", "b"], 1)
    save(load(spark, name, servers, subscribe=topic), name, servers, topic=output)
    found = clients.read_messages(servers, output)
    assert [(m.value(), m.partition()) for m in found] == [(b"a", 1), (b"b", 1)]


def test_output_topic_that_is_not_there_is_made(
    spark: SparkSession, servers: str, name: str
) -> None:
    """By a cluster with auto.create.topics.enable, the default, as for any Java producer."""
    output = f"fresh-{name}-{time.time_ns()}"
    save(spark.sql("SELECT 'v' AS value"), name, servers, topic=output)
    assert texts(servers, output) == ["v"]


def test_rows_choose_topics_that_are_not_there(
    spark: SparkSession, servers: str, name: str
) -> None:
    first, second = (f"fresh-{name}-{number}-{time.time_ns()}" for number in (1, 2))
    save(spark.sql(f"SELECT * FROM VALUES ('1', '{first}'), ('2', '{second}') AS r(value, topic)"),
         name, servers)  # fmt: skip
    assert (texts(servers, first), texts(servers, second)) == (["1"], ["2"])


REFUSED_WRITES = {
    "no value": ("SELECT 'v' AS Value", {}, "value"),
    "value of a wrong type": ("SELECT 1 AS value", {}, "value .* ?int"),
    "value without a type": ("SELECT null AS value", {}, "value .* ?void"),
    "key of a wrong type": ("SELECT 1 AS key, 'v' AS value", {}, "key .* ?int"),
    "partition of a wrong type": ("SELECT 'v' AS value, 1L AS partition", {}, "partition .* ?bigi"),
    "headers of a wrong type": ("SELECT 'v' AS value, 'h' AS headers", {}, "headers .* ?string"),
    "a serializer": ("SELECT 'v' AS value", {"kafka.key.serializer": "S"}, "key.serializer"),
}


@pytest.mark.parametrize("job", REFUSED_WRITES)
def test_write_that_spark_refuses_is_refused_with_the_same_cause(
    spark: SparkSession, servers: str, output: str, name: str, job: str
) -> None:
    query, options, cause = REFUSED_WRITES[job]
    with pytest.raises(PySparkException, match=rf"(?is){cause}"):
        save(spark.sql(query), name, servers, topic=output, **options)
    assert records(servers, output) == []


def test_no_topic_is_refused(spark: SparkSession, servers: str, name: str) -> None:
    with pytest.raises(PySparkException, match=r"topic"):
        save(spark.sql("SELECT 'v' AS value"), name, servers)


def test_partition_minus_one_is_refused(
    spark: SparkSession, servers: str, output: str, name: str
) -> None:
    """The task fails. It went where the key belongs, as if there were no partition."""
    rows = spark.sql("SELECT * FROM VALUES ('a', 0), ('b', -1) AS r(value, partition)")
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)partition:? -1"):
        save(rows.coalesce(1), name, servers, topic=output)


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_mode_that_would_replace_a_topic_is_refused(
    spark: SparkSession, servers: str, output: str, name: str, mode: str
) -> None:
    rows = spark.sql("SELECT 'v' AS value").write.format(name)
    rows = rows.option("kafka.bootstrap.servers", servers).option("topic", output)
    with pytest.raises(PySparkException, match=r"(?i)mode.* not allowed|overwritten|ignore. mode"):
        rows.mode(mode).save()
    assert records(servers, output) == []


# ---------------------------------------------------------------- reading

READS: dict[str, tuple[dict[str, str], list[str]]] = {
    "subscribe": ({"subscribe": "{}"}, ["a", "b", "c", "d"]),
    "subscribePattern": ({"subscribePattern": "{}.*"}, ["a", "b", "c", "d"]),
    "assign": ({"assign": '{{"{}": [1]}}'}, ["d"]),
    "offsets": (
        {
            "subscribe": "{}",
            "startingOffsets": '{{"{0}": {{"0": 1, "1": -2}}}}',
            "endingOffsets": '{{"{0}": {{"0": 2, "1": -1}}}}',
        },
        ["b", "d"],
    ),
    "options that tune a consumer": (
        {
            "subscribe": "{}",
            "kafka.fetch.max.bytes": "1000000",
            "kafka.group.id": "g-{}",
            "kafka.max.poll.records": "10",
            "kafka.request.timeout.ms": "20000",
            "kafkaConsumer.pollTimeoutMs": "20000",
            "fetchOffset.numRetries": "2",
            "groupIdPrefix": "p",
        },
        ["a", "b", "c", "d"],
    ),
    "options of the writer": ({"subscribe": "{}", "topic": "out"}, ["a", "b", "c", "d"]),
}


@pytest.fixture(scope="module")
def full(servers: str) -> str:
    """A topic with two partitions and four values."""
    topic = f"full-{time.time_ns()}"
    clients.create_topic(servers, topic, 2)
    put(servers, topic, ["a", "b", "c"], 0)
    put(servers, topic, ["d"], 1)
    return topic


@pytest.mark.parametrize("job", READS)
def test_read_finds_the_same_rows(
    spark: SparkSession, servers: str, full: str, name: str, job: str
) -> None:
    options, expected = READS[job]
    given = {option: value.format(full) for option, value in options.items()}
    found = load(spark, name, servers, **given)
    assert sorted(row.value.decode() for row in found.select("value").collect()) == expected


@pytest.mark.parametrize("headers", ["true", "false"])
def test_columns_are_the_same(
    spark: SparkSession, servers: str, full: str, name: str, headers: str
) -> None:
    found = load(spark, name, servers, subscribe=full, includeHeaders=headers)
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int"
        + (",headers:array<struct<key:string,value:binary>>>" if headers == "true" else ">")
    )


REFUSED_READS = {
    "nothing to read": ({}, "subscribe"),
    "two ways": ({"subscribe": "t", "assign": '{"t": [0]}'}, "subscribe"),
    "no names": ({"subscribe": " , "}, "subscribe"),
    "a deserializer": ({"subscribe": "t", "kafka.value.deserializer": "D"}, "value.deserializer"),
    "auto.offset.reset": ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "startingOff"),
    "auto commit": ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
    "interceptors": ({"subscribe": "t", "kafka.interceptor.classes": "I"}, "interceptor.classes"),
    "start at latest": ({"subscribe": "t", "startingOffsets": "latest"}, "latest"),
    "end at earliest": ({"subscribe": "t", "endingOffsets": "earliest"}, "earliest"),
    "minPartitions": ({"subscribe": "t", "minPartitions": "0"}, "minPartitions"),
}


@pytest.mark.parametrize("job", REFUSED_READS)
def test_read_that_spark_refuses_is_refused_with_the_same_cause(
    spark: SparkSession, servers: str, full: str, name: str, job: str
) -> None:
    options, cause = REFUSED_READS[job]
    given = {option: value.replace("t", full, value == "t") for option, value in options.items()}
    with pytest.raises(PySparkException, match=rf"(?is){cause}"):
        load(spark, name, servers, **given).count()


# ---------------------------------------------------------------- streams


@pytest.fixture
def configured(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A session whose configuration says where checkpoints go."""
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(tmp_path))
    yield tmp_path
    spark.conf.unset(setting)


def copied(
    spark: SparkSession, name: str, servers: str, topic: str, output: str
) -> Callable[..., None]:
    def copy(**options: str) -> None:
        rows = (
            spark.readStream.format(name)
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        writer = rows.writeStream.format(name).option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", output).options(**options)
        writer.queryName(f"copy-{output}").trigger(availableNow=True).start().awaitTermination()

    return copy


def test_checkpoint_of_the_sessions_configuration_is_continued(
    spark: SparkSession, servers: str, topic: str, output: str, name: str, configured: Path
) -> None:
    """A data source is not told of it; a named query's name stands for its id."""
    copy = copied(spark, name, servers, topic, output)
    put(servers, topic, ["1"])
    copy()
    put(servers, topic, ["2"])
    copy()
    assert texts(servers, output) == ["1", "2"]
    assert (configured / f"copy-{output}" / "commits").exists()


def test_query_without_a_name_runs_under_the_sessions_configuration(
    spark: SparkSession, servers: str, topic: str, output: str, name: str, configured: Path
) -> None:
    """Spark gives it another directory at every start, so every start begins anew."""
    put(servers, topic, ["1", "2", "3"])
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    rows = reader.option("maxOffsetsPerTrigger", 1).load()
    writer = rows.writeStream.format(name).option("kafka.bootstrap.servers", servers)
    for _ in range(2):
        query = writer.option("topic", output).trigger(availableNow=True).start()
        query.awaitTermination()
    assert texts(servers, output) == ["1", "1", "2", "2", "3", "3"]
    assert len(list(configured.glob("*/commits"))) == 2


def test_task_that_fails_in_a_query_without_a_name_leaves_no_transaction(
    spark: SparkSession, servers: str, topic: str, output: str, configured: Path
) -> None:
    """Its rows would hold back readers of the output until `txn.timeout.ms`."""
    put(servers, topic, ["1"], 0)
    put(servers, topic, ["2"], 1)
    reader = spark.readStream.format("txn").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    failing = "CASE WHEN partition = 1 THEN raise_error('broken') ELSE value END AS value"
    writer = rows.selectExpr(failing).writeStream.format("txn").option("topic", output)
    query = writer.option("kafka.bootstrap.servers", servers).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="broken"):
        query.awaitTermination()
    client = KafkaClient(servers)
    left = client.list_transactions(["Ongoing"], "batch-")
    client.close()
    assert left == []


# ---------------------------------------------------------------- DIFFERENCES


def test_checkpoint_of_sparks_source_is_continued_and_the_sink_is_told_so(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """The sink has no record of the batches that another one wrote, and will not guess."""
    if not connector_jars():
        pytest.skip("Spark's Kafka connector cannot be fetched")
    options = {"checkpointLocation": str(checkpoint)}
    put(servers, topic, ["1"])
    copied(spark, "kafka", servers, topic, output)(**options)
    put(servers, topic, ["2"])
    with pytest.raises(StreamingQueryException, match=r"on\.missing\.progress=trust-checkpoint"):
        copied(spark, "txn", servers, topic, output)(**options)
    trusting = {**options, "txn.on.missing.progress": "trust-checkpoint"}
    copied(spark, "txn", servers, topic, output)(**trusting)
    put(servers, topic, ["3"])
    copied(spark, "txn", servers, topic, output)(**options)
    assert texts(servers, output) == ["1", "2", "3"]
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    assert Mark.from_json(json.loads(last.read_text().splitlines()[2])).ids.keys() == {topic}
    put(servers, topic, ["4"])
    copied(spark, "kafka", servers, topic, output)(**options)  # the way back
    assert texts(servers, output) == ["1", "2", "3", "4"]
    put(servers, topic, ["5"])
    with pytest.raises(StreamingQueryException, match=r"written by format.*set a new txn\.id"):
        copied(spark, "txn", servers, topic, output)(**trusting)
    copied(spark, "txn", servers, topic, output)(**trusting, **{"txn.id": "again"})
    assert texts(servers, output) == ["1", "2", "3", "4", "5"]
