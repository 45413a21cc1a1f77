"""The programs of Spark's Kafka guide, under the word `kafka` and with `txn` in its place.

Each is a function of the word. It is written from the guide's facts, with the guide's options and
no others. Both runs have to give the same rows.

Source: Structured Streaming + Kafka Integration Guide, Spark 4.2.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.stock import on_both
from support import clients

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@dataclass
class Guide:
    """The surroundings of a program."""

    spark: SparkSession
    servers: str
    topic1: str
    """It has two partitions."""
    topic2: str
    """It has one."""
    pattern: str

    def fill(self) -> None:
        """Write records with keys and headers."""
        producer = clients.plain_producer(self.servers)
        for topic, partition, count in (
            (self.topic1, 0, 60),
            (self.topic1, 1, 9),
            (self.topic2, 0, 4),
        ):
            for number in range(count):
                headers: Any = {"n": str(number)} if number % 2 else None
                value = f"{topic[-1]}.{partition}.{number}"
                producer.produce(
                    topic, value.encode(), str(number).encode(), partition, headers=headers
                )
        producer.flush()


@pytest.fixture(scope="module")
def guide(spark: SparkSession, servers: str) -> Guide:
    common = f"g{time.time_ns()}"
    found = Guide(spark, servers, f"{common}topic1", f"{common}topic2", f"{common}topic.*")
    clients.create_topic(servers, found.topic1, 2)
    clients.create_topic(servers, found.topic2, 1)
    found.fill()
    return found


# ---------------------------------------------------------------- streams, to be read


def subscribe_to_one_topic(guide: Guide, word: str) -> DataFrame:
    df = (
        guide.spark.readStream.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("subscribe", guide.topic1)
        .load()
    )
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


def subscribe_to_one_topic_with_headers(guide: Guide, word: str) -> DataFrame:
    df = (
        guide.spark.readStream.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("subscribe", guide.topic1)
        .option("includeHeaders", "true")
        .load()
    )
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "headers")


def subscribe_to_several_topics(guide: Guide, word: str) -> DataFrame:
    df = (
        guide.spark.readStream.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("subscribe", f"{guide.topic1},{guide.topic2}")
        .load()
    )
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


def subscribe_to_a_pattern(guide: Guide, word: str) -> DataFrame:
    df = (
        guide.spark.readStream.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("subscribePattern", guide.pattern)
        .load()
    )
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


Program = Callable[[Guide, str], DataFrame]


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (subscribe_to_one_topic, 69),
        (subscribe_to_one_topic_with_headers, 69),
        (subscribe_to_several_topics, 73),
        (subscribe_to_a_pattern, 73),
    ],
)
def test_stream_reads_the_same_rows(guide: Guide, program: Program, count: int) -> None:
    """It starts at latest, as nothing else is said."""

    def rows(word: str) -> list[str]:
        table = f"read_{word}_{time.time_ns()}"
        query = program(guide, word).writeStream.format("memory").queryName(table).start()
        query.processAllAvailable()
        guide.fill()
        query.processAllAvailable()
        query.stop()
        return sorted(map(str, guide.spark.table(table).collect()))

    stock, own = on_both(rows)
    assert own == stock
    assert len(own) == count


# ---------------------------------------------------------------- batches, to be read


def read_all(guide: Guide, word: str) -> DataFrame:
    df = (
        guide.spark.read.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("subscribe", guide.topic1)
        .load()
    )
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


def read_offsets_of_several_topics(guide: Guide, word: str) -> DataFrame:
    first, second = guide.topic1, guide.topic2
    df = (
        guide.spark.read.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("subscribe", f"{first},{second}")
        .option("startingOffsets", f'{{"{first}":{{"0":23,"1":-2}},"{second}":{{"0":-2}}}}')
        .option("endingOffsets", f'{{"{first}":{{"0":50,"1":-1}},"{second}":{{"0":-1}}}}')
        .load()
    )
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


def read_a_pattern_from_earliest_to_latest(guide: Guide, word: str) -> DataFrame:
    df = (
        guide.spark.read.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("subscribePattern", guide.pattern)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    return df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


@pytest.mark.parametrize(
    "program", [read_all, read_offsets_of_several_topics, read_a_pattern_from_earliest_to_latest]
)
def test_batch_reads_the_same_rows(guide: Guide, program: Program) -> None:
    stock, own = on_both(lambda word: sorted(map(tuple, program(guide, word).collect())))
    assert own == stock
    assert ("23", "1.0.23") in own


# ---------------------------------------------------------------- streams, to be written


@pytest.fixture
def configured(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The guide's programs name no checkpoint, so the session's configuration has to."""
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    yield tmp_path
    spark.conf.unset("spark.sql.streaming.checkpointLocation")


def source(guide: Guide, word: str) -> DataFrame:
    reader = guide.spark.readStream.format(word).option("kafka.bootstrap.servers", guide.servers)
    return reader.option("subscribe", guide.topic1).option("startingOffsets", "earliest").load()


def write_a_stream_to_a_topic(guide: Guide, word: str, output: str) -> StreamingQuery:
    df = source(guide, word)
    return (
        df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .writeStream.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("topic", output)
        .start()
    )


def write_a_stream_to_topics_in_the_data(guide: Guide, word: str, output: str) -> StreamingQuery:
    df = source(guide, word).selectExpr(f"'{output}' AS topic", "key", "value")
    return (
        df.selectExpr("topic", "CAST(key AS STRING)", "CAST(value AS STRING)")
        .writeStream.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .start()
    )


def written(guide: Guide, output: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((m.key(), m.value()) for m in clients.read_messages(guide.servers, output))


@pytest.mark.parametrize(
    "program", [write_a_stream_to_a_topic, write_a_stream_to_topics_in_the_data]
)
def test_stream_writes_the_same_records(
    guide: Guide, configured: Path, program: Callable[[Guide, str, str], StreamingQuery]
) -> None:
    def records(word: str) -> list[tuple[bytes | None, bytes | None]]:
        output = f"out-{word}-{time.time_ns()}"
        clients.create_topic(guide.servers, output, 2)
        query = program(guide, word, output)
        query.processAllAvailable()
        query.stop()
        return written(guide, output)

    stock, own = on_both(records)
    assert own == stock
    assert (b"23", b"1.0.23") in own


# ---------------------------------------------------------------- batches, to be written


def write_to_a_topic(guide: Guide, word: str, output: str) -> None:
    df = read_all(guide, word)
    (
        df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .write.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .option("topic", output)
        .save()
    )


def write_to_topics_in_the_data(guide: Guide, word: str, output: str) -> None:
    df = read_all(guide, word).selectExpr(f"'{output}' AS topic", "key", "value")
    (
        df.selectExpr("topic", "CAST(key AS STRING)", "CAST(value AS STRING)")
        .write.format(word)
        .option("kafka.bootstrap.servers", guide.servers)
        .save()
    )


@pytest.mark.parametrize("program", [write_to_a_topic, write_to_topics_in_the_data])
def test_batch_writes_the_same_records(
    guide: Guide, program: Callable[[Guide, str, str], None]
) -> None:
    """Without a mode: Spark would refuse a data source in Python, and `register` mends that."""

    def records(word: str) -> list[tuple[bytes | None, bytes | None]]:
        output = f"out-{word}-{time.time_ns()}"
        clients.create_topic(guide.servers, output, 2)
        program(guide, word, output)
        return written(guide, output)

    stock, own = on_both(records)
    assert own == stock
    assert (b"23", b"1.0.23") in own


@pytest.mark.parametrize("mode", ["error", "errorifexists", "append"])
def test_mode_that_appends_in_sparks_sink_appends(guide: Guide, mode: str) -> None:
    def records(word: str) -> list[tuple[bytes | None, bytes | None]]:
        output = f"out-{word}-{time.time_ns()}"
        rows = guide.spark.sql("SELECT 'v' AS value").write.mode(mode)
        rows.save(format=word, **{"kafka.bootstrap.servers": guide.servers, "topic": output})
        return written(guide, output)

    stock, own = on_both(records)
    assert own == stock == [(None, b"v")]
