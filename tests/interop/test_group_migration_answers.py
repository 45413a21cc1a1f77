"""Migrations of a group on the wire, by hand, on txn and on Apache Kafka 4.4: equal answers.

One history of requests of both protocols runs on each of them. Then the records of the group in
`__consumer_offsets` are compared too. This broker's decoder and encoder show that it writes the
same bytes.
"""

import uuid
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

import txn
from harnesses.peers.jars import NODE_4_4
from harnesses.peers.kafka import KafkaNode
from interop.test_consumer_group_answers import INTERVAL_MS, PATIENT_MS, History, owned
from support.clients import WAIT_S, create_topic
from support.wire_client import RawConnection
from txn.coordinator.group.consumer.embedded import decode_assignment, encode_assignment
from txn.coordinator.group.consumer.topics import metadata_hash
from txn.coordinator.group.records import OffsetRecord, decode_record, encode_record
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

PARTITION_OF_G = 3
"""The partition of the group "g" among 50."""

SESSION_MS = 45_000

EAGER = ("range", "roundrobin")
COOPERATIVE = ("cooperative-sticky", "range")


def subscription(topics: Sequence[str], owned_parts: Sequence[int] = (), rack: str = "") -> bytes:
    """A subscription of version 3, which owns partitions of its first topic."""
    names = b"".join(_text(name) for name in topics)
    parts = b"".join(part.to_bytes(4, "big") for part in owned_parts)
    owns = _text(topics[0]) + len(owned_parts).to_bytes(4, "big") + parts if owned_parts else b""
    return (
        b"\0\3"
        + len(topics).to_bytes(4, "big")
        + names
        + b"\xff\xff\xff\xff"
        + bool(owned_parts).to_bytes(4, "big")
        + owns
        + b"\xff\xff\xff\xff"
        + (_text(rack) if rack else b"\xff\xff")
    )


def _text(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


class Migrations(History):
    """Requests of both protocols to one group."""

    def __init__(self, connection: RawConnection, group_id: str = "g") -> None:
        super().__init__(connection)
        self.group_id = group_id
        self.labels: dict[str, str] = {}

    def joining(
        self,
        member_id: str,
        parts: Sequence[int] = (),
        *,
        protocols: Sequence[str] = COOPERATIVE,
        instance_id: str | None = None,
        topics: Sequence[str] = ("orders",),
        protocol_type: str = "consumer",
    ) -> dict[str, Any]:
        metadata = subscription(topics, parts)
        return {
            "group_id": self.group_id,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "reason": None,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": PATIENT_MS,
            "protocol_type": protocol_type,
            "protocols": [{"name": name, "metadata": metadata} for name in protocols],
        }

    def classic_join(self, label: str, member_id: str, **said: Any) -> Any:
        answer = self.call(ApiKey.JOIN_GROUP, 9, **self.joining(member_id, **said))
        return self.note_join(label, answer)

    def note_join(self, label: str, answer: Any) -> Any:
        is_given = int(answer.error_code) in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        if is_given and answer.member_id not in self.labels:
            self.labels[answer.member_id] = label
        told = (answer.member_id, answer.generation_id, answer.protocol_type, answer.protocol_name)
        leader = self.labels.get(answer.leader, answer.leader)
        members = sorted(self.labels[one.member_id] for one in answer.members)
        self.answers.append(("join", label, int(answer.error_code), *told, leader, members))
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assigned: Mapping[str, Sequence[int]] | None = None,
        *,
        protocol: str | None = COOPERATIVE[0],
        instance_id: str | None = None,
    ) -> Any:
        data = subscription(["orders"])
        answer = self.call(
            ApiKey.SYNC_GROUP,
            5,
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                {"member_id": each, "assignment": encode_assignment({"orders": parts}, data)}
                for each, parts in (assigned or {}).items()
            ],
        )
        label = self.labels.get(member_id, member_id)
        told = (int(answer.error_code), answer.protocol_type, answer.protocol_name)
        part = sorted(
            (name, sorted(numbers))
            for name, numbers in decode_assignment(answer.assignment).partitions.items()
        )
        version = answer.assignment[:2]
        self.answers.append(("sync", label, generation, *told, version, part))
        return answer

    def classic_beat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        answer = self.call(
            ApiKey.HEARTBEAT,
            4,
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        label = self.labels.get(member_id, member_id)
        self.answers.append(("heartbeat", label, generation, int(answer.error_code)))
        return int(answer.error_code)

    def classic_leave(self, *named: tuple[str, str | None]) -> None:
        members = [
            {"member_id": member_id, "group_instance_id": instance_id, "reason": None}
            for member_id, instance_id in named
        ]
        answer = self.call(ApiKey.LEAVE_GROUP, 5, group_id=self.group_id, members=members)
        left = [
            (self.labels.get(one.member_id, one.member_id), one.group_instance_id, one.error_code)
            for one in answer.members
        ]
        self.answers.append(("leave", int(answer.error_code), left))

    def commits(self, member_id: str, *epochs: int) -> None:
        for epoch in epochs:
            for partition in (0, 2):
                self.commit(member_id, epoch, partition, version=8)

    def stable_classic(self, label: str = "a") -> str:
        """The id of the one member of a classic group of generation 1."""
        member_id: str = self.classic_join(label, "").member_id
        self.classic_join(label, member_id)
        self.sync(member_id, 1, {member_id: [0, 1, 2]})
        return member_id


class Played(NamedTuple):
    """The answers of a broker, and the records of the group."""

    answers: list[tuple[Any, ...]]
    records: list[str]


def played(servers: str, play: Any) -> Played:
    create_topic(servers, "orders", 3)
    with RawConnection(servers) as connection:
        history = Migrations(connection)
        history.await_coordinator()
        play(history)
    labels = {member_id: f"<{label}>" for member_id, label in history.labels.items()}
    return Played(
        [labelled(each, labels) for each in history.answers],
        records_of(servers, labels, "g", PARTITION_OF_G),
    )


def labelled(value: Any, labels: dict[str, str]) -> Any:
    if isinstance(value, str):
        for member_id, label in labels.items():
            value = value.replace(member_id, label)
        return value
    if isinstance(value, tuple):
        return tuple(labelled(each, labels) for each in value)
    if isinstance(value, list):
        return sorted((labelled(each, labels) for each in value), key=str)
    return value


class Orders(NamedTuple):
    """The one topic of a broker."""

    identifier: uuid.UUID
    partitions: int = 3

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self.identifier if topic == "orders" else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return "orders" if topic_id == self.identifier else None

    def partition_count(self, topic: str) -> int:
        return self.partitions


def orders_of(servers: str) -> Orders:
    with RawConnection(servers) as connection:
        answer = connection.ask(
            ApiKey.METADATA,
            12,
            topics=[{"topic_id": None, "name": "orders"}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
    return Orders(answer.topics[0].topic_id)


def records_of(servers: str, labels: dict[str, str], group_id: str, partition: int) -> list[str]:
    """The records of the group, without times and ids of this run.

    Those of one kind that follow each other may be in any order, and tombstones.
    """
    orders = orders_of(servers)
    labels = {**labels, str(orders.identifier): "<orders>"}
    labels[str(metadata_hash(["orders"], orders))] = "<hash of orders>"
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    place = TopicPartition("__consumer_offsets", partition, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
    consumer.assign([place])
    told: list[str] = []
    while consumer.position([place])[0].offset < end:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"nothing behind {len(told)} records"
        assert message.error() is None
        key, value = message.key() or b"", message.value()
        record = decode_record(key, value, None)
        assert record is not None, key
        if record.key.group_id != group_id:
            continue
        if not isinstance(record, OffsetRecord):
            again = encode_record(record)
            assert _sorted_bytes(again) == _sorted_bytes((key, value))
        told.append(_plain(record, labels))
    consumer.close()
    kinds = groupby(
        told, key=lambda text: "" if text.endswith(" = None") else text.partition(",")[0]
    )
    return [text for _, same in kinds for text in sorted(same)]


def _sorted_bytes(record: tuple[bytes, bytes | None]) -> tuple[bytes, list[int] | None]:
    """Sets may be written in any order."""
    key, value = record
    return key, None if value is None else sorted(value)


def _plain(record: Any, labels: dict[str, str]) -> str:
    key, value = record.key, record.value
    fields = getattr(value, "_fields", ())
    for name in ("timestamp_ms", "state_timestamp_ms", "commit_timestamp_ms"):
        if name in fields:
            value = value._replace(**{name: getattr(value, name) and 1})
    text = f"{key} = {value}"
    for member_id, label in labels.items():
        text = text.replace(member_id, label)
    return text


# ---------------------------------------------------------------- histories


def upgrade_and_downgrade(history: Migrations) -> None:
    """A classic member, one of the consumer protocol beside it, and the classic one alone again."""
    a = history.stable_classic()
    history.commits(a, 1)
    history.beat("g", "b", 1)
    b = history.join("g", "b")
    history.describe("g")
    history.listed()
    history.commits(a, 0, 1, 2)
    history.fetch("g", a, 1)
    history.fetch("g", a, 2)
    history.sync(a, 1)
    history.classic_beat(a, 1)
    history.classic_join("a", a, parts=(0, 1, 2))  # it is told to give some back
    history.sync(a, 1)
    history.classic_beat(a, 1)
    history.describe("g")
    history.classic_join("a", a, parts=(0, 1))
    history.sync(a, 1)
    history.sync(a, 2, protocol="range")
    history.sync(a, 2)
    history.classic_beat(a, 2)
    history.commits(a, 1, 2, 3)
    history.beat("g", "b", b.member_epoch)
    history.describe("g")
    refused_by_a_consumer_group(history, a)
    history.beat("g", "b", -1)
    history.classic_beat(a, 2)
    history.classic_join("a", a, parts=(0, 1))
    history.sync(a, 4, {a: [0, 1, 2]})
    history.classic_beat(a, 4)
    history.describe("g")
    history.classic_leave((a, None))
    history.describe("g")


def refused_by_a_consumer_group(history: Migrations, a: str) -> None:
    history.classic_join("x", "", protocols=("sticky",))
    history.classic_join("x", "", protocol_type="connect")
    history.classic_join("x", "", protocols=("range",))
    history.classic_join("x", "nobody", instance_id="i")
    for member_id in ("nobody", "b"):
        history.classic_beat(member_id, 2)
        history.sync(member_id, 2)
    history.classic_beat(a, 2, "i")
    history.classic_leave(("nobody", None), ("", "i"), ("x", "i"))


def a_classic_member_joins_and_all_leave(history: Migrations) -> None:
    """Classic members join a consumer group, one after the other, and go again."""
    b = history.join("g", "b")
    a = history.classic_join("a", "").member_id
    history.classic_join("a", a)
    history.sync(a, 3)
    history.classic_beat(a, 3)
    history.beat("g", "b", b.member_epoch, topic_partitions=owned(b, 0, 1, 2))
    history.beat("g", "b", b.member_epoch, topic_partitions=owned(b, 0, 1))
    history.classic_beat(a, 3)
    history.classic_join("a", a)
    history.sync(a, 3)
    history.classic_join("c", "", instance_id="i", protocols=EAGER)
    history.describe("g")
    history.classic_leave((a, None), ("", "i"))
    history.describe("g")
    history.beat("g", "b", 3, topic_partitions=owned(b, 0, 1))
    history.classic_leave(("b", None))
    history.describe("g")


def static_members_change_the_protocol(history: Migrations) -> None:
    """A static member comes back with the other protocol, up and down."""
    a = history.classic_join("a", "", instance_id="i").member_id
    history.sync(a, 1, {a: [0, 1, 2]}, instance_id="i")
    history.join("g", "b", instance_id="i")
    history.describe("g")
    history.classic_beat(a, 1, "i")
    history.beat("g", "b", 2, instance_id="i")
    history.classic_join("c", "", instance_id="i")
    history.describe("g")
    c = next(member_id for member_id, label in history.labels.items() if label == "c")
    history.classic_beat(c, 2, "i")
    history.sync(c, 2, instance_id="i")
    history.classic_beat(c, 0, "i")
    history.classic_join("c", c, instance_id="i")
    history.classic_leave(("", "i"))


HISTORIES = [
    upgrade_and_downgrade,
    a_classic_member_joins_and_all_leave,
    static_members_change_the_protocol,
]


@pytest.mark.parametrize("play", HISTORIES, ids=lambda play: play.__name__)
def test_answers_and_records_are_those_of_kafka(play: Any, tmp_path: Path) -> None:
    with txn.Broker(properties=INTERVAL_MS) as broker:
        ours = played(broker.bootstrap_servers, play)
    with KafkaNode(tmp_path, INTERVAL_MS, jars=NODE_4_4) as node:
        theirs = played(node.bootstrap_servers, play)
    for our, their in zip(ours.answers, theirs.answers, strict=True):
        assert our == their
    assert ours.records == theirs.records, "\n".join(
        unified_diff(ours.records, theirs.records, lineterm="")
    )
