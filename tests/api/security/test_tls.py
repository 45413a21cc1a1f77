"""TLS listeners: real clients, and everything that may be wrong with a handshake."""

import hashlib
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from kio.schema.metadata.v12.request import MetadataRequest

import txn
from support.brokers import BrokerProcess
from support.certificates import HOSTS, Issuer, TlsConnection
from support.clients import (
    WAIT_S,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.wire_client import RawConnection
from txn.errors import ConfigError
from txn.security import sessions
from txn.server.loop import control_loop
from txn.wire.api_keys import ApiKey

METRICS = "127.0.0.1:0"
INVALID_REQUEST = 42
METADATA = MetadataRequest(topics=(), include_topic_authorized_operations=False)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "certificates")


@pytest.fixture
def other(tmp_path: Path) -> Issuer:
    """An issuer that nobody trusts."""
    return Issuer(tmp_path / "others")


@pytest.fixture
def broker(issuer: Issuer) -> Iterator[txn.Broker]:
    """A broker that asks for client certificates."""
    properties = issuer.broker(issuer.issue("broker"), "required")
    with txn.Broker(metrics=METRICS, properties=properties) as running:
        yield running


def address(broker: txn.Broker) -> str:
    return broker.listeners["SSL"]


def failures(broker: txn.Broker) -> dict[str, int]:
    """The failed handshakes so far, by reason."""
    assert broker.metrics_address is not None
    with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=WAIT_S) as page:
        text = page.read().decode()
    counted = re.findall(r'txn_tls_failed_handshakes_total{.*reason="(\w+)"} ([1-9].*)', text)
    return {reason: int(float(count)) for reason, count in counted}


def await_failure(broker: txn.Broker, reason: str) -> None:
    await_true(lambda: reason in failures(broker), lambda: str(failures(broker)))


def await_true(look: Callable[[], bool], told: Callable[[], str] = str) -> None:
    end = time.monotonic() + WAIT_S
    while not look():
        assert time.monotonic() < end, told()
        time.sleep(0.01)


def ask_metadata(servers: str, context: ssl.SSLContext) -> str:
    """The cluster's id, asked over TLS."""
    with TlsConnection(servers, context) as connection:
        return str(connection.call(METADATA).cluster_id)


def refusal_of(servers: str, settings: dict[str, Any]) -> str:
    """The error of librdkafka, which cannot connect."""
    told: list[KafkaError] = []
    config: dict[str, Any] = {"bootstrap.servers": servers, "error_cb": told.append, **settings}
    admin = AdminClient(config | {"log_level": 0})
    with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
        admin.list_topics(timeout=2)
    admin.poll(0.1)
    return " ".join(str(error) for error in told)


# -------------------------------------------------------------------- clients that are served


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


# -------------------------------------------------------------------- clients that are refused


def test_a_client_without_a_certificate_is_refused(broker: txn.Broker, issuer: Issuer) -> None:
    assert "certificate required" in refusal_of(address(broker), issuer.client())
    await_failure(broker, "no_certificate")


def test_a_client_of_another_issuer_is_refused(
    broker: txn.Broker, issuer: Issuer, other: Issuer
) -> None:
    with pytest.raises((ConnectionError, ssl.SSLError)):  # librdkafka would not even show it
        ask_metadata(address(broker), issuer.context(other.issue("client")))
    await_failure(broker, "unknown_issuer")


def test_an_expired_client_is_refused(broker: txn.Broker, issuer: Issuer) -> None:
    refusal_of(address(broker), issuer.client(issuer.issue("client", expired=True)))
    await_failure(broker, "expired")


def test_clients_refuse_a_broker_of_another_issuer(
    broker: txn.Broker, issuer: Issuer, other: Issuer
) -> None:
    told = refusal_of(address(broker), other.client(issuer.issue("client")))
    assert "certificate verify failed" in told
    await_failure(broker, "client_refused")


@pytest.mark.parametrize(("hosts", "expired"), [(("elsewhere.example",), False), ((), True)])
def test_clients_refuse_another_host_and_an_expired_broker(
    issuer: Issuer, hosts: tuple[str, ...], expired: bool
) -> None:
    certificate = issuer.issue("broker", *hosts, expired=expired)
    with txn.Broker(metrics=METRICS, properties=issuer.broker(certificate)) as broker:
        told = refusal_of(address(broker), issuer.client())
        assert "certificate verify failed" in told
        await_failure(broker, "client_refused")


def test_tls_1_1_is_refused(broker: txn.Broker) -> None:
    host, _, port = address(broker).rpartition(":")
    command = ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_1"]
    command += ["-cipher", "DEFAULT@SECLEVEL=0"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=WAIT_S)
    assert b"alert handshake failure" in done.stderr
    await_failure(broker, "incompatible")


def test_plain_bytes_at_a_tls_port_and_tls_at_a_plain_port_cost_their_connection_alone(
    broker: txn.Broker, issuer: Issuer
) -> None:
    client = issuer.issue("client")
    with RawConnection(address(broker)) as plain:
        plain.send_frame(struct.pack(">hhih", 3, 0, 1, -1))
        assert plain.socket.recv(1) == b"\x15"  # an alert
        assert plain.socket.recv(100)
        assert plain.is_closed_by_peer()
    await_failure(broker, "not_tls")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TlsConnection(broker.listeners["PLAINTEXT"], issuer.context(client))
    assert ask_metadata(address(broker), issuer.context(client))


def test_a_truncated_handshake_is_counted(broker: txn.Broker) -> None:
    with RawConnection(address(broker)) as connection:
        connection.send_raw(bytes.fromhex("16030100c8010000c40303"))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.is_closed_by_peer()
    await_failure(broker, "client_left")


def test_a_renegotiation_is_refused(issuer: Issuer) -> None:
    """OpenSSL asks for one at a line of `R`; rustls answers `no_renegotiation`."""
    with txn.Broker(metrics=METRICS, properties=issuer.broker(issuer.issue("broker"))) as broker:
        command = ["openssl", "s_client", "-connect", address(broker), "-tls1_2"]
        done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=WAIT_S)
        assert b"no renegotiation" in done.stderr
        assert ask_metadata(address(broker), issuer.context())


# -------------------------------------------------------------------- ends of connections


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


# -------------------------------------------------------------------- certificates of the broker


def test_a_changed_certificate_is_used_and_connections_stay(
    issuer: Issuer, other: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    path = issuer.issue("broker")
    with txn.Broker(metrics=METRICS, properties=issuer.broker(path)) as broker:
        with TlsConnection(address(broker), issuer.context()) as earlier:
            path.write_text("no PEM at all")
            await_true(lambda: "tls.certificate_not_loaded" in caplog.text)
            assert ask_metadata(address(broker), issuer.context())
            os.replace(other.issue("broker"), path)
            await_true(lambda: _is_trusted(broker, other))
            assert not _is_trusted(broker, issuer)
            assert earlier.call(METADATA).cluster_id
        path.write_bytes(issuer.issue("again").read_bytes())
        broker.reload_certificates()  # at once
        assert _is_trusted(broker, issuer)


def _is_trusted(broker: txn.Broker, issuer: Issuer) -> bool:
    try:
        return bool(ask_metadata(address(broker), issuer.context()))
    except ssl.SSLCertVerificationError:
        return False


def test_sighup_has_a_broker_read_its_certificates_at_once(issuer: Issuer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = BrokerProcess(
        data,
        "listener.security.protocol.map=PLAINTEXT:SSL",
        f"ssl.keystore.location={issuer.issue('broker')}",
    )
    log = data.with_suffix(".log")
    os.kill(process.pid, signal.SIGHUP)
    await_true(lambda: log.read_text().count("tls.certificate_loaded") == 2, log.read_text)
    assert ask_metadata(process.bootstrap_servers, issuer.context())
    assert process.stop() == 0


def test_a_key_that_others_may_read_is_told(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    path = issuer.issue("broker")
    with txn.Broker(metrics=METRICS, properties=issuer.broker(path)):
        assert "tls.key_readable_by_others" not in caplog.text
    path.chmod(0o644)
    with txn.Broker(metrics=METRICS, properties=issuer.broker(path)):
        assert "tls.key_readable_by_others" in caplog.text


def test_a_key_of_roots_may_be_read_by_the_brokers_group(
    issuer: Issuer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key with the owner, group and mode of deploy/README.md was warned of at each start."""
    path = issuer.issue("broker")
    path.chmod(0o640)
    with txn.Broker(metrics=METRICS, properties=issuer.broker(path)):
        assert "tls.key_readable_by_others" in caplog.text
    caplog.clear()
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    with txn.Broker(metrics=METRICS, properties=issuer.broker(path)):
        assert "tls.key_readable_by_others" not in caplog.text
    path.chmod(0o644)
    with txn.Broker(metrics=METRICS, properties=issuer.broker(path)):
        assert "tls.key_readable_by_others" in caplog.text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ssl.keystore.location": None}, "it takes a certificate"),
        ({"ssl.keystore.location": "/no/such"}, "cannot be read: No such file"),
        ({"ssl.keystore.location": "/dev/null"}, "it is no regular file"),
        ({"ssl.keystore.key": "x"}, "beside ssl.keystore.location"),
        ({"ssl.keystore.type": "BKS"}, "it takes PEM, PKCS12 or JKS"),
        ({"ssl.truststore.location": None}, "takes ssl.truststore.location"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "a list of TLS_AES_256_GCM_SHA384"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"},
            "none of the cipher suites is of a version",
        ),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "has the pattern"),
        ({"listener.name.other.ssl.client.auth": "none"}, "listeners are SSL, PLAINTEXT"),
    ],
)
def test_settings_that_cannot_be_used_stop_the_start(
    issuer: Issuer, tmp_path: Path, change: dict[str, str | None], told: str
) -> None:
    changed = issuer.broker(issuer.issue("broker"), "required") | change
    properties = {name: value for name, value in changed.items() if value is not None}
    with pytest.raises(ConfigError, match=re.escape(told)):
        txn.Broker(tmp_path / "data", properties=properties)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("suite", "spoken", "other"),
    [
        ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256", ssl.TLSVersion.TLSv1_2),
        (
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            ssl.TLSVersion.TLSv1_3,
        ),
    ],
)
def test_a_listener_speaks_its_cipher_suites_alone(
    issuer: Issuer, suite: str, spoken: str, other: ssl.TLSVersion
) -> None:
    properties = issuer.broker(issuer.issue("broker"), ssl_cipher_suites=suite)
    with txn.Broker(properties=properties) as broker:
        servers = broker.listeners["SSL"]
        with TlsConnection(servers, issuer.context()) as connection:
            assert isinstance(connection.socket, ssl.SSLSocket)
            assert (connection.socket.cipher() or ("none",))[0] == spoken
        refused = issuer.context()
        refused.minimum_version = refused.maximum_version = other
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
            TlsConnection(servers, refused)


@pytest.mark.parametrize(
    "kind", ["PEM", "PKCS12", "JKS"]
)  # the type that is given is not looked at
def test_stores_of_pkcs12_are_read(issuer: Issuer, tmp_path: Path, kind: str) -> None:
    """A settings file of Kafka's, with keystores, stopped the start."""
    properties = issuer.broker(issuer.issue("broker"), "required") | {
        "ssl.keystore.location": str(as_pkcs12(issuer.issue("broker"), tmp_path / "broker.p12")),
        "ssl.truststore.location": str(as_pkcs12(issuer.path, tmp_path / "trusted.p12")),
        "ssl.keystore.password": "s3cret",
        "ssl.truststore.password": "s3cret",
        "ssl.keystore.type": kind,
        "ssl.truststore.type": kind,
    }
    with txn.Broker(metrics=METRICS, properties=properties) as broker:
        assert ask_metadata(address(broker), issuer.context(issuer.issue("client")))
        refusal_of(address(broker), issuer.client())
        await_failure(broker, "no_certificate")
    for wrong in ({"ssl.keystore.password": "other"}, {"ssl.truststore.password": "other"}):
        with pytest.raises(ConfigError, match="cannot be opened"):
            txn.Broker(properties=properties | wrong)


def test_javas_own_stores_are_refused_with_the_command_that_converts_them(
    issuer: Issuer, tmp_path: Path
) -> None:
    store = tmp_path / "broker.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002") + bytes(40))
    properties = issuer.broker(store, ssl_keystore_password="s3cret")
    with pytest.raises(ConfigError, match="keytool -importkeystore"):
        txn.Broker(properties=properties)


MAY_CHANGE = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
"""Certificates of an `Issuer` have subjects of their own."""


def test_an_alteration_gives_a_listener_other_certificates(issuer: Issuer, tmp_path: Path) -> None:
    """`kafka-configs` alters them as on Kafka: INVALID_REQUEST was the answer."""
    first, second = issuer.issue("first"), issuer.issue("second", "localhost")
    location = "listener.name.ssl.ssl.keystore.location"
    given = {"listener.name.ssl.ssl.keystore.location": str(first)}
    properties = issuer.broker(first, **given, **MAY_CHANGE)
    data = tmp_path / "data"
    with txn.Broker(data, metrics=METRICS, properties=properties) as broker:
        assert names_of(address(broker), issuer) == {"localhost", "127.0.0.1"}
        assert alter_broker(broker, "1", {location: str(second)}) is None
        assert names_of(address(broker), issuer) == {"localhost"}
        store = as_pkcs12(first, tmp_path / "first.p12")
        password = "listener.name.ssl.ssl.keystore.password"
        assert alter_broker(broker, "1", {location: str(store), password: "s3cret"}) is None
        assert names_of(address(broker), issuer) == {"localhost", "127.0.0.1"}
        as_pkcs12(second, store)
        assert (
            alter_broker(broker, "1", {location: str(store)}) is None
        )  # the same path: its file is read anew
        assert names_of(address(broker), issuer) == {"localhost"}
        for node, wrong, told in (
            ("1", {location: "/no/such"}, "cannot be read"),
            ("1", {password: "other"}, "cannot be opened"),
            ("1", {"ssl.keystore.location": str(first)}, "per-listener using the listener prefix"),
            ("", {location: str(first)}, "broker id must be specified"),
        ):
            assert told in (alter_broker(broker, node, wrong) or "")
        assert names_of(address(broker), issuer) == {"localhost"}
    with txn.Broker(data, metrics=METRICS, properties=properties) as broker:
        assert names_of(address(broker), issuer) == {"localhost"}
        assert alter_broker(broker, "1", dict.fromkeys((location, password))) is None
        assert names_of(address(broker), issuer) == {"localhost", "127.0.0.1"}


def test_two_alterations_in_flight_are_checked_together(issuer: Issuer, tmp_path: Path) -> None:
    """A PEM file needs no password, so another store and another password passed one by one.

    The second alteration was checked beside the published settings. Those do not have the first
    one until it is on the disk.
    """
    pem = issuer.issue("first")
    store = as_pkcs12(pem, tmp_path / "first.p12")
    location = "listener.name.ssl.ssl.keystore.location"
    password = "listener.name.ssl.ssl.keystore.password"
    with txn.Broker(tmp_path / "data", metrics=METRICS, properties=issuer.broker(pem)) as broker:
        servers = broker.listeners["PLAINTEXT"]
        with RawConnection(servers) as first, RawConnection(servers) as second:
            for _ in range(5):
                assert alter_broker(broker, "1", {location: str(pem), password: "s3cret"}) is None
                send_alteration(first, "1", {location: str(store)})
                send_alteration(second, "1", {password: "other"})
                refusals = {receive_refusal(first), receive_refusal(second)}
                assert len(refusals) == 2
                assert None in refusals
        assert names_of(address(broker), issuer) == {"localhost", "127.0.0.1"}


def test_an_alteration_that_drops_a_usable_certificate_is_refused(
    issuer: Issuer, tmp_path: Path
) -> None:
    """AlterConfigs drops each setting that it does not name, and only named ones were checked."""
    first, second = issuer.issue("first"), issuer.issue("second", "localhost")
    properties = issuer.broker(first, **MAY_CHANGE)
    with txn.Broker(tmp_path / "data", metrics=METRICS, properties=properties) as broker:
        location = "listener.name.ssl.ssl.keystore.location"
        assert alter_broker(broker, "1", {location: str(second)}) is None
        first.unlink()
        with RawConnection(broker.listeners["PLAINTEXT"]) as connection:
            resource = {"resource_type": 4, "resource_name": "1", "configs": []}
            answer = connection.ask(
                ApiKey.ALTER_CONFIGS, 2, resources=[resource], validate_only=False
            )
        (result,) = answer.responses
        assert int(result.error_code) == INVALID_REQUEST
        assert f"{first} cannot be read" in result.error_message
        assert names_of(address(broker), issuer) == {"localhost"}


def test_a_file_of_the_same_size_and_time_is_read_anew(issuer: Issuer, tmp_path: Path) -> None:
    """A copy that keeps times, as `cp -p` makes it, changes the time of change alone."""
    first, second = issuer.issue("first"), issuer.issue("second", "localhost")
    length = max(first.stat().st_size, second.stat().st_size)
    first.write_bytes(first.read_bytes().ljust(length, b"\n"))
    location = "listener.name.ssl.ssl.keystore.location"
    with txn.Broker(tmp_path / "data", metrics=METRICS, properties=issuer.broker(first)) as broker:
        assert alter_broker(broker, "1", {location: str(first)}) is None
        before = first.stat()
        first.write_bytes(second.read_bytes().ljust(length, b"\n"))
        os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert alter_broker(broker, "1", {location: str(first)}) is None
        assert names_of(address(broker), issuer) == {"localhost"}


def test_another_subject_and_missing_names_are_refused_unless_they_are_allowed(
    issuer: Issuer, tmp_path: Path
) -> None:
    """As in Kafka: clients know the broker by its subject, and reach it by each of its names."""
    owner: dict[str, Any] = {"organization_name": "shop", "organization_unit_name": "a"}
    first = issuer.issue("first", **owner)
    other = issuer.issue("other", **owner | {"organization_unit_name": "b"})
    fewer = issuer.issue("fewer", "localhost", **owner)
    more = issuer.issue("more", *HOSTS, "shop.example", **owner)
    location = "listener.name.ssl.ssl.keystore.location"
    subject, names = "ssl.allow.dn.changes=true", "ssl.allow.san.changes=true"
    for given, expected in (
        ({}, {other: subject, fewer: names, more: None}),
        ({"ssl.allow.dn.changes": "true"}, {fewer: names, other: None}),
        ({"listener.name.ssl.ssl.allow.san.changes": "true"}, {other: subject, fewer: None}),
    ):
        with txn.Broker(metrics=METRICS, properties=issuer.broker(first, **given)) as broker:
            for certificate, hint in expected.items():
                refusal = alter_broker(broker, "1", {location: str(certificate)})
                assert (hint or "None") in str(refusal)


def as_pkcs12(pem: Path, place: Path) -> Path:
    """Write a PEM file's key and certificates as PKCS12, or its certificates to be trusted."""
    content = pem.read_bytes()
    certificates = x509.load_pem_x509_certificates(content)
    key = None
    if b"PRIVATE KEY" in content:
        loaded = serialization.load_pem_private_key(content, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
        key = loaded
    own, others = (certificates[0], certificates[1:]) if key else (None, certificates)
    encryption = serialization.BestAvailableEncryption(b"s3cret")
    place.touch(mode=0o600)
    packed = pkcs12.serialize_key_and_certificates(b"broker", key, own, others, encryption)
    place.write_bytes(packed)
    return place


def names_of(servers: str, issuer: Issuer) -> set[str]:
    """The hosts that the certificate of a listener is for."""
    with TlsConnection(servers, issuer.context()) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        told = connection.socket.getpeercert() or {}
        return {str(one[1]) for one in told["subjectAltName"]}


def alter_broker(broker: txn.Broker, node: str, values: Mapping[str, str | None]) -> str | None:
    """Alter settings of a broker, or of all; None takes one away. Return the text of a refusal."""
    with RawConnection(broker.listeners["PLAINTEXT"]) as connection:
        send_alteration(connection, node, values)
        return receive_refusal(connection)


def send_alteration(connection: RawConnection, node: str, values: Mapping[str, str | None]) -> None:
    entries = [
        {"name": name, "value": value, "config_operation": 1 if value is None else 0}
        for name, value in values.items()
    ]
    resource = {"resource_type": 4, "resource_name": node, "configs": entries}
    connection.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)


def receive_refusal(connection: RawConnection) -> str | None:
    """The text of the refusal that the next answer is; None if the alteration was made."""
    (result,) = connection.receive(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses
    assert int(result.error_code) in (0, INVALID_REQUEST)
    return None if int(result.error_code) == 0 else str(result.error_message)


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


# -------------------------------------------------------------------- neighbours


def test_idle_and_half_open_tls_connections_do_not_slow_a_neighbour(
    broker: txn.Broker, issuer: Issuer
) -> None:
    """300 connections idle, 50 begin a handshake and stop, and others come all the time."""
    plain = broker.listeners["PLAINTEXT"]
    context = issuer.context(issuer.issue("client"))
    create_topic(plain, "t")
    producer = transactional_producer(plain, "id")

    def p99_s() -> float:
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            producer.begin_transaction()
            producer.produce("t", b"x")
            producer.commit_transaction(WAIT_S)
            times.append(time.perf_counter() - begun)
        return sorted(times)[-3]

    p99_s()
    alone = p99_s()
    idle: list[RawConnection] = [TlsConnection(address(broker), context) for _ in range(300)]
    for _ in range(50):
        half = RawConnection(address(broker))
        half.send_raw(b"\x16\x03\x01")
        idle.append(half)
    stopping = threading.Event()

    def come_and_go() -> None:
        while not stopping.is_set():
            TlsConnection(address(broker), context).socket.close()

    storm = threading.Thread(target=come_and_go)
    storm.start()
    beside = p99_s()
    stopping.set()
    storm.join()
    for connection in idle:
        connection.socket.close()
    assert beside < max(0.1, 10 * alone)
