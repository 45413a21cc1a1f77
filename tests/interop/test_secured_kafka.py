"""The native client against a real Apache Kafka with TLS and SASL, one listener for each case."""

import gc
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from harnesses.peers import secured
from harnesses.peers.jars import java_executable
from harnesses.peers.secured import MECHANISMS, PASSWORD, SHORT_SESSION_MS, USER, SecuredKafka
from txn._core import ClientSecurity, KafkaClient, KafkaError, read_keystore

pytestmark = pytest.mark.peer

PATIENCE_MS = 30_000
AT_ONCE_SECONDS = 10.0
"""Less than PATIENCE_MS: an error that is retried comes later."""


def security_of(kafka: SecuredKafka, listener: str, mechanism: str | None) -> ClientSecurity:
    protocol = secured.LISTENERS[listener]
    is_bearer = mechanism == "OAUTHBEARER"
    return ClientSecurity(
        protocol,
        ca_pem=kafka.ca_pem,
        mechanism=mechanism,
        username=None if is_bearer else USER,
        password=None if is_bearer else PASSWORD,
        token=secured.token if is_bearer else None,
    )


def client_of(kafka: SecuredKafka, listener: str, security: ClientSecurity | None) -> KafkaClient:
    return KafkaClient(kafka.servers[listener], timeout_ms=PATIENCE_MS, security=security)


def failure_of(client: KafkaClient) -> tuple[str, int, BaseException | None]:
    """The message, code and cause of the error that a request ends with at once."""
    began = time.monotonic()
    with pytest.raises(KafkaError) as raised:
        client.topics()
    assert time.monotonic() - began < AT_ONCE_SECONDS, str(raised.value)
    message, code, is_retriable = raised.value.args
    assert not is_retriable
    assert PASSWORD not in message
    return message, code, raised.value.__cause__


def column(values: list[bytes]) -> tuple[bytes, bytes, None]:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value))
    return struct.pack(f"<{len(ends)}i", *ends), b"".join(values), None


def fetched(client: KafkaClient, topic: str, *, is_committed_only: bool = False) -> list[bytes]:
    """The committed values, up to the end of the log or the last stable offset of now."""
    (end,) = client.list_offsets(topic, [0], -1, read_committed=is_committed_only)
    values = []
    for columns in client.fetch(topic, 0, 0, end):
        rows, data = columns["rows"], columns["value_data"]
        ends = struct.unpack(f"<{rows + 1}i", columns["value_offsets"])  # type: ignore[operator, arg-type]
        values += [data[a:b] for a, b in pairwise(ends)]  # type: ignore[index]
    return values


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_mechanism_logs_in(secured_kafka: SecuredKafka, listener: str, mechanism: str) -> None:
    security = security_of(secured_kafka, listener, mechanism)
    assert repr(security) == f"ClientSecurity('{listener}', mechanism='{mechanism}')"
    assert isinstance(client_of(secured_kafka, listener, security).topics(), list)


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL", "MUTUAL12"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_tls_alone_connects(secured_kafka: SecuredKafka, listener: str, host: str) -> None:
    security = ClientSecurity(
        "SSL",
        ca_pem=secured_kafka.ca_pem,
        certificate_pem=secured_kafka.certificate_pem,
        key_pem=secured_kafka.key_pem,
    )
    port = secured_kafka.servers[listener].rpartition(":")[2]
    client = KafkaClient(f"{host}:{port}", timeout_ms=PATIENCE_MS, security=security)
    assert isinstance(client.topics(), list)


def key_forms(pem: bytes) -> Iterator[tuple[str, bytes, str | None]]:
    key = serialization.load_pem_private_key(pem, None)
    old = serialization.PrivateFormat.TraditionalOpenSSL
    new = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    locked = serialization.BestAvailableEncryption(b"open sesame")
    encoding = serialization.Encoding.PEM
    yield "PKCS#1 or SEC1", key.private_bytes(encoding, old, plain), None
    yield "PKCS#8", key.private_bytes(encoding, new, plain), None
    yield "encrypted PKCS#8", key.private_bytes(encoding, new, locked), "open sesame"


def test_every_form_of_a_client_key_logs_in(secured_kafka: SecuredKafka) -> None:
    for name, key_pem, password in key_forms(secured_kafka.key_pem):
        security = ClientSecurity(
            "SSL",
            ca_pem=secured_kafka.ca_pem,
            certificate_pem=secured_kafka.certificate_pem,
            key_pem=key_pem,
            key_password=password,
        )
        assert client_of(secured_kafka, "MUTUAL", security).topics() is not None, name


def test_a_transaction_over_sasl_ssl_comes_out_whole(
    secured_kafka: SecuredKafka, unique: Callable[[str], str]
) -> None:
    security = security_of(secured_kafka, "SASL_SSL", "SCRAM-SHA-512")
    client = client_of(secured_kafka, "SASL_SSL", security)
    topic, txn_id = unique("over-tls"), unique("loader")
    client.create_topic(topic, 1, {})
    values = [bytes([i % 251]) * (i * 37 % 5000) for i in range(2000)]
    who = client.init_producer_id(txn_id, 60_000)
    writer = client.writer(txn_id, *who, batch_bytes=200_000)
    writer.write(topic, len(values), None, column(values))
    assert writer.flush() == len(values)
    assert fetched(client, topic, is_committed_only=True) == []  # not before its commit
    client.end_txn(txn_id, *who, True)
    assert fetched(client, topic) == values


def test_a_session_is_renewed_before_it_ends(
    secured_kafka: SecuredKafka, unique: Callable[[str], str]
) -> None:
    """Three lifetimes of requests, none of which fails; a token is asked for again each time."""
    asked = []

    def token() -> str:
        asked.append(time.monotonic())
        return secured.token(lifetime_seconds=60)

    security = ClientSecurity("SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=token)
    client = client_of(secured_kafka, "SHORT", security)
    topic = unique("short")
    client.create_topic(topic, 1, {})
    who = client.init_producer_id(unique("short"), 60_000)
    writer = client.writer(None, *who, batch_bytes=1)
    ends = time.monotonic() + 3 * SHORT_SESSION_MS / 1000
    written = 0
    while time.monotonic() < ends:
        writer.write(topic, 50, None, column([b"x"] * 50))
        written += 50
    assert writer.flush() == written
    assert len(fetched(client, topic)) == written
    assert len(asked) >= 4
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert max(gaps) < SHORT_SESSION_MS / 1000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", [USER, "nobody"])
def test_a_wrong_password_is_told_at_once(
    secured_kafka: SecuredKafka, mechanism: str, user: str
) -> None:
    security = ClientSecurity(
        "SASL_SSL",
        ca_pem=secured_kafka.ca_pem,
        mechanism=mechanism,
        username=user,
        password="not the passw0rd",
    )
    message, code, _ = failure_of(client_of(secured_kafka, "SASL_SSL", security))
    assert code == 58
    assert secured_kafka.servers["SASL_SSL"] in message
    assert f"'{user}'" in message
    assert "check user name, password" in message
    assert "passw0rd" not in message


def test_a_token_that_has_expired_is_told_at_once(secured_kafka: SecuredKafka) -> None:
    expired = secured.token(lifetime_seconds=-60)
    security = ClientSecurity("SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=lambda: expired)
    message, code, _ = failure_of(client_of(secured_kafka, "SASL_PLAINTEXT", security))
    assert code == 58
    assert "expiry" in message
    assert expired not in message


def test_an_exception_of_the_token_is_the_cause(secured_kafka: SecuredKafka) -> None:
    def broken() -> str:
        raise LookupError("the vault says s3cret")

    security = ClientSecurity("SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=broken)
    message, code, cause = failure_of(client_of(secured_kafka, "SASL_PLAINTEXT", security))
    assert code == 58
    assert "LookupError" in message
    assert "s3cret" not in message
    assert isinstance(cause, LookupError)


def test_an_interrupt_in_the_token_goes_through(secured_kafka: SecuredKafka) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    security = ClientSecurity("SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=interrupted)
    with pytest.raises(KeyboardInterrupt):
        client_of(secured_kafka, "SASL_PLAINTEXT", security).topics()


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are(
    secured_kafka: SecuredKafka,
) -> None:
    security = security_of(secured_kafka, "SCRAM_ONLY", "PLAIN")
    message, code, _ = failure_of(client_of(secured_kafka, "SCRAM_ONLY", security))
    assert code == 33
    assert "SCRAM-SHA-512" in message


TLS_FAILURES = {
    "EXPIRED": "expired",
    "ELSEWHERE": "elsewhere.test",
    "MUTUAL": "ssl.keystore.location",
    "MUTUAL12": "ssl.keystore.location",
    "PLAINTEXT": "does not speak TLS",
    "SASL_PLAINTEXT": "does not speak TLS",
    "SASL_SSL": "sasl.mechanism",
}


@pytest.mark.parametrize("listener", TLS_FAILURES)
def test_tls_that_cannot_work_is_told_at_once(secured_kafka: SecuredKafka, listener: str) -> None:
    security = ClientSecurity("SSL", ca_pem=secured_kafka.ca_pem)
    message, _, _ = failure_of(client_of(secured_kafka, listener, security))
    assert TLS_FAILURES[listener] in message
    assert secured_kafka.servers[listener] in message


def test_an_unknown_authority_is_told_at_once(secured_kafka: SecuredKafka) -> None:
    for ca_pem in (trustme.CA().cert_pem.bytes(), None):
        security = ClientSecurity("SSL", ca_pem=ca_pem)
        message, _, _ = failure_of(client_of(secured_kafka, "SSL", security))
        assert "authority" in message
        assert "ssl.ca.location" in message


def test_a_client_certificate_of_another_authority_is_told_at_once(
    secured_kafka: SecuredKafka,
) -> None:
    stranger = trustme.CA().issue_cert("client.test")
    for listener in ("MUTUAL", "MUTUAL12"):
        security = ClientSecurity(
            "SSL",
            ca_pem=secured_kafka.ca_pem,
            certificate_pem=stranger.private_key_and_cert_chain_pem.bytes(),
        )
        message, _, _ = failure_of(client_of(secured_kafka, listener, security))
        assert "ssl.keystore.location" in message


@pytest.mark.parametrize(
    ("listener", "part"),
    [
        ("SSL", "speaks TLS"),
        ("SASL_SSL", "speaks TLS"),
        ("SASL_PLAINTEXT", "security.protocol to SASL_PLAINTEXT"),
    ],
)
def test_a_plain_client_is_told_the_protocol(
    secured_kafka: SecuredKafka, listener: str, part: str
) -> None:
    message, _, _ = failure_of(client_of(secured_kafka, listener, None))
    assert part in message


def test_a_log_in_where_none_is_asked_for_is_told_at_once(secured_kafka: SecuredKafka) -> None:
    security = security_of(secured_kafka, "SASL_PLAINTEXT", "PLAIN")
    message, code, _ = failure_of(client_of(secured_kafka, "PLAINTEXT", security))
    assert code == 34
    assert "asks for no log-in" in message


def test_switches_accept_another_host_and_an_unknown_authority(
    secured_kafka: SecuredKafka,
) -> None:
    other_host = ClientSecurity("SSL", ca_pem=secured_kafka.ca_pem, check_hostname=False)
    assert client_of(secured_kafka, "ELSEWHERE", other_host).topics() is not None
    anybody = ClientSecurity("SSL", check_certificate=False)
    assert client_of(secured_kafka, "EXPIRED", anybody).topics() is not None
    # The name alone is not looked at: the chain still is.
    stranger = trustme.CA().cert_pem.bytes()
    still_checked = ClientSecurity("SSL", ca_pem=stranger, check_hostname=False)
    assert "authority" in failure_of(client_of(secured_kafka, "ELSEWHERE", still_checked))[0]
    expired = ClientSecurity("SSL", ca_pem=secured_kafka.ca_pem, check_hostname=False)
    assert "expired" in failure_of(client_of(secured_kafka, "EXPIRED", expired))[0]


def test_a_pkcs12_keystore_logs_in(secured_kafka: SecuredKafka) -> None:
    authority = load_pem_x509_certificate(secured_kafka.ca_pem)
    key = serialization.load_pem_private_key(secured_kafka.key_pem, None)
    store = pkcs12.serialize_key_and_certificates(
        b"client",
        key,  # type: ignore[arg-type]  # any key that a file may have
        load_pem_x509_certificate(secured_kafka.certificate_pem),
        None,
        serialization.BestAvailableEncryption(b"changeit"),
    )
    trusted = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(authority, b"ca")],
        serialization.BestAvailableEncryption(b"changeit"),
    )
    ca_pem, *_ = read_keystore(trusted, "changeit")
    _, certificate_pem, key_pem = read_keystore(store, "changeit")
    security = ClientSecurity(
        "SSL", ca_pem=ca_pem, certificate_pem=certificate_pem, key_pem=key_pem
    )
    assert client_of(secured_kafka, "MUTUAL", security).topics() is not None
    with pytest.raises(ValueError, match="check its password"):
        read_keystore(store, "wrong")


def test_a_truststore_of_keytool_is_read_and_one_in_javas_own_form_refused(
    secured_kafka: SecuredKafka, tmp_path: Path
) -> None:
    keytool = Path(java_executable()).with_name("keytool")
    import_it = f"{keytool} -importcert -noprompt -alias ca -storepass changeit".split()
    import_it += ["-file", str(secured_kafka.directory / "ca.pem")]
    for kind in ("PKCS12", "JKS"):
        store = ["-keystore", str(tmp_path / kind), "-storetype", kind]
        subprocess.run([*import_it, *store], check=True, capture_output=True)
    ca_pem, certificate_pem, key_pem = read_keystore((tmp_path / "PKCS12").read_bytes(), "changeit")
    assert (certificate_pem, key_pem) == (None, None)
    security = ClientSecurity("SSL", ca_pem=ca_pem)
    assert client_of(secured_kafka, "SSL", security).topics() is not None
    with pytest.raises(ValueError, match="keytool -importkeystore"):
        read_keystore((tmp_path / "JKS").read_bytes(), "changeit")


def test_a_client_and_its_token_are_freed(secured_kafka: SecuredKafka) -> None:
    """The extension holds the callable, and gives it back with the last client."""
    freed = []

    class Token:
        def __call__(self) -> str:
            return secured.token()

        def __del__(self) -> None:
            freed.append(True)

    security = ClientSecurity("SASL_PLAINTEXT", mechanism="OAUTHBEARER", token=Token())
    client = client_of(secured_kafka, "SASL_PLAINTEXT", security)
    assert client.topics() is not None
    del client, security
    gc.collect()
    assert freed
