"""txn's own clients against txn's own listeners: TLS, SASL and both, and their refusals."""

import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import txn
from support.clients import commit_values, read_all, transactional_producer
from support.cluster_commands import use_every_command
from support.command_line import run_txn
from support.secured_broker import PASSWORD, WAYS, SecuredBroker, secured_broker
from txn.client.engine import EngineName
from txn.errors import Action, RejectedError, UnreachableError

PROMPT_S = 10.0
"""A refusal is told in about a second; a time-out takes a minute."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


def written(path: Path, settings: dict[str, str]) -> Path:
    """A file as Java writes it."""
    path.write_text("\n".join(f"{name}={value}" for name, value in settings.items()))
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_command_reaches_each_listener(way: str, broker: SecuredBroker, tmp_path: Path) -> None:
    listener, settings = broker.ways()[way]
    config = written(tmp_path / "client.properties", settings)
    code, printed, errors = run_txn(
        *("transactions", "list", "--prefix", "nobody-", "--command-config", config),
        *("--bootstrap", broker.servers[listener]),
    )
    assert (code, printed, errors) == (0, "no transactional id\n", "")


@pytest.mark.parametrize(
    "way",
    [
        *("mutual TLS", "PLAIN over SASL_PLAINTEXT"),
        *("SCRAM-SHA-512 over SASL_SSL", "OAUTHBEARER over SASL_SSL"),
    ],
)
def test_every_command_goes_the_same_way(way: str, broker: SecuredBroker, tmp_path: Path) -> None:
    listener, settings = broker.ways()[way]
    config = written(tmp_path / "client.properties", settings)
    ways = ("--bootstrap", broker.servers[listener], "--command-config", config)
    use_every_command(f"commands-{WAYS.index(way)}", *ways)


@pytest.mark.parametrize("way", ["mutual TLS", "SCRAM-SHA-512 over SASL_SSL"])
def test_explain_finds_and_ends_a_transaction_over_a_secured_listener(
    way: str, broker: SecuredBroker, tmp_path: Path
) -> None:
    name = f"held-{WAYS.index(way)}"
    producer = transactional_producer(broker.servers["PLAINTEXT"], name)
    commit_values(producer, name, [b"1"])
    producer.begin_transaction()
    producer.produce(name, b"2")
    producer.flush(30)
    listener, settings = broker.ways()[way]
    config = written(tmp_path / "client.properties", settings)
    ways = ("--bootstrap", broker.servers[listener], "--command-config", config)
    _, printed, errors = run_txn("explain", name, *ways)
    assert errors == ""
    assert f"transactional id '{name}'" in printed
    assert PASSWORD not in printed
    done = run_txn("transactions", "abort", "--transactional-id", name, "--yes", *ways)
    assert done[0] == 0, done


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_goes_each_way(way: str, broker: SecuredBroker, engine: EngineName) -> None:
    listener, settings = broker.ways()[way]
    topic = f"orders-{WAYS.index(way)}-{engine}"
    settings |= {"bootstrap.servers": broker.servers[listener]}
    with (
        txn.Producer(settings, transactional_id=topic, engine=engine) as producer,
        producer.transaction() as t,
    ):
        t.produce(topic, b"7 apples")
    assert read_all(broker.servers["PLAINTEXT"], topic) == [b"7 apples"]
    consumer = txn.Consumer(settings, group_id=topic, auto_offset_reset="earliest", engine=engine)
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, timeout=30)
    consumer.close()
    assert message.value() == b"7 apples"


def mistaken(broker: SecuredBroker, way: str) -> dict[str, str]:
    """Settings with a wrong password, or without trust in the broker's certificate."""
    listener, settings = broker.ways()[way]
    settings["bootstrap.servers"] = broker.servers[listener]
    if "sasl.jaas.config" in settings:
        line = settings["sasl.jaas.config"].replace(PASSWORD, "wrong pass")
        return {**settings, "sasl.jaas.config": line}
    del settings["ssl.truststore.location"], settings["ssl.truststore.type"]
    return settings


MISTAKES = {
    "PLAIN over SASL_PLAINTEXT": "Invalid username or password",
    "SCRAM-SHA-256 over SASL_SSL": "invalid credentials",
    "SSL": "verify failed|authority",
}


@pytest.mark.parametrize("way", MISTAKES)
def test_a_refused_producer_is_told_at_once_and_not_at_its_timeout(
    way: str, broker: SecuredBroker, engine: EngineName
) -> None:
    began = time.monotonic()
    with pytest.raises(RejectedError, match=MISTAKES[way]) as raised:
        txn.Producer(mistaken(broker, way), transactional_id="shop", engine=engine)
    assert "producer 'shop' is not let in" in str(raised.value)
    assert time.monotonic() - began < PROMPT_S
    assert "wrong pass" not in str(raised.value)


def test_a_login_at_a_listener_without_is_told_the_listener(
    broker: SecuredBroker, engine: EngineName
) -> None:
    """It said to correct the credentials."""
    _, settings = broker.ways()["PLAIN over SASL_PLAINTEXT"]
    settings["bootstrap.servers"] = broker.servers["PLAINTEXT"]
    with pytest.raises(
        RejectedError, match=r"listener takes no log-ins: set security\.protocol to"
    ):
        txn.Producer(settings, transactional_id="shop", engine=engine)


def open_producer(settings: dict[str, str], engine: EngineName) -> None:
    txn.Producer(settings, transactional_id="shop", engine=engine)


def flush_one(settings: dict[str, str], engine: EngineName) -> None:
    producer = txn.Producer(settings, engine=engine)
    producer.produce("orders", b"lost")
    producer.flush(60)


def poll_classic(settings: dict[str, str], engine: EngineName) -> None:
    poll({**settings, "group.protocol": "classic"}, engine)


def poll(settings: dict[str, str], engine: EngineName) -> None:
    consumer = txn.Consumer(settings, group_id="shop", engine=engine)
    consumer.subscribe(["orders"])
    consumer.poll(60)


@pytest.mark.parametrize("use", [open_producer, flush_one, poll, poll_classic])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_client_without_a_login_is_told_the_protocol_and_the_mechanisms(
    use: Callable[[dict[str, str], EngineName], None],
    protocol: str,
    broker: SecuredBroker,
    engine: EngineName,
) -> None:
    """A producer waited a minute for "try again after a pause", and `poll` for ever."""
    listener = protocol.replace("PLAINTEXT", "SASL_PLAINTEXT").replace("SSL", "SASL_SSL")
    _, settings = broker.ways()["SSL"]
    settings |= {"security.protocol": protocol, "bootstrap.servers": broker.servers[listener]}
    began = time.monotonic()
    with pytest.raises(
        UnreachableError,
        match=rf"wants a log-in: set security\.protocol to {listener.lower()}, and sasl\.mechanism "
        "to one that it offers: .*PLAIN",
    ) as told:
        use(settings, engine)
    assert time.monotonic() - began < PROMPT_S
    assert told.value.action is Action.GIVE_UP


@pytest.mark.parametrize("way", MISTAKES)
def test_a_refused_consumer_and_a_refused_flush_are_told_at_once(
    way: str, broker: SecuredBroker, engine: EngineName
) -> None:
    began = time.monotonic()
    consumer = txn.Consumer(mistaken(broker, way), group_id="shop", engine=engine)
    consumer.subscribe(["orders"])
    with pytest.raises(RejectedError, match=MISTAKES[way]):
        consumer.poll(60)
    consumer.close()
    producer = txn.Producer(mistaken(broker, way), engine=engine)
    producer.produce("orders", b"lost")
    with pytest.raises(RejectedError, match=MISTAKES[way]):
        producer.flush(60)
    assert time.monotonic() - began < 2 * PROMPT_S
    with pytest.raises(RejectedError, match=MISTAKES[way]):
        producer.close()


def test_a_refusal_is_told_to_the_programs_own_callback_too(
    broker: SecuredBroker, engine: EngineName
) -> None:
    told: list[object] = []
    way = "PLAIN over SASL_PLAINTEXT"
    settings = {**mistaken(broker, way), "error_cb": told.append}
    consumer = txn.Consumer(settings, group_id="shop", engine=engine)
    consumer.subscribe(["orders"])
    with pytest.raises(RejectedError, match=MISTAKES[way]):
        consumer.poll(60)
    consumer.close()
    assert told


def test_a_certificate_is_wanted_where_none_is_shown(broker: SecuredBroker, tmp_path: Path) -> None:
    _, settings = broker.ways()["SSL"]
    config = written(tmp_path / "client.properties", settings)
    code, _, errors = run_txn(
        *("transactions", "list", "--command-config", config),
        *("--bootstrap", broker.servers["MUTUAL"]),
    )
    assert code == 2
    assert "certificate" in errors


def named_by_its_subject_alone(authority: trustme.CA, host: str) -> bytes:
    """A key and a certificate without subject alternative names; trustme always gives some."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    issuer_key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(issuer_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(pem, form, plain) + certificate.public_bytes(pem)


def test_a_certificate_with_a_common_name_alone_is_for_no_host(tmp_path: Path) -> None:
    """librdkafka takes it, as OpenSSL does: `docs/security.md` tells the difference."""
    authority = trustme.CA()
    ca, certificate = tmp_path / "ca.pem", tmp_path / "broker.pem"
    authority.cert_pem.write_to_path(ca)
    certificate.touch(mode=0o600)
    certificate.write_bytes(named_by_its_subject_alone(authority, "localhost"))
    properties = {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.location": str(certificate),
    }
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(ca)}
    config = written(tmp_path / "client.properties", trust)
    with txn.Broker(properties=properties) as broker:
        servers = broker.bootstrap_servers.replace("127.0.0.1", "localhost")
        code, _, errors = run_txn(
            *("transactions", "list", "--command-config", config, "--bootstrap", servers)
        )
        with txn.Producer(
            trust, bootstrap_servers=servers, transactional_id="shop", engine="confluent-kafka"
        ):
            pass
        with pytest.raises(RejectedError, match="not for the host 'localhost'"):
            txn.Producer(trust, bootstrap_servers=servers, transactional_id="shop", engine="native")
    assert code == 2
    assert "is not for the host 'localhost' but for no host at all" in errors
