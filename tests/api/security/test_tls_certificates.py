"""The certificates of a broker: files that change, PKCS12, and other ones by AlterConfigs."""

import os
import re
import signal
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import txn
from api.security.tls_brokers import (
    INVALID_REQUEST,
    METADATA,
    METRICS,
    address,
    as_pkcs12,
    ask_metadata,
    await_failure,
    await_true,
    refusal_of,
)
from support.brokers import BrokerProcess
from support.certificates import HOSTS, Issuer, TlsConnection
from support.wire_client import RawConnection
from txn.errors import ConfigError
from txn.wire.api_keys import ApiKey


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
