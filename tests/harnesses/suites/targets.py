"""The broker that a suite runs against: txn, or a real Apache Kafka as the control.

Some suites know their broker by fixed addresses, so it listens on ports 9092 and 9093 of
localhost, the latter with SASL.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import txn
from harnesses.peers.kafka import KafkaNode
from harnesses.suites.outcomes import SuiteError

PLAIN: Final = "localhost:9092"
SASL: Final = "localhost:9093"

JAAS: Final = "org.apache.kafka.common.security"
SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": (
        f'{JAAS}.plain.PlainLoginModule required user_adminplain="admin-secret";'
    ),
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        f"{JAAS}.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
        f"{JAAS}.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "message.max.bytes": "200000000",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}

SCRAM_USERS: Final = (
    ("adminscram256", "admin-secret-256", ScramMechanism.SCRAM_SHA_256),
    ("adminscram512", "admin-secret-512", ScramMechanism.SCRAM_SHA_512),
)


@contextmanager
def served(target: str, directory: Path) -> Iterator[None]:
    """Run a broker, with its users, while the context is open.

    Args:
        target: `txn` or `kafka`.
        directory: A new directory for its data.

    Raises:
        SuiteError: A port is taken.
        PeerUnavailableError: Apache Kafka does not start.
    """
    for address in (PLAIN, SASL):
        _check_free(address)
    with _txn(directory) if target == "txn" else _kafka(directory):
        _add_users()
        yield


@contextmanager
def _txn(directory: Path) -> Iterator[None]:
    properties = SETTINGS | {"listeners": f"PLAINTEXT://{PLAIN},SASL://{SASL}"}
    with txn.Broker(directory, properties=properties):
        yield


@contextmanager
def _kafka(directory: Path) -> Iterator[None]:
    protocols = f"{SETTINGS['listener.security.protocol.map']},CONTROLLER:PLAINTEXT"
    ports = {"PLAINTEXT": 9092, "SASL": 9093}
    node = KafkaNode(
        directory,
        SETTINGS | {"listener.security.protocol.map": protocols},
        host="localhost",
        ports=ports,
        listeners={"SASL": "SASL_PLAINTEXT"},
    )
    with node:
        yield


def _check_free(address: str) -> None:
    host, port = address.split(":")
    with socket.socket() as probe:
        if probe.connect_ex((host, int(port))) == 0:
            raise SuiteError(f"the suites need {address}, and another process listens there")


def _add_users() -> None:
    admin: Any = AdminClient({"bootstrap.servers": PLAIN})
    for user, secret, mechanism in SCRAM_USERS:
        change = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(mechanism, 4096), secret.encode()
        )
        admin.alter_user_scram_credentials([change])[user].result(30)
