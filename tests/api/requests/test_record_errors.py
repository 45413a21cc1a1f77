"""A batch with bad records: the refusal names them, and clients can tell them from the good ones.

The story: one record without a key came to a compacted topic in a batch with good ones. No record
was named, so a client that sets bad records aside set all of them aside.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

import txn
from differential.batches import CREATED_MS, BatchSpec, record
from differential.side import Side
from support.clients import create_topic
from txn.wire.api_keys import ApiKey

FAR_MS = 2**55
MANY = 10_050
NAMED = 10_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "keyed", 3, cleanup_policy="compact")
        yield broker.bootstrap_servers


def produce(servers: str, version: int, *batches: BatchSpec) -> list[dict[str, Any]]:
    """The answers of the topic's partitions, each of which gets a batch."""
    partitions = [{"index": index, "records": batch} for index, batch in enumerate(batches)]
    topics = [{"name": "keyed", "partition_data": partitions}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}
    side = Side(servers)
    try:
        answer = side.ask(ApiKey.PRODUCE, version, fields)
    finally:
        side.close()
    responses: list[dict[str, Any]] = answer["responses"][0]["partition_responses"]
    return responses


def keyless(count: int) -> BatchSpec:
    return BatchSpec(values=(b"v",) * count, key=None)


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_every_bad_record_of_a_batch_is_named_from_version_8_on(servers: str, version: int) -> None:
    content = b"".join(
        [
            record(0, b"k", b"good"),
            record(1, None, b"bad"),
            record(2, b"k", b"bad", FAR_MS - CREATED_MS),
            record(3, b"k", b"good"),
        ]
    )
    bad, good = produce(servers, version, BatchSpec((b"v",) * 4, content=content), BatchSpec())
    assert (bad["error_code"], good["error_code"]) == ("invalid_timestamp", "none")
    if version < 8:
        assert "record_errors" not in bad
        return
    assert [one["batch_index"] for one in bad["record_errors"]] == [1, 2]
    assert good["record_errors"] == []


def test_an_answer_names_no_more_than_ten_thousand_records_and_one_of_each_batch(
    servers: str,
) -> None:
    """A record without a key may have seven bytes; its line in the answer has ten times as many."""
    answers = produce(servers, 9, keyless(MANY), keyless(5), keyless(1))
    assert [len(one["record_errors"]) for one in answers] == [NAMED + 1, 1, 1]
    assert [one["record_errors"][0]["batch_index"] for one in answers] == [0, 0, 0]


def test_a_client_knows_the_bad_records_of_a_batch_from_the_good_ones(servers: str) -> None:
    """With one bad record librdkafka fails all of them, as it does of Apache Kafka."""
    reports: dict[bytes, int] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        reports[message.value() or b""] = 0 if error is None else error.code()

    # Nothing is sent before the flush, so that all are one batch.
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 200_000})
    records = (b"k", b"good"), (None, b"bad"), (None, b"bad too"), (b"k", b"good too")
    for key, value in records:
        producer.produce("keyed", value, key, partition=2, on_delivery=note)
    assert producer.flush(60) == 0
    beside = KafkaError._INVALID_DIFFERENT_RECORD
    bad = KafkaError.INVALID_RECORD
    assert reports == {b"good": beside, b"bad": bad, b"bad too": bad, b"good too": beside}
