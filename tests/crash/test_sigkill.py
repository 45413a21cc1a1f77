"""A broker that is killed with SIGKILL and started again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

import txn
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    ends,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from txn.server.lifecycle.broker import service_of

pytestmark = pytest.mark.crash


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    yield process
    process.stop()


def test_P1_acknowledged_records_survive_sigkill(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    producer = plain_producer(broker.bootstrap_servers)
    values = [b"%d" % number for number in range(5000)]
    send(producer, "orders", values)

    broker.kill()
    broker.restart()

    assert read_all(broker.bootstrap_servers, "orders") == values


@pytest.mark.parametrize("durability", ["commit", "always"])
def test_P3_a_broker_that_promises_more_than_the_killed_one_serves_nothing_unsynced(
    broker: BrokerProcess, tmp_path: Path, durability: str
) -> None:
    """Groups commit their offsets durably now, behind records that the last broker never synced."""
    create_topic(broker.bootstrap_servers, "orders")
    commit_values(transactional_producer(broker.bootstrap_servers, "pay"), "orders", [b"a", b"b"])
    broker.kill()
    with txn.Broker(tmp_path / "data", durability=durability) as following:
        orders = service_of(following).node.replicas.get("orders", 0)
        assert orders is not None
        assert orders.last_stable_offset == orders.synced_end == 3


def test_P6_a_producer_goes_on_over_sigkill_without_losing_or_doubling(
    broker: BrokerProcess,
) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    producer = plain_producer(broker.bootstrap_servers, enable_idempotence=True)
    values = [b"%d" % number for number in range(20_000)]

    for number, value in enumerate(values):
        producer.produce("orders", value=value)
        producer.poll(0)
        if number == 10_000:
            broker.kill()
            broker.restart()
    assert producer.flush(WAIT_S) == 0

    assert read_all(broker.bootstrap_servers, "orders") == values


def test_P3_an_open_transaction_survives_sigkill_and_commits(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    producer = transactional_producer(broker.bootstrap_servers, "t1")
    producer.begin_transaction()
    send(producer, "orders", [b"one", b"two"])

    broker.kill()
    broker.restart()
    held = ends(broker.bootstrap_servers, "orders")
    producer.commit_transaction(WAIT_S)

    assert held == (0, 2)
    assert read_all(broker.bootstrap_servers, "orders") == [b"one", b"two"]


def test_P4_an_aborted_transaction_stays_hidden_over_sigkill(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    producer = transactional_producer(broker.bootstrap_servers, "t1")
    commit_values(producer, "orders", [b"kept"])
    producer.begin_transaction()
    send(producer, "orders", [b"aborted"])
    producer.abort_transaction(WAIT_S)

    broker.kill()
    broker.restart()

    assert read_all(broker.bootstrap_servers, "orders") == [b"kept"]


def test_P7_a_zombie_stays_fenced_over_sigkill(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    zombie = transactional_producer(broker.bootstrap_servers, "pay-1")
    zombie.begin_transaction()
    send(zombie, "orders", [b"from the zombie"])
    successor = transactional_producer(broker.bootstrap_servers, "pay-1")

    broker.kill()
    broker.restart()

    with pytest.raises(KafkaException, match="_FENCED"):
        zombie.commit_transaction(WAIT_S)
    commit_values(successor, "orders", [b"from the successor"])
    assert read_all(broker.bootstrap_servers, "orders") == [b"from the successor"]


def test_P5_an_abandoned_transaction_times_out_after_a_restart(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    producer = transactional_producer(broker.bootstrap_servers, "t1", transaction_timeout_ms=2000)
    producer.begin_transaction()
    send(producer, "orders", [b"abandoned"])

    broker.kill()
    broker.restart()
    send(plain_producer(broker.bootstrap_servers), "orders", [b"behind it"])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    freed = consumer.consume(1, timeout=WAIT_S)
    consumer.close()

    assert [message.value() for message in freed] == [b"behind it"]


def test_committed_group_offsets_survive_sigkill(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    send(plain_producer(broker.bootstrap_servers), "orders", [b"a", b"b"])
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()

    broker.kill()
    broker.restart()

    successor = Consumer(settings)
    committed = successor.committed([TopicPartition("orders", 0)], timeout=WAIT_S)
    successor.close()
    assert committed[0].offset == 1


def test_a_clean_stop_leaves_a_mark_and_sigkill_none(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "orders")
    mark = broker.data / ".kafka_cleanshutdown"

    assert broker.stop() == 0
    after_stop = mark.exists()
    broker.restart()
    while_running = mark.exists()

    assert after_stop
    assert not while_running
