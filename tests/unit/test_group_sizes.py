"""Clients' data in a group coordinator: bounded for a member, a group and all groups.

A JoinGroup of 50 MB was kept until its session ended, and another, and another.

Later only that data counted. Ten thousand groups of one member each, with ids of 32 KB, took 333 MB
and as much in log lines; one group held 302 MB of instance ids. DescribeGroups that named a group a
thousand times made an answer of 954 MB.
"""

import asyncio
import io
import logging
from typing import Any

import pytest
from kio.serial import entity_writer

from support.entities import entity_builder
from support.group_host import GroupNode
from support.group_rounds import Rounds
from support.served import APIS, decode
from support.sessions import session
from txn.broker import group_coordinator as coordinator
from txn.broker.apis import group_offset_fetch
from txn.broker.apis import groups as apis
from txn.broker.audit import ACTS_AT_ONCE, NAME_MAX
from txn.broker.committed_offsets import Committer
from txn.broker.group_shards import BATCH_BYTES_MIN
from txn.broker.host import Context
from txn.coordinator.group.classic import refusals
from txn.coordinator.group.classic.group import GROUP_BYTES, PENDING_BYTES, GroupState, Limits
from txn.coordinator.group.members import MEMBER_BYTES, text_bytes
from txn.coordinator.group.records import OffsetKey
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode
from txn.wire.kio import load_request_schema

KIB = 1 << 10


def answer(node: GroupNode, key: int, version: int, **fields: Any) -> Any:
    """The answer to a request that waits for nobody."""
    body = io.BytesIO()
    schema = load_request_schema(key, version)
    entity_writer(schema)(body, entity_builder(schema)(fields))
    request = decode(key, version, body.getvalue())
    context = Context(key, version, "client", session())

    async def ask() -> Any:
        answered: Any = APIS[key].handler(node.coordinator, request, context)
        asking = asyncio.ensure_future(answered)
        await asyncio.sleep(0)
        node.host.pass_time(0)
        return await asking

    return asyncio.run(ask())


def join(
    node: GroupNode,
    metadata_bytes: int,
    *,
    group_id: str = "g",
    protocols: int = 1,
    version: int = 1,
    **fields: Any,
) -> Any:
    names = [f"p{number}" for number in range(protocols)]
    return answer(
        node,
        ApiKey.JOIN_GROUP,
        version,
        **fields,
        group_id=group_id,
        session_timeout=10_000,
        rebalance_timeout=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": name, "metadata": bytes(metadata_bytes)} for name in names],
    )


def held_bytes(node: GroupNode) -> int:
    return sum(shard.state.held_bytes for shard in node.shards.shards)


def node() -> GroupNode:
    return GroupNode(group_initial_rebalance_delay_ms=0)


def test_a_member_that_tells_more_than_a_batch_holds_is_refused() -> None:
    refused = join(node(), BATCH_BYTES_MIN)
    assert refused.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert join(node(), BATCH_BYTES_MIN - KIB).error_code is ErrorCode.NONE


def test_a_member_with_a_hundred_protocols_is_let_in_and_with_more_refused() -> None:
    assert join(node(), 1, protocols=apis.PROTOCOLS_MAX).error_code is ErrorCode.NONE
    refused = join(node(), 1, protocols=apis.PROTOCOLS_MAX + 1)
    assert refused.error_code is ErrorCode.INVALID_REQUEST


def test_what_all_groups_hold_is_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "HELD_BYTES_MAX", 100 * KIB)
    many = node()
    assert join(many, 60 * KIB, group_id="a").error_code is ErrorCode.NONE
    refused = join(many, 60 * KIB, group_id="b")
    assert refused.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    many.host.pass_time(120_000)  # the member's session ends
    group = many.groups.group("a")
    assert group is not None
    assert group.state is GroupState.EMPTY
    assert join(many, 60 * KIB, group_id="b").error_code is ErrorCode.NONE


def test_assignments_that_no_batch_holds_are_refused() -> None:
    one = node()
    member_id = join(one, 10).member_id
    synced = answer(
        one,
        ApiKey.SYNC_GROUP,
        0,
        group_id="g",
        generation_id=1,
        member_id=member_id,
        assignments=[{"member_id": member_id, "assignment": bytes(BATCH_BYTES_MIN + 1)}],
    )
    assert synced.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_offsets_that_no_batch_holds_are_refused_whole() -> None:
    one = node()
    value = one.value(5)
    offsets = {OffsetKey("g", "orders", index): value for index in range(30_000)}
    code = one.offsets.commit(Committer("g"), offsets, knows_group_not_found=True)
    assert code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert one.groups.group("g") is None


def test_a_group_takes_no_member_beyond_the_bytes_it_may_hold() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=0, group_bytes_max=3_100))
    rounds.join(version=3, protocols=(("range", bytes(400)),))
    full = rounds.join(version=3, protocols=(("range", bytes(400)),))
    assert rounds.joins[full].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(rounds.group.members) == 1
    rounds.join(version=3, protocols=(("range", bytes(9)),))
    assert len(rounds.group.members) == 2


def test_a_static_member_may_come_back_to_a_group_that_is_at_its_limit() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=0, group_bytes_max=3_100))
    large = (("range", bytes(1_200)),)
    rounds.join(instance_id="i", protocols=large)
    back = rounds.join(instance_id="i", protocols=large)
    rounds.pass_time(0)
    assert rounds.joins[back].error is ErrorCode.NONE


def test_ids_that_are_given_out_and_not_used_are_bounded_and_lapse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusals, "PENDING_MAX", 10)
    rounds = Rounds(Limits(initial_rebalance_delay_ms=0))
    for _ in range(10):
        rounds.join()
    full = rounds.join()
    assert rounds.joins[full].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    rounds.pass_time(300_000)
    again = rounds.join()
    assert rounds.joins[again].error is ErrorCode.MEMBER_ID_REQUIRED


# ---------------------------------------------------------------- ids and fixed costs


def test_the_ids_of_a_group_and_of_its_members_count() -> None:
    one = node()
    join(one, 0, group_id="g" * 30_000)
    with_group_id = held_bytes(one)
    assert with_group_id > 30_000 + GROUP_BYTES + MEMBER_BYTES
    join(one, 0, group_id="h", version=5, group_instance_id="i" * 30_000)
    assert held_bytes(one) > with_group_id + 30_000
    join(one, 0, group_id="k", version=5, group_instance_id=None)
    assert held_bytes(one) > with_group_id + 30_000 + 2 * GROUP_BYTES + PENDING_BYTES


def test_a_text_that_is_not_ascii_counts_by_its_memory() -> None:
    assert text_bytes("é" * 10) == 40
    assert text_bytes("e" * 10) == 10


def test_groups_that_only_gave_out_an_id_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "HELD_BYTES_MAX", 100 * KIB)
    many = node()
    codes = [
        join(many, 1, group_id=f"{number}".zfill(30_000), version=5, group_instance_id=None)
        for number in range(5)
    ]
    given, refused = ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [one.error_code for one in codes] == [given] * 3 + [refused] * 2
    many.host.pass_time(11_000)  # the ids lapse
    many.host.pass_time(600_000)  # the clean-up takes the groups
    assert held_bytes(many) == 0
    assert list(many.groups.groups()) == []


def test_a_member_may_join_again_where_all_groups_are_at_their_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = node()
    member_id = join(one, 1_000, group_id="g").member_id
    monkeypatch.setattr(coordinator, "HELD_BYTES_MAX", held_bytes(one))
    again = answer(
        one,
        ApiKey.JOIN_GROUP,
        1,
        group_id="g",
        session_timeout=10_000,
        rebalance_timeout=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[{"name": "p0", "metadata": bytes(1_000)}],
    )
    assert again.error_code is ErrorCode.NONE
    assert join(one, 1, group_id="h").error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_static_member_may_come_back_where_all_groups_are_at_their_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = node()
    join(one, 1_000, version=5, group_instance_id="i")
    monkeypatch.setattr(coordinator, "HELD_BYTES_MAX", held_bytes(one))
    back = join(one, 1_000, version=5, group_instance_id="i")
    assert back.error_code is ErrorCode.NONE


def test_a_group_that_is_left_with_its_offsets_alone_does_not_count() -> None:
    one = node()
    one.commit("g", 5)
    one.form("g")
    assert held_bytes(one) > 0
    one.host.pass_time(60_000)  # the member's session ends
    assert held_bytes(one) == 0
    one.restart()
    assert held_bytes(one) == 0
    assert one.offset("g") == 5


# ---------------------------------------------------------------- lines


def test_a_line_has_the_beginning_of_a_long_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txn")
    join(node(), 0, group_id="g" * 30_000)
    moves = [line for line in caplog.messages if line.startswith("group.moved")]
    assert moves
    assert max(map(len, moves)) < 2 * NAME_MAX


def test_a_flood_of_moves_is_counted_and_not_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txn")
    many = node()
    for number in range(ACTS_AT_ONCE + 10):
        many.join(f"g{number}")
    moves = [line for line in caplog.messages if line.startswith("group.moved")]
    assert len(moves) == ACTS_AT_ONCE
    many.host.pass_time(1_000)  # each group's round begins, without a line
    many.join("late")
    assert caplog.messages[-1].endswith(f"left_out={10 + ACTS_AT_ONCE + 10}")


# ---------------------------------------------------------------- answers


def described(node: GroupNode, *groups: str) -> Any:
    fields = {"groups": groups, "include_authorized_operations": False}
    return answer(node, ApiKey.DESCRIBE_GROUPS, 6, **fields).groups


def test_a_group_that_is_named_again_is_described_once() -> None:
    one = node()
    one.form("g")
    assert [group.group_id for group in described(one, *["g"] * 1_000, "h", "h")] == ["g", "h"]


def test_groups_beyond_the_bytes_of_an_answer_are_to_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apis, "ANSWER_BYTES_MAX", 1_000)
    one = node()
    one.form("g")
    one.form("h")
    full, told = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE
    assert [group.error_code for group in described(one, "g", "h")] == [told, full]
    assert [group.error_code for group in described(one, "h")] == [told]


def fetched(node: GroupNode, *groups: tuple[str, list[tuple[str, list[int]]] | None]) -> Any:
    asked = [
        {
            "group_id": group_id,
            "topics": None
            if topics is None
            else [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        }
        for group_id, topics in groups
    ]
    return answer(node, ApiKey.OFFSET_FETCH, 8, groups=asked, require_stable=False).groups


def test_a_group_that_is_named_again_has_as_many_answers_and_each_partition_once_in_each() -> None:
    """So Kafka answers. The size of the whole answer is bounded, see the next test."""
    one = node()
    one.commit("g", 5)
    answers = fetched(one, ("g", [("orders", [0, 1, 0])]), ("g", [("orders", [0, 2])]), ("g", None))
    told = [
        [(p.partition_index, p.committed_offset) for t in group.topics for p in t.partitions]
        for group in answers
    ]
    assert told == [[(0, 5), (1, -1)], [(0, 5), (2, -1)], [(0, 5)]]


def test_offsets_beyond_the_bytes_of_an_answer_are_to_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_offset_fetch, "ANSWER_BYTES_MAX", 50)
    one = node()
    one.commit("g", 5)
    one.commit("h", 6)
    full, told = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE
    groups = fetched(one, ("g", None), ("h", None))
    assert [group.error_code for group in groups] == [told, full]
    assert [group.error_code for group in fetched(one, ("h", None))] == [told]


@pytest.mark.parametrize("field", ["member_id", "instance_id"])
def test_ids_of_members_of_the_consumer_protocol_are_short(field: str) -> None:
    """A member id is in the key of each of a member's records."""
    one = GroupNode()
    fields = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "server_assignor": None,
        "subscribed_topic_regex": None,
        "rebalance_timeout": 1_000,
        "subscribed_topic_names": ("orders",),
        "topic_partitions": (),
    }
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    taken = answer(one, key, 1, **{**fields, field: "m" * 249})
    assert taken.error_code is ErrorCode.NONE
    refused = answer(one, key, 1, **{**fields, field: "m" * 250})
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert "249 characters" in refused.error_message
