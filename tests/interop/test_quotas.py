"""Quotas with kafka-configs of Kafka 4.2, and in directories that move to and from Kafka."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from harnesses.peers.jars import run_java
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode
from support.client_quotas import described, set_quota

Quota = tuple[dict[str, str | None], dict[str, float]]

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn.Broker]:
    with txn.Broker(tmp_path_factory.mktemp("quotas") / "data") as broker:
        yield broker


def kafka_configs(broker: txn.Broker, *arguments: str) -> str:
    servers = broker.bootstrap_servers
    return run_java("kafka.admin.ConfigCommand", "--bootstrap-server", servers, *arguments)


@pytest.mark.java
def test_kafka_configs_sets_describes_and_deletes_quotas(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    both = (
        *("--entity-type", "users", "--entity-name", "ada"),
        *("--entity-type", "clients", "--entity-default"),
    )
    kafka_configs(broker, *both, "--alter", "--add-config", "producer_byte_rate=1024")
    clients = ("--entity-type", "clients", "--entity-name", "shop")
    added = "consumer_byte_rate=2048,request_percentage=12.5"
    kafka_configs(broker, *clients, "--alter", "--add-config", added)
    assert described(servers) == [
        ({"client-id": "shop"}, {"consumer_byte_rate": 2048.0, "request_percentage": 12.5}),
        ({"client-id": None, "user": "ada"}, {"producer_byte_rate": 1024.0}),
    ]
    told = kafka_configs(broker, *both, "--describe")
    assert "user-principal 'ada', the default client-id are producer_byte_rate=1024.0" in told
    assert "client-id 'shop'" in kafka_configs(broker, "--entity-type", "clients", "--describe")
    kafka_configs(broker, "--entity-type", "users", "--describe")
    kafka_configs(broker, *both, "--alter", "--delete-config", "producer_byte_rate")
    kafka_configs(broker, *clients, "--alter", "--delete-config", "consumer_byte_rate")
    assert described(servers) == [({"client-id": "shop"}, {"request_percentage": 12.5})]


def test_quotas_of_kafka_are_txns_and_quotas_of_txn_are_kafkas(tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "1", FEW_PARTITIONS) as node:
        servers = node.bootstrap_servers
        set_quota(servers, {"user": "ada"}, producer_byte_rate=5.0, request_percentage=12.5)
        set_quota(servers, {"user": None, "client-id": "shop"}, consumer_byte_rate=6.0)
        set_quota(servers, {"ip": "10.0.0.1"}, connection_creation_rate=7.0)
        set_quota(servers, {"client-id": None}, controller_mutation_rate=8.0)
        set_quota(servers, {"client-id": None}, controller_mutation_rate=None)
    from_kafka: list[Quota] = [
        ({"client-id": "shop", "user": None}, {"consumer_byte_rate": 6.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 7.0}),
        ({"user": "ada"}, {"producer_byte_rate": 5.0, "request_percentage": 12.5}),
    ]
    shutil.copytree(tmp_path / "1" / "data", tmp_path / "2" / "data")
    with txn.Broker(tmp_path / "2" / "data") as broker:
        servers = broker.bootstrap_servers
        assert sorted(map(plain, described(servers))) == sorted(map(plain, from_kafka))
        set_quota(servers, {"user": "ada"}, producer_byte_rate=None)
        set_quota(servers, {"user": "bob", "client-id": None}, producer_byte_rate=9.0)
        set_quota(servers, {"ip": None}, connection_creation_rate=10.0)
    from_txn: list[Quota] = [
        from_kafka[0],
        from_kafka[1],
        ({"user": "ada"}, {"request_percentage": 12.5}),
        ({"user": "bob", "client-id": None}, {"producer_byte_rate": 9.0}),
        ({"ip": None}, {"connection_creation_rate": 10.0}),
    ]
    shutil.copytree(tmp_path / "2" / "data", tmp_path / "3" / "data")
    with KafkaNode(tmp_path / "3", FEW_PARTITIONS) as node:
        found = described(node.bootstrap_servers)
    assert sorted(map(plain, found)) == sorted(map(plain, from_txn))


def plain(one: Quota) -> str:
    entity, quotas = one
    return f"{sorted(entity.items())} {sorted(quotas.items())}"
