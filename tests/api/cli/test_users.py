"""`txn users`: the users of SCRAM from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import txn
from support.clients import create_topic, plain_producer, read_all, send
from support.command_line import run_txn
from txn.server.lifecycle.broker import service_of

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
        assert (code, "there is no user 'bob'" in err) == (2, True)


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


# ---------------------------------------------------------------- a stopped broker

SECURED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("secret\n")
    return path


def config_of(tmp_path: Path, **more: str) -> Path:
    path = tmp_path / "server.properties"
    settings = {**SECURED, "log.dirs": str(tmp_path / "data"), **more}
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def test_the_first_user_is_added_before_the_first_start(tmp_path: Path, secret: Path) -> None:
    config = config_of(tmp_path, **{"node.id": "7", "offsets.topic.num.partitions": "3"})
    code, out, err = users("add", "alice", "--config", config, "--password-file", secret)
    assert (code, out, err) == (0, "added alice: SCRAM-SHA-256, SCRAM-SHA-512\n", "")
    found = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert [path for path in found if path.stat().st_mode & 0o077] == []
    assert b"secret" not in b"".join(path.read_bytes() for path in found if path.is_file())
    properties = {**SECURED, "offsets.topic.num.partitions": "3", "node.id": 7}
    with txn.Broker(tmp_path / "data", properties=properties) as broker:
        assert logs_in(broker, "alice", "secret")
        assert logs_in(broker, "alice", "secret", "SCRAM-SHA-256")
        assert not logs_in(broker, "alice", "other")
        assert service_of(broker).storage.past.was_clean
        image = service_of(broker).node.image
        assert image.topics["__consumer_offsets"].partition_count == 3


def test_a_stopped_brokers_user_gets_another_password_and_its_records_stay(
    tmp_path: Path, secret: Path
) -> None:
    data = tmp_path / "data"
    with txn.Broker(data, users={"alice": "forgotten"}, properties=SETTINGS) as broker:
        servers = broker.listeners["PLAINTEXT"]
        create_topic(servers, "orders", partitions=2)
        send(plain_producer(servers), "orders", [b"a", b"b"])
    checkpoints = {path: path.read_text() for path in data.glob("*-checkpoint")}
    assert users("add", "alice", "--data", data, "--password-file", secret)[0] == 0
    assert {path.name for path in data.glob("*-checkpoint")} >= {p.name for p in checkpoints}
    point = next(path for path in checkpoints if path.name.startswith("recovery"))
    assert "orders 0 2" in point.read_text()
    with txn.Broker(data, properties=SETTINGS) as broker:
        assert service_of(broker).storage.past.was_clean
        assert logs_in(broker, "alice", "secret")
        assert not logs_in(broker, "alice", "forgotten")
        assert read_all(broker.listeners["PLAINTEXT"], "orders") == [b"a", b"b"]


def test_a_directory_that_is_in_use_or_was_not_stopped_gets_no_user(
    tmp_path: Path, secret: Path
) -> None:
    data = tmp_path / "data"
    add = ("add", "alice", "--data", data, "--password-file", secret)
    with txn.Broker(data):
        code, _, err = users(*add)
        assert (code, "in use by another broker" in err) == (1, True), err
    (data / ".kafka_cleanshutdown").unlink()
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    code, _, err = users(*add)
    assert (code, "was not stopped in order. Start the broker on it" in err) == (1, True), err
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_cluster_and_a_stopped_broker_are_not_given_both(tmp_path: Path, secret: Path) -> None:
    code, _, err = users("add", "a", "--data", tmp_path / "data", "--bootstrap", "a:1")
    assert (code, "give no cluster beside them" in err) == (2, True), err
    assert not (tmp_path / "data").exists()
    code, _, err = users("add", "", "--data", tmp_path / "data", "--password-file", secret)
    assert (code, "1 to" in err) == (2, True), err
    assert not (tmp_path / "data").exists()
