"""The source in a real session: rows, types, where batches start and end."""

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from spark.conftest import connector_jars
from spark.jobs import finish, forget_last_commit, put, stream, table, texts, writing
from spark.stock import FORMATS
from support import clients
from txn.spark.mark import Mark
from txn.spark.options import source_settings
from txn.spark.stream_reader import StreamReader

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def test_rows_have_the_columns_and_types_of_sparks_kafka_source(
    spark: SparkSession, servers: str
) -> None:
    topic = f"old-{time.time_ns()}"
    clients.create_topic(servers, topic, 2, retention_ms="-1")  # else times long past are deleted
    producer = clients.plain_producer(servers)
    producer.produce(topic, b"v", b"k", 1, timestamp=1_700_000_000_123, headers=[("h", b"x")])
    producer.produce(topic, None, None, 1, timestamp=1)
    producer.flush()
    frame = table(spark, servers, topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = (
        frame.selectExpr(
            *("key", "value", "topic", "partition", "offset", "unix_millis(timestamp) AS at"),
            *("timestampType", "headers"),
        )
        .orderBy("offset")
        .collect()
    )
    assert tuple(first)[:-1] == (b"k", b"v", topic, 1, 0, 1_700_000_000_123, 0)
    assert [tuple(header) for header in first.headers] == [("h", b"x")]
    assert tuple(second) == (None, None, topic, 1, 1, 1, 0, None)


def test_aborted_and_open_transactions_are_not_read(
    spark: SparkSession, servers: str, topic: str
) -> None:
    producer = clients.transactional_producer(servers, f"tx-{topic}")
    clients.commit_values(producer, topic, [b"committed"])
    producer.begin_transaction()
    clients.send(producer, topic, [b"aborted"])
    producer.abort_transaction(clients.WAIT_S)
    producer.begin_transaction()
    clients.send(producer, topic, [b"open"])
    frame = table(spark, servers, topic)
    dirty = table(spark, servers, topic, **{"kafka.isolation.level": "read_uncommitted"})
    found = [row.value for row in frame.collect()]
    assert found == [b"committed"]
    assert dirty.count() == 3
    producer.abort_transaction(clients.WAIT_S)


def test_offsets_choose_the_rows_of_a_batch_read(
    spark: SparkSession, servers: str, topic: str
) -> None:
    put(servers, topic, ["a0", "a1", "a2", "a3"], 0)
    put(servers, topic, ["b0", "b1"], 1)
    frame = table(
        spark,
        servers,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 1, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 3, "1": -1}}}}',
        columns="value",
        minPartitions="4",
    )
    assert frame.columns == ["value"]
    assert sorted(row.value for row in frame.collect()) == [b"a1", b"a2", b"b0", b"b1"]
    assert frame.rdd.getNumPartitions() == 4


def test_option_that_misses_a_partition_is_refused(
    spark: SparkSession, servers: str, topic: str
) -> None:
    with pytest.raises(PySparkException, match=r"misses .* it has to name every partition"):
        table(spark, servers, topic, startingOffsets=f'{{"{topic}": {{"0": 1}}}}').count()


def test_topic_that_is_not_there_is_named(spark: SparkSession, servers: str) -> None:
    with pytest.raises(PySparkException, match="there is no topic 'no-such-topic'"):
        table(spark, servers, "no-such-topic").count()


def test_batches_are_no_larger_than_asked_for(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, [f"a{number}" for number in range(30)], 0)
    put(servers, topic, [f"b{number}" for number in range(10)], 1)
    rows = stream(spark, servers, topic, maxOffsetsPerTrigger="16").select("value")
    query = finish(writing(rows, servers, checkpoint, {"topic": output}))
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sizes == [16, 16, 8]
    assert len(texts(servers, output)) == 40


def test_query_that_starts_at_latest_keeps_its_start_over_a_crash(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """It crashed in its first batch; records that came since then must not be skipped."""
    put(servers, topic, ["before"])
    rows = stream(spark, servers, topic, startingOffsets="latest").select("value")
    writer = writing(rows, servers, checkpoint, {"topic": output})
    finish(writer)
    forget_last_commit(checkpoint)
    put(servers, topic, ["after"])
    finish(writer)
    assert texts(servers, output) == ["after"]


def test_first_batch_leaves_partitions_at_latest_alone(servers: str, topic: str) -> None:
    """Their start is noted as its end; a crash in that batch would move it past `late`."""
    put(servers, topic, ["early"], 0)
    given = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": -2, "1": -1}})}
    settings = source_settings({"kafka.bootstrap.servers": servers, **given})
    reader = StreamReader(settings, StructType([StructField("value", BinaryType())]))
    start = reader.initialOffset()
    put(servers, topic, ["late"], 1)
    first = reader.latestOffset(start, ReadAllAvailable())
    second = reader.latestOffset(first, ReadAllAvailable())
    ends = [Mark.from_json(end).at for end in (start, first, second)]
    assert [(at[topic, 0], at[topic, 1]) for at in ends] == [(0, 0), (1, 0), (1, 1)]


def test_partitions_that_are_added_are_read_from_their_start(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    put(servers, topic, ["old"])
    rows = stream(spark, servers, topic).select("value")
    writer = writing(rows, servers, checkpoint, {"topic": output})
    finish(writer)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    put(servers, topic, ["new"], 2)
    finish(writer)
    assert texts(servers, output) == ["new", "old"]


def test_records_that_were_deleted_end_the_query_unless_told_otherwise(
    spark: SparkSession, servers: str, output: str, checkpoint: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = f"in-{time.time_ns()}"
    clients.create_topic(servers, topic)
    put(servers, topic, ["a"])
    first = stream(spark, servers, topic).select("value")
    finish(writing(first, servers, checkpoint, {"topic": output}))
    put(servers, topic, ["b", "c", "d"])
    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(topic, 0, 3)
    admin.delete_records([place])[place].result(30)
    with pytest.raises(
        StreamingQueryException, match=r"offsets 1 to 3 \(exclusive\) of .* deleted"
    ):
        finish(writing(first, servers, checkpoint, {"topic": output}))
    lenient = stream(spark, servers, topic, failOnDataLoss="false").select("value")
    finish(writing(lenient, servers, checkpoint, {"topic": output}))
    assert texts(servers, output) == ["a", "d"]


def test_query_goes_on_while_topics_of_its_pattern_are_deleted_and_made_anew(
    spark: SparkSession, servers: str, output: str, checkpoint: Path
) -> None:
    """`test_data_loss.py` does it before each request of the source; this is the whole query."""
    from confluent_kafka.admin import AdminClient

    prefix = f"again-{time.time_ns()}"
    topics = [f"{prefix}-{number}" for number in range(2)]
    for topic in topics:
        clients.create_topic(servers, topic)
    options = {"subscribePattern": f"^{prefix}", "startingOffsets": "earliest"}
    reader = spark.readStream.format("txn").option("kafka.bootstrap.servers", servers)
    rows = reader.options(**options, failOnDataLoss="false").load().select("value")
    writer = writing(rows, servers, checkpoint, {"topic": output})
    query = writer.trigger(processingTime="0 seconds").start()
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        for turn in range(4):
            for topic in topics:
                admin.delete_topics([topic])[topic].result(clients.WAIT_S)
                clients.create_topic(servers, topic)
                put(servers, topic, [f"turn {turn}"])
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    assert texts(servers, output)[-2:] == ["turn 3"] * 2


def test_time_beyond_sparks_microseconds_ends_the_query_and_names_its_record(
    spark: SparkSession, servers: str, output: str, checkpoint: Path
) -> None:
    """It was the year 294247: a watermark went there, and all later rows were dropped as late."""
    topic, farthest = f"far-{time.time_ns()}", str(2**63 - 1)
    clients.create_topic(servers, topic, message_timestamp_after_max_ms=farthest)
    producer = clients.plain_producer(servers)
    for value, time_ms in ((b"a", 0), (b"far", 2**63 // 1_000 + 1), (b"b", 0)):
        producer.produce(topic, value, timestamp=time_ms)
    assert producer.flush(clients.WAIT_S) == 0
    rows = stream(spark, servers, topic)
    story = rf"the record at offset 1 of {topic}-0 has the time {2**63 // 1_000 + 1} ms"
    with pytest.raises(StreamingQueryException, match=story):
        finish(writing(rows, servers, checkpoint, {"topic": output}))
    with pytest.raises(PySparkException, match=story):
        table(spark, servers, topic).collect()
    assert table(spark, servers, topic, columns="value,offset").count() == 3


@pytest.mark.parametrize("name", FORMATS)
def test_end_of_a_batch_is_taken_as_a_start(
    spark: SparkSession, servers: str, topic: str, checkpoint: Path, name: str
) -> None:
    """The source refused the end that it had told itself, for the ids of topics in it."""
    if name == "kafka" and not connector_jars():
        pytest.skip("Spark's Kafka connector cannot be fetched")
    put(servers, topic, ["1", "2"])
    query = finish(
        stream(spark, servers, topic)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    assert query.lastProgress is not None
    (source,) = query.lastProgress.sources
    assert source.endOffset is not None
    met = [
        (name, int(partition), at)
        for name, places in json.loads(source.endOffset).items()
        for partition, at in places.items()
    ]
    assert met == [(topic, 0, 2), (topic, 1, 0)]
    assert source.endOffset == source.latestOffset
    put(servers, topic, ["3"])
    reader = spark.read.format(name).option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", topic).option("startingOffsets", source.endOffset).load()
    assert [bytes(row.value) for row in rows.collect()] == [b"3"]


def test_topics_have_one_position_for_all_their_partitions(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["1"], 0)
    put(servers, topic, ["2"], 1)
    put(servers, output, ["3"], 1)
    starts = f'{{"{topic}": "earliest", "{output}": {{"0": 0, "1": 1}}}}'
    both = f"{topic},{output}"
    rows = table(spark, servers, topic, subscribe=both, startingOffsets=starts)
    assert sorted(bytes(row.value) for row in rows.collect()) == [b"1", b"2"]
    starts = f'{{"{topic}": "latest", "{output}": "earliest"}}'
    rows = stream(spark, servers, topic, subscribe=both, startingOffsets=starts)
    finish(writing(rows.select("value"), servers, checkpoint, {"topic": f"{output}-copy"}))
    assert texts(servers, f"{output}-copy") == ["3"]
    with pytest.raises(PySparkException, match="startingOffsets names no-such-0, which is not re"):
        table(spark, servers, topic, startingOffsets='{"no-such": "earliest"}').count()
