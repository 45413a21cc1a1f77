"""The answers of a partition whose log cannot be opened, and its return."""

import datetime
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kio.static.primitive import i32Timedelta

import txn
from support.clients import (
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.wire_client import RawConnection, request
from txn import _core
from txn.broker import partitions

KAFKA_STORAGE_ERROR = 56
PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 0, 1, 2, 21, 23
WRITE_TXN_MARKERS, DESCRIBE_LOG_DIRS = 27, 35
SECOND = i32Timedelta.parse(datetime.timedelta(seconds=1))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[txn.Broker]:
    """Has two partitions of `orders`, of which the second cannot be opened."""
    with txn.Broker(tmp_path / "data") as running:
        create_topic(running.bootstrap_servers, "orders", partitions=2)
        obstacle(running).write_bytes(b"")
        yield running


def obstacle(broker: txn.Broker) -> Path:
    """A file where the directory of `orders-1` should be."""
    return broker.path / "orders-1"


def ask(broker: txn.Broker, api_key: int, version: int, **fields: Any) -> Any:
    schema = request(api_key, version)
    with RawConnection(broker.bootstrap_servers) as connection:
        return connection.call(schema(**fields))


def kio(api_key: int, version: int) -> Any:
    """The module of a request's entities."""
    return importlib.import_module(request(api_key, version).__module__)


def produce(broker: txn.Broker) -> int:
    of = kio(PRODUCE, 9)
    batch = _core.encode_batch([(None, b"x")], 0)
    data = of.PartitionProduceData(index=1, records=batch)
    topic = of.TopicProduceData(name="orders", partition_data=(data,))
    answer = ask(broker, PRODUCE, 9, acks=-1, timeout=SECOND, topic_data=(topic,))
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(broker: txn.Broker) -> int:
    of = kio(FETCH, 12)
    wanted = of.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1000)
    topic = of.FetchTopic(topic="orders", partitions=(wanted,))
    answer = ask(
        *(broker, FETCH, 12),
        max_wait=SECOND,
        min_bytes=1,
        topics=(topic,),
        forgotten_topics_data=(),
    )
    return int(answer.responses[0].partitions[0].error_code)


def list_offsets(broker: txn.Broker) -> int:
    of = kio(LIST_OFFSETS, 7)
    wanted = of.ListOffsetsPartition(partition_index=1, timestamp=-1)
    topic = of.ListOffsetsTopic(name="orders", partitions=(wanted,))
    answer = ask(broker, LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=(topic,))
    return int(answer.topics[0].partitions[0].error_code)


def offset_for_leader_epoch(broker: txn.Broker) -> int:
    of = kio(OFFSET_FOR_LEADER_EPOCH, 4)
    wanted = of.OffsetForLeaderPartition(partition=1, leader_epoch=0)
    topic = of.OffsetForLeaderTopic(topic="orders", partitions=(wanted,))
    answer = ask(broker, OFFSET_FOR_LEADER_EPOCH, 4, topics=(topic,))
    return int(answer.topics[0].partitions[0].error_code)


def delete_records(broker: txn.Broker) -> int:
    of = kio(DELETE_RECORDS, 2)
    wanted = of.DeleteRecordsPartition(partition_index=1, offset=-1)
    topic = of.DeleteRecordsTopic(name="orders", partitions=(wanted,))
    answer = ask(broker, DELETE_RECORDS, 2, topics=(topic,), timeout=SECOND)
    return int(answer.topics[0].partitions[0].error_code)


def write_txn_markers(broker: txn.Broker) -> int:
    of = kio(WRITE_TXN_MARKERS, 1)
    topic = of.WritableTxnMarkerTopic(name="orders", partition_indexes=(1,))
    marker = of.WritableTxnMarker(
        *(),
        producer_id=5,
        producer_epoch=0,
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=0,
    )
    answer = ask(broker, WRITE_TXN_MARKERS, 1, markers=(marker,))
    return int(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize(
    "told",
    [produce, fetch, list_offsets, offset_for_leader_epoch, delete_records, write_txn_markers],
)
def test_who_needs_it_is_told_of_the_disk_and_an_operator_once(
    broker: txn.Broker, told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Produce and Fetch answered UNKNOWN_TOPIC_OR_PARTITION, upon which clients look for it in the
    metadata for ever; the others cost the connection."""
    assert produce(broker) == KAFKA_STORAGE_ERROR  # ListOffsets opens none that was never written
    assert [told(broker) for _ in range(3)] == [KAFKA_STORAGE_ERROR] * 3
    assert caplog.text.count("partition.not_opened") == 1
    assert "orders-1" in caplog.text


def test_a_producer_goes_on_when_it_can_be_opened(
    broker: txn.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    servers = broker.bootstrap_servers
    producer = plain_producer(servers)
    send(producer, "orders", [b"beside"], partition=0)
    producer.produce("orders", b"late", partition=1)
    while "partition.not_opened" not in caplog.text:
        producer.poll(0.01)

    obstacle(broker).unlink()

    assert producer.flush(10) == 0
    assert sorted(read_all(servers, "orders"), key=str) == [b"beside", b"late"]
    assert caplog.text.count("partition.opened_again") == 1


def test_a_log_that_cannot_be_opened_is_tried_again_once_in_a_while(
    broker: txn.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "RETRY_MS", 3_600_000)
    assert fetch(broker) == KAFKA_STORAGE_ERROR
    obstacle(broker).unlink()
    assert fetch(broker) == KAFKA_STORAGE_ERROR
    monkeypatch.setattr(partitions, "RETRY_MS", 0)
    assert fetch(broker) == 0


def test_sizes_are_told_of_a_partition_that_cannot_be_opened(broker: txn.Broker) -> None:
    found = ask(broker, DESCRIBE_LOG_DIRS, 4, topics=None).results[0]
    topics = {topic.name: topic.partitions for topic in found.topics}
    assert found.error_code == 0
    assert [partition.partition_size for partition in topics["orders"]] == [0, 0]


def test_P3_transactions_that_do_not_need_it_go_on_and_one_that_does_is_aborted(
    broker: txn.Broker,
) -> None:
    servers = broker.bootstrap_servers
    doomed = transactional_producer(servers, "t1", transaction_timeout_ms=2_000)
    doomed.begin_transaction()
    send(doomed, "orders", [b"aborted"], partition=0)
    doomed.produce("orders", b"aborted", partition=1)
    commit_values(transactional_producer(servers, "t2"), "orders", [b"committed"])
    with pytest.raises(KafkaException, match=r"_TIMED_OUT|_INCONSISTENT"):
        doomed.commit_transaction(2)
    obstacle(broker).unlink()
    commit_values(transactional_producer(servers, "t1"), "orders", [b"later"])
    assert read_all(servers, "orders") == [b"committed", b"later"]
