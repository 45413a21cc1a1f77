"""A real Apache Kafka node with TLS and SASL: one node, a listener for each case.

The fixture `secured_kafka` keeps one for a whole test run, started by the first test that asks for
it. Certificates come from trustme, and users of SCRAM from the format of the directory. `token`
makes tokens without a signature, for Kafka's validator of unsecured tokens.
"""

import base64
import datetime
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from harnesses.peers.kafka import KafkaNode, commit_once
from harnesses.peers.kept import keep, kept, remove

USER: Final = "ada"
PASSWORD: Final = "l0velace=&+%"
SUPER_USER: Final = "admin"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

LISTENERS: Final[Mapping[str, str]] = {
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "MUTUAL": "SSL",  # wants a client certificate
    "MUTUAL12": "SSL",  # the same, TLS 1.2 alone
    "EXPIRED": "SSL",  # its certificate has expired
    "ELSEWHERE": "SSL",  # its certificate is for another host
    "SCRAM_ONLY": "SASL_PLAINTEXT",  # offers SCRAM-SHA-512 alone
    "SHORT": "SASL_PLAINTEXT",  # a session lives for SHORT_SESSION_MS
}
"""Listeners by name, with their protocols, beside `PLAINTEXT`."""

SHORT_SESSION_MS: Final = 3000


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """A running node; `servers` has the bootstrap servers of PLAINTEXT and each of `LISTENERS`."""

    servers: Mapping[str, str]
    directory: Path
    """Has `ca.pem`, `client.pem` (certificate) and `client.key`."""

    @property
    def ca_pem(self) -> bytes:
        """The authority that the node trusts."""
        return (self.directory / "ca.pem").read_bytes()

    @property
    def certificate_pem(self) -> bytes:
        """The certificate of a client."""
        return (self.directory / "client.pem").read_bytes()

    @property
    def key_pem(self) -> bytes:
        """The key of the client, as PKCS#8."""
        return (self.directory / "client.key").read_bytes()


def token(subject: str = USER, lifetime_seconds: float = 3600) -> str:
    """Return an unsigned bearer token for a subject."""
    now = time.time()
    claims = {"sub": subject, "iat": now - 1, "exp": now + lifetime_seconds}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """Return the key of a certificate as PKCS#8, the one form that Kafka reads."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _chain(certificate: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems)


def _properties(directory: Path) -> dict[str, str]:
    modules = "org.apache.kafka.common.security"
    plain = (
        f"{modules}.plain.PlainLoginModule required "
        f'user_{USER}="{PASSWORD}" user_{SUPER_USER}="{PASSWORD}";'
    )
    scram = f"{modules}.scram.ScramLoginModule required;"
    bearer = (
        f"{modules}.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="{SUPER_USER}";'
    )
    properties = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual12.ssl.client.auth": "required",
        "listener.name.mutual12.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.mutual12.ssl.protocol": "TLSv1.2",
        "listener.name.expired.ssl.keystore.location": str(directory / "expired.pem"),
        "listener.name.elsewhere.ssl.keystore.location": str(directory / "elsewhere.pem"),
        "listener.name.scram_only.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    for name, protocol in LISTENERS.items():
        if protocol.startswith("SASL"):
            listener = f"listener.name.{name.lower()}"
            for mechanism, config in zip(MECHANISMS, (plain, scram, scram, bearer), strict=True):
                properties[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = config
                if name == "SHORT":
                    prefix = f"{listener}.{mechanism.lower()}"
                    properties[f"{prefix}.connections.max.reauth.ms"] = str(SHORT_SESSION_MS)
    return properties


def _write_certificates(directory: Path) -> None:
    """Write the keystores, and the files of `SecuredKafka.directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
    issued = {
        "node": authority.issue_cert("localhost", "127.0.0.1"),
        "elsewhere": authority.issue_cert("elsewhere.test"),
        "expired": authority.issue_cert(
            "localhost",
            "127.0.0.1",
            not_before=past - datetime.timedelta(days=3),
            not_after=past,
        ),
    }
    for name, certificate in issued.items():
        (directory / f"{name}.pem").write_bytes(_pkcs8(certificate) + _chain(certificate))
    client = authority.issue_cert("client.test", common_name=USER)
    (directory / "ca.pem").write_bytes(authority.cert_pem.bytes())
    (directory / "client.pem").write_bytes(_chain(client))
    (directory / "client.key").write_bytes(_pkcs8(client))


@contextmanager
def running(directory: Path) -> Iterator[SecuredKafka]:
    """Run a node with every listener of `LISTENERS` in a directory."""
    _write_certificates(directory)
    users = [
        f"--add-scram={mechanism}=[name={USER},password={PASSWORD}]"
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    node = KafkaNode(
        directory / "node",
        _properties(directory),
        listeners=LISTENERS,
        format_options=users,
    )
    with node:
        commit_once(node.bootstrap_servers)
        yield SecuredKafka(node.servers, directory)


@pytest.fixture(scope="session")
def secured_kafka() -> SecuredKafka:
    """A real Apache Kafka 4.2 node with every listener of `LISTENERS`, one for the whole run."""
    directory, servers = kept("secured", __name__)
    return SecuredKafka(servers, directory)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with running(place) as kept_kafka:
        keep(place, kept_kafka.servers)
    remove(place)
