"""Records of one key meet in one partition, from every client of txn and from Java's producer.

`txn.Producer` left librdkafka's default, the CRC-32 of the key. A topic that Python had written
could not be joined by partition with one of Spark or Java. Java's producer is the one below Spark's
own `format("kafka")`.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

import pytest
from pyspark.sql import SparkSession

import txn
from spark.conftest import connector_jars
from support.command_line import run_txn
from txn.cli.record_texts import Record, as_json_line
from txn.testing import TestBroker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

KEYS: Final = (
    b"",
    *(text.encode() for text in ("a", "ab", "abc", "abcd", "ключ", "日本語", "🍎", "é\u0301")),
    *(b"\x00", b"\xff\x00\x80", bytes(range(256)), b"k" * 1000),
)
"""Lengths of every remainder by 4, which murmur2 treats apart, and bytes above 127."""

COUNTS: Final = range(1, 101)

BY_COMMAND: Final = (1, 2, 3, 7, 100)
"""`txn produce` writes one topic at a time; it is `txn.Producer` below."""

Places = dict[tuple[int, bytes | None], set[int]]
"""Partitions, by number of partitions and key."""


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        for count in COUNTS:
            made.create_topic(name_of(count), partitions=count)
        yield made


def name_of(count: int) -> str:
    return f"partitions-{count}"


def places(broker: TestBroker, client: str) -> Places:
    """The partitions with records of a client."""
    found: Places = {}
    for count in COUNTS:
        for record in broker.records(name_of(count)):
            if record.value == client.encode():
                found.setdefault((count, record.key), set()).add(record.partition)
    return found


def save(spark: SparkSession, broker: TestBroker, form: str, keys: Iterable[bytes | None]) -> None:
    rows = spark.createDataFrame(
        [(name_of(count), key, form) for count, key in product(COUNTS, keys)],
        "topic string, key binary, value string",
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    rows.write.format(form).options(**options).mode("append").save()


@pytest.fixture(scope="module")
def by_java(spark: SparkSession, broker: TestBroker) -> Places:
    if not connector_jars():
        pytest.skip("Spark's Kafka connector cannot be had here")
    save(spark, broker, "kafka", [*KEYS, None])
    return places(broker, "kafka")


def keyed(found: Places) -> Places:
    return {place: each for place, each in found.items() if place[1] is not None}


def test_java_puts_each_key_into_one_partition(
    by_java: Places,
) -> None:
    assert keyed(by_java).keys() == set(product(COUNTS, KEYS))
    assert all(len(each) == 1 for each in keyed(by_java).values())
    assert len({frozenset(each) for (count, _), each in by_java.items() if count == 100}) > 5


@pytest.mark.parametrize("transactional_id", ["mover", None])
def test_a_producer_puts_a_key_where_java_does(
    broker: TestBroker,
    by_java: Places,
    transactional_id: str | None,
) -> None:
    client = f"producer {transactional_id}"
    records = [(name_of(count), client, key) for count, key in product(COUNTS, [*KEYS, None])]
    with txn.Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id
    ) as producer:
        if transactional_id is None:
            for record in records:
                producer.produce(*record)
        else:
            with producer.transaction() as t:
                for record in records:
                    t.produce(*record)
    found = places(broker, client)

    assert keyed(found) == keyed(by_java)
    assert {count for count, key in found if key is None} == set(COUNTS)


def test_text_as_a_key_goes_where_its_bytes_do(broker: TestBroker, by_java: Places) -> None:
    with txn.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for count in COUNTS:
            producer.produce(name_of(count), "text", "ключ")

    found = places(broker, "text")
    assert found == {place: by_java[place] for place in found}
    assert len(found) == len(COUNTS)


def test_the_sink_of_spark_puts_a_key_where_java_does(
    spark: SparkSession, broker: TestBroker, by_java: Places
) -> None:
    save(spark, broker, "txn", [*KEYS, None])
    found = places(broker, "txn")

    assert keyed(found) == keyed(by_java)
    assert {count for count, key in found if key is None} == set(COUNTS)


def test_the_test_kit_puts_a_key_where_java_does(broker: TestBroker, by_java: Places) -> None:
    for count in COUNTS:
        broker.produce(name_of(count), *((key, "kit") for key in [*KEYS, None]))
    found = places(broker, "kit")

    assert keyed(found) == keyed(by_java)
    assert {count for count, key in found if key is None} == set(COUNTS)


@pytest.mark.parametrize("more", [(), ("--transactional-id", "shell")], ids=["plain", "in one"])
def test_txn_produce_puts_a_key_where_java_does(
    broker: TestBroker,
    by_java: Places,
    more: tuple[str, ...],
) -> None:
    client = " ".join(("command", *more))
    lines = b"".join(as_json_line(Record(key, client.encode())) for key in [*KEYS, None])
    for count in BY_COMMAND:
        code, _, err = run_txn(
            *("produce", name_of(count), "--json-lines", *more),
            *("--bootstrap", broker.bootstrap_servers),
            stdin=lines,
        )
        assert (code, err) == (0, "")
    found = places(broker, client)

    assert keyed(found) == {
        place: each for place, each in keyed(by_java).items() if place[0] in BY_COMMAND
    }
    assert {count for count, key in found if key is None} == set(BY_COMMAND)


@pytest.mark.parametrize("is_of_topics", [True, False])
def test_a_producer_keeps_the_partitioner_that_it_is_given(
    broker: TestBroker, is_of_topics: bool
) -> None:
    """`abc` has an even CRC-32; its murmur2 is odd."""
    chosen = {"partitioner": "consistent_random"}
    settings = {"default.topic.config": chosen} if is_of_topics else chosen
    client = f"kept {is_of_topics}"
    with txn.Producer(settings, bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce(name_of(2), client, b"abc")

    assert places(broker, client) == {(2, b"abc"): {0}}
