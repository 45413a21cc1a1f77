"""TLS and SCRAM for the contestants: the same certificates, users and settings for each."""

from pathlib import Path
from typing import Final

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

LISTENERS: Final = {"SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
"""Listeners by name, with their protocols, beside `PLAINTEXT`."""

USER: Final = "bench"
PASSWORD: Final = "bench-secret"
ITERATIONS: Final = 4096
"""Kafka's default, and the least that it takes."""

WAIT_S: Final = 30


def properties(place: Path) -> dict[str, str]:
    """Broker settings for `LISTENERS`; the certificates are written into `place`."""
    place.mkdir(parents=True, exist_ok=True)
    node, authority = place / "node.pem", ca(place)
    if not node.exists():
        issuer = trustme.CA()
        issuer.cert_pem.write_to_path(authority)
        made = issuer.issue_cert("localhost", "127.0.0.1")
        key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
        pkcs8 = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,  # the one form that Kafka reads
            serialization.NoEncryption(),
        )
        node.touch(mode=0o600)
        node.write_bytes(pkcs8 + b"".join(each.bytes() for each in made.cert_chain_pems))
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{module} required;",
    }


def ca(place: Path) -> Path:
    """The certificate that issued those of the brokers in `place`."""
    return place / "ca.pem"


def make_user(servers: str) -> None:
    """Make `USER`."""
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    change = UserScramCredentialUpsertion(USER, mechanism, PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(WAIT_S)
