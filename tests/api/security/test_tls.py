"""TLS listeners: real clients, their principals, and the ends of connections."""

import hashlib
import os
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

import txn
from api.security.tls_brokers import (
    METADATA,
    METRICS,
    address,
    ask_metadata,
    await_failure,
    refusal_of,
)
from support.certificates import Issuer, TlsConnection
from support.clients import (
    WAIT_S,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from txn.errors import ConfigError
from txn.security import sessions
from txn.server.loop import control_loop


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "certificates")


@pytest.fixture
def broker(issuer: Issuer) -> Iterator[txn.Broker]:
    """A broker that asks for client certificates."""
    properties = issuer.broker(issuer.issue("broker"), "required")
    with txn.Broker(metrics=METRICS, properties=properties) as running:
        yield running


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(
    broker: txn.Broker, issuer: Issuer, version: ssl.TLSVersion
) -> None:
    context = issuer.context(issuer.issue("client"))
    context.minimum_version = context.maximum_version = version
    with TlsConnection(address(broker), context) as connection:
        assert connection.call(METADATA).cluster_id
        assert isinstance(connection.socket, ssl.SSLSocket)
        assert connection.socket.version() == version.name.replace("_", ".")


def test_real_clients_commit_and_read(broker: txn.Broker, issuer: Issuer) -> None:
    tls = issuer.client(issuer.issue("client"))
    create_topic(broker.listeners["PLAINTEXT"], "t")
    producer = transactional_producer(address(broker), "id", **tls)
    producer.begin_transaction()
    send(producer, "t", [b"a", b"b"])
    producer.commit_transaction(WAIT_S)
    assert read_all(broker.listeners["PLAINTEXT"], "t") == [b"a", b"b"]
    assert read_all(address(broker), "t", **tls) == [b"a", b"b"]


def test_a_key_may_be_encrypted(issuer: Issuer, tmp_path: Path) -> None:
    plain = issuer.issue("broker")
    encrypted = tmp_path / "encrypted.pem"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(plain), "-passout", "pass:secret"]
    key = subprocess.run(command, check=True, capture_output=True).stdout
    encrypted.write_bytes(key + plain.read_bytes().partition(b"-----END EC PRIVATE KEY-----\n")[2])
    properties = issuer.broker(encrypted, ssl_key_password="secret")
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        assert ask_metadata(address(broker), issuer.context())
    for password, told in (("wrong", "the password is another"), (None, "no password is given")):
        properties.pop("ssl.key.password", None)
        if password is not None:
            properties["ssl.key.password"] = password
        with pytest.raises(ConfigError, match=told) as error:
            txn.Broker(metrics=METRICS, properties=properties)
        assert "wrong" not in str(error.value)


def test_a_huge_fetch_comes_whole_over_tls(broker: txn.Broker, issuer: Issuer) -> None:
    plain, tls = broker.listeners["PLAINTEXT"], issuer.client(issuer.issue("client"))
    create_topic(plain, "t")
    values = [os.urandom(900_000) for _ in range(40)]
    send(plain_producer(address(broker), **tls), "t", values)
    fetched = read_all(address(broker), "t", fetch_max_bytes=50_000_000, **tls)
    assert [hashlib.sha256(value or b"").digest() for value in fetched] == [
        hashlib.sha256(value).digest() for value in values
    ]


def with_login(issuer: Issuer, client_auth: str = "none") -> dict[str, str]:
    """Properties of a broker: a listener of SASL_SSL where ann logs in, and a plain one."""
    prefix = "listener.name.login.plain.sasl.jaas.config"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return issuer.broker(issuer.issue("broker"), client_auth) | {
        "listeners": "LOGIN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        prefix: f'{module} required user_ann="secret";',
    }


def ann(issuer: Issuer, certificate: Path | None = None) -> dict[str, Any]:
    """Settings of a client that logs in as ann."""
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "ann", "sasl_password": "secret"}
    return issuer.client(certificate, **login) | {"security.protocol": "SASL_SSL"}


def test_a_password_comes_over_tls(issuer: Issuer) -> None:
    client = ann(issuer)
    with txn.Broker(metrics=METRICS, properties=with_login(issuer)) as broker:
        create_topic(broker.listeners["PLAINTEXT"], "t")
        send(plain_producer(broker.listeners["LOGIN"], **client), "t", [b"x"])
        assert read_all(broker.listeners["LOGIN"], "t", **client) == [b"x"]


def test_a_login_takes_no_certificate_unless_its_own_listener_asks(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's own `ssl.client.auth` counted for SASL_SSL, where Kafka leaves it out."""
    properties = with_login(issuer, "required")
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        assert "tls.client_auth_not_used listener=LOGIN" in caplog.text
        create_topic(broker.listeners["PLAINTEXT"], "t")
        send(plain_producer(broker.listeners["LOGIN"], **ann(issuer)), "t", [b"x"])
    properties["listener.name.login.ssl.client.auth"] = "required"
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        assert "certificate required" in refusal_of(broker.listeners["LOGIN"], ann(issuer))


def test_a_certificate_beside_a_login_names_nobody(issuer: Issuer) -> None:
    """Mapping rules that did not apply refused the client; Kafka does not ask them there."""
    own = {
        "listener.name.login.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=nobody$/nobody/",
    }
    client = ann(issuer, issuer.issue("client"))
    with txn.Broker(metrics=METRICS, properties=with_login(issuer) | own) as broker:
        create_topic(broker.listeners["PLAINTEXT"], "t")
        send(plain_producer(broker.listeners["LOGIN"], **client), "t", [b"x"])


def test_a_request_before_the_client_closes_its_half_is_answered(
    broker: txn.Broker, issuer: Issuer
) -> None:
    context = issuer.context(issuer.issue("client"))
    with TlsConnection(address(broker), context) as connection:
        connection.send_frame(struct.pack(">hhih", 18, 0, 7, -1))
        socket.socket.shutdown(connection.socket, socket.SHUT_WR)  # without close_notify
        assert connection.read_frame()[:4] == struct.pack(">i", 7)
        assert connection.is_closed_by_peer()


def test_an_end_by_close_notify_is_answered_with_one(broker: txn.Broker, issuer: Issuer) -> None:
    context = issuer.context(issuer.issue("client"))
    with TlsConnection(address(broker), context) as connection:
        assert connection.call(METADATA).cluster_id
        assert isinstance(connection.socket, ssl.SSLSocket)
        plain = connection.socket.unwrap()  # waits for the broker's close_notify
        plain.close()


# -------------------------------------------------------------------- principals


def principals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The principals of the sessions that begin from now on."""
    seen: list[str] = []
    begin = sessions.begin

    def note(*facts: Any) -> Any:
        session = begin(*facts)
        seen.append(session.principal)
        return session

    monkeypatch.setattr(control_loop, "begin", note)
    return seen


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", r"User:CN=alice,OU=Sales\, East,O=Acme"),
        (r"RULE:^CN=(.*?),OU=.*$/$1@acme/U", "User:ALICE@ACME"),
    ],
)
def test_a_certificates_subject_is_the_principal(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, rules: str, principal: str
) -> None:
    seen = principals(monkeypatch)
    client = issuer.issue(
        "client",
        common_name="alice",
        organization_name="Acme",
        organization_unit_name="Sales, East",
    )
    properties = issuer.broker(issuer.issue("broker"), "requested")
    properties["ssl.principal.mapping.rules"] = rules
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        assert ask_metadata(address(broker), issuer.context(client))
        assert ask_metadata(address(broker), issuer.context())
    assert seen == [principal, "User:ANONYMOUS"]


def test_a_client_without_a_principal_is_refused_before_its_first_request(
    issuer: Issuer,
) -> None:
    rules = "RULE:^CN=nobody$/nobody/"
    properties = issuer.broker(
        issuer.issue("broker"), "required", ssl_principal_mapping_rules=rules
    )
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            ask_metadata(address(broker), issuer.context(issuer.issue("client")))
        await_failure(broker, "no_principal")


def test_settings_of_one_listener_are_its_own(issuer: Issuer) -> None:
    properties = issuer.broker(issuer.issue("broker")) | {
        "listeners": "OPEN://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.security.protocol.map": "OPEN:SSL",
        "listener.name.ssl.ssl.client.auth": "required",
    }
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        assert ask_metadata(broker.listeners["OPEN"], issuer.context())
        refusal_of(broker.listeners["SSL"], issuer.client())


def test_secrets_are_not_described(issuer: Issuer) -> None:
    pem = issuer.issue("broker").read_text()
    properties = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.certificate.chain": pem,
        "ssl.keystore.key": pem,
    }
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        assert ask_metadata(address(broker), issuer.context())
        admin = AdminClient({"bootstrap.servers": broker.listeners["PLAINTEXT"]})
        [told] = admin.describe_configs([ConfigResource("BROKER", "1")]).values()
        key = told.result(WAIT_S)["ssl.keystore.key"]
        assert key.is_sensitive
        assert key.value is None
        assert all(synonym.value is None for synonym in key.synonyms.values())
