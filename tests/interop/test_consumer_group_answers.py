"""Requests of the consumer protocol, sent by hand to txn and to Apache Kafka 4.4: equal answers.

One history of heartbeats, commits, fetches and descriptions runs on each of them. Ids of topics are
numbered in the order in which they come.
"""

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import txn
from harnesses.peers.jars import NODE_4_4
from harnesses.peers.kafka import KafkaNode
from support.clients import POLL_S, WAIT_S, create_topic
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

BEFORE_ANY_GROUP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
PATIENT_MS = 60_000
DISABLED = {"group.consumer.migration.policy": "disabled"}
INTERVAL_MS = {"group.consumer.assignment.interval.ms": "0"}
"""Each change is assigned at once, so that no answer depends on the time."""

Answers = list[tuple[Any, ...]]


class History:
    """The requests, and what one broker answers."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self._ids: dict[uuid.UUID, int] = {}
        self.answers: Answers = []

    def call(self, key: int, version: int, **fields: Any) -> Any:
        return self._connection.call(entity_builder(request(key, version))(fields))

    def await_coordinator(self) -> None:
        ends_s = time.monotonic() + WAIT_S
        codes: set[int] = {ErrorCode.NOT_COORDINATOR}
        while codes & BEFORE_ANY_GROUP:
            assert time.monotonic() < ends_s
            time.sleep(POLL_S)
            found = self.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
            probe = self.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, **DESCRIBE, group_ids=["g"])
            codes = {int(found.coordinators[0].error_code), int(probe.groups[0].error_code)}

    def beat(self, group_id: str, member_id: str, epoch: int, **said: Any) -> Any:
        fields = {
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **said,
        }
        answer = self.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            **fields,
        )
        assigned = None
        if answer.assignment is not None:
            assigned = sorted(
                (self._ids.setdefault(topic.topic_id, len(self._ids)), sorted(topic.partitions))
                for topic in answer.assignment.topic_partitions
            )
        told = (answer.error_message, answer.member_id, answer.member_epoch, assigned)
        self.answers.append(("beat", group_id, member_id, epoch, int(answer.error_code), *told))
        return answer

    def join(self, group_id: str, member_id: str, **said: Any) -> Any:
        fields = {
            "rebalance_timeout": PATIENT_MS,
            "topic_partitions": [],
            "subscribed_topic_names": ["orders"],
            **said,
        }
        return self.beat(group_id, member_id, 0, **fields)

    def commit(self, member_id: str, epoch: int, partition: int, version: int = 9) -> None:
        committed = {
            "partition_index": partition,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = self.call(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id="g",
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=None,
            topics=[{"name": "orders", "partitions": [committed]}],
        )
        code = int(answer.topics[0].partitions[0].error_code)
        self.answers.append(("commit", member_id, epoch, partition, version, code))

    def fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        asked = {
            "group_id": group_id,
            "member_id": member_id,
            "member_epoch": epoch,
            "topics": [{"name": "orders", "partition_indexes": [0]}],
        }
        answer = self.call(ApiKey.OFFSET_FETCH, 9, groups=[asked], require_stable=False)
        self.answers.append(("fetch", group_id, member_id, epoch, answer.groups[0].error_code))

    def describe(self, group_id: str) -> None:
        answer = self.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **DESCRIBE, group_ids=[group_id])
        (group,) = answer.groups
        members = sorted(
            (
                *(one.member_id, one.instance_id, one.rack_id, one.member_epoch, one.client_id),
                *(one.subscribed_topic_names, one.subscribed_topic_regex, one.member_type),
                _named(one.assignment),
                _named(one.target_assignment),
            )
            for one in group.members
        )
        facts = (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
        code = int(group.error_code)
        self.answers.append(("describe", group_id, code, group.error_message, *facts, members))
        for version in (5, 6):
            classic = self.call(
                ApiKey.DESCRIBE_GROUPS,
                version,
                groups=[group_id],
                include_authorized_operations=False,
            ).groups[0]
            message = getattr(classic, "error_message", None)
            self.answers.append(
                ("classic", version, int(classic.error_code), message, classic.group_state)
            )

    def listed(self, *types: str) -> None:
        answer = self.call(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=types)
        groups = sorted(
            (one.group_id, one.protocol_type, one.group_state, one.group_type)
            for one in answer.groups
        )
        self.answers.append(("list", types, groups))

    def delete(self) -> None:
        deleted = self.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        self.answers.append(("delete", int(deleted.results[0].error_code)))


DESCRIBE = {"include_authorized_operations": False}


def _named(assignment: Any) -> list[tuple[str, list[int]]]:
    return sorted((one.topic_name, sorted(one.partitions)) for one in assignment.topic_partitions)


def owned(answer: Any, *partitions: int) -> list[dict[str, Any]]:
    """Some partitions of the one topic of an answer."""
    (topic,) = answer.assignment.topic_partitions
    return [{"topic_id": topic.topic_id, "partitions": [*partitions]}]


def answers_of(servers: str) -> Answers:
    create_topic(servers, "orders", 3)
    with RawConnection(servers) as connection:
        history = History(connection)
        history.await_coordinator()
        play(history)
    return history.answers


def play(history: History) -> None:
    refused(history)
    first = history.join("g", "a")
    all_of_it, two, one = (owned(first, *parts) for parts in ((0, 1, 2), (0, 1), (0,)))
    for epoch, said in ((2, None), (2, all_of_it), (3, None), (1, all_of_it)):
        history.beat("g", "a", epoch, topic_partitions=said)
    history.beat("g", "b", 1)
    history.join("g", "b")
    history.beat("g", "a", 2, topic_partitions=all_of_it)
    history.beat("g", "b", 3)
    history.describe("g")
    history.beat("g", "a", 2, topic_partitions=two)
    history.beat("g", "a", 2, topic_partitions=two)  # its answer was lost
    history.beat("g", "a", 2, topic_partitions=all_of_it)
    history.beat("g", "b", 3)
    history.describe("g")
    history.join("g", "a")
    offsets(history)
    static_members(history, two, one)
    history.describe("g")
    history.describe("nobody")
    history.listed()
    history.listed("Consumer")
    classic_requests(history)
    history.delete()
    for member_id in ("a", "b"):
        history.beat("g", member_id, -1)
    history.describe("g")
    history.delete()


def refused(history: History) -> None:
    """Requests that no group is looked at for, and some of a group that is not there."""
    history.beat("", "a", 0)
    history.beat("g", "", 0)
    said: Sequence[dict[str, Any]] = (
        {},
        {"rebalance_timeout": 100},
        {"rebalance_timeout": 100, "topic_partitions": []},
    )
    for fields in said:
        history.beat("g", "a", 0, **fields)
    for epoch in (-3, -2, -1, 1):
        history.beat("g", "a", epoch)
    history.join("g", "a", server_assignor="nope")
    history.join("g", "a", instance_id="")
    history.join("g", "a", rack_id="")


def offsets(history: History) -> None:
    for epoch in (1, 2, 3, 4):
        history.commit("a", epoch, 0)
        history.commit("b", epoch, 2)
        history.commit("a", epoch, 2)
        history.fetch("g", "a", epoch)
    for member_id, epoch in (("nobody", 1), ("", -1)):
        history.commit(member_id, epoch, 0)
        history.fetch("g", member_id, epoch)
    history.commit("a", 3, 0, version=8)
    history.fetch("g", None, -1)
    history.fetch("nobody", "a", 1)


def static_members(history: History, two: list[dict[str, Any]], one: list[dict[str, Any]]) -> None:
    history.join("g", "s1", instance_id="i")
    history.beat("g", "a", 3, topic_partitions=two)
    history.beat("g", "a", 3, topic_partitions=one)
    history.beat("g", "s1", 4, instance_id="i")
    history.join("g", "s2", instance_id="i")
    history.beat("g", "sx", 5, instance_id="i")
    history.beat("g", "sx", 5, instance_id="j")
    history.beat("g", "s1", -2, instance_id="i")
    history.beat("g", "s1", 4, instance_id="i")
    history.join("g", "s2", instance_id="i")
    history.beat("g", "s1", -1, instance_id="i")
    history.beat("g", "s2", -1, instance_id="i")
    history.beat("g", "nobody", -1)


def classic_requests(history: History) -> None:
    """Members of the classic protocol are refused by a group that has others."""
    of_group = {"group_id": "g", "generation_id": 1, "member_id": "a", "group_instance_id": None}
    named = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    joining = {
        "group_id": "g",
        "member_id": "",
        "group_instance_id": None,
        "reason": None,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(10)}],
    }
    codes = [
        history.call(ApiKey.HEARTBEAT, 4, **of_group).error_code,
        history.call(ApiKey.SYNC_GROUP, 5, **of_group, **named).error_code,
        history.call(ApiKey.JOIN_GROUP, 9, **joining).error_code,
    ]
    deleted = history.call(
        ApiKey.OFFSET_DELETE,
        0,
        group_id="g",
        topics=[{"name": "orders", "partitions": [{"partition_index": 0}]}],
    )
    codes.append(deleted.topics[0].partitions[0].error_code)
    history.answers.append(("others", [int(code) for code in codes]))


def test_answers_are_those_of_kafka(tmp_path: Path) -> None:
    with txn.Broker(properties={**INTERVAL_MS, **DISABLED}) as broker:
        ours = answers_of(broker.bootstrap_servers)
    with KafkaNode(tmp_path, {**INTERVAL_MS, **DISABLED}, jars=NODE_4_4) as node:
        theirs = answers_of(node.bootstrap_servers)
    for our, their in zip(ours, theirs, strict=True):
        assert our == their
