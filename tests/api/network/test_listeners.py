"""Several listeners of one broker: each tells its clients its own advertised address."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOneCoordinator
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.static.primitive import i8

import txn
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.wire_client import RawConnection
from txn.errors import AddressError, ConfigError

ADVERTISED = "ONE://one.example:1111,TWO://two.example:2222"
NAMED = {
    "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0",
    "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
}


def told_addresses(servers: str) -> set[tuple[str, int]]:
    """The broker's address as Metadata, DescribeCluster and FindCoordinator tell it."""
    with RawConnection(servers) as connection:

        def ask(request: Any) -> Any:
            return connection.call(request)

        metadata = ask(
            MetadataRequest(topics=None, include_topic_authorized_operations=False)
        ).brokers[0]
        cluster = ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
        coordinator = ask(FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("g",)))
        one = ask(FindOneCoordinator(key="t", key_type=i8(1)))
    found = (metadata, cluster.brokers[0], coordinator.coordinators[0], one)
    return {(entry.host, entry.port) for entry in found}


def test_every_answer_has_the_advertised_address_of_the_listener_it_leaves_by() -> None:
    with txn.Broker(properties={**NAMED, "advertised.listeners": ADVERTISED}) as broker:
        assert list(broker.listeners) == ["ONE", "TWO"]
        one, two = broker.listeners.values()
        assert broker.bootstrap_servers == one
        for _ in range(2):  # the second answer comes from the cache
            assert told_addresses(one) == {("one.example", 1111)}
            assert told_addresses(two) == {("two.example", 2222)}


def test_clients_of_every_listener_read_and_write_the_same_topics() -> None:
    with txn.Broker(properties=NAMED) as broker:
        one, two = broker.listeners.values()
        create_topic(one, "t")
        send(plain_producer(two), "t", [b"x"])
        assert read_all(one, "t") == [b"x"]
        found = AdminClient({"bootstrap.servers": two}).list_topics(timeout=WAIT_S)
        assert [str(one) for one in found.brokers.values()] == [f"{two}/1"]


def test_a_port_that_is_taken_is_told_with_its_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"ONE://127.0.0.1:0,TWO://127.0.0.1:{port}"
        with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1:{port}") as told:
            txn.Broker(tmp_path / "data", properties={**NAMED, "listeners": listeners})
    assert (told.value.host, told.value.port) == ("127.0.0.1", port)
    assert not (tmp_path / "data").exists()


def test_a_host_beside_listeners_is_refused() -> None:
    with pytest.raises(ConfigError, match="give one of the two"):
        txn.Broker(host="127.0.0.1", properties=NAMED)


def test_serve_takes_listeners_as_an_option_and_prints_each(tmp_path: Path) -> None:
    options = [word for name, value in NAMED.items() for word in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "txn", "serve", "--data", str(tmp_path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serve:
        assert serve.stdout is not None
        lines = [serve.stdout.readline() for _ in NAMED]
        serve.terminate()
    assert lines[0].startswith("listening on 127.0.0.1:")
    assert lines[1].startswith("TWO on 127.0.0.1:")
    assert serve.returncode == 0
