"""`txn users`: the users of SCRAM from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import txn
from support.command_line import run_txn

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}
BOTH = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


def logs_in(broker: txn.Broker, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    admin = AdminClient(
        {
            "bootstrap.servers": broker.listeners["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    try:
        return bool(admin.list_topics(timeout=3).brokers)
    except KafkaException:
        return False


def way_in(tmp_path: Path, name: str, password: str) -> Path:
    config = tmp_path / f"{name}.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{name}" password="{password}";\n'
    )
    return config


def plainly(broker: txn.Broker) -> tuple[str, str]:
    return "--bootstrap", broker.listeners["PLAINTEXT"]


def users(*arguments: Any) -> tuple[int, str, str]:
    return run_txn("users", *arguments)


def test_users_are_added_listed_and_removed_on_the_command_line(tmp_path: Path) -> None:
    secret = tmp_path / "bob.secret"
    secret.write_text("bobs-secret\n")
    with txn.Broker(properties=SETTINGS) as broker:
        first = tmp_path / "alice.secret"
        first.write_text("secret")
        assert users("add", "alice", "--password-file", first, *plainly(broker))[0] == 0
        config = way_in(tmp_path, "alice", "secret")
        reach = ("--bootstrap", broker.listeners["SASL_PLAINTEXT"], "--command-config", config)
        code, out, err = users("add", "bob", "--password-file", secret, *reach)
        assert (code, out, err) == (0, "added bob: SCRAM-SHA-256, SCRAM-SHA-512\n", "")
        assert logs_in(broker, "bob", "bobs-secret")
        code, out, _ = users("list", "--json", *reach)
        assert (code, json.loads(out)) == (
            0,
            [{"name": "alice", "mechanisms": BOTH}, {"name": "bob", "mechanisms": BOTH}],
        )
        code, out, _ = users("remove", "bob", "--mechanism", "SCRAM-SHA-512", *reach)
        assert (code, out) == (0, "removed bob: SCRAM-SHA-512\n")
        assert not logs_in(broker, "bob", "bobs-secret")
        assert users("remove", "bob", *reach)[0] == 0
        code, _, err = users("remove", "bob", *reach)
        assert code == 1
        assert "does not exist: bob" in err


def test_a_password_comes_from_the_environment_and_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOBS", "bobs-secret")
    with txn.Broker(properties=SETTINGS) as broker:
        reach = plainly(broker)
        code, out, err = users("add", "bob", "--password-env", "BOBS", *reach)
        assert code == 0
        assert "secret" not in out + err
        assert logs_in(broker, "bob", "bobs-secret")
        assert users("add", "bob", "--password-env", "NONE", *reach)[0] == 2
