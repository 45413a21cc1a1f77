"""Apache Kafka finds all that a directory of txn says of users, topics and quotas, and no more.

The story: Kafka 4.2 replays a metadata log without a snapshot as one change, in the order of a hash
map. A removed user that comes first there takes all others of the mechanism along.
"""

import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import txn
from harnesses.peers.kafka import WRITES_IDLE_RECORDS, KafkaNode
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from txn.inspect.verify import verify
from txn.wire.hashing import java_hash

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

PASSWORD: Final = "secret"
NAMES: Final = [f"user-{number}" for number in range(6)]


def bucket(name: str) -> int:
    """The place of a name in a small hash map of Java."""
    value = java_hash(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & 15


FIRST, SECOND, *_ = sorted(NAMES, key=bucket)
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required ;"
KAFKA_SETTINGS: Final = {
    **WRITES_IDLE_RECORDS,
    "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
}
LISTENERS: Final = {"SASL": "SASL_PLAINTEXT"}
TXN_SETTINGS: Final = {
    "listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def change_users(servers: str, *, added: list[str], removed: set[str]) -> None:
    admin: Any = AdminClient({"bootstrap.servers": servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for name in added:
        change = UserScramCredentialUpsertion(name, info, PASSWORD.encode())
        admin.alter_user_scram_credentials([change])[name].result(WAIT_S)
    for name in removed:
        gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
        admin.alter_user_scram_credentials([gone])[name].result(WAIT_S)


def users(servers: str) -> set[str]:
    admin: Any = AdminClient({"bootstrap.servers": servers})
    return {*admin.describe_user_scram_credentials().result(WAIT_S)}


def log_in(servers: str, name: str) -> None:
    """Raises KafkaException: the user has no credential there."""
    admin = AdminClient(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": name,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
    )
    assert admin.list_topics(timeout=WAIT_S).brokers


def topics(servers: str) -> dict[str, int]:
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.list_topics(timeout=WAIT_S).topics
    return {name: len(topic.partitions) for name, topic in found.items() if name[0] != "_"}


def test_a_kafka_knows_every_user_that_txn_has_left(tmp_path: Path) -> None:
    data = tmp_path / "txn"
    with txn.Broker(data) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "kept", partitions=2)
        create_topic(servers, "gone")
        send(plain_producer(servers), "kept", [b"1", b"2"])
        change_users(servers, added=NAMES, removed={FIRST})
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_topics(["gone"])["gone"].result(WAIT_S)
    assert verify(data).findings == []

    shutil.copytree(data, tmp_path / "kafka" / "data")
    with KafkaNode(tmp_path / "kafka", KAFKA_SETTINGS, listeners=LISTENERS) as node:
        assert users(node.bootstrap_servers) == {*NAMES} - {FIRST}
        for name in sorted({*NAMES} - {FIRST}):
            log_in(node.servers["SASL"], name)
        assert topics(node.bootstrap_servers) == {"kept": 2}
        assert read_all(node.bootstrap_servers, "kept") == [b"1", b"2"]
        change_users(node.bootstrap_servers, added=["later"], removed={SECOND})
        create_topic(node.bootstrap_servers, "new")
    left = {*NAMES, "later"} - {FIRST, SECOND}

    for _ in range(2):
        with txn.Broker(tmp_path / "kafka" / "data", properties=TXN_SETTINGS) as broker:
            servers = broker.listeners["PLAINTEXT"]
            assert users(servers) == left
            log_in(broker.listeners["SASL"], "later")
            assert topics(servers) == {"kept": 2, "new": 1}
            change_users(servers, added=["short"], removed={"short"})
    with KafkaNode(tmp_path / "kafka", KAFKA_SETTINGS, listeners=LISTENERS) as node:
        assert users(node.bootstrap_servers) == left
        for name in sorted(left):
            log_in(node.servers["SASL"], name)
        assert topics(node.bootstrap_servers) == {"kept": 2, "new": 1}
