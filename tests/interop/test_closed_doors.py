"""The clients that are not let in: failures of TLS and of log-ins over SASL_SSL.

One broker has a listener for each fault of its own. librdkafka and Java's client try every door,
also with sound settings: so a door that is closed to everybody fails.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import txn
from harnesses.peers.jars import run_java
from support.certificates import Issuer

WAIT_S: Final = 30
JAVA_S: Final = 240.0
USER, PASSWORD = "alice", "al-secret"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES: Final = "org.apache.kafka.common.security"
PROGRAM: Final = Path(__file__).parent / "java" / "Doors.java"
KEY: Final = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
OTHER_KEY: Final = rsa.generate_private_key(public_exponent=65_537, key_size=2048)

LISTENERS: Final = {
    "SOUND": "SASL_SSL",
    "EXPIRED": "SASL_SSL",  # its certificate has expired
    "ELSEWHERE": "SASL_SSL",  # its certificate is for another host
    "NEW": "SASL_SSL",  # TLS 1.3 alone
    "SCRAM_ONLY": "SASL_SSL",  # no PLAIN
    "MUTUAL": "SSL",  # wants a client certificate
    "PLAINTEXT": "PLAINTEXT",
}
AUTHENTICATION: Final = "SaslAuthenticationException"
TLS: Final = "SslAuthenticationException"


@dataclass(frozen=True)
class Door:
    """A client's settings, and the errors by which it is told; None: it is let in.

    Attributes:
        listener: Where it knocks.
        mechanism: Of SASL; None: only TLS.
        java: The simple name of the error of Java's client.
        librdkafka: The codes of errors of which one is told; empty where it has no such setting.
        password: And user, of every mechanism but OAUTHBEARER.
        ca: Name of the trusted issuer.
        certificate: Name of the client's certificate.
        changes: Settings of Java's client.
    """

    listener: str = "SOUND"
    mechanism: str | None = "PLAIN"
    java: str | None = None
    librdkafka: tuple[int, ...] = ()
    user: str = USER
    password: str = PASSWORD
    token: str = "sound"
    ca: str = "ca"
    certificate: str | None = None
    protocol: str | None = None
    changes: Mapping[str, str] = field(default_factory=dict)


SSL: Final = (KafkaError._SSL,)
REFUSED: Final = (KafkaError._AUTHENTICATION,)
GONE: Final = (KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)

DOORS: Final[dict[str, Door]] = {
    **{f"open to {each}": Door(mechanism=each) for each in ("PLAIN", *SCRAM, "OAUTHBEARER")},
    "open to TLS 1.3": Door("NEW"),
    "open to SCRAM alone": Door("SCRAM_ONLY", SCRAM[0]),
    "open to a certificate": Door("MUTUAL", None, certificate="client"),
    "an expired broker": Door("EXPIRED", java=TLS, librdkafka=SSL),
    "another host": Door("ELSEWHERE", java=TLS, librdkafka=SSL),
    "another authority": Door(ca="other-ca", java=TLS, librdkafka=SSL),
    "a downgrade": Door("NEW", java=TLS, changes={"ssl.enabled.protocols": "TLSv1.2"}),
    "no TLS": Door(protocol="SASL_PLAINTEXT", java="TimeoutException", librdkafka=GONE),
    "no certificate": Door("MUTUAL", None, java=TLS, librdkafka=GONE),
    "an expired certificate": Door(
        "MUTUAL", None, certificate="expired-client", java=TLS, librdkafka=GONE
    ),
    "a certificate of others": Door(
        "MUTUAL", None, certificate="other-client", java=TLS, librdkafka=GONE
    ),
    **{
        f"a wrong password by {each}": Door(
            mechanism=each, password="wrong", java=AUTHENTICATION, librdkafka=REFUSED
        )
        for each in ("PLAIN", *SCRAM)
    },
    **{
        f"nobody by {each}": Door(
            mechanism=each, user="mallory", java=AUTHENTICATION, librdkafka=REFUSED
        )
        for each in ("PLAIN", *SCRAM)
    },
    "a mechanism that is not offered": Door(
        "SCRAM_ONLY", java="UnsupportedSaslMechanismException", librdkafka=REFUSED
    ),
    "an expired token": Door(
        mechanism="OAUTHBEARER", token="expired", java=AUTHENTICATION, librdkafka=REFUSED
    ),
    "a token of others": Door(
        mechanism="OAUTHBEARER", token="forged", java=AUTHENTICATION, librdkafka=REFUSED
    ),
    "a token for others": Door(
        mechanism="OAUTHBEARER", token="for others", java=AUTHENTICATION, librdkafka=REFUSED
    ),
}


def token(kind: str) -> tuple[str, int]:
    """A token, and when it expires."""
    now_s = int(time.time())
    expires_s = now_s + (-600 if kind == "expired" else 600)
    audience = "others" if kind == "for others" else "txn"
    claims = {"sub": USER, "iat": now_s - 1000, "exp": expires_s, "aud": audience, "scope": "all"}
    key = OTHER_KEY if kind == "forged" else KEY
    return jwt.encode(claims, key, "RS256", headers={"kid": "one"}), expires_s


@dataclass(frozen=True)
class House:
    """The broker, and the directory with everybody's certificates."""

    broker: txn.Broker
    directory: Path


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("doors")
    issuer, other = Issuer(directory), Issuer(directory / "others")
    (directory / "other-ca.pem").write_bytes(other.path.read_bytes())
    for name, made in (
        ("client", issuer.issue("client-sec1")),
        ("expired-client", issuer.issue("expired-client-sec1", expired=True)),
        ("other-client", other.issue("client-sec1")),
    ):
        _write_for_java(made, directory / f"{name}.pem")
    described = jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key(), as_dict=True)
    (directory / "keys.json").write_text(json.dumps({"keys": [{**described, "kid": "one"}]}))
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in LISTENERS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(issuer.issue("broker")),
        "ssl.truststore.location": str(issuer.path),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "txn",
        "listener.name.expired.ssl.keystore.location": str(issuer.issue("old", expired=True)),
        "listener.name.elsewhere.ssl.keystore.location": str(issuer.issue("far", "elsewhere.test")),
        "listener.name.new.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.scram_only.sasl.enabled.mechanisms": ",".join(SCRAM),
        "listener.name.mutual.ssl.client.auth": "required",
        **{
            f"listener.name.{name.lower()}.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            )
            for name, protocol in LISTENERS.items()
            if protocol == "SASL_SSL" and name != "SCRAM_ONLY"
        },
    }
    with txn.Broker(properties=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.listeners["PLAINTEXT"]})
        for mechanism in SCRAM:
            credential = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
            change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
            admin.alter_user_scram_credentials([change])[USER].result(WAIT_S)
        yield House(broker, directory)


def _write_for_java(made: Path, path: Path) -> None:
    """A key as PKCS#8, the one form that Java reads, and its chain."""
    text = made.read_bytes()
    key = serialization.load_pem_private_key(text, None)
    pkcs8 = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(pkcs8 + text[text.index(b"-----BEGIN CERTIFICATE") :])


def protocol_of(door: Door) -> str:
    return door.protocol or LISTENERS[door.listener]


def of_librdkafka(door: Door, house: House) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": house.broker.listeners[door.listener],
        "security.protocol": protocol_of(door),
        "ssl.ca.location": str(house.directory / f"{door.ca}.pem"),
        "log_level": 0,
    }
    if door.certificate:
        path = str(house.directory / f"{door.certificate}.pem")
        settings |= {"ssl.certificate.location": path, "ssl.key.location": path}
    if door.mechanism == "OAUTHBEARER":
        _, expires_s = token("sound")  # librdkafka would not send one that it knows to have expired
        settings |= {"oauth_cb": lambda _: (token(door.token)[0], expires_s)}
    elif door.mechanism:
        settings |= {"sasl.username": door.user, "sasl.password": door.password}
    return settings | ({"sasl.mechanism": door.mechanism} if door.mechanism else {})


def of_java(door: Door, house: House, tokens: Path) -> dict[str, str]:
    settings = {
        "bootstrap.servers": house.broker.listeners[door.listener],
        "security.protocol": protocol_of(door),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(house.directory / f"{door.ca}.pem"),
        "default.api.timeout.ms": "8000",
        "request.timeout.ms": "4000",
        **door.changes,
    }
    if door.certificate:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = str(house.directory / f"{door.certificate}.pem")
    if door.mechanism == "OAUTHBEARER":
        path = tokens / f"token-{door.token.replace(' ', '-')}"
        path.write_text(token(door.token)[0])
        login = f"{MODULES}.oauthbearer.OAuthBearerLogin"
        settings |= {
            "sasl.jaas.config": f"{login}Module required ;",
            "sasl.login.callback.handler.class": f"{login}CallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
        }
    elif door.mechanism:
        module = "plain.Plain" if door.mechanism == "PLAIN" else "scram.Scram"
        who = f'username="{door.user}" password="{door.password}"'
        settings["sasl.jaas.config"] = f"{MODULES}.{module}LoginModule required {who};"
    return settings | ({"sasl.mechanism": door.mechanism} if door.mechanism else {})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", DOORS)
def test_librdkafka_is_let_in_or_told(name: str, house: House) -> None:
    door = DOORS[name]
    if door.java and not door.librdkafka:
        pytest.skip("librdkafka has no such setting")
    told: list[int] = []
    admin = AdminClient(
        of_librdkafka(door, house) | {"error_cb": lambda error: told.append(error.code())}
    )
    admin.poll(0)
    if door.java is None:
        assert admin.list_topics(timeout=WAIT_S).brokers
        return
    deadline = time.monotonic() + WAIT_S
    while not set(told) & set(door.librdkafka) and time.monotonic() < deadline:
        with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
            admin.list_topics(timeout=0.5)
        admin.poll(0)
    assert set(told) & set(door.librdkafka), told


@pytest.mark.java
@pytest.mark.timeout(JAVA_S + 60)
def test_javas_client_is_let_in_or_told(house: House, tmp_path: Path) -> None:
    expected, files = {}, []
    for name, door in DOORS.items():
        path = tmp_path / name.replace(" ", "-")
        settings = of_java(door, house, tmp_path)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        files.append(str(path))
        expected[path.name] = door.java or "open"
    tokens = sorted(tmp_path.glob("token-*"))
    urls = ",".join(path.as_uri() for path in tokens)
    allowed = (
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={','.join(map(str, tokens))}",
    )
    output = run_java(str(PROGRAM), *files, flags=allowed, timeout_s=JAVA_S)
    found = dict(line.split(" ", 1) for line in output.splitlines())
    assert found == expected
