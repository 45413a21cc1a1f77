"""A shard that is unloaded answers with NOT_COORDINATOR; loaded again, it has lost nothing."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from support.flights import flights_host
from support.group_host import GroupNode
from txn.broker.group_shards import GroupShards
from txn.broker.host import Durability
from txn.broker.shard import Shard, ShardPhase
from txn.coordinator.group.classic.group import GroupState
from txn.coordinator.group.records import OffsetKey
from txn.coordinator.operations import COMMITTED, Later, Request
from txn.errors import StorageError
from txn.metadata.image import OFFSETS_TOPIC
from txn.testing import FakeHost
from txn.wire.error_codes import ErrorCode

Words = Shard[list[str], str]


def shard_on(host: FakeHost) -> Words:
    """A shard whose state is the list of its records."""
    shard = Words(
        host,
        host.coordinator_partitions(OFFSETS_TOPIC),
        0,
        [],
        encode=lambda shard, record: (record.encode(), b""),
        replay=lambda shard, record, offset: shard.state.append(record),
    )
    shard.activate()
    return shard


def written(shard: Words, word: str) -> Request[ErrorCode]:
    shard.append([word])
    yield COMMITTED
    return ErrorCode.NONE


async def asked(shard: Words, word: str, key: str | None = "key") -> ErrorCode:
    return await shard.run(key, written(shard, word), lambda code: code)


def start(work: Coroutine[Any, Any, ErrorCode]) -> "asyncio.Task[ErrorCode]":
    return asyncio.get_running_loop().create_task(work)


def waiting_host() -> FakeHost:
    """A host whose syncs wait for the test."""
    host = flights_host(Durability.COMMIT)
    host.unfinished_syncs = []
    return host


async def finish_syncs(host: FakeHost) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
        for sync in host.unfinished_syncs or ():
            if not sync.done():
                sync.set_result(None)


def test_requests_that_wait_and_requests_in_line_are_answered_not_coordinator() -> None:
    async def main() -> None:
        host = waiting_host()
        shard = shard_on(host)
        asking = [start(asked(shard, word)) for word in ("first", "second", "third")]
        await asyncio.sleep(0)
        shard.unload([])
        assert await asyncio.gather(*asking) == [ErrorCode.NOT_COORDINATOR] * 3
        assert shard.refusal is ErrorCode.NOT_COORDINATOR
        assert shard.phase is ShardPhase.UNLOADED
        assert shard.state == []
        assert not shard.is_held("key")
        await finish_syncs(host)  # nothing goes on
        assert shard.state == []
        assert len(host.store(OFFSETS_TOPIC, 0).stored) == 1

    asyncio.run(main())


def test_a_request_at_the_head_of_its_line_is_answered_too() -> None:
    """It had left the line and had not begun."""

    async def main() -> None:
        host = waiting_host()
        shard = shard_on(host)

        def last_of_its_shard() -> Request[ErrorCode]:
            shard.append(["first"])
            yield COMMITTED
            asyncio.get_running_loop().call_soon(shard.unload, [])
            return ErrorCode.NONE

        first = start(shard.run("key", last_of_its_shard(), lambda code: code))
        second = start(asked(shard, "second"))
        await finish_syncs(host)
        assert await first is ErrorCode.NONE
        assert await second is ErrorCode.NOT_COORDINATOR
        assert len(host.store(OFFSETS_TOPIC, 0).stored) == 1

    asyncio.run(main())


def test_an_answer_that_was_promised_by_another_request_is_not_coordinator() -> None:
    def promised() -> Request[ErrorCode | Later]:
        yield from ()
        return Later(7)

    async def main() -> None:
        shard = shard_on(flights_host())
        waiting = start(shard.run_or_wait(promised(), lambda code: code))
        await asyncio.sleep(0)
        shard.unload([])
        assert await waiting is ErrorCode.NOT_COORDINATOR

    asyncio.run(main())


def test_an_unloaded_shard_appends_nothing() -> None:
    shard = shard_on(flights_host())
    shard.unload([])
    with pytest.raises(StorageError, match="another broker") as refused:
        shard.append(["word"])
    assert refused.value.code == ErrorCode.NOT_COORDINATOR


def test_work_that_nobody_waits_for_is_dropped_with_its_shard() -> None:
    host = flights_host()
    shard = shard_on(host)
    shard.unload([])
    shard.start("key", written(shard, "late timer"))
    assert host.store(OFFSETS_TOPIC, 0).stored == []


def test_a_shard_that_loads_again_serves_again() -> None:
    async def main() -> None:
        shard = shard_on(flights_host())
        await asked(shard, "kept")
        shard.unload([])
        shard.begin_load()
        assert shard.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard.activate()
        assert await asked(shard, "more") is ErrorCode.NONE

    asyncio.run(main())


# ---------------------------------------------------------------- groups


def index_of(node: GroupNode) -> int:
    return node.coordinator.group_partition("g")


def test_P8_groups_and_offsets_are_all_there_when_their_shard_is_loaded_again() -> None:
    node = GroupNode()
    member = node.form("g")
    node.commit("other", 5)
    node.commit("g2", 7)
    key = OffsetKey("g", "orders", 0)
    node.offsets.commit(member, {key: node.value(3)}, knows_group_not_found=True)
    node.commit_in_transaction("g", 9, partition=1, committer=member)
    before = node.coordinator.groups()
    for index in range(len(node.host.offsets)):
        node.coordinator.resign(index)
        node.groups.elect(index)
    after = node.coordinator.groups()
    assert {group.group_id for group in after} == {group.group_id for group in before}
    assert [node.offset("g"), node.offset("other"), node.offset("g2")] == [3, 5, 7]
    assert node.is_pending("g", partition=1)
    node.end_transaction("g", is_commit=True)
    assert node.offset("g", partition=1) == 9
    heartbeat = node.groups.heartbeat("g", member.member_id, None, member.generation)
    assert heartbeat is ErrorCode.NONE


def test_groups_of_an_unloaded_shard_are_answered_not_coordinator() -> None:
    node = GroupNode()
    member = node.form("g")
    node.coordinator.resign(index_of(node))
    key = OffsetKey("g", "orders", 0)
    assert node.coordinator.refusal("g") is ErrorCode.NOT_COORDINATOR
    assert node.groups.heartbeat("g", member.member_id, None, 1) is ErrorCode.NOT_COORDINATOR
    committed = node.offsets.commit(member, {key: node.value(3)}, knows_group_not_found=True)
    assert committed is ErrorCode.NOT_COORDINATOR
    assert node.coordinator.group("g") is None


def test_members_that_wait_for_their_round_are_sent_to_another_coordinator() -> None:
    node = GroupNode()
    node.form("g")
    joining = node.join("g")  # waits until the first member joins again
    node.host.pass_time(0)
    assert joining == []
    node.coordinator.resign(index_of(node))
    node.host.pass_time(0)
    (answer,) = joining
    assert answer.error is ErrorCode.NOT_COORDINATOR


def test_no_timer_of_an_unloaded_shard_rings() -> None:
    node = GroupNode()
    node.form("g")
    length = node.log_of("g").log_end_offset
    node.coordinator.resign(index_of(node))
    node.host.pass_time(60_000)
    assert node.log_of("g").log_end_offset == length


def test_the_session_of_a_member_begins_anew_and_ends_when_its_shard_is_loaded_again() -> None:
    node = GroupNode()
    node.form("g")
    node.coordinator.resign(index_of(node))
    node.host.pass_time(60_000)
    node.groups.elect(index_of(node))
    group = node.coordinator.group("g")
    assert group is not None
    assert group.state is GroupState.STABLE
    node.host.pass_time(60_000)
    group = node.coordinator.group("g")
    assert group is not None
    assert group.state is GroupState.EMPTY


def test_members_of_an_unloaded_shard_count_for_no_limit() -> None:
    node = GroupNode()
    node.form("g")
    node.coordinator.resign(index_of(node))
    assert sum(shard.state.held_bytes for shard in node.shards.shards) == 0
    node.groups.elect(index_of(node))
    assert sum(shard.state.held_bytes for shard in node.shards.shards) > 0


# ---------------------------------------------------------------- the life cycle of every kind


def test_an_elected_shard_is_served_once_its_log_is_on_the_disk() -> None:
    async def main() -> None:
        host = waiting_host()
        shards = GroupShards.load(host)
        shard, loaded = shards.shards[0], list[int]()
        shards.on_loaded = lambda shard: loaded.append(shard.index)
        shards.resign(0)
        electing = asyncio.ensure_future(shards.elect(0))
        await asyncio.sleep(0)
        refusals = [shard.refusal]
        assert loaded == []
        await finish_syncs(host)
        await electing
        refusals.append(shard.refusal)
        assert refusals == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
        assert loaded == [0]

    asyncio.run(main())


def test_a_shard_that_failed_is_left_to_the_next_start() -> None:
    async def main() -> None:
        shards = GroupShards.load(flights_host())
        shard = shards.shards[0]
        shards.fail(shard, "it is damaged")
        shards.resign(0)
        await shards.elect(0)
        assert shard.phase is ShardPhase.FAILED
        assert shards.unread() == [f"{OFFSETS_TOPIC}-0"]

    asyncio.run(main())
