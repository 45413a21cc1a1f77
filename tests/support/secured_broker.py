"""A broker of ours with a listener of each security protocol, and the settings of its clients."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

import txn
from support.certificates import Issuer

USER: Final = "ann"
PASSWORD: Final = "ann's pass"
MODULES: Final = "org.apache.kafka.common.security"
LOGIN: Final = f'required username="{USER}" password="{PASSWORD}";'
PLAIN: Final = f"{MODULES}.plain.PlainLoginModule {LOGIN}"
SCRAM: Final = f"{MODULES}.scram.ScramLoginModule {LOGIN}"
MECHANISMS: Final = {
    "PLAIN": PLAIN,
    "SCRAM-SHA-256": SCRAM,
    "SCRAM-SHA-512": SCRAM,
    "OAUTHBEARER": None,
}
LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}


@dataclass(frozen=True)
class SecuredBroker:
    """A running broker, and the files of its clients.

    Attributes:
        servers: HOST:PORT of each listener.
        ca: The certificate of the issuer.
        certificate: A client's certificate and key.
        token: A file with a bearer token of the user.
    """

    servers: Mapping[str, str]
    ca: Path
    certificate: Path
    token: Path

    def ways(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Every way in: its listener, and the settings by Java's names."""
        trust = {"ssl.truststore.location": str(self.ca), "ssl.truststore.type": "PEM"}
        mutual = {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(self.certificate),
            "ssl.keystore.type": "PEM",
        }
        found = {
            "SSL": ("SSL", {"security.protocol": "SSL", **trust}),
            "mutual TLS": ("MUTUAL", {**mutual, **trust}),
        }
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
            for mechanism, line in MECHANISMS.items():
                login = {"security.protocol": protocol, "sasl.mechanism": mechanism}
                if line is None:
                    login["sasl.oauthbearer.token.endpoint.url"] = self.token.as_uri()
                else:
                    login["sasl.jaas.config"] = line
                if protocol == "SASL_SSL":
                    login |= trust
                found[f"{mechanism} over {protocol}"] = (protocol, login)
        return found


WAYS: Final = tuple(SecuredBroker({}, Path("/"), Path("/"), Path("/")).ways())
"""The names of `SecuredBroker.ways`."""


@contextmanager
def secured_broker(directory: Path) -> Iterator[SecuredBroker]:
    """A broker with files in a directory."""
    issuer = Issuer(directory / "certificates")
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    keys, token = directory / "keys.json", directory / "token"
    described = jwt.get_algorithm_by_name("RS256").to_jwk(key.public_key(), as_dict=True)
    keys.write_text(json.dumps({"keys": [{**described, "kid": "one"}]}))
    now = int(time.time())
    claims = {"sub": USER, "iat": now, "exp": now + 3600}
    token.write_text(jwt.encode(claims, key, "RS256", headers={"kid": "one"}))
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": protocols,
        "ssl.keystore.location": str(issuer.issue("broker")),
        "ssl.truststore.location": str(issuer.path),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        **{
            f"listener.name.{listener}.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            )
            for listener in ("sasl_plaintext", "sasl_ssl")
        },
    }
    with txn.Broker(properties=settings, users={USER: PASSWORD}) as broker:
        certificate = issuer.issue("client", common_name=USER)
        yield SecuredBroker(broker.listeners, issuer.path, certificate, token)
