"""A program that looks right and is not exactly-once is warned of it, once per producer."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest

import txn
from txn.testing import TestBroker


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the client has logged; a broker of this process may log, too."""
    return [record.getMessage() for record in caplog.records if record.name == "txn.client"]


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("in", partitions=1)
        made.create_topic("out", partitions=1)
        made.produce("in", *(b"%d" % number for number in range(20)))
        yield made


def test_a_block_without_the_consumer_that_it_reads_warns_once(
    producer: txn.Producer, consumer: txn.Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """It committed output without offsets in silence: after a restart all came twice."""
    for _ in range(2):
        with producer.transaction() as t:
            for message in consumer.consume(1, 60):
                t.produce("out", message.value())

    [line] = lines(caplog)
    assert "without the offsets of the consumer of group" in line
    assert "producer.transaction(consumer)" in line


def test_a_block_that_only_produces_is_silent(
    producer: txn.Producer, consumer: txn.Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """It may follow a read, and other threads may read meanwhile."""
    assert consumer.consume(1, 60)
    with producer.transaction() as t, ThreadPoolExecutor(1) as thread:
        t.produce("out", b"1")
        assert thread.submit(consumer.consume, 1, 60).result()

    assert lines(caplog) == []


def test_a_block_whose_records_are_committed_otherwise_is_silent(
    broker: TestBroker,
    producer: txn.Producer,
    consumer: txn.Consumer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    with producer.transaction() as t:  # by offsets of its own
        [message] = consumer.consume(1, 60)
        t.produce("out", message.value())
        t.send_offsets([confluent_kafka.TopicPartition("in", 0, 1)], consumer)
    with producer.transaction() as t:  # by a commit in the block
        assert consumer.consume(1, 60)
        t.produce("out", b"1")
        consumer.commit(asynchronous=False)
    with txn.Producer(settings, transactional_id="other") as other, producer.transaction() as t:
        t.produce("out", b"1")
        with other.transaction(consumer) as inner:  # by a block within
            assert consumer.consume(1, 60)
            inner.produce("out", b"2")

    assert lines(caplog) == []


@pytest.mark.parametrize("is_own", [True, False])
def test_a_plain_consumer_is_warned_of_once(
    broker: TestBroker, producer: txn.Producer, caplog: pytest.LogCaptureFixture, is_own: bool
) -> None:
    """Its enable.auto.commit may be on, which skips records after an abort."""
    plain = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "plain",
            "enable.auto.commit": False,
        }
    )
    plain.assign([confluent_kafka.TopicPartition("in", 0, 0)])
    for _ in range(2):
        with producer.transaction(plain if is_own else None) as t:
            t.send_offsets([confluent_kafka.TopicPartition("in", 0, 1)], plain)
    plain.close()

    [line] = lines(caplog)
    assert "must have enable.auto.commit=false" in line
    assert "records are skipped after an abort" in line
