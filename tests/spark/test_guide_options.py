"""The options of Spark's Kafka guide, on Spark's own source and on txn's, over the same topic.

Each test runs both in turn, and the expected rows are also written down, so that it says something
where the two are wrong together.
"""

import json
import re
import time
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from spark.jobs import put
from spark.stock import batches_of, loaded, on_both, rows_of, tasks_of, tasks_of_stream
from support import clients

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture(scope="module")
def timed(servers: str) -> str:
    """Two partitions with a record a second; partition 1 ends earlier."""
    topic = f"timed-{time.time_ns()}"
    clients.create_topic(servers, topic, 2, retention_ms="-1")
    producer = clients.plain_producer(servers)
    for partition, count in ((0, 6), (1, 3)):
        for number in range(count):
            value = f"{partition}.{number}".encode()
            producer.produce(topic, value, None, partition, timestamp=1_000 * (number + 1))
    producer.flush()
    return topic


def times(topic: str, *each: int) -> str:
    return json.dumps({topic: {str(number): time for number, time in enumerate(each)}})


READS: dict[str, tuple[dict[str, str], list[str]]] = {
    "start": ({"startingTimestamp": "2000"}, ["0.1", "0.2", "0.3", "0.4", "0.5", "1.1", "1.2"]),
    "start between records": ({"startingTimestamp": "2001"}, ["0.2", "0.3", "0.4", "0.5", "1.2"]),
    "start by partition": (
        {"startingOffsetsByTimestamp": "{5000,3000}"},
        ["0.4", "0.5", "1.2"],
    ),
    "end": ({"endingTimestamp": "2000"}, ["0.0", "1.0"]),
    "end by partition": ({"endingOffsetsByTimestamp": "{1000,3000}"}, ["1.0", "1.1"]),
    "end behind the last record": (
        {"startingTimestamp": "3000", "endingTimestamp": "9000"},
        ["0.2", "0.3", "0.4", "0.5", "1.2"],
    ),
    "no record so late, from the end": (
        {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"},
        ["0.4", "0.5"],
    ),
    "strategy in capitals": (
        {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "LATEST"},
        ["0.4", "0.5"],
    ),
    "a time for all comes before all others": (
        {
            "startingTimestamp": "3000",
            "startingOffsetsByTimestamp": "{1000,1000}",
            "startingOffsets": "latest",
            "endingTimestamp": "4000",
            "endingOffsetsByTimestamp": "{1000,1000}",
            "endingOffsets": "latest",
        },
        ["0.2", "1.2"],
    ),
    "times come before offsets": (
        {
            "startingOffsetsByTimestamp": "{3000,3000}",
            "startingOffsets": "{0,0}",
            "endingOffsetsByTimestamp": "{5000,5000}",
            "endingOffsets": "{1,1}",
        },
        ["0.2", "0.3", "1.2"],
    ),
    "from a time to an offset": (
        {"startingTimestamp": "2000", "endingOffsets": "{3,2}"},
        ["0.1", "0.2", "1.1"],
    ),
    "options of a stream": (
        {"startingTimestamp": "3000", "maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "1",
         "maxTriggerDelay": "1m"},
        ["0.2", "0.3", "0.4", "0.5", "1.2"],
    ),
}  # fmt: skip
"""`{a,b}` stands for JSON with the partitions 0 and 1 of the topic."""


def filled(topic: str, options: dict[str, str]) -> dict[str, str]:
    given = {"subscribe": topic, **options}
    return {
        name: times(topic, *map(int, value[1:-1].split(","))) if value[:1] == "{" else value
        for name, value in given.items()
    }


@pytest.mark.parametrize("job", READS)
def test_times_choose_the_same_rows(
    spark: SparkSession, servers: str, timed: str, job: str
) -> None:
    options, expected = READS[job]
    given = filled(timed, options)
    stock, own = on_both(lambda name: rows_of(loaded(spark, name, servers, **given)))
    assert own == stock
    assert sorted(value.decode() for _, _, _, value in own) == expected


@pytest.fixture(scope="module")
def named(servers: str) -> str:
    """Topics whose names have this in common, each with its own name as value."""
    common = f"p{time.time_ns()}"
    for name in (f"{common}-orders", f"old.{common}-orders", f"{common}_x", f"{common}-Orders"):
        clients.create_topic(servers, name, 1)
        put(servers, name, [name])
    return common


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("{}-ord", ["{}-orders", "old.{}-orders"]),
        ("^{}", ["{}-Orders", "{}-orders", "{}_x"]),
        (r"{}.[\w&&[^a-z]]", ["{}-Orders"]),
        (r"\Q{}-\Eorders\z|^(?<n>{}\p{{Punct}}x)", ["old.{}-orders", "{}-orders", "{}_x"]),
        ("(?i){}-ORDERS$", ["old.{}-orders", "{}-Orders", "{}-orders"]),
        ("  ^{}_.  ", ["{}_x"]),
    ],
)
def test_pattern_chooses_the_same_topics(
    spark: SparkSession, servers: str, named: str, pattern: str, names: list[str]
) -> None:
    """It is looked for in the name: `{}-ord` matched none, where Spark's source reads two."""
    given = {"subscribePattern": pattern.format(*[named] * 2)}
    stock, own = on_both(lambda name: rows_of(loaded(spark, name, servers, **given)))
    assert own == stock
    assert [topic for topic, *_ in own] == sorted(name.format(named) for name in names)


def test_pattern_that_python_reads_otherwise_is_refused(
    spark: SparkSession, servers: str, named: str
) -> None:
    with pytest.raises(PySparkException, match=r"subscribePattern cannot be .* possessive quant.*"):
        loaded(spark, "txn", servers, subscribePattern=f"{named}.*+").count()


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no record so late": (
        {"startingTimestamp": "5000"},
        r"startingTimestamp: timed-\d+-1 has no record at or after 5000.*Strategy=latest",
    ),
    "no record so late in one partition": (
        {"startingOffsetsByTimestamp": "{1000,4000}"},
        r"startingOffsetsByTimestamp: timed-\d+-1 has no record at or after 4000",
    ),
    "no such time": ({"startingTimestamp": "noon"}, "startingTimestamp cannot be 'noon': it takes"),
    "no such end": ({"endingTimestamp": "1.5"}, "endingTimestamp cannot be '1.5': it takes millis"),
    "no JSON": ({"startingOffsetsByTimestamp": "5"}, "startingOffsetsByTimestamp cannot be '5'"),
    "a partition is missing": (
        {"startingOffsetsByTimestamp": "{1000}"},
        r"startingOffsetsByTimestamp misses timed-\d+-1: it has to name every partition",
    ),
    "a partition too many": (
        {"endingOffsetsByTimestamp": "{1,1,1}"},
        r"endingOffsetsByTimestamp names timed-\d+-2, which is not read",
    ),
    "times of other partitions": (
        {"startingOffsetsByTimestamp": "{1,1}", "endingOffsetsByTimestamp": "{9}"},
        r"endingOffsetsByTimestamp misses timed-\d+-1",
    ),
    "times the wrong way round": (
        {"startingOffsetsByTimestamp": "{2000,2000}", "endingOffsetsByTimestamp": "{3000,1000}"},
        r"startingOffsetsByTimestamp begins timed-\d+-1 at 2000, behind endingOffsetsByTimestamp",
    ),
    "a time behind the end": (
        {"startingTimestamp": "3000", "endingOffsets": "{1,1}"},
        r"startingTimestamp begins timed-\d+-0 at offset 2, behind endingOffsets",
    ),
    "two times the wrong way round": (
        {"startingTimestamp": "3000", "endingTimestamp": "1000"},
        r"startingTimestamp begins timed-\d+-0 at offset 2, behind endingTimestamp",
    ),
    "no such strategy": (
        {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"},
        "startingOffsetsByTimestampStrategy cannot be 'earliest': it takes error, latest",
    ),
    "no records in a task": ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition cannot be"),
    "more than the most": (
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        r"minOffsetsPerTrigger \(5\) is higher than maxOffsetsPerTrigger \(4\)",
    ),
}


@pytest.mark.parametrize("job", REFUSED)
def test_read_that_spark_refuses_is_refused(
    spark: SparkSession, servers: str, timed: str, job: str
) -> None:
    options, told = REFUSED[job]

    def refusal(name: str) -> str:
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:
            loaded(spark, name, servers, **filled(timed, options)).count()
        return str(raised.value)

    _, own = on_both(refusal)
    assert re.search(told, own), own


TASKS: dict[str, tuple[dict[str, str], list[int]]] = {
    "minPartitions": ({"minPartitions": "4"}, [2, 2, 2, 3]),
    "minPartitions of many": ({"minPartitions": "7"}, [1, 1, 1, 1, 1, 2, 2]),
    "minPartitions, and a small range": (
        {"minPartitions": "3", "startingOffsets": "{0,2}"},
        [1, 3, 3],
    ),
    "both": ({"maxRecordsPerPartition": "5", "minPartitions": "4"}, [3, 3, 3]),
    "both, few": ({"maxRecordsPerPartition": "1", "minPartitions": "3"}, [1] * 9),
}


@pytest.mark.parametrize("job", TASKS)
def test_tasks_read_the_same_ranges(
    spark: SparkSession, servers: str, timed: str, job: str
) -> None:
    options, sizes = TASKS[job]
    given = filled(timed, options)
    stock, own = on_both(lambda name: tasks_of(loaded(spark, name, servers, **given)))
    assert own == stock
    assert sorted(size for *_, size in own) == sizes


@pytest.mark.parametrize(("most", "sizes"), [(2, [1, 2, 2, 2, 2]), (4, [3, 3, 3])])
def test_tasks_are_not_larger_than_told(
    spark: SparkSession, servers: str, timed: str, checkpoint: Path, most: int, sizes: list[int]
) -> None:
    """Spark's source cuts a batch read so only together with minPartitions."""
    given = {"subscribe": timed, "maxRecordsPerPartition": str(most)}
    read = tasks_of(loaded(spark, "txn", servers, **given))
    assert sorted(size for *_, size in read) == sizes
    given["startingOffsets"] = "earliest"
    stock, own = on_both(lambda name: tasks_of_stream(spark, name, servers, checkpoint, **given))
    assert own == stock == read


# ---------------------------------------------------------------- streams

STREAMS: dict[str, tuple[dict[str, str], list[int]]] = {
    "start": ({"startingTimestamp": "3000"}, [5]),
    "start by partition": ({"startingOffsetsByTimestamp": "{5000,1000}"}, [5]),
    "no record so late": (
        {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"},
        [2],
    ),
    "one partition from its end": ({"startingOffsets": "{3,-1}"}, [3]),
    "limited": ({"startingTimestamp": "1000", "maxOffsetsPerTrigger": "4"}, [3, 3, 3]),
    "limited on both sides": (
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "3"},
        [3, 3, 3],
    ),
    "too little, but the first batch does not wait": (
        {"startingOffsets": "earliest", "minOffsetsPerTrigger": "100"},
        [9],
    ),
    "the rest is too little": (
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5"},
        [4, 5],
    ),
    "the rest is too little, but has waited long enough": (
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5",
         "maxTriggerDelay": "0s"},
        [4, 5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("job", STREAMS)
def test_stream_has_the_same_batches(
    spark: SparkSession, servers: str, timed: str, checkpoint: Path, job: str
) -> None:
    options, sizes = STREAMS[job]
    given = filled(timed, options)
    stock, own = on_both(lambda name: batches_of(spark, name, servers, checkpoint, **given))
    assert own == stock
    assert [rows for _, rows in own] == sizes


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_stream_has_no_end(
    spark: SparkSession, servers: str, timed: str, checkpoint: Path, option: str
) -> None:
    """Spark's source takes no notice of `endingTimestamp` on a stream; this one tells."""
    value = "1000" if option == "endingTimestamp" else times(timed, 1000, 1000)
    with pytest.raises(StreamingQueryException, match=f"{option} is for batch reads"):
        batches_of(spark, "txn", servers, checkpoint, subscribe=timed, **{option: value})
