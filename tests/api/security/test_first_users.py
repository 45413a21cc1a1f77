"""The first users of a broker: those that its program gives, and the counts of their log-ins."""

import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import txn
from txn.server.lifecycle.broker import service_of


def logs_in(broker: txn.Broker, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    admin = AdminClient(
        {
            "bootstrap.servers": broker.listeners["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
            "log_level": 0,
        }
    )
    try:
        return bool(admin.list_topics(timeout=3).brokers)
    except KafkaException:
        return False


def test_a_brokers_users_are_its_only_clients_and_their_log_ins_are_counted() -> None:
    with txn.Broker(users={"alice": "secret"}, metrics="127.0.0.1:0") as broker:
        assert list(broker.listeners) == ["SASL_PLAINTEXT"]
        assert logs_in(broker, "secret")
        assert logs_in(broker, "secret", "SCRAM-SHA-256")
        assert not logs_in(broker, "wrong")
        with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics") as page:
            text = page.read().decode()
    lines = [line for line in text.splitlines() if "_authentication_total{" in line]
    for result in ("successful", "failed"):
        name = f"kafka_server_socket_server_metrics_{result}_authentication_total"
        label = '{listener="SASL_PLAINTEXT",mechanism="SCRAM-SHA-512"}'
        assert any(line.startswith(name + label) for line in lines), lines


def test_a_start_with_the_same_users_writes_nothing_and_with_another_password_replaces_it(
    tmp_path: Path,
) -> None:
    def known(password: str) -> Any:
        with txn.Broker(tmp_path / "data", users={"alice": password}) as broker:
            assert logs_in(broker, password)
            return service_of(broker).node.image.scram_credentials

    first = known("secret")
    assert known("secret") == first
    assert known("other") != first


@pytest.mark.parametrize("wrong", [{"": "x"}, {"alice": ""}])
def test_a_user_without_a_name_or_a_password_refuses_the_start(wrong: dict[str, str]) -> None:
    with pytest.raises(txn.ConfigError, match="needs a name and a password"):
        txn.Broker(users=wrong)
