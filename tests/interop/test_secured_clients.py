"""txn's commands, `txn.Producer` and `txn.Consumer` against an Apache Kafka with TLS and SASL."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

import txn
from harnesses.peers.secured import PASSWORD, USER, SecuredKafka, token
from support.clients import commit_values, read_all, transactional_producer
from support.cluster_commands import use_every_command
from support.command_line import run_txn
from txn.client.engine import EngineName
from txn.errors import RejectedError

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
]

MODULES = "org.apache.kafka.common.security"
CREDENTIALS = f'required username="{USER}" password="{PASSWORD}";'
PLAIN = f"{MODULES}.plain.PlainLoginModule {CREDENTIALS}"
SCRAM = f"{MODULES}.scram.ScramLoginModule {CREDENTIALS}"
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
UNSECURED = f'{OAUTH} unsecuredLoginStringClaim_sub="{USER}";'

Properties = Mapping[str, str]

WAYS: dict[str, tuple[str, Properties]] = {
    "TLS, Java's names": (
        "SSL",
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "{ca}",
            "ssl.truststore.type": "PEM",
        },
    ),
    "mutual TLS, librdkafka's names": (
        "MUTUAL",
        {
            "security.protocol": "ssl",
            "ssl.ca.location": "{ca}",
            "ssl.certificate.location": "{certificate}",
            "ssl.key.location": "{key}",
        },
    ),
    "mutual TLS, PKCS12": (
        "MUTUAL",
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "{ca}",
            "ssl.keystore.location": "{store}",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
        },
    ),
    **{
        f"{mechanism} over {protocol}": (
            protocol,
            {
                "security.protocol": protocol,
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": line,
                "ssl.truststore.location": "{ca}",
            },
        )
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT")
        for mechanism, line in (
            ("PLAIN", PLAIN),
            ("SCRAM-SHA-256", SCRAM),
            ("SCRAM-SHA-512", SCRAM),
            ("OAUTHBEARER", UNSECURED),
        )
    },
    "PLAIN, librdkafka's names": (
        "SASL_SSL",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": "{ca}",
        },
    ),
    "a token of a file": (
        "SASL_SSL",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "file://{token}",
            "ssl.truststore.location": "{ca}",
        },
    ),
    "OIDC": (
        "SASL_SSL",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": "{endpoint}",
            "sasl.jaas.config": f'{OAUTH} clientId="{USER}" clientSecret="{PASSWORD}";',
            "ssl.truststore.location": "{ca}",
        },
    ),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A token endpoint that gives everybody the user's token."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            content = json.dumps({"access_token": token(), "expires_in": 3600}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def places(secured_kafka: SecuredKafka, endpoint: str, tmp_path: Path) -> dict[str, str]:
    """Files that settings name."""
    store, tokens = tmp_path / "client.p12", tmp_path / "token"
    certificate = load_pem_x509_certificate(secured_kafka.certificate_pem)
    key = serialization.load_pem_private_key(secured_kafka.key_pem, None)
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"client",
            key,  # type: ignore[arg-type]
            certificate,
            None,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    tokens.write_text(token())
    directory = secured_kafka.directory
    return {
        "ca": str(directory / "ca.pem"),
        "certificate": str(directory / "client.pem"),
        "key": str(directory / "client.key"),
        "store": str(store),
        "token": str(tokens),
        "endpoint": endpoint,
    }


def filled(properties: Properties, places: Mapping[str, str]) -> dict[str, str]:
    """The settings with files in their places."""
    for place, path in places.items():
        properties = {n: value.replace(f"{{{place}}}", path) for n, value in properties.items()}
    return dict(properties)


def written(path: Path, properties: Properties) -> Path:
    """A file as Java writes it."""
    lines = (name + "=" + value.replace("\\", "\\\\") for name, value in properties.items())
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_command_reaches_a_secured_cluster(
    way: str, secured_kafka: SecuredKafka, places: dict[str, str], tmp_path: Path
) -> None:
    listener, properties = WAYS[way]
    config = written(tmp_path / "client.properties", filled(properties, places))
    code, printed, errors = run_txn(
        *("transactions", "list", "--prefix", "nobody-", "--command-config", config),
        *("--bootstrap", secured_kafka.servers[listener]),
    )
    assert (code, printed, errors) == (0, "no transactional id\n", "")


def test_every_command_goes_the_same_way(
    secured_kafka: SecuredKafka,
    places: dict[str, str],
    tmp_path: Path,
    unique: Callable[[str], str],
) -> None:
    listener, properties = WAYS["SCRAM-SHA-512 over SASL_SSL"]
    config = written(tmp_path / "client.properties", filled(properties, places))
    ways = ("--bootstrap", secured_kafka.servers[listener], "--command-config", config)
    use_every_command(unique("commands"), *ways)


def test_explain_names_the_open_transaction_and_a_command_that_ends_it(
    secured_kafka: SecuredKafka,
    places: dict[str, str],
    tmp_path: Path,
    unique: Callable[[str], str],
) -> None:
    topic, name = unique("held"), unique("pay")
    producer = transactional_producer(secured_kafka.servers["PLAINTEXT"], name)
    commit_values(producer, topic, [b"1"])
    producer.begin_transaction()
    producer.produce(topic, b"2")
    producer.flush(30)
    listener, properties = WAYS["SCRAM-SHA-512 over SASL_SSL"]
    config = written(tmp_path / "client.properties", filled(properties, places))
    servers = secured_kafka.servers[listener]
    ways = ("--bootstrap", servers, "--command-config", config)
    _, printed, errors = run_txn("explain", topic, *ways)
    assert errors == ""
    assert f"transactional id '{name}'" in printed
    command = f"abort --transactional-id {name} --bootstrap {servers} --command-config {config}"
    assert command in printed
    assert PASSWORD not in printed
    done = run_txn("transactions", "abort", "--transactional-id", name, "--yes", *ways)
    assert done[0] == 0, done


MISTAKES: dict[str, tuple[str, Properties, str]] = {
    "wrong password": (
        "SASL_SSL",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": SCRAM.replace(PASSWORD, f"{PASSWORD}x"),
            "ssl.truststore.location": "{ca}",
        },
        f"refused the log-in of user '{USER}' by SCRAM-SHA-512",
    ),
    "unknown authority": ("SSL", {"security.protocol": "SSL"}, "that this client does not trust"),
    "plain": ("SASL_SSL", {}, "speaks TLS on this port; set security.protocol to SSL or SASL_SSL"),
    "no token": (
        "SASL_PLAINTEXT",
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "file:///nowhere/token",
        },
        "txn: the file with the token, '/nowhere/token', cannot be read: No such file",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_closed_door_is_told_in_one_line(
    mistake: str, secured_kafka: SecuredKafka, places: dict[str, str], tmp_path: Path
) -> None:
    listener, properties, told = MISTAKES[mistake]
    config = written(tmp_path / "client.properties", filled(properties, places))
    code, printed, errors = run_txn(
        *("transactions", "list", "--command-config", config),
        *("--bootstrap", secured_kafka.servers[listener]),
    )
    assert (code, printed) == (2, "")
    assert told in errors
    assert errors.count("\n") == 1
    assert PASSWORD not in errors


@pytest.mark.parametrize("mistake", ["wrong password", "unknown authority"])
def test_a_refused_producer_is_told_at_once_and_not_at_its_timeout(
    mistake: str, secured_kafka: SecuredKafka, places: dict[str, str], engine: EngineName
) -> None:
    listener, properties, _ = MISTAKES[mistake]
    settings = {
        **filled(properties, places),
        "bootstrap.servers": secured_kafka.servers[listener],
    }
    began = time.monotonic()
    with pytest.raises(
        RejectedError, match=r"is not let in: .*(invalid credentials|verify failed|authority)"
    ):
        txn.Producer(settings, transactional_id="shop", timeout=60, engine=engine)
    assert time.monotonic() - began < 20


THROUGH_LIBRDKAFKA = [way for way in WAYS if "over SASL_PLAINTEXT" not in way]


@pytest.mark.parametrize("way", THROUGH_LIBRDKAFKA)
def test_a_transaction_in_python_goes_the_same_way(
    way: str,
    secured_kafka: SecuredKafka,
    places: dict[str, str],
    unique: Callable[[str], str],
    engine: EngineName,
) -> None:
    listener, properties = WAYS[way]
    settings = {
        **filled(properties, places),
        "bootstrap.servers": secured_kafka.servers[listener],
    }
    topic = unique("orders")
    with (
        txn.Producer(settings, transactional_id=unique("shop"), engine=engine) as producer,
        producer.transaction() as t,
    ):
        t.produce(topic, b"7 apples")
    assert read_all(secured_kafka.servers["PLAINTEXT"], topic) == [b"7 apples"]
    consumer = txn.Consumer(
        settings, group_id=unique("g"), auto_offset_reset="earliest", engine=engine
    )
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, timeout=60)
    consumer.close()
    assert message.value() == b"7 apples"
