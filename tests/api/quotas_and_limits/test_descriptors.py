"""A broker with few file descriptors: more partitions than it may open files, and clients that
take every connection there is.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.brokers import BrokerProcess
from support.clients import WAIT_S, create_topic, plain_producer, send, transactional_producer
from support.served import SERVED_IN_PYTHON
from support.tagged import example
from support.wire_client import RawConnection, request
from txn.server.lifecycle.descriptors import share

Start = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as brokers:

        def start(descriptors: int, durability: str) -> BrokerProcess:
            broker = BrokerProcess(
                tmp_path / "data", durability=durability, descriptors=descriptors
            )
            brokers.callback(broker.kill)
            return broker

        yield start


def write_everywhere(producer: Producer, topic: str, partitions: int, value: bytes) -> None:
    """One record in every partition, in one transaction."""
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition)
    producer.commit_transaction(WAIT_S)


def read_everywhere(servers: str, topic: str, partitions: int, each: int) -> set[tuple[Any, ...]]:
    """Records that read_committed consumers find in the partitions, which hold so many records
    each.
    """
    found: dict[int, list[Any]] = {partition: [] for partition in range(partitions)}
    settings = {"isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", **settings})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
        for count in range(each * partitions):
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{count} of {each * partitions} records"
            assert message.error() is None
            found[message.partition() or 0].append(message.value())
    return set(map(tuple, found.values()))


@pytest.mark.parametrize(
    ("descriptors", "durability", "partitions"), [(1024, "process", 1100), (256, "commit", 60)]
)
def test_more_partitions_than_descriptors_are_served_killed_and_started(
    start: Start, descriptors: int, durability: str, partitions: int
) -> None:
    """A directory with more partitions than `ulimit -n` could be written, but not be started."""
    broker = start(descriptors, durability)
    servers = broker.bootstrap_servers
    create_topic(servers, "orders", partitions=partitions)
    producer = transactional_producer(servers, "payer")
    write_everywhere(producer, "orders", partitions, b"first")
    assert read_everywhere(servers, "orders", partitions, 1) == {(b"first",)}
    assert broker.open_descriptors() < descriptors
    broker.kill()

    broker.restart()
    producer = transactional_producer(servers, "payer")
    write_everywhere(producer, "orders", partitions, b"second")
    assert read_everywhere(servers, "orders", partitions, 2) == {(b"first", b"second")}
    assert broker.open_descriptors() < descriptors
    assert broker.stop() == 0

    broker.restart()
    while broker.open_descriptors() > 40:  # until those that nobody uses are closed
        pass
    assert read_everywhere(servers, "orders", partitions, 2) == {(b"first", b"second")}


def test_a_topic_made_anew_under_the_same_paths_holds_its_own_records_alone(start: Start) -> None:
    """Its files have the paths of closed files of the one before."""
    servers = start(256, "commit").bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    producer = transactional_producer(servers, "payer")
    for value in (b"first", b"second"):
        create_topic(servers, "orders", partitions=50)
        write_everywhere(producer, "orders", 50, value)
        assert read_everywhere(servers, "orders", 50, 1) == {(value,)}
        admin.delete_topics(["orders"])["orders"].result(WAIT_S)


def test_clients_that_take_every_connection_leave_descriptors_for_the_others(start: Start) -> None:
    broker = start(256, "commit")
    servers = broker.bootstrap_servers
    create_topic(servers, "orders", partitions=50)
    producer = transactional_producer(servers, "payer")
    write_everywhere(producer, "orders", 50, b"before")
    with ExitStack() as sockets:
        for _ in range(300):
            sockets.enter_context(socket.create_connection(("127.0.0.1", broker.port), WAIT_S))
        for value in (b"during", b"and again"):  # with files that have to be opened
            write_everywhere(producer, "orders", 50, value)
        assert broker.open_descriptors() < 200
    create_topic(servers, "later")  # by new connections, once the others are gone
    assert send(plain_producer(servers), "later", [b"x"]) == [0]
    expected = {(b"before", b"during", b"and again")}
    assert read_everywhere(servers, "orders", 50, 3) == expected


@pytest.mark.parametrize(
    ("limit", "connections", "files"),
    [(1024, 432, 432), (256, 48, 48), (20_000, 9920, 9920), (64, 16, 16)],
)
def test_connections_and_files_share_what_is_left(limit: int, connections: int, files: int) -> None:
    assert share(limit) == (connections, files)


WATCHED = """\
import sys, txn
from txn.server.lifecycle.broker import service_of
with txn.Broker(properties={"transaction.two.phase.commit.enable": "true"}) as broker:
    print("listening on", broker.bootstrap_servers, flush=True)
    service_of(broker).preload.start()
    service_of(broker).preload.join()
    sys.addaudithook(lambda event, facts: event == "import" and print("loads", facts[0]))
    print("loaded", flush=True)
    sys.stdin.read()
"""
"""A broker that prints the modules it loads once it has loaded all."""


def test_no_request_loads_a_module_once_the_broker_has_loaded_them_all() -> None:
    """The first request of a kind failed when no descriptor was left: its schema is a module."""
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    with process:
        servers = process.stdout.readline().split()[-1]
        assert process.stdout.readline() == "loaded\n"
        # Highest key first: kio cannot read DescribeTransactions of an id that only initialized.
        for key, (first, last) in sorted(SERVED_IN_PYTHON.items(), reverse=True):
            for version in range(first, last + 1):
                asked = example(request(key, version), {"isolation_level": 1})
                with RawConnection(servers) as connection:
                    connection.call(asked)
        process.stdin.close()
        assert process.stdout.read() == ""
