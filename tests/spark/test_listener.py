"""The metrics of a query's progress, beside those of Spark's own source."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

import txn.spark
from spark.jobs import finish, put, stream
from spark.stock import on_both
from support import clients

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


class Heard:
    """The reports of a listener, until a query has ended."""

    def __init__(self) -> None:
        self.reports: list[StreamingQueryProgress] = []
        self.has_last = threading.Event()

    def __call__(self, progress: StreamingQueryProgress) -> None:
        self.reports.append(progress)
        if progress.sources[0].metrics.get("maxOffsetsBehindLatest") == "0":
            self.has_last.set()


def test_metrics_are_those_of_sparks_source(
    spark: SparkSession, servers: str, topic: str, checkpoint: Path
) -> None:
    put(servers, topic, map(str, range(6)), 0)
    put(servers, topic, map(str, range(3)), 1)

    def metrics(name: str) -> Any:
        heard = Heard()
        listener = txn.spark.ProgressListener(heard)
        spark.streams.addListener(listener)
        reader = spark.readStream.format(name).option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        rows = reader.option("maxOffsetsPerTrigger", 4).load()
        writer = rows.writeStream.format("noop").option(
            "checkpointLocation", str(checkpoint / name)
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert heard.has_last.wait(clients.WAIT_S)
        spark.streams.removeListener(listener)
        last = query.lastProgress
        assert last is not None
        assert txn.spark.offsets_behind(last) == [heard.reports[-1].sources[0].metrics]
        return [dict(report.sources[0].metrics) for report in heard.reports]

    stock, own = on_both(metrics)
    assert own == stock
    assert [each["maxOffsetsBehindLatest"] for each in own] == ["4", "2", "0"]
    assert own[0] == {
        "minOffsetsBehindLatest": "2",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "3.0",
    }


@pytest.mark.parametrize(
    ("end", "latest"),
    [("7", "9"), ('{"logOffset":1}', '{"logOffset":2}'), (None, None), ('{"t":{"0":1}}', None)],
)
def test_source_of_another_kind_has_none(end: str | None, latest: str | None) -> None:
    source = {"endOffset": end, "latestOffset": latest}
    assert txn.spark.offsets_behind({"sources": [source]}) == [{}]


def test_source_is_told_apart_by_its_topics(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> None:
    """Spark gives each source in Python the same name, and a number that changes."""
    put(servers, topic, ["1"])
    put(servers, output, ["2"])
    described: list[list[str]] = []
    has_heard = threading.Event()

    def hear(progress: StreamingQueryProgress) -> None:
        described.append([source.description for source in progress.sources])
        has_heard.set()

    listener = txn.spark.ProgressListener(hear)
    spark.streams.addListener(listener)
    rows = stream(spark, servers, topic).union(stream(spark, servers, output))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    finish(writer.trigger(availableNow=True))
    assert has_heard.wait(clients.WAIT_S)
    spark.streams.removeListener(listener)
    assert described[0] == [f"txn[{topic}]", f"txn[{output}]"]


def test_partition_that_was_not_read_yet_is_behind_from_its_start() -> None:
    source = {
        "endOffset": '{"t":{"0":5},"topic ids":{"t":"x"}}',
        "latestOffset": '{"t":{"0":5,"1":3}}',
    }
    (found,) = txn.spark.offsets_behind({"sources": [source]})
    assert (found["minOffsetsBehindLatest"], found["maxOffsetsBehindLatest"]) == ("0", "3")
