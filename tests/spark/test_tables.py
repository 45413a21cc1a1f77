"""A table of `spark.read` is read anew by each action, to its end at that moment.

Spark asks a source in Python for its tasks once for each `load()`, and the tasks kept the offsets
of that moment. So rows of later records were missing, also from a stream that was joined with the
table. A table whose first records retention had deleted meanwhile raised DataLossError.
"""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from spark.jobs import finish, put, stream, table, texts, writing
from support import clients
from txn.errors import ConfigError
from txn.spark.batch_reader import BatchReader
from txn.spark.errors import DataLossError
from txn.spark.options import source_settings

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


def values(frame: DataFrame) -> list[str]:
    """The values of all rows, sorted."""
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def delete_records(servers: str, topic: str, before: int) -> None:
    """Delete the first records of partition 0, as retention does."""
    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(topic, 0, before)
    admin.delete_records([place])[place].result(clients.WAIT_S)


def add_partition(servers: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(clients.WAIT_S)


def make_anew(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(clients.WAIT_S)
    clients.create_topic(servers, topic, partitions)


# ---------------------------------------------------------------- in a session


def test_each_use_of_a_table_finds_the_records_that_were_added_since(
    spark: SparkSession, servers: str, topic: str
) -> None:
    put(servers, topic, ["a"])
    frame = table(spark, servers, topic).select("value")
    frame.createOrReplaceTempView("added_records")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW added_records_by_sql USING txn "
        f"OPTIONS ('kafka.bootstrap.servers' '{servers}', 'subscribe' '{topic}')"
    )
    rdd = frame.rdd
    uses = {
        "collect": lambda: values(frame),
        "count": frame.count,
        "limit": frame.limit(9).count,
        "view": spark.sql("SELECT count(*) FROM added_records").first,
        "view of SQL": lambda: spark.sql("SELECT count(*) FROM added_records_by_sql").first(),
        "rdd": rdd.count,
    }
    before = {name: use() for name, use in uses.items()}
    put(servers, topic, ["b"], 0)
    put(servers, topic, ["c"], 1)  # empty at the first action
    after = {name: use() for name, use in uses.items()}
    assert before == {
        "collect": ["a"],
        "count": 1,
        "limit": 1,
        "view": (1,),
        "view of SQL": (1,),
        "rdd": 1,
    }
    assert after == {
        "collect": ["a", "b", "c"],
        "count": 3,
        "limit": 3,
        "view": (3,),
        "view of SQL": (3,),
        "rdd": 3,
    }


@pytest.mark.parametrize("kind", ["left", "inner"])
def test_table_joined_with_a_stream_is_read_for_each_batch(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path, kind: str
) -> None:
    """Later orders had no city in a left join, and vanished from an inner one."""
    orders = f"orders-{time.time_ns()}"
    clients.create_topic(servers, orders)
    put(servers, topic, ["ann"], 0)
    put(servers, orders, ["ann"])
    known = table(spark, servers, topic).selectExpr("string(value) AS name", "'known' AS is")
    rows = stream(spark, servers, orders).selectExpr("string(value) AS name")
    joined = rows.join(known, "name", kind).selectExpr("concat(name, ' ', coalesce(is, '')) value")
    writer = writing(joined, servers, checkpoint, {"topic": output})
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        for name, partition in (("bob", 0), ("cid", 1)):
            put(servers, topic, [name], partition)
            put(servers, orders, [name])
            query.processAllAvailable()
    finally:
        query.stop()
    assert texts(servers, output) == ["ann known", "bob known", "cid known"]


def test_table_used_in_foreach_batch_is_read_for_each_batch(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    put(servers, topic, ["a"])
    put(servers, output, ["x"])
    known, seen = table(spark, servers, topic), []

    def look(batch: DataFrame, _: int) -> None:
        seen.append((batch.count(), known.count()))

    writer = stream(spark, servers, output).writeStream.foreachBatch(look)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    finish(writer)
    put(servers, topic, ["b"])
    put(servers, output, ["y"])
    finish(writer)
    assert seen == [(1, 1), (1, 2)]


def test_table_has_the_records_that_retention_left(
    spark: SparkSession, servers: str, topic: str
) -> None:
    put(servers, topic, ["a", "b", "c"])
    whole = table(spark, servers, topic)
    cut = table(spark, servers, topic, minPartitions="3")
    numbered = table(spark, servers, topic, startingOffsets=json.dumps({topic: {"0": 1, "1": -2}}))
    assert [values(frame) for frame in (whole, cut)] == [["a", "b", "c"]] * 2
    assert values(numbered) == ["b", "c"]
    put(servers, topic, ["d"])
    delete_records(servers, topic, 2)
    assert [values(frame) for frame in (whole, cut)] == [["c", "d"]] * 2
    with pytest.raises(PySparkException, match=r"offsets 1 to 2 \(exclusive\) of .* deleted"):
        values(numbered)


def test_table_ends_at_the_last_stable_offset_of_the_moment(
    spark: SparkSession, servers: str, topic: str
) -> None:
    producer = clients.transactional_producer(servers, f"tx-{topic}")
    put(servers, topic, ["a"])
    frame = table(spark, servers, topic)
    producer.begin_transaction()
    clients.send(producer, topic, [b"open"])
    put(servers, topic, ["behind"])
    assert values(frame) == ["a"]
    producer.commit_transaction(clients.WAIT_S)
    assert values(frame) == ["a", "behind", "open"]


# ---------------------------------------------------------------- without a session


class Table:
    """A loaded table: its tasks are planned once."""

    def __init__(self, servers: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": servers, "columns": "value", **options}
        schema = StructType([StructField("value", BinaryType())])
        self.reader = BatchReader(source_settings(given), schema)
        self.tasks = self.reader.partitions()

    def rows(self) -> list[list[str]]:
        """The values that each task reads now."""
        return [self.rows_of(task) for task in self.tasks]

    def rows_of(self, task: InputPartition) -> list[str]:
        return [
            bytes(value).decode()
            for batch in self.reader.read(task)
            for value in batch.column(0).to_pylist()
        ]


def test_last_part_of_a_cut_partition_has_the_later_records(servers: str, topic: str) -> None:
    put(servers, topic, list("abcd"))
    found = Table(servers, subscribe=topic, minPartitions="2")
    assert found.rows() == [["a", "b"], ["c", "d"]]
    put(servers, topic, ["e"])
    assert found.rows() == [["a", "b"], ["c", "d", "e"]]
    assert found.rows() == [["a", "b"], ["c", "d", "e"]]  # also when a task is tried again
    delete_records(servers, topic, 1)
    assert found.rows() == [["b"], ["c", "d", "e"]]
    delete_records(servers, topic, 3)
    assert found.rows() == [[], ["d", "e"]]


def test_last_task_reads_the_partitions_that_have_no_task(servers: str, topic: str) -> None:
    put(servers, topic, ["a"], 1)
    other = f"{topic}-other"
    found = Table(servers, subscribePattern=f"^{topic}")
    assert found.rows() == [["a"]]
    put(servers, topic, ["empty"], 0)
    add_partition(servers, topic, 3)
    put(servers, topic, ["added"], 2)
    clients.create_topic(servers, other)
    put(servers, other, ["new"])
    assert [sorted(rows) for rows in found.rows()] == [["a", "added", "empty", "new"]]


def test_table_of_an_empty_topic_has_its_later_records(servers: str, topic: str) -> None:
    found = Table(servers, subscribe=topic)
    assert found.rows() == [[]]
    put(servers, topic, ["a"], 1)
    assert found.rows() == [["a"]]


@pytest.mark.parametrize("partitions", [1, 2])
def test_topic_made_anew_is_read_whole_and_once(servers: str, topic: str, partitions: int) -> None:
    put(servers, topic, list("abcd"), 1)
    found = Table(servers, subscribe=topic, maxRecordsPerPartition="1")
    assert found.rows() == [["a"], ["b"], ["c"], ["d"]]
    make_anew(servers, topic, partitions)
    put(servers, topic, list("xyz"), partitions - 1)
    assert found.rows() == [[], [], [], ["x", "y", "z"]]


def test_deleted_topic_is_an_error_where_it_is_named_and_nothing_where_a_pattern_chose_it(
    servers: str, topic: str
) -> None:
    put(servers, topic, ["a"])
    named = Table(servers, subscribe=topic)
    assigned = Table(servers, assign=json.dumps({topic: [0]}))
    matched = Table(servers, subscribePattern=f"^{topic}$")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(clients.WAIT_S)
    for found in (named, assigned):
        with pytest.raises(ConfigError, match=f"there is no topic '{topic}'"):
            found.rows()
    assert matched.rows() == [[]]


def test_offsets_of_each_partition_have_to_name_those_that_were_added(
    servers: str, topic: str
) -> None:
    """Else their records would be left out in silence. Spark's source refuses it, too."""
    put(servers, topic, ["a"])
    found = Table(servers, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0, "1": 0}}))
    assert found.rows() == [["a"]]
    add_partition(servers, topic, 3)
    with pytest.raises(ConfigError, match=f"misses {topic}-2"):
        found.rows()


def test_offsets_that_were_given_stay(servers: str, topic: str) -> None:
    put(servers, topic, ["a", "b", "c"])
    found = Table(
        servers,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 1, "1": 0}}),
        endingOffsets=json.dumps({topic: {"0": 2, "1": 0}}),
    )
    assert found.rows() == [["b"]]
    put(servers, topic, ["d"], 0)
    put(servers, topic, ["e"], 1)
    assert found.rows() == [["b"]]
    delete_records(servers, topic, 2)
    with pytest.raises(DataLossError, match=r"offsets 1 to 2 .* were deleted"):
        found.rows()


def test_times_mean_the_records_of_the_moment(servers: str) -> None:
    """A time that no record had was the end of the topic, also for later records."""
    topic = f"times-{time.time_ns()}"
    clients.create_topic(servers, topic, retention_ms="-1")
    producer = clients.plain_producer(servers)

    def put_at(*times: int) -> None:
        for at in times:
            producer.produce(topic, str(at).encode(), timestamp=at)
        assert producer.flush(clients.WAIT_S) == 0

    put_at(1, 2)
    until = Table(servers, subscribe=topic, endingTimestamp="5")
    since = Table(
        servers,
        subscribe=topic,
        startingTimestamp="5",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert (until.rows(), since.rows()) == ([["1", "2"]], [[]])
    put_at(3, 6, 7)
    assert (until.rows(), since.rows()) == ([["1", "2", "3"]], [["6", "7"]])
