"""Damaged and odd records of groups: a start reads them or refuses their partition.

Behind the start every request of every group is answered. Nothing ends in a traceback: a record
whose bytes break the schema puts its partition out of service, as in Kafka. A record that follows
the schema is loaded whatever it says, and so is the data that clients embed in it.
"""

import uuid
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.group_host import TOPICS, GroupNode
from support.requests import request_of
from support.served import APIS
from support.sessions import session
from txn.broker.host import Context
from txn.coordinator.group.classic.requests import Sync, SyncAnswer
from txn.coordinator.group.consumer.beat import Beat
from txn.coordinator.group.consumer.records import (
    ClassicMember,
    ConsumerValue,
    CurrentValue,
    EpochValue,
    Kind,
    MemberState,
    MemberValue,
    PatternValue,
    TargetMemberValue,
    TargetValue,
    record,
)
from txn.coordinator.group.records import (
    GroupKey,
    GroupRecord,
    GroupValue,
    OffsetKey,
    OffsetRecord,
    OffsetValue,
    encode_record,
)
from txn.coordinator.group.records import MemberValue as ClassicValue
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"
ASSIGNMENT = b"\0\1\0\0\0\1\0\6orders\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
MEMBERS = ("a", "b", "c")
GROUPS = ("g", "h")

Stored = tuple[bytes | None, bytes | None]


class Node(GroupNode):
    """A node on one partition of offsets, whose log has these records."""

    def __init__(self, records: list[Stored]) -> None:
        super().__init__(group_initial_rebalance_delay_ms=0)
        for log in self.host.offsets:
            log.append(records, timestamp_ms=0)
        self.restart()

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """The answer to a request, which comes at once or while time passes."""
        context = Context(api_key, version, "client", session())
        request = request_of(api_key, version, **fields)
        answers = self.answers_to(APIS[api_key].handler(self.coordinator, request, context))
        for _ in range(3):
            if answers:
                break
            self.host.pass_time(70_000)
        (answer,) = answers
        return answer


# ---------------------------------------------------------------- records

names = st.sampled_from(("", *MEMBERS, "orders", "payments", "é" * 300, "nowhere"))
maybe_names = st.none() | names
numbers = st.sampled_from((-(1 << 31), -2, -1, 0, 1, 2, 3, 7, (1 << 31) - 1))
epochs = st.sampled_from((-(1 << 31), -2, -1, 0, 1, 2, 3, 7))
"""Epochs and generations. None is at its end: a group needs 2,147,483,647 rounds to come there."""
times = st.sampled_from((-(1 << 63), -1, 0, 1, 1_000_000, (1 << 63) - 1))
topic_ids = st.sampled_from((*TOPICS.values(), uuid.UUID(int=0), uuid.UUID(int=99)))
tags = st.dictionaries(st.integers(2, 300), st.binary(max_size=5), max_size=2)


@st.composite
def metadata(draw: st.DrawFn) -> bytes:
    """A subscription or an assignment, as a client may send it."""
    data = draw(st.sampled_from((SUBSCRIPTION, ASSIGNMENT, b"")))
    return draw(mutated(data)) if draw(st.booleans()) else data


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """The same bytes but for a few that are changed, cut out or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(changed)))
        end = draw(st.integers(start, min(start + 4, len(changed))))
        changed[start:end] = draw(st.binary(max_size=5) | st.just(b"\xff\xff\xff\xff\x0f"))
    return bytes(changed)


protocols = st.lists(st.tuples(st.sampled_from(("range", "sticky", "")), metadata()), max_size=2)
partitions = st.dictionaries(topic_ids, st.frozensets(numbers, max_size=3), max_size=3)
owned = st.dictionaries(topic_ids, st.dictionaries(numbers, numbers, max_size=3), max_size=3)
values: dict[Kind, st.SearchStrategy[ConsumerValue]] = {
    Kind.EPOCH: st.builds(EpochValue, epochs, times, tags),
    Kind.MEMBER: st.builds(
        MemberValue,
        maybe_names,
        maybe_names,
        names,
        names,
        st.lists(names, max_size=3).map(tuple),
        st.none() | st.sampled_from(("", "or.*", "(", "[a-", "a{1000}{1000}")),
        numbers,
        maybe_names | st.just("range"),
        tags,
        st.none() | st.builds(ClassicMember, numbers, protocols.map(tuple), tags, st.just({})),
    ),
    Kind.TARGET: st.builds(TargetValue, epochs, times, tags),
    Kind.TARGET_MEMBER: st.builds(TargetMemberValue, partitions, tags),
    Kind.CURRENT: st.builds(
        CurrentValue, epochs, epochs, st.sampled_from(MemberState), owned, owned, tags
    ),
    Kind.PATTERN: st.builds(PatternValue, st.frozensets(names, max_size=3), times, times, tags),
}
classic_members = st.builds(
    ClassicValue, names, maybe_names, names, names, numbers, numbers, metadata(), metadata()
)


@st.composite
def records(draw: st.DrawFn) -> Stored:
    """A record that follows the schemas of groups, or a tombstone."""
    group_id = draw(st.sampled_from(GROUPS))
    match draw(st.sampled_from(("consumer", "consumer", "consumer", "classic", "offset"))):
        case "classic":
            lists = st.lists(classic_members, max_size=3).map(tuple)
            types = st.sampled_from(("consumer", "", "connect"))
            kept = draw(
                st.builds(GroupValue, types, epochs, maybe_names, maybe_names, times, lists)
            )
            made: Any = GroupRecord(GroupKey(group_id), kept)
        case "offset":
            key = OffsetKey(group_id, draw(names), draw(numbers))
            offset = st.builds(OffsetValue, times, numbers, names, times, times)
            made = OffsetRecord(key, draw(offset))
        case _:
            kind = draw(st.sampled_from([*values]))
            name = draw(st.sampled_from((*MEMBERS, "or.*", "(")))
            made = record(kind, group_id, draw(values[kind]), name)
    key_bytes, value = encode_record(made)
    return key_bytes, None if draw(st.integers(0, 9)) == 0 else value


@st.composite
def damaged(draw: st.DrawFn) -> Stored:
    """A record with changed bytes."""
    key, value = draw(records())
    if draw(st.booleans()):
        return draw(mutated(key or b"")), value
    return key, draw(mutated(value or b""))


@cache
def ordinary() -> tuple[Stored, ...]:
    """The log of a group in which members of both protocols met."""
    node = GroupNode(group_consumer_assignment_interval_ms=0)
    node.form("h")
    for member_id in "ab":
        beat = Beat(
            member_id,
            0,
            "client",
            "/127.0.0.1",
            "i" if member_id == "a" else None,
            None,
            60_000,
            ("orders",),
            owned={},
        )
        node.answers_to(node.coordinator.consumer.heartbeat("g", beat, None))
    node.commit("g", 3)
    stored = [
        (each.key, each.value)
        for log in node.host.offsets
        for batch in log.batches(0)
        for each in batch.records
    ]
    assert len(stored) > 8
    return tuple(stored)


@st.composite
def logs(draw: st.DrawFn) -> list[Stored]:
    """Ordinary records among odd ones, and now and then a damaged one."""
    found = [*ordinary()] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 12))):
        found.insert(draw(st.integers(0, len(found))), draw(records()))
    if draw(st.integers(0, 3)) == 0:
        found.insert(draw(st.integers(0, len(found))), draw(damaged()))
    return found


# ---------------------------------------------------------------- requests


def use(node: Node, group_id: str) -> None:
    """Send every request of members and administrators to a group."""
    group = node.coordinator.any_group(group_id)
    ids = (*([] if group is None else [*group.members][:3]), "new")
    node.ask(ApiKey.DESCRIBE_GROUPS, 6, groups=[group_id], include_authorized_operations=False)
    node.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group_id], include_authorized_operations=False
    )
    node.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
    for member_id in ids:
        for epoch in (0, 1, 2, 3):
            node.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                1,
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=None,
                rack_id=None,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["orders"],
                subscribed_topic_regex=None,
                server_assignor=None,
                topic_partitions=[],
            )
        joined = node.ask(
            ApiKey.JOIN_GROUP,
            5,
            group_id=group_id,
            session_timeout=10_000,
            rebalance_timeout=60_000,
            member_id="" if member_id == "new" else member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": SUBSCRIPTION}],
        )
        for generation in (joined.generation_id, *_epochs_of(node, group_id, member_id)):
            own = {"group_id": group_id, "generation_id": generation, "member_id": member_id}
            node.ask(ApiKey.HEARTBEAT, 4, group_instance_id=None, **own)
            node.ask(
                ApiKey.SYNC_GROUP,
                4,
                group_instance_id=None,
                assignments=[{"member_id": member_id, "assignment": ASSIGNMENT}],
                **own,
            )
    node.commit(group_id, 5)
    node.offsets.committed(group_id)
    node.offsets.fetch_refusal(group_id, "a", 1)
    node.ask(
        ApiKey.LEAVE_GROUP,
        5,
        group_id=group_id,
        members=[{"member_id": each, "group_instance_id": None} for each in ids],
    )
    node.host.pass_time(700_000)
    node.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[group_id])


def _epochs_of(node: Node, group_id: str, member_id: str) -> list[int]:
    group = node.coordinator.consumer.get(group_id)
    known = None if group is None else group.members.get(member_id)
    return [] if known is None else [known.epoch]


@settings(max_examples=100, deadline=None)
@given(log=logs())
def test_a_start_reads_odd_records_and_every_request_is_answered(log: list[Stored]) -> None:
    node = Node(log)
    for group_id in GROUPS:
        if node.coordinator.refusal(group_id) is ErrorCode.NONE:
            use(node, group_id)
    assert not node.host.failures
    node.restart()


@settings(max_examples=100, deadline=None)
@given(log=st.lists(records(), min_size=1, max_size=6))
def test_a_record_that_follows_its_schema_is_loaded(log: list[Stored]) -> None:
    node = Node(log)
    assert node.coordinator.failed_count == 0


def member_with(*protocols: tuple[str, bytes]) -> Node:
    """A node with the group "g" of one classic member, in epoch 1, with these stored protocols."""
    value = MemberValue(
        None,
        None,
        "client",
        "/127.0.0.1",
        ("orders",),
        "",
        60_000,
        None,
        classic=ClassicMember(60_000, protocols),
    )
    current = CurrentValue(1, 1, MemberState.STABLE, {}, {})
    made = [
        record(Kind.MEMBER, "g", value, "a"),
        record(Kind.EPOCH, "g", EpochValue(1)),
        record(Kind.TARGET, "g", TargetValue(1)),
        record(Kind.CURRENT, "g", current, "a"),
    ]
    return Node([encode_record(each) for each in made])


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff"])
def test_a_member_whose_stored_metadata_has_no_version_is_refused(metadata: bytes) -> None:
    """Its SyncGroup ended in a traceback."""
    node = member_with(("range", metadata))
    answer = node.groups.sync("g", Sync(1, "a"))
    assert answer == SyncAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_a_classic_member_without_protocols_is_loaded() -> None:
    """It kept a whole partition of groups from its service."""
    node = member_with()
    assert node.coordinator.failed_count == 0
    answer = node.groups.sync("g", Sync(1, "a"))
    assert answer == SyncAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_a_name_that_is_no_utf_8_is_loaded() -> None:
    key, value = encode_record(record(Kind.EPOCH, "g", EpochValue(1)))
    node = Node([(key, value), (key.replace(b"g", b"\xff"), value)])
    assert node.coordinator.failed_count == 0
    assert node.coordinator.any_group("\ufffd") is not None
