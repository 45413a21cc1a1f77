"""Assignments that are too large for the control loop: computed beside it, and written later.

The assignors ran within the heartbeat that needed an assignment. In a group at its limit that took
half a second, in which no request of any other group was answered.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from support.eager_calls import EagerCalls
from support.group_host import TOPICS, GroupHost, GroupNode
from txn.coordinator.group.assignors import ASSIGNORS
from txn.coordinator.group.consumer import target
from txn.coordinator.group.consumer.beat import Beat, BeatAnswer
from txn.coordinator.group.consumer.decide import heartbeat
from txn.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from txn.coordinator.group.consumer.patterns import pattern_resolved
from txn.coordinator.group.consumer.records import EpochValue, PatternValue
from txn.testing import FakeHost
from txn.wire.error_codes import ErrorCode

ORDERS, PAYMENTS = TOPICS["orders"], TOPICS["payments"]
INTERVAL_MS = 1_000


class SideThread:
    """The side thread of a host, whose calls end when a test says so."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self.waiting: list[
            tuple[str, Callable[[Callable[[], bool]], None], asyncio.Future[None]]
        ] = []

    async def run(self, owner: str, call: Callable[[Callable[[], bool]], None]) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.waiting.append((owner, call, ended))
        await ended

    def finish(self) -> None:
        """Make the calls that wait, and let the coordinator go on behind them."""
        waiting, self.waiting = self.waiting, []
        for _, call, ended in waiting:
            try:
                call(lambda: False)
            except RuntimeError as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)
        self._host.pass_time(0)


class Consumers:
    """Members of groups with large assignments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(target, "INLINE_SIZE_MAX", 3)
        self.node = GroupNode()
        self.side = SideThread(self.node.host)

        async def in_side_thread(_: FakeHost, owner: str, call: Any) -> None:
            await self.side.run(owner, call)

        monkeypatch.setattr(FakeHost, "in_side_thread", in_side_thread)

    def beat(self, member_id: str, epoch: int, group_id: str = "g", **fields: Any) -> BeatAnswer:
        beat = Beat(member_id, epoch, "client", "/127.0.0.1", **fields)
        consumer = EagerCalls(self.node.coordinator.consumer)
        answer: BeatAnswer = consumer.heartbeat(group_id, beat, None, "owner")
        assert answer.error is ErrorCode.NONE, answer
        return answer

    def join(self, member_id: str, group_id: str = "g", **fields: Any) -> BeatAnswer:
        fields.setdefault("topics", ("orders",))
        return self.beat(member_id, 0, group_id, rebalance_timeout_ms=60_000, owned={}, **fields)

    def report(self, member_id: str) -> BeatAnswer:
        """Let a member name all partitions that it owns."""
        member = self.group.members[member_id]
        owned = {topic: frozenset(each) for topic, each in member.current.assigned.items()}
        return self.beat(member_id, member.epoch, owned=owned)

    def parts(self) -> dict[str, dict[uuid.UUID, tuple[int, ...]]]:
        """The target assignment, without members that get nothing."""
        return {
            name: {topic: tuple(sorted(each)) for topic, each in part.items()}
            for name, part in self.group.target.items()
            if part
        }

    @property
    def group(self) -> ConsumerGroup:
        group = self.node.coordinator.consumer.get("g")
        assert group is not None
        return group


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> Consumers:
    return Consumers(monkeypatch)


@pytest.fixture
def computing(consumers: Consumers) -> Consumers:
    """The members `a`, `b` and the static `s` share orders; `d` has joined, its part is awaited."""
    for name in "abs":
        consumers.join(name, instance_id="i" if name == "s" else None)
    consumers.side.finish()
    consumers.node.host.pass_time(INTERVAL_MS)
    consumers.report("a")
    consumers.side.finish()
    for _ in range(2):
        for name in "abs":
            consumers.report(name)
    assert consumers.group.state is ConsumerGroupState.STABLE
    assert consumers.parts() == {"a": {ORDERS: (0,)}, "b": {ORDERS: (2,)}, "s": {ORDERS: (1,)}}
    consumers.node.host.pass_time(INTERVAL_MS)
    consumers.join("d", topics=("payments",))
    assert len(consumers.side.waiting) == 1
    return consumers


def settle(consumers: Consumers) -> None:
    """Let all members report until nothing is left to compute, and all own their parts."""
    for _ in range(6):
        consumers.node.host.pass_time(INTERVAL_MS)
        for name in [*consumers.group.members]:
            consumers.report(name)
        consumers.side.finish()
    assert consumers.group.state is ConsumerGroupState.STABLE


def test_heartbeats_of_all_groups_are_answered_while_an_assignment_is_computed(
    computing: Consumers,
) -> None:
    answered = [computing.join("x", "other"), computing.report("a"), computing.report("b")]
    assert len(answered) == 3
    assert [owner for owner, _, _ in computing.side.waiting] == ["owner", "owner"]
    assert computing.group.state is ConsumerGroupState.ASSIGNING
    computing.side.finish()
    other = computing.node.coordinator.consumer.get("other")
    assert other is not None
    assert other.target["x"] == {ORDERS: frozenset({0, 1, 2})}


def test_a_small_assignment_is_in_the_answer_that_needs_it(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "INLINE_SIZE_MAX", 5)  # 3 partitions, a member, its topic
    assert dict(consumers.join("a").assignment or {}).keys() == {ORDERS}
    assert not consumers.side.waiting


def test_a_group_computes_one_assignment_at_a_time(computing: Consumers) -> None:
    computing.node.host.pass_time(INTERVAL_MS)
    computing.join("e")
    computing.report("a")
    assert len(computing.side.waiting) == 1


def test_members_keep_their_old_parts_until_an_assignment_is_computed(
    computing: Consumers,
) -> None:
    before = computing.parts()
    epoch = computing.group.target_value.epoch
    assert computing.report("a").epoch == epoch
    assert computing.parts() == before
    computing.side.finish()
    assert computing.group.target_value.epoch == epoch + 1
    assert computing.parts()["d"] == {PAYMENTS: (0, 1, 2)}


def test_a_computed_assignment_counts_though_others_came_and_went(computing: Consumers) -> None:
    """Otherwise a group whose members never stop changing would have no assignment at all."""
    epoch = computing.group.epoch
    computing.join("e", topics=("payments",))
    computing.beat("b", -1)
    computing.side.finish()
    assert computing.group.target_value.epoch == epoch
    assert computing.parts().keys() == {"a", "s", "d"}
    settle(computing)
    owned = [part for each in computing.parts().values() for part in each.get(ORDERS, ())]
    assert sorted(owned) == [0, 1, 2]


def test_the_successor_of_a_static_member_gets_the_part_that_was_computed_for_it(
    computing: Consumers,
) -> None:
    """Its return does not change the group's epoch, so no other assignment would follow."""
    computing.beat("s", -2, instance_id="i")
    epoch = computing.group.epoch
    computing.join("t", instance_id="i", topics=("orders",))
    assert computing.group.epoch == epoch
    computing.side.finish()
    assert computing.parts()["t"] == {ORDERS: (1,)}
    settle(computing)
    assert computing.group.target_value.epoch == computing.group.epoch == epoch


def test_topics_that_grow_meanwhile_are_assigned_next(computing: Consumers) -> None:
    topics = computing.node.host.topics
    topics["payments"] += topics["payments"][:2]
    computing.node.shards.on_topics(has_new=False)
    computing.report("a")
    computing.side.finish()
    settle(computing)
    assert computing.parts()["d"] == {PAYMENTS: (0, 1, 2, 3, 4)}


def test_an_assignment_is_dropped_if_all_members_left(computing: Consumers) -> None:
    for name in "absd":
        computing.beat(name, -1)
    epoch = computing.group.target_value.epoch
    computing.join("new")
    computing.side.finish()
    assert computing.group.target_value.epoch == epoch
    assert "a" not in computing.group.target
    settle(computing)
    assert computing.parts() == {"new": {ORDERS: (0, 1, 2)}}


def test_an_assignment_of_a_deleted_group_is_dropped(computing: Consumers) -> None:
    for name in "absd":
        computing.beat(name, -1)
    deleted = EagerCalls(computing.node.coordinator).delete_group("g")
    assert deleted is ErrorCode.NONE
    computing.side.finish()
    assert computing.node.coordinator.any_group("g") is None


def test_a_restart_computes_an_assignment_again(computing: Consumers) -> None:
    computing.node.restart()
    computing.side.waiting.clear()
    computing.report("a")
    assert len(computing.side.waiting) == 1
    settle(computing)
    assert computing.parts()["d"] == {PAYMENTS: (0, 1, 2)}


def test_an_assignment_that_cannot_be_written_is_computed_again(computing: Consumers) -> None:
    computing.node.host.break_disk()
    computing.side.finish()
    computing.node.host.mend_disk()
    assert not computing.group.computes_assignment
    assert "d" not in computing.parts()
    settle(computing)
    assert computing.parts()["d"] == {PAYMENTS: (0, 1, 2)}


def test_an_assignor_that_fails_does_not_keep_its_group_from_the_next_assignment(
    computing: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no assignment")

    with monkeypatch.context() as patched:
        patched.setitem(ASSIGNORS, "uniform", fail)
        computing.side.finish()
    assert [str(each) for each in computing.node.host.failures] == ["no assignment"]
    assert not computing.group.computes_assignment
    settle(computing)
    assert computing.parts()["d"] == {PAYMENTS: (0, 1, 2)}


def test_patterns_that_are_resolved_meanwhile_count_in_the_next_assignment(
    computing: Consumers,
) -> None:
    """The epoch of the assignment that is computed cannot serve for topics that it lacks."""
    group = computing.group
    epoch = group.epoch
    computing.side.finish()
    computing.node.host.pass_time(INTERVAL_MS)
    beat = Beat("p", 0, "client", "/127.0.0.1", None, None, 60_000, ("orders",), "pay.*", owned={})
    outcome = heartbeat(
        group,
        beat,
        now_ms=computing.node.host.now_ms(),
        topics=computing.node.host,
        limits=computing.node.coordinator.consumer.limits("g"),
    )
    assert outcome.task is not None
    for each in outcome.records:
        group.replay(each, 0)
    group.computed_epoch = outcome.task.epoch
    found = PatternValue(frozenset({"payments"}), 1, 0)
    resolved = pattern_resolved(group, "pay.*", found)
    assert [each.value for each in resolved] == [found, EpochValue(epoch + 2, group.metadata_hash)]
