"""Small micro-batches come with their rows, and are the same rows as those that tasks read."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from spark.jobs import put, stream
from support import clients
from txn.spark.datasource import TYPES
from txn.spark.options import source_settings
from txn.spark.small_batches import BYTES_MAX, OWN_TASKS_MAX, SmallBatchReader

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

Plan = tuple[Any, list[InputPartition]]
"""A reader, whose class changes, and the tasks it planned."""


def test_rows_of_a_small_batch_are_those_that_tasks_read(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    topic = f"small-{time.time_ns()}"
    clients.create_topic(servers, topic, 2, retention_ms="-1")
    producer = clients.plain_producer(servers)
    producer.produce(
        topic, b"v", b"k", 1, timestamp=1_700_000_000_123, headers=[("h", b"x"), ("n", None)]
    )
    producer.produce(topic, None, None, 1, timestamp=1)
    producer.produce(topic, b"", b"", 0, headers=[("", b"")])
    producer.flush()
    aborted = clients.transactional_producer(servers, f"tx-{topic}")
    aborted.begin_transaction()
    clients.send(aborted, topic, [b"aborted"])
    aborted.abort_transaction(clients.WAIT_S)
    found: dict[str, tuple[list[Row], int]] = {}
    for records in ("0", "256"):

        def look(rows: DataFrame, _: int, records: str = records) -> None:
            found[records] = (
                rows.orderBy("partition", "offset").collect(),
                rows.rdd.getNumPartitions(),
            )

        options = {"includeHeaders": "true", "small.batch.records": records}
        writer = stream(spark, servers, topic, **options).writeStream.foreachBatch(look)
        writer = writer.option("checkpointLocation", str(tmp_path / records))
        writer.trigger(availableNow=True).start().awaitTermination()
    (by_tasks, tasks), (with_plan, one) = found["0"], found["256"]
    assert with_plan == by_tasks
    assert [row.offset for row in with_plan] == [0, 0, 1]
    assert (tasks, one) == (2, 1)


def test_batch_is_small_by_its_records_unless_the_user_chose_the_tasks(
    servers: str, topic: str
) -> None:
    put(servers, topic, ["a", "b"], 0)
    put(servers, topic, ["c"], 1)
    sizes = {
        "as it is": plan(servers, topic),
        "at the limit": plan(servers, topic, {"small.batch.records": "3"}),
        "above it": plan(servers, topic, {"small.batch.records": "2"}),
        "never": plan(servers, topic, {"small.batch.records": "0"}),
        "minPartitions": plan(servers, topic, {"minPartitions": "2"}),
        "maxRecordsPerPartition": plan(servers, topic, {"maxRecordsPerPartition": "9"}),
    }
    few = ("as it is", "at the limit")
    assert {case for case, (reader, _) in sizes.items() if has_rows(reader)} == set(few)
    assert {case: len(parts) for case, (_, parts) in sizes.items()} == {
        case: 1 if case in few else 2 for case in sizes
    }
    for reader, parts in sizes.values():  # a task that finds no block reads for itself
        assert values(reader, parts) == [b"a", b"b", b"c"]


def test_reader_has_rows_only_until_spark_takes_them(servers: str, topic: str) -> None:
    """Spark asks a reader that has rows for no newest offsets, and for no read limit."""
    put(servers, topic, ["a"])
    reader, parts = plan(servers, topic)
    assert has_rows(reader)
    (rows,) = reader.getCache({}, {})
    assert rows.column("value").to_pylist() == [b"a"]
    assert not has_rows(reader)
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest[topic] == {"0": 1, "1": 0}
    assert values(reader, parts) == [b"a"]


def test_few_records_of_many_bytes_are_left_to_tasks(servers: str, topic: str) -> None:
    for number in (0, 1):
        put(servers, topic, ["x" * (BYTES_MAX // 2)], number)
    reader, parts = plan(servers, topic)
    assert not has_rows(reader)
    assert len(parts) == 2


def test_rows_that_cannot_be_had_now_are_left_to_tasks(servers: str, topic: str) -> None:
    """The tasks are tried again, and tell of the cause."""
    put(servers, topic, ["a"])
    reader = made(servers, topic, {"kafka.default.api.timeout.ms": "500"})
    parts = reader.partitions({topic: {"0": 0, "1": 0}}, {topic: {"0": 3, "1": 0}})
    assert not has_rows(reader)
    assert len(parts) == 1


def test_small_ranges_of_many_partitions_share_tasks(servers: str) -> None:
    """A worker for each of 1,000 partitions took a second for 40 of them."""
    topic, many = f"wide-{time.time_ns()}", OWN_TASKS_MAX + 6
    clients.create_topic(servers, topic, many)
    producer = clients.plain_producer(servers)
    sent = [b"%d" % number for number in range(5 * many)]
    for number, value in enumerate(sent):
        producer.produce(topic, value, partition=number % many)
    producer.flush()
    sizes = {}
    for records in ("0", "4", "20", "1000"):
        reader, parts = plan(servers, topic, {"small.batch.records": records})
        sizes[records] = len(parts)
        assert values(reader, parts) == sorted(sent)
    assert sizes == {"0": many, "4": many, "20": -(-many // 4), "1000": 1}
    assert len(plan(servers, topic, {"minPartitions": "1"})[1]) == many


def made(servers: str, topic: str, options: Mapping[str, str]) -> SmallBatchReader:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    settings = source_settings({**given, "startingOffsets": "earliest"})
    return SmallBatchReader(settings, StructType().add("value", TYPES["value"]))


def plan(servers: str, topic: str, options: Mapping[str, str] | None = None) -> Plan:
    """A reader, and its plan of all records that are there."""
    reader = made(servers, topic, options or {})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    return reader, reader.partitions(start, end)


def has_rows(reader: Any) -> bool:
    return isinstance(reader, _SimpleStreamReaderWrapper)


def values(reader: SmallBatchReader, parts: list[InputPartition]) -> list[bytes]:
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(value for batch in batches for value in batch.column("value").to_pylist())
