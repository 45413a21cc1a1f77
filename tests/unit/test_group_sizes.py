"""Clients' data in a group coordinator: bounded for a member, a group and all groups.

A JoinGroup of 50 MB was kept until its session ended, and another, and another.
"""

import asyncio
import io
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer

from support.entities import entity_builder
from support.group_host import GroupNode
from support.group_rounds import Rounds
from support.served import APIS, decode
from support.sessions import session
from txn.broker import group_coordinator as coordinator
from txn.broker.apis import groups as apis
from txn.broker.group_coordinator import Committer
from txn.broker.group_shards import BATCH_BYTES_MIN
from txn.broker.host import Context
from txn.coordinator.group import classic
from txn.coordinator.group.classic import GroupState, Limits
from txn.coordinator.group.records import OffsetKey
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

KIB = 1 << 10


def answer(node: GroupNode, key: int, version: int, **fields: Any) -> Any:
    """The answer to a request that waits for nobody."""
    body = io.BytesIO()
    schema = load_request_schema(key, version)
    entity_writer(schema)(body, entity_builder(schema)(fields))
    request = decode(key, version, body.getvalue())
    context = Context(key, version, "client", session())

    async def ask() -> Any:
        answered: Any = APIS[key].answer(node.coordinator, request, context)
        asking = asyncio.ensure_future(answered)
        await asyncio.sleep(0)
        node.host.pass_time(0)
        return await asking

    return asyncio.run(ask())


def join(node: GroupNode, metadata_bytes: int, *, group_id: str = "g", protocols: int = 1) -> Any:
    names = [f"p{number}" for number in range(protocols)]
    return answer(
        node,
        ApiKey.JOIN_GROUP,
        1,
        group_id=group_id,
        session_timeout=10_000,
        rebalance_timeout=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": name, "metadata": bytes(metadata_bytes)} for name in names],
    )


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
    code = one.groups.commit(Committer("g"), offsets, knows_group_not_found=True)
    assert code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert one.groups.group("g") is None


def test_a_group_takes_no_member_beyond_the_bytes_it_may_hold() -> None:
    rounds = Rounds(Limits(initial_rebalance_delay_ms=0, group_bytes_max=100))
    rounds.join(version=3, protocols=(("range", bytes(60)),))
    full = rounds.join(version=3, protocols=(("range", bytes(60)),))
    assert rounds.joins[full].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(rounds.group.members) == 1
    rounds.join(version=3, protocols=(("range", bytes(20)),))
    assert len(rounds.group.members) == 2


def test_ids_that_are_given_out_and_not_used_are_bounded_and_lapse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classic, "PENDING_MAX", 10)
    rounds = Rounds(Limits(initial_rebalance_delay_ms=0))
    for _ in range(10):
        rounds.join()
    full = rounds.join()
    assert rounds.joins[full].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    rounds.pass_time(300_000)
    again = rounds.join()
    assert rounds.joins[again].error is ErrorCode.MEMBER_ID_REQUIRED
