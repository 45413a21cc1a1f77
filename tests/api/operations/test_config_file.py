"""`txn serve --config`: Kafka's file starts a broker, and `--check` tells its settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.brokers import START_S
from support.certificates import Issuer
from support.command_line import run_txn

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def stock(tmp_path: Path, **more: str) -> Path:
    """The settings of Kafka's own config/server.properties, at free ports."""
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=3\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\\n"
        "  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
        f"num.io.threads=8\nlog.dirs={tmp_path / 'kafka logs'}\nnum.partitions=2\n"
        "offsets.topic.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        + "".join(f"{name}={value}\n" for name, value in more.items())
    )
    return path


def started(*arguments: object) -> tuple[str, str]:
    """Start `txn serve`, make a topic, stop it; return its first line and its log."""
    process = subprocess.Popen(
        [sys.executable, "-m", "txn", "serve", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if line:
            admin = AdminClient({"bootstrap.servers": line.split()[-1]})
            assert len(admin.list_topics(timeout=START_S).brokers) == 1
        process.terminate()
        _, log = process.communicate(timeout=START_S)
    finally:
        process.kill()
        process.wait()
    return line, log


def test_kafkas_file_starts_a_broker_as_it_is(tmp_path: Path) -> None:
    line, log = started("--config", stock(tmp_path))
    assert line.startswith("listening on 127.0.0.1:"), log
    assert " settings.not_used " in log
    assert "names=num.io.threads" in log
    assert "node.id=3" in (tmp_path / "kafka logs" / "meta.properties").read_text()


def test_a_file_with_a_codec_and_in_sync_replicas_starts_a_broker(tmp_path: Path) -> None:
    config = stock(
        tmp_path,
        **{
            "compression.type": "zstd",
            "compression.zstd.level": "9",
            "min.insync.replicas": "2",
            "transaction.state.log.min.isr": "2",
        },
    )
    line, log = started("--config", config)
    assert line.startswith("listening on 127.0.0.1:"), log


def test_the_command_line_counts_before_the_file(tmp_path: Path) -> None:
    config = stock(tmp_path, durability="process")
    given = ("--config", config, "--data", tmp_path / "other", "-o", "node.id=4")
    code, out, err = run_txn("serve", *given, "--durability", "always", "--check", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["data"] == str(tmp_path / "other")
    settings = {one["name"]: (one["value"], one["source"]) for one in found["settings"]}
    assert settings["node.id"] == ("4", "command line")
    assert settings["durability"] == ("always", "command line")
    assert settings["num.partitions"] == ("2", str(config))
    assert found["not_used"] == ["num.io.threads"]
    line, log = started(*given)
    assert line.startswith("listening on"), log
    assert not (tmp_path / "kafka logs").exists()


def test_an_address_beside_the_files_listeners_is_refused_and_opens_none(tmp_path: Path) -> None:
    code, out, err = run_txn(
        "serve", "--config", stock(tmp_path), "--listen", "127.0.0.1:0", "--check"
    )
    assert (code, out) == (2, "")
    assert "listeners stands beside a host or port to listen on" in err


def test_a_file_without_a_directory_keeps_nothing_in_a_temporary_one(tmp_path: Path) -> None:
    config = stock(tmp_path, **{"log.dirs": ""})
    code, _, err = run_txn("serve", "--config", config)
    assert (code, "names no data directory: give log.dirs there, or --data" in err) == (2, True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_check_shows_no_secret_and_starts_nothing(tmp_path: Path, as_json: bool) -> None:
    certificate = Issuer(tmp_path / "tls").issue("broker")
    config = stock(
        tmp_path,
        **{
            "listeners": "SASL_SSL://127.0.0.1:0,CONTROLLER://:1",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.location": str(certificate),
            "ssl.key.password": "s3cret",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_ada="s3cret";',
        },
    )
    code, out, err = run_txn("serve", "--config", config, "--check", *["--json"] * as_json)
    assert code == 0, err
    assert "s3cret" not in out + err
    assert out.count("[hidden]") == 2
    assert "SASL_SSL://127.0.0.1:0" in out
    assert not (tmp_path / "kafka logs").exists()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_check_shows_the_references_to_a_config_provider_and_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setenv("RULES", "RULE:s3cret/x/")
    monkeypatch.setenv("KEPT", str(tmp_path / "s3cret-directory"))
    monkeypatch.setenv("DAYS", "s3cret-days")
    providers = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider."
        "EnvVarConfigProvider",
    }
    config = stock(
        tmp_path,
        **providers,
        **{"ssl.principal.mapping.rules": "${env:RULES}", "log.dirs": "${env:KEPT}"},
    )
    code, out, err = run_txn("serve", "--config", config, "--check", *["--json"] * as_json)
    assert code == 0, err
    assert "s3cret" not in out + err
    assert "${env:RULES}" in out
    assert "${env:KEPT}" in out

    config = stock(tmp_path, **providers, **{"log.retention.hours": "${env:DAYS}"})
    code, out, err = run_txn("serve", "--config", config, "--check")
    assert code == 2
    assert "log.retention.hours cannot be the value of ${env:DAYS}" in err
    assert "s3cret" not in out + err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"listeners": "SSL://127.0.0.1:0"}, "listener SSL cannot speak TLS"),
        (
            {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"},
            "sasl.enabled.mechanisms names no mechanism",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "GSSAPI"},
            "has GSSAPI for listener SASL_PLAINTEXT, which this broker does not speak",
        ),
        ({"super.users": "User:ada"}, "super.users stands without authorizer.class.name"),
        ({"authorizer.class.name": "a.B"}, "no other authorizer runs in this broker"),
        ({"ssl.client.aut": "required"}, "did you mean ssl.client.auth?"),
    ],
)
@pytest.mark.parametrize("is_check", [True, False])
def test_a_start_that_would_be_open_does_not_come_about(
    tmp_path: Path, more: dict[str, str], told: str, is_check: bool
) -> None:
    config = stock(tmp_path, **{"inter.broker.listener.name": "X", **more})
    text = config.read_text().replace("inter.broker.listener.name=X\n", "")
    text = text.replace("inter.broker.listener.name=PLAINTEXT\n", "")
    config.write_text(text)
    code, out, err = run_txn("serve", "--config", config, *["--check"] * is_check)
    assert (code, out) == (2, ""), err
    assert told in err


def test_words_of_a_check_stand_beside_it_alone() -> None:
    code, _, err = run_txn("serve", "--json")
    assert (code, "--json stands beside --check alone" in err) == (2, True)


def test_a_relative_directory_and_a_missing_file_are_told(tmp_path: Path) -> None:
    code, _, err = run_txn("serve", "--config", tmp_path / "none")
    assert code == 2
    assert f"txn: --config '{tmp_path / 'none'}' cannot be read: No such file" in err
    assert os.listdir(tmp_path) == []
