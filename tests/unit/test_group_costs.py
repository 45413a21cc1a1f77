"""The work of one step on a group grows with its members, and not with their square.

LeaveGroup looked at every member for each leaver: 796 KB of names held the control loop for 20 s.
OffsetDelete read all subscriptions again for each topic, which would have taken 50 minutes. Ten
thousand ids that lapsed together took 3 s, and each join read the protocols of every member.
"""

import asyncio
from collections.abc import Callable

import pytest

from support.group_host import GroupNode
from support.group_rounds import Rounds
from support.steps import steps_of
from txn.broker.host import Timer
from txn.coordinator.group.classic import subscriptions
from txn.coordinator.group.classic.group import Group, GroupState, Limits
from txn.coordinator.group.classic.joining import join
from txn.coordinator.group.classic.membership import expire, leave
from txn.coordinator.group.classic.requests import Join, Leaver
from txn.coordinator.group.classic.subscriptions import subscribed_topics
from txn.coordinator.group.members import Member, Members, Protocols
from txn.coordinator.group.offsets import expired_offsets
from txn.coordinator.group.records import OffsetKey
from txn.wire.error_codes import ErrorCode

RANGE: Protocols = (("range", b""),)


def subscription(*topics: str) -> bytes:
    names = b"".join(len(name).to_bytes(2) + name.encode() for name in topics)
    return b"\x00\x01" + len(topics).to_bytes(4) + names


def member(number: int, protocols: Protocols = RANGE) -> Member:
    return Member(f"m{number}", f"i{number}", "client", "/host", 60_000, 10_000, protocols, number)


def stable(count: int, protocols: Protocols = RANGE) -> Group:
    return Group(
        "g",
        state=GroupState.STABLE,
        generation=1,
        protocol_type="consumer",
        protocol=protocols[0][0],
        leader="m0",
        members=Members(member(number, protocols) for number in range(count)),
    )


def assert_grows_with_size(steps: Callable[[int], int]) -> None:
    """Twice the size takes about twice the steps; four times as many if they are squared."""
    assert steps(400) < 3 * steps(200)


def leave_all(count: int) -> int:
    group = stable(count)
    leavers = tuple(Leaver("", f"i{number}") for number in range(count))
    return steps_of(lambda: leave(group, leavers, now_ms=0))


def test_members_that_leave_together_are_found_each_by_one_look() -> None:
    assert_grows_with_size(leave_all)


def leave_unknown(count: int) -> int:
    group = stable(count)
    leavers = tuple(Leaver("", "nobody") for _ in range(count))
    return steps_of(lambda: leave(group, leavers, now_ms=0))


def test_leavers_that_nobody_knows_are_told_by_one_look() -> None:
    assert_grows_with_size(leave_unknown)


def test_names_of_no_member_are_told_apart_with_turns_for_others() -> None:
    node = GroupNode()
    member = node.form("g")
    leavers = [*(Leaver(f"x{number}") for number in range(1_000)), Leaver(member.member_id)]

    async def main() -> tuple[int, tuple[ErrorCode, ...]]:
        leaving = asyncio.ensure_future(node.coordinator.leave("g", leavers))
        turns = 0
        while not leaving.done():
            await asyncio.sleep(0)
            turns += 1
        return turns, await leaving

    turns, codes = asyncio.run(main())
    assert turns > 5
    assert codes == (ErrorCode.UNKNOWN_MEMBER_ID,) * 1_000 + (ErrorCode.NONE,)


def test_the_clean_up_of_many_groups_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    node = GroupNode()
    calls: list[int] = []

    def call_at(when_ms: int, call: Callable[[], object]) -> Timer:
        calls.append(when_ms - node.host.now)
        return original(when_ms, call)

    original = node.host.call_at
    monkeypatch.setattr(node.host, "call_at", call_at)
    for number in range(100):
        node.join(f"g{number}", version=4)
    node.host.pass_time(11_000)
    node.host.pass_time(600_000)
    assert list(node.groups.groups()) == []
    assert calls.count(0) == 4


def lapse(count: int) -> int:
    group = Group("g", pending={f"m{number}": 5 for number in range(count)})
    return steps_of(lambda: expire(group, now_ms=10))


def test_ids_that_lapse_together_go_in_one_pass() -> None:
    assert_grows_with_size(lapse)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Members]:
    """Every copy of the members that is made from now on."""
    copies: list[Members] = []

    def counted(self: Members, *members: object) -> None:
        copies.append(self)
        original(self, *members)  # type: ignore[arg-type]

    original = Members.__init__
    monkeypatch.setattr(Members, "__init__", counted)
    return copies


def test_sessions_that_end_together_cost_one_copy(made: list[Members]) -> None:
    group = stable(100)
    made.clear()
    after = expire(group, now_ms=1_000)
    assert after.group is not None
    assert (after.group.state, len(after.group.members)) == (GroupState.EMPTY, 0)
    assert len(made) == 1


def test_members_that_leave_together_cost_one_copy(made: list[Members]) -> None:
    group = stable(100)
    leavers = tuple(Leaver(f"m{number}") for number in range(100))
    made.clear()
    _, codes = leave(group, leavers, now_ms=0)
    assert set(codes) == {ErrorCode.NONE}
    assert len(made) == 1


def refused_join(protocols: int) -> int:
    group = stable(100, tuple((f"p{number}", b"") for number in range(protocols)))
    rounds = Rounds()
    rounds.found = group
    request = Join(5, "", "fresh", "i", "client", "/host", 1, 1, "consumer", (("other", b""),))
    return steps_of(lambda: join(group, request, group_id="g", now_ms=0, limits=Limits()))


def test_a_join_reads_the_protocols_of_no_other_member() -> None:
    assert refused_join(100) == refused_join(1)


def test_equal_subscriptions_are_read_once() -> None:
    same = subscription(*(f"topic {number}" for number in range(100)))
    one = steps_of(lambda: subscribed_topics(stable(1, (("range", same),))))
    ten = steps_of(lambda: subscribed_topics(stable(10, (("range", same + b"own"),))))
    assert ten < 2 * one


def test_a_group_that_subscribes_to_too_many_topics_counts_as_subscribed_to_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "SUBSCRIBED_MAX", 2)
    members = [member(number, (("range", subscription(f"t{number}")),)) for number in range(3)]
    group = stable(1)._replace(members=Members(members[:2]))
    assert subscribed_topics(group) == frozenset({"t0", "t1"})
    assert subscribed_topics(group._replace(members=Members(members))) is None


def expire_offsets(count: int) -> int:
    """The steps for a member with `count` topics, and as many offsets that are over."""
    node = GroupNode()
    for number in range(count):
        key = OffsetKey("g", f"t{number}", 0)
        node.shards.of("g").state.offsets.put(key, node.value(1), record_offset=number)
    names = [f"t{number}" for number in range(count)]
    group = stable(1, (("range", subscription(*names)),))
    table = node.shards.of("g").state.offsets
    return steps_of(lambda: expired_offsets(group, table, now_ms=1 << 60, retention_ms=1))


def test_the_clean_up_reads_the_subscriptions_of_a_group_once() -> None:
    assert_grows_with_size(expire_offsets)


def keys_of_group(others: int) -> int:
    """The steps to list the offsets of a group beside those of other groups in transactions."""
    node = GroupNode()
    table = node.shards.of("g").state.offsets
    for number in range(others):
        key = OffsetKey(f"h{number}", "orders", 0)
        table.put(key, node.value(1), record_offset=number, producer_id=7)
    return steps_of(lambda: table.keys_of_group("g"))


def test_the_offsets_of_a_group_are_listed_without_those_of_others() -> None:
    assert keys_of_group(100) == keys_of_group(1)


def heartbeat(others: int) -> int:
    """The steps of a heartbeat in a group with so many other members."""
    node = GroupNode()
    member = node.form("g")
    group = node.coordinator.group("g")
    assert group is not None
    members = [*group.members.values(), *stable(others).members.values()]
    node.shards.of("g").state.put_live(group._replace(members=Members(members)))
    beat = (member.member_id, None, member.generation)
    return steps_of(lambda: node.groups.heartbeat("g", *beat))


def test_a_heartbeat_looks_at_no_other_session() -> None:
    assert heartbeat(400) < heartbeat(1) + 400


def test_a_session_that_a_heartbeat_shortens_ends_on_time() -> None:
    """A new member may wait for five minutes; from its first heartbeat on its session counts."""
    node = GroupNode(group_initial_rebalance_delay_ms=60_000)
    node.join("g")
    (member_id,) = _members(node)
    node.host.pass_time(1_000)
    assert node.groups.heartbeat("g", member_id, None, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    node.host.pass_time(10_000)
    assert _members(node) == []


def _members(node: GroupNode) -> list[str]:
    group = node.coordinator.group("g")
    return [] if group is None else list(group.members)


# ---------------------------------------------------------------- the same answers as one by one


def test_a_leaver_that_is_named_again_is_unknown() -> None:
    group = stable(3)
    leavers = (
        Leaver("m0"),
        Leaver("m0"),
        Leaver("", "i0"),
        Leaver("m9", "i0"),
        Leaver("m9", "i1"),
        Leaver("m1", "i1"),
    )
    after, codes = leave(group, leavers, now_ms=0)
    unknown, fenced = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
    assert codes == (ErrorCode.NONE, unknown, unknown, unknown, fenced, ErrorCode.NONE)
    assert after.group is not None
    assert (set(after.group.members), after.group.leader) == ({"m2"}, "m2")


def test_members_are_found_by_instance_until_they_go() -> None:
    members = Members(member(number) for number in range(3))
    found = members.of_instance("i1")
    assert found == member(1)
    assert members.without(["m1"]).of_instance("i1") is None
    assert members.of_instance("i1") == member(1)


def test_a_protocol_is_common_again_when_the_one_that_lacked_it_goes() -> None:
    both: Protocols = (("range", b""), ("sticky", b""), ("sticky", b"twice"))
    members = Members([member(0, both), member(1)])
    assert members.common_protocols() == {"range"}
    assert members.without(["m1"]).common_protocols() == {"range", "sticky"}
    assert members.with_member(member(1, both)).common_protocols() == {"range", "sticky"}


def test_the_size_of_members_is_the_sum_of_theirs() -> None:
    members = Members(member(number) for number in range(3))
    changed = members.with_member(member(1)._replace(assignment=b"much", protocols=()))
    changed = changed.with_member(changed["m2"]._replace(assignment=b"some")).without(["m0"])
    assert changed.size_bytes == sum(one.size_bytes for one in changed.values())
    assert list(changed) == ["m1", "m2"]
