"""Two brokers with the same users, topics, groups and transactions, and an authorizer each.

`Arena.give` replaces the access control entries while every connection stays open, and returns once
both brokers decide by the new ones. `Arena.ask` sends one request to both by the same principal
from the same address, and returns the differences between the answers.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import txn
from differential.accepted import KNOWN
from differential.access_requests import (
    DOOMED,
    DOOMED_GROUP,
    GROUPS,
    IDS,
    PRINCIPALS,
    RESTORED,
    TOPIC_IDS,
    TOPICS,
    Fields,
    commit_of,
)
from differential.batches import BatchSpec
from differential.known import Exchange, KnownDifference, accepted_by
from differential.names import TEXTS, Names
from differential.plain import MISSING, differences, error_codes
from differential.side import Side
from harnesses.peers.jars import CONTROL, NODE_4_4
from harnesses.peers.kafka import KafkaNode
from support.acl_filters import any_acl
from support.wire_client import RawConnection
from txn.config import STANDARD_AUTHORIZER
from txn.wire.api_keys import ApiKey

ADMIN: Final = "admin"
PASSWORD: Final = "secret"
USERS: Final = (ADMIN, *PRINCIPALS)
LISTENER: Final = "CLIENTS"
SETTLE_S: Final = 20.0
DAY_MS: Final = 86_400_000
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
UNKNOWN_ID: Final = "transactional_id_not_found"

SETTINGS: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # A broker of Kafka speaks to its controller as nobody.
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
        + ";"
    ),
    "auto.create.topics.enable": "false",
    "transaction.max.timeout.ms": str(DAY_MS),
}

OF_ONE_BROKER: Final = {
    "cluster_id": "each cluster has its own",
    "log_dir": "each broker has its own directory",
    "transaction_start_time": "each broker began its transaction itself",
    "total_bytes": "of the disk, which other programs fill meanwhile",
    "usable_bytes": "of the disk, which other programs fill meanwhile",
}
"""Fields that are left out of the comparison, with their reasons."""

NEWER_SETTINGS: Final = frozenset(
    {
        *("errors.deadletterqueue.group.enable", "max.decompressed.message.bytes"),
        *("remote.copy.lag.bytes", "remote.copy.lag.ms"),
    }
)

ACCEPTED: Final = (
    *(entry for entry in KNOWN if entry.name == "an-unknown-id-has-no-producer"),
    KnownDifference(
        "a-trial-has-no-topic-id",
        "CreateTopics that only validates: Kafka makes up an id that no topic will have.",
        ("CreateTopics",),
        "topics.topic_id",
        None,
        versions=range(7, 100),
        when=lambda exchange, _: bool(exchange.request["validate_only"]),
    ),
    KnownDifference(
        "reassignments-to-nobody",
        "Kafka now and then lists a partition that is asked for, with no brokers at all.",
        ("ListPartitionReassignments",),
        "topics",
        MISSING,
    ),
    KnownDifference(
        "refused-alterations-have-a-text",
        "Kafka 4.4 tells no text with an alteration that is refused; txn tells that of 4.2.",
        ("AlterConfigs", "IncrementalAlterConfigs"),
        "responses.error_message",
        True,
        False,
    ),
    KnownDifference(
        "kafka-stores-its-smallest-isr",
        "Kafka stores min.insync.replicas for every broker when a cluster is made (KIP-966).",
        ("CreateTopics",),
        "topics.configs.config_source",
        5,
        3,
        when=lambda _, difference: difference.within[0]["name"] == "min.insync.replicas",
    ),
    KnownDifference(
        "settings-of-kafka-4.4",
        "Kafka 4.2 does not know these settings of topics.",
        ("CreateTopics",),
        "topics.configs",
        lambda entry: isinstance(entry, dict) and entry["name"] in NEWER_SETTINGS,
        MISSING,
        when=lambda _exchange, _difference: CONTROL is not NODE_4_4,
    ),
)
"""Differences that have nothing to do with access control."""


def log_in(name: str, host: str, servers: str) -> RawConnection:
    """Open a connection from an address and authenticate by SASL PLAIN."""
    connection = RawConnection(servers, host)
    connection.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    token = f"\0{name}\0{PASSWORD}".encode()
    answer = connection.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)
    assert int(answer.error_code) == 0, answer
    return connection


class Guarded:
    """One broker and the open connections of every user from every address.

    Args:
        servers: Bootstrap servers of the listener that users log in to.
        controller: Address of a Kafka's controller, which nobody logs in to.
    """

    def __init__(self, servers: str, controller: str | None = None) -> None:
        self.servers = servers
        self.names = Names()
        self._controller = None if controller is None else Side(controller)
        self._sides: dict[tuple[str, str], Side] = {}

    def ask(self, name: str, host: str, key: ApiKey, version: int, fields: Fields) -> Fields:
        side = self._sides.get((name, host))
        if side is None:

            def connect(servers: str) -> RawConnection:
                return log_in(name, host, servers)

            side = self._sides[name, host] = Side(self.servers, connect, self.names)
        return side.ask(key, version, fields)

    def as_admin(self, key: ApiKey, version: int, **fields: Any) -> Fields:
        return self.ask(ADMIN, "127.0.0.1", key, version, fields)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a broker that learns of a change a while after it was made."""
        deadline = time.monotonic() + SETTLE_S
        while not is_so():
            assert time.monotonic() < deadline, f"{self.servers} does not come to it"
            time.sleep(0.005)

    def versions(self) -> dict[int, range]:
        """The versions of each API."""
        answer = self.as_admin(ApiKey.API_VERSIONS, 0)
        return {
            one["api_key"]: range(one["min_version"], one["max_version"] + 1)
            for one in answer["api_keys"]
        }

    def close(self) -> None:
        for side in self._sides.values():
            side.close()
        if self._controller is not None:
            self._controller.close()

    # ------------------------------------------------------------ what is there

    def furnish(self) -> None:
        """Make the topics, groups and transactions that requests name."""
        self.until(self._coordinates)
        for name in TOPICS:
            self.make_topic(name)
            batch = BatchSpec().encode(-1)
            data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]}]
            told = self.as_admin(
                ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=data
            )
            assert error_codes(told) == {"none"}, told
        for group in GROUPS:
            self.commit(group, ("pay", "order", "p"))
        self.restore()
        for transactional_id in IDS:
            self._begin(transactional_id, ("pay", "order") if transactional_id == "pay" else ())
        for name in INTERNAL_TOPICS:  # made by the first group and the first transaction
            self.names.bind(TOPIC_IDS[name], self._described(name)["topic_id"])

    def restore(self) -> None:
        """Make the topic and the group again that a request may have deleted."""
        self.make_topic(DOOMED)
        self.commit(DOOMED_GROUP, ("pay", "order"))

    def make_topic(self, name: str) -> None:
        """Make a topic unless it is there, and wait until it is served by its id."""
        entry = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "retention.ms", "value": "-1"}],
        }
        made = self.as_admin(
            ApiKey.CREATE_TOPICS, 7, topics=[entry], timeout=10_000, validate_only=False
        )["topics"][0]
        if made["error_code"] == "topic_already_exists":
            return
        assert made["error_code"] == "none", made
        self.names.bind(TOPIC_IDS[name], made["topic_id"])
        self.until(lambda: self._serves(name))

    def _described(self, name: str) -> Fields:
        """The entry of a topic in Metadata."""
        told = self.as_admin(
            ApiKey.METADATA,
            12,
            topics=[{"name": name, "topic_id": None}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        topic: Fields = told["topics"][0]
        return topic

    def _serves(self, name: str) -> bool:
        told = self._described(name)
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        offsets = self.as_admin(
            ApiKey.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": name, "partitions": [partition]}],
        )
        is_new = told["topic_id"] == TOPIC_IDS[name]
        return is_new and error_codes(told) | error_codes(offsets) == {"none"}

    def commit(self, group: str, names: Sequence[str]) -> None:
        told = self.as_admin(ApiKey.OFFSET_COMMIT, 8, **commit_of(group, names))
        assert error_codes(told) == {"none"}, told

    def _coordinates(self) -> bool:
        """Say whether both coordinators are there and have read their logs."""
        kinds = {0: [*GROUPS, DOOMED_GROUP], 1: IDS}
        told = [
            self.as_admin(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=keys)
            for kind, keys in kinds.items()
        ]
        told.append(
            self.as_admin(
                ApiKey.DESCRIBE_GROUPS, 5, groups=kinds[0], include_authorized_operations=False
            )
        )
        asked = self.as_admin(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=IDS)
        return error_codes(told) == {"none"} and error_codes(asked) == {UNKNOWN_ID}

    def _begin(self, transactional_id: str, names: Sequence[str]) -> None:
        """Begin a transaction on topics; without any the id is known and has none open."""
        producer: Fields = {}

        def is_known() -> bool:  # Kafka asks its controller for producer ids first
            producer.update(
                self.as_admin(
                    ApiKey.INIT_PRODUCER_ID,
                    4,
                    transactional_id=transactional_id,
                    transaction_timeout=DAY_MS,
                    producer_id=-1,
                    producer_epoch=-1,
                )
            )
            return bool(producer["error_code"] == "none")

        self.until(is_known)
        if names:
            told = self.as_admin(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer["producer_id"],
                v3_and_below_producer_epoch=producer["producer_epoch"],
                v3_and_below_topics=[{"name": name, "partitions": [0]} for name in names],
            )
            assert error_codes(told) == {"none"}, told

    # ------------------------------------------------------------ access control entries

    def give(self, entries: Sequence[Fields]) -> None:
        """Have these entries and no others.

        Broker and controller of a Kafka learn of them apart, a while later.
        """
        self.as_admin(ApiKey.DELETE_ACLS, 3, filters=[any_acl()])
        told = self.as_admin(ApiKey.CREATE_ACLS, 3, creations=entries)
        assert error_codes(told) <= {"none"}, told
        given = {tuple(entry.values()) for entry in entries}
        self.until(lambda: _told(self.as_admin(ApiKey.DESCRIBE_ACLS, 3, **any_acl())) == given)
        controller = self._controller
        if controller is not None:
            self.until(lambda: _told(controller.ask(ApiKey.DESCRIBE_ACLS, 3, any_acl())) == given)


def _told(answer: Fields) -> set[tuple[object, ...]]:
    """The entries in an answer to DescribeAcls, in the order of the fields of CreateAcls."""
    return {
        (
            *(resource["resource_type"], resource["resource_name"], resource["pattern_type"]),
            *(one["principal"], one["host"], one["operation"], one["permission_type"]),
        )
        for resource in answer["resources"]
        for one in resource["acls"]
    }


class Arena:
    """txn and Apache Kafka.

    Attributes:
        asked: The number of requests so far, each to both brokers.
        versions: The versions that both answer, by API.
        refused: The APIs that were refused something.
        accepted: The names of the accepted differences that occurred, with their numbers.
    """

    def __init__(self, ours: Guarded, theirs: Guarded) -> None:
        self._ours, self._theirs = ours, theirs
        self.asked = 0
        self.refused: set[ApiKey] = set()
        self.accepted: Counter[str] = Counter()
        known = theirs.versions()
        self.versions = {
            ApiKey(key): range(max(own.start, known[key].start), min(own.stop, known[key].stop))
            for key, own in ours.versions().items()
            if key in known
        }
        # Versions 0 to 2 of Produce are announced and answered by neither (KAFKA-18659).
        self.versions[ApiKey.PRODUCE] = range(3, self.versions[ApiKey.PRODUCE].stop)

    def give(self, entries: Sequence[Fields]) -> None:
        """Have both brokers decide by these entries from now on."""
        for side in (self._ours, self._theirs):
            side.give(entries)

    def ask(
        self, principal: str, host: str, key: ApiKey, version: int, fields: Fields
    ) -> list[str]:
        """Send a request to both brokers; return the differences between the answers."""
        self.asked += 1
        ours, theirs = (
            side.ask(principal, host, key, version, fields) for side in (self._ours, self._theirs)
        )
        if key in RESTORED and "none" in error_codes(ours) | error_codes(theirs):
            for side in (self._ours, self._theirs):
                side.restore()
        api = key.name.title().replace("_", "")
        ours, theirs = comparable(ours), comparable(theirs)
        exchange = Exchange(api, version, fields, ours, theirs)
        left, accepted = accepted_by(ACCEPTED, exchange, list(differences(ours, theirs)))
        self.accepted.update(entry.name for entry in accepted)
        if any(code.endswith("authorization_failed") for code in error_codes(ours)):
            self.refused.add(key)
        return [f"{principal} from {host}: {api} v{version}: {one}" for one in left]


def comparable(value: Any) -> Any:
    """An answer without the values of one broker, its lists in one order.

    Texts belong to people: only a refusal's presence counts.
    """
    if isinstance(value, list):
        return sorted(map(comparable, value), key=str)
    if not isinstance(value, dict):
        return value
    compared = {name: comparable(item) for name, item in value.items() if name not in OF_ONE_BROKER}
    for text in TEXTS & compared.keys():
        is_refusal = str(compared.get("error_code")).endswith("authorization_failed")
        compared[text] = bool(compared[text]) and is_refusal
    return compared


@contextmanager
def arena(directory: Path) -> Iterator[Arena]:
    """Both brokers, furnished alike."""
    listeners = f"{LISTENER}://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    protocols = f"{LISTENER}:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
    ours = {**SETTINGS, "listeners": listeners, "listener.security.protocol.map": protocols}
    broker = txn.Broker(directory / "txn", durability="process", properties=ours)
    kafka = KafkaNode(directory / "kafka", SETTINGS, listeners={LISTENER: "SASL_PLAINTEXT"})
    with broker, kafka:
        sides = (
            Guarded(broker.listeners[LISTENER]),
            Guarded(kafka.servers[LISTENER], kafka.controller),
        )
        try:
            for side in sides:
                side.furnish()
            yield Arena(*sides)
        finally:
            for side in sides:
                side.close()
