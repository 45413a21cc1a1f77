"""SASL with Java's clients, and users of SCRAM that move between txn and Apache Kafka."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

import txn
from harnesses.peers.jars import run_java
from harnesses.peers.kafka import KafkaNode

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

WAIT_S = 30
KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
PASSWORD = "al-secret"
SECURITY = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn.Broker]:
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    described = jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key(), as_dict=True)
    keys.write_text(json.dumps({"keys": [{**described, "kid": "one"}]}))
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{SECURITY}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    with txn.Broker(properties=settings) as running:
        yield running


def upsert(servers: str, name: str, mechanism: ScramMechanism) -> None:
    admin: Any = AdminClient({"bootstrap.servers": servers})
    change = UserScramCredentialUpsertion(
        name, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
    )
    admin.alter_user_scram_credentials([change])[name].result(WAIT_S)


def java_settings(mechanism: str, tmp_path: Path) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        now_s = int(time.time())
        claims = {"sub": "alice", "iat": now_s, "exp": now_s + 600, "scope": "all"}
        token = tmp_path / "token"
        token.write_text(jwt.encode(claims, KEY, "RS256", headers={"kid": "one"}))
        return {
            "sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required ;",
            "sasl.login.callback.handler.class": (
                f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return {
        "sasl.jaas.config": (
            f'{SECURITY}.{module}LoginModule required username="alice" password="{PASSWORD}";'
        )
    }


@pytest.mark.java
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_javas_client_authenticates_by_each_mechanism(
    broker: txn.Broker, mechanism: str, tmp_path: Path
) -> None:
    if mechanism.startswith("SCRAM"):
        plain = broker.listeners["PLAINTEXT"]
        upsert(plain, "alice", ScramMechanism[mechanism.replace("-", "_")])
    config = tmp_path / "client.properties"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        **java_settings(mechanism, tmp_path),
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    output = run_java(
        "org.apache.kafka.tools.TopicCommand",
        *("--list", "--bootstrap-server", broker.bootstrap_servers),
        *("--command-config", str(config)),
        flags=(
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(tmp_path / 'token').as_uri()}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={tmp_path / 'token'}",
        ),
    )
    assert "__consumer_offsets" in output


@pytest.mark.java
def test_kafka_configs_makes_users(broker: txn.Broker) -> None:
    plain = broker.listeners["PLAINTEXT"]
    command = ("--bootstrap-server", plain, "--entity-type", "users", "--entity-name", "erin")
    made = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    run_java("kafka.admin.ConfigCommand", *command, "--alter", "--add-config", made)
    admin: Any = AdminClient({"bootstrap.servers": plain})
    (made_user,) = admin.describe_user_scram_credentials(["erin"]).values()
    (credential,) = made_user.result(WAIT_S).scram_credential_infos
    assert (credential.mechanism, credential.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)


# ------------------------------------------------------------ directories that move

KAFKA_SETTINGS = {
    "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        f"{SECURITY}.scram.ScramLoginModule required ;"
    ),
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
        f"{SECURITY}.scram.ScramLoginModule required ;"
    ),
}
TXN_SETTINGS = {
    "listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


def logs_in(servers: str, name: str, mechanism: str) -> bool:
    admin = AdminClient(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
    )
    return bool(admin.list_topics(timeout=WAIT_S).brokers)


def test_users_that_kafka_formatted_log_in_to_txn_and_users_of_txn_to_kafka(
    tmp_path: Path,
) -> None:
    listeners = {"SASL": "SASL_PLAINTEXT"}
    alice = f"SCRAM-SHA-256=[name=alice,password={PASSWORD}]"
    with KafkaNode(
        tmp_path / "1",
        KAFKA_SETTINGS,
        listeners=listeners,
        format_options=["--add-scram", alice],
    ) as node:
        upsert(node.bootstrap_servers, "bob", ScramMechanism.SCRAM_SHA_512)
    shutil.copytree(tmp_path / "1" / "data", tmp_path / "2" / "data")
    with txn.Broker(tmp_path / "2" / "data", properties=TXN_SETTINGS) as broker:
        assert logs_in(broker.listeners["SASL"], "alice", "SCRAM-SHA-256")
        assert logs_in(broker.listeners["SASL"], "bob", "SCRAM-SHA-512")
        upsert(broker.listeners["PLAINTEXT"], "carol", ScramMechanism.SCRAM_SHA_256)
    shutil.copytree(tmp_path / "2" / "data", tmp_path / "3" / "data")
    with KafkaNode(tmp_path / "3", KAFKA_SETTINGS, listeners=listeners) as node:
        for name, mechanism in (
            ("alice", "SCRAM-SHA-256"),
            ("bob", "SCRAM-SHA-512"),
            ("carol", "SCRAM-SHA-256"),
        ):
            assert logs_in(node.servers["SASL"], name, mechanism)
