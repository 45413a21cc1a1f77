"""Mistakes that everybody makes once: each error names the thing and says what to do.

A row is a mistake, the way to make it, and the text that the error has to have. The error is the
text that a user sees, from `load()`, from an action, or from the query that ended.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import txn.spark
from spark.jobs import put
from txn.errors import ConfigError
from txn.spark.errors import is_hopeless, is_outage, reason_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

NOBODY = "127.0.0.1:9"
NOWHERE = "nowhere.invalid:9092"


@dataclass
class MistakePlace:
    """Where a mistake is made."""

    spark: SparkSession
    servers: str
    topic: str
    output: str
    checkpoint: Path

    def read(self, **options: str) -> DataFrame:
        found: DataFrame = self._reading(self.spark.read, options).load()
        return found

    def read_stream(self, **options: str) -> DataFrame:
        found: DataFrame = self._reading(self.spark.readStream, options).load()
        return found

    def save(self, query: str, **options: str) -> None:
        writer = self.spark.sql(query).write.format("txn").mode("append")
        given = {"kafka.bootstrap.servers": self.servers, "topic": self.output} | options
        for name, value in given.items():
            if value:
                writer = writer.option(name, value)
        writer.save()

    def copy(self, rows: DataFrame | None = None, /, **options: str) -> None:
        rows = self.read_stream() if rows is None else rows
        given = {"kafka.bootstrap.servers": self.servers, "topic": self.output} | options
        given.setdefault("checkpointLocation", str(self.checkpoint))
        writer = rows.writeStream.format("txn").trigger(availableNow=True)
        for name, value in given.items():
            if value:
                writer = writer.option(name, value)
        writer.start().awaitTermination()

    def _reading(self, reader: Any, options: dict[str, str]) -> Any:
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic} | options
        given = {"startingOffsets": "earliest"} | given
        reader = reader.format("txn")
        for name, value in given.items():
            if value:
                reader = reader.option(name, value)
        return reader


@pytest.fixture
def place(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path
) -> MistakePlace:
    put(servers, topic, ["1"])
    return MistakePlace(spark, servers, topic, output, checkpoint)


V = "SELECT 'v' AS value"
UNREACHED = r"UnreachableError: no broker is reached by kafka\.bootstrap\.servers:"

MISTAKES: dict[str, tuple[Callable[[MistakePlace], object], str]] = {
    "no servers": (
        lambda p: p.read(**{"kafka.bootstrap.servers": ""}),
        r"kafka\.bootstrap\.servers is missing: HOST:PORT",
    ),
    "servers without the prefix": (
        lambda p: p.read(**{"kafka.bootstrap.servers": "", "bootstrap.servers": p.servers}),
        r"option kafka\.bootstrap\.servers is missing: .* The name begins with kafka\.",
    ),
    "server without a port": (
        lambda p: p.read(**{"kafka.bootstrap.servers": "localhost"}),
        r"kafka\.bootstrap\.servers cannot be 'localhost': it takes HOST:PORT",
    ),
    "wrong server, reading": (
        lambda p: p.read(**{"kafka.bootstrap.servers": NOBODY}).count(),
        rf"{UNREACHED} {NOBODY} refuses connections: nothing listens there\. Correct the option",
    ),
    "wrong servers, reading a stream": (
        lambda p: p.copy(p.read_stream(**{"kafka.bootstrap.servers": f"{NOWHERE},{NOBODY}"})),
        rf"{UNREACHED} {NOWHERE} does not resolve .*; {NOBODY} refuses connections",
    ),
    "wrong server, writing": (
        lambda p: p.save(V, **{"kafka.bootstrap.servers": NOBODY}),
        rf"{UNREACHED} {NOBODY} refuses connections: nothing listens there\. Correct the option",
    ),
    "wrong server, writing a stream": (
        lambda p: p.copy(**{"kafka.bootstrap.servers": NOWHERE}),
        rf"{UNREACHED} {NOWHERE} does not resolve",
    ),
    "wrong topic": (
        lambda p: p.read(subscribe="ordres").count(),
        r"there is no topic 'ordres' at 127.* Create it first, or correct the option subscribe",
    ),
    "partition that the topic does not have": (
        lambda p: p.read(subscribe="", assign=f'{{"{p.topic}": [0, 5]}}').count(),
        r"assign names partition 5 of topic '.*', which has 2, numbered from 0",
    ),
    "misspelled option": (
        lambda p: p.read(startingOffset="earliest"),
        r"unknown option '\w+' for reading; did you mean startingOffsets\?",
    ),
    "both subscribe and assign": (
        lambda p: p.read(assign='{"t": [0]}'),
        r"exactly one of subscribe, subscribePattern and assign .* given: subscribe, assign",
    ),
    "topic instead of subscribe": (
        lambda p: p.read(subscribe="", topic=p.topic),
        r"given: none\. The option topic is for writing; to read, set subscribe",
    ),
    "assign as a list": (
        lambda p: p.read(subscribe="", assign="t-0"),
        r'assign cannot be \'t-0\': it takes JSON as \{"topic": \[0, 1\]\}',
    ),
    "offsets that are none": (
        lambda p: p.read(startingOffsets="yesterday"),
        r"startingOffsets cannot be 'yesterday': it takes earliest, latest, or JSON",
    ),
    "negative maxOffsetsPerTrigger": (
        lambda p: p.read_stream(maxOffsetsPerTrigger="-5"),
        r"maxOffsetsPerTrigger cannot be '-5': it takes a whole number of at least 1",
    ),
    "endingOffsets on a stream": (
        lambda p: p.copy(p.read_stream(endingOffsets="latest")),
        r"endingOffsets is for batch reads .* or use trigger\(availableNow=True\)",
    ),
    "a schema for the source": (
        lambda p: (
            p.spark.read.format("txn")
            .schema("id INT")
            .option("subscribe", p.topic)
            .option("kafka.bootstrap.servers", p.servers)
            .load()
            .count()
        ),
        r"the source has no column id int: its columns are fixed\. Leave schema\(\) out",
    ),
    "encrypted listener": (
        lambda p: p.read(**{"kafka.security.protocol": "SASL_SSL"}),
        r"kafka\.sasl\.mechanism is missing: set it to PLAIN, or to SCRAM-SHA-256, or to",
    ),
    "start by time": (
        lambda p: p.read(startingTimestamp="2026-11-23"),
        r"startingTimestamp cannot be '2026-11-23': it takes milliseconds since 1970",
    ),
    "no value": (
        lambda p: p.save("SELECT 1 AS id, 'x' AS body"),
        r"there is no column value; the columns are id, body\. .* to_json\(struct\(\*\)\) AS value",
    ),
    "value that is a number": (
        lambda p: p.save("SELECT 1 AS value"),
        r"the column value is int, and has to be string or binary\. Cast it",
    ),
    "value that is a struct": (
        lambda p: p.save("SELECT struct(1 AS a) AS value"),
        r"the column value is struct<a:int>, and has to be string or binary\. Cast it",
    ),
    "null as value": (
        lambda p: p.save("SELECT null AS value"),
        r"the column value is void, and has to be string or binary\. Cast it",
    ),
    "no topic": (
        lambda p: p.save(V, topic=""),
        r"no topic: set the option topic, or give the rows a column topic",
    ),
    "null in the column topic": (
        lambda p: p.save(f"{V}, string(null) AS topic", topic=""),
        r"1 rows have no topic: the column topic is null there",
    ),
    "column topic with a name that is none": (
        lambda p: p.save(f"{V}, 'a/b' AS topic", topic=""),
        r"(ConfigError|RejectedError): .*'a/b'",
    ),
    "partition that the output does not have": (
        lambda p: p.save(f"{V}, 7 AS partition"),
        r"topic 'output-\d+' has no partition 7; it has 2, numbered from 0",
    ),
    "a topic to be overwritten": (
        lambda p: (
            p.spark.sql(V)
            .write.format("txn")
            .mode("overwrite")
            .option("kafka.bootstrap.servers", p.servers)
            .option("topic", p.output)
            .save()
        ),
        r"a topic cannot be overwritten; use mode\('append'\)",
    ),
    "no checkpoint": (
        lambda p: p.copy(checkpointLocation=""),
        r"checkpointLocation must be specified",
    ),
    "timeout that leaves no time": (
        lambda p: p.copy(**{"txn.timeout.ms": "1000"}),
        r"txn\.margin\.ms \(30000\) has to be less than txn\.timeout\.ms \(1000\)",
    ),
    "its own progress as input": (
        lambda p: p.copy(p.read_stream(subscribe="__txn_spark")),
        r"the query reads '__txn_spark', where its own sink keeps its progress",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_named_with_its_remedy(place: MistakePlace, mistake: str) -> None:
    make, told = MISTAKES[mistake]
    if mistake == "its own progress as input":
        place.save(V)  # makes the progress topic
    with pytest.raises(PySparkException) as raised:
        make(place)
    text = str(raised.value)
    assert re.search(told, text), text[-3000:]
    if "txn." in text:
        assert re.search(told, reason_of(text)), reason_of(text)
        assert is_hopeless(text) or is_outage(text)


def test_sink_function_tells_mistakes_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'txn\.grop' .* mean txn\.group"):
        txn.spark.sink("h:1", "out", id="q", txn_grop="g")
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers cannot be 'h'"):
        txn.spark.sink("h", "out", id="q")
