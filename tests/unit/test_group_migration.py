"""Groups with members of both protocols on the coordinator, one rule at a time."""

import struct
from typing import Any

import pytest

from support.eager_calls import EagerCalls
from support.group_host import TOPICS, GroupNode
from txn.broker import consumer_groups, group_coordinator
from txn.broker.committed_offsets import Committer
from txn.broker.host import RETRY_MS
from txn.coordinator.group.classic.group import GroupState
from txn.coordinator.group.classic.requests import Join, JoinAnswer, Leaver, Sync, SyncAnswer
from txn.coordinator.group.consumer.beat import Beat, BeatAnswer
from txn.coordinator.group.consumer.embedded import decode_assignment, encode_assignment
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.consumer.migration import Rules
from txn.coordinator.group.records import OffsetKey
from txn.wire.error_codes import ErrorCode

ORDERS = TOPICS["orders"]
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff\x00\x00\x00\x00"
REBALANCE_MS = 60_000
SESSION_MS = 10_000
STEP_MS = 5_000


class Both:
    """Members of both protocols of the group "g" of one node."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("group_consumer_assignment_interval_ms", 0)
        self.node = GroupNode(**settings)
        self.protocol = "range"
        """The protocol of the group while it is classic."""

    # ---- the consumer protocol

    def beat(self, member_id: str, epoch: int, **fields: Any) -> BeatAnswer:
        beat = Beat(member_id, epoch, "client", "/127.0.0.1", **fields)
        answer: BeatAnswer = EagerCalls(self.node.coordinator.consumer).heartbeat("g", beat, None)
        return answer

    def join(self, member_id: str, **fields: Any) -> BeatAnswer:
        return self.beat(
            member_id,
            0,
            rebalance_timeout_ms=REBALANCE_MS,
            topics=("orders",),
            owned={},
            **fields,
        )

    # ---- the classic protocol

    def classic_join(
        self,
        member_id: str = "",
        *,
        protocols: tuple[tuple[str, bytes], ...] = (("range", SUBSCRIPTION),),
        instance_id: str | None = None,
        protocol_type: str = "consumer",
        version: int = 3,
    ) -> list[JoinAnswer]:
        request = Join(
            version,
            member_id,
            f"m{next(self.node.ids)}",
            instance_id,
            "client",
            "/127.0.0.1",
            REBALANCE_MS,
            SESSION_MS,
            protocol_type,
            protocols,
        )
        return self.node.answers_to(self.node.coordinator.join("g", request))

    def sync(self, member_id: str, generation: int, **assigned: bytes) -> list[SyncAnswer]:
        request = Sync(generation, member_id, None, "consumer", self.protocol, assigned)
        return self.node.answers_to(self.node.coordinator.sync("g", request))

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        code: ErrorCode = self.node.groups.heartbeat("g", member_id, None, generation)
        return code

    def stable(self, assignment: bytes | None = None) -> str:
        """The id of the only member of a classic group of generation 1."""
        joined = self.classic_join()
        self.node.host.pass_time(0)
        (answer,) = joined
        if assignment is None:
            assignment = encode_assignment({"orders": (0, 1, 2)}, SUBSCRIPTION)
        self.sync(answer.member_id, 1, **{answer.member_id: assignment})
        return answer.member_id

    def commit(self, member_id: str, epoch: int, partition: int = 0, *, knows: bool) -> ErrorCode:
        code: ErrorCode = self.node.offsets.commit(
            Committer("g", epoch, member_id),
            {OffsetKey("g", "orders", partition): self.node.value(1)},
            knows_group_not_found=knows,
        )
        return code

    def pass_time(self, duration_ms: int, classic: dict[str, int], **beats: int) -> None:
        """Let time pass; the named members send heartbeats meanwhile."""
        for _ in range(0, duration_ms, STEP_MS):
            self.node.host.pass_time(STEP_MS)
            for member_id, generation in classic.items():
                self.heartbeat(member_id, generation)
            for member_id, epoch in beats.items():
                self.beat(member_id, epoch)

    def epoch_of(self, member_id: str) -> int:
        group = self.node.coordinator.any_group("g")
        assert isinstance(group, ConsumerGroup)
        return group.members[member_id].epoch

    def assigned_to(self, member_id: str) -> frozenset[int]:
        group = self.node.coordinator.any_group("g")
        assert isinstance(group, ConsumerGroup)
        return frozenset(group.members[member_id].current.assigned.get(ORDERS, ()))

    @property
    def members(self) -> set[str]:
        group = self.node.coordinator.any_group("g")
        return set() if group is None else set(group.members)

    @property
    def is_consumer_group(self) -> bool:
        return isinstance(self.node.coordinator.any_group("g"), ConsumerGroup)


def told(answer: SyncAnswer) -> dict[str, tuple[int, ...]]:
    partitions = decode_assignment(answer.assignment).partitions
    return {topic: tuple(numbers) for topic, numbers in partitions.items()}


@pytest.fixture
def both() -> Both:
    return Both()


# ---------------------------------------------------------------- upgrade


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_may_forbid_an_upgrade(policy: str) -> None:
    both = Both(group_consumer_migration_policy=policy)
    a = both.stable()
    answer = both.join("b")
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "online upgrade is disabled" in (answer.message or "")
    assert both.heartbeat(a, 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (b"all", "is malformed"),
        (b"\0\0" + bytes(4) + b"\0\0\0\1x", "unsupported custom assignor"),
    ],
)
def test_a_group_with_assignments_that_a_consumer_group_cannot_keep_stays_classic(
    both: Both, assignment: bytes, reason: str
) -> None:
    a = both.stable(assignment)
    answer = both.join("b")
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert reason in (answer.message or "")
    assert both.heartbeat(a, 1) is ErrorCode.NONE


def test_a_group_that_is_no_group_of_consumers_stays_classic(both: Both) -> None:
    both.classic_join(protocol_type="connect")
    answer = both.join("b")
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "consumer embedded protocol" in (answer.message or "")


def test_a_group_with_more_members_than_a_consumer_group_may_have_stays_classic() -> None:
    both = Both(group_consumer_max_size=1)
    both.classic_join()
    both.classic_join()
    answer = both.join("b")
    assert "exceeds the consumer group maximum size" in (answer.message or "")


def test_members_that_wait_in_a_round_are_sent_to_join_the_consumer_group(both: Both) -> None:
    first = both.classic_join()
    both.node.host.pass_time(0)
    waiting = both.classic_join()
    assert both.join("b").error is ErrorCode.NONE
    both.node.host.pass_time(0)
    assert [one.error for one in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert len(both.members) == 3
    assert both.heartbeat(first[0].member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_partition_that_was_assigned_twice_has_one_owner(both: Both) -> None:
    """The leader of a classic group may be wrong."""
    joined = [both.classic_join(), both.classic_join()]
    both.node.host.pass_time(0)
    names = [answers[0].member_id for answers in joined]
    twice = encode_assignment({"orders": (0, 1)}, SUBSCRIPTION)
    for name in names:
        both.sync(name, 1, **dict.fromkeys(names, twice))
    both.join("b")
    group = both.node.coordinator.consumer.get("g")
    assert group is not None
    assert {group.owner(ORDERS, partition) for partition in (0, 1)} == {names[0]}


def cooperative(*owned: int, generation: int = -1) -> tuple[tuple[str, bytes], ...]:
    """The protocols of a member that reads on in rounds."""
    names = b"\x00\x02\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
    parts = b"".join(struct.pack(">i", each) for each in owned)
    owns = struct.pack(">ih6si", 1, 6, b"orders", len(owned)) + parts if owned else bytes(4)
    return (("cooperative-sticky", names + owns + struct.pack(">i", generation)),)


def test_members_that_read_on_in_a_round_keep_their_partitions(both: Both) -> None:
    """Another member that joined withdrew the assignments, and all partitions were given away."""
    both.protocol = "cooperative-sticky"
    a = both.classic_join(protocols=cooperative())
    both.node.host.pass_time(0)
    a_id = a[0].member_id
    all_of_them = encode_assignment({"orders": (0, 1, 2)}, SUBSCRIPTION)
    both.sync(a_id, 1, **{a_id: all_of_them})
    late = both.classic_join(protocols=cooperative(2, generation=0))
    again = both.classic_join(a_id, protocols=cooperative(0, 1, 2, generation=1))
    both.node.host.pass_time(0)
    assert [answer.generation for answer in (*late, *again)] == [2, 2]
    both.classic_join(protocols=cooperative())
    assert both.join("c").assignment == {}
    group = both.node.coordinator.consumer.get("g")
    assert group is not None
    assert {group.owner(ORDERS, partition) for partition in (0, 1, 2)} == {a_id}
    assert both.heartbeat(a_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert both.commit(a_id, 2, knows=True) is ErrorCode.NONE


def test_a_member_that_did_not_hear_of_its_assignment_keeps_the_partitions_that_it_reads(
    both: Both,
) -> None:
    """The leader took one from it. It reads that one until it asks for its assignment."""
    both.protocol = "cooperative-sticky"
    joined = [both.classic_join(protocols=cooperative()) for _ in range(2)]
    both.node.host.pass_time(0)
    a, b = (answers[0].member_id for answers in joined)
    both.classic_join(a, protocols=cooperative(0, generation=1))
    again = both.classic_join(b, protocols=cooperative(1, 2, generation=1))
    generation = again[0].generation
    assigned = {
        name: encode_assignment({"orders": [partition]}, SUBSCRIPTION)
        for partition, name in enumerate((a, b))
    }
    both.sync(a, generation, **assigned)
    assert both.join("c").assignment == {}
    group = both.node.coordinator.consumer.get("g")
    assert group is not None
    assert [group.owner(ORDERS, partition) for partition in (0, 1, 2)] == [a, b, b]


def test_an_upgrade_that_cannot_be_written_changes_nothing(both: Both) -> None:
    a = both.stable()
    both.node.host.break_disk()
    assert both.join("b").error is ErrorCode.NOT_COORDINATOR
    both.node.host.mend_disk()
    assert both.heartbeat(a, 1) is ErrorCode.NONE
    assert both.join("b").error is ErrorCode.NONE


def test_two_that_are_in_the_group_have_all_partitions_after_two_joins(both: Both) -> None:
    a = both.stable()
    b = both.join("b")
    assert b.epoch == 2
    assert both.heartbeat(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    (joined,) = both.classic_join(a)
    assert (joined.generation, joined.protocol, joined.members) == (2, "range", ())
    (synced,) = both.sync(a, 2)
    assert len(told(synced)["orders"]) == 2
    assert both.heartbeat(a, 2) is ErrorCode.NONE
    assert both.beat("b", 2, owned={}).assignment is not None


# ---------------------------------------------------------------- members of both protocols


def test_a_classic_member_that_does_not_join_again_in_time_is_given_up(both: Both) -> None:
    a = both.stable()
    both.join("b")
    both.pass_time(REBALANCE_MS, {a: 1}, b=2)
    assert a in both.members
    both.pass_time(STEP_MS, {a: 1}, b=2)
    assert both.members == {"b"}


def test_a_classic_member_that_does_not_ask_for_its_assignment_is_given_up(both: Both) -> None:
    a = both.stable()
    both.join("b")
    both.classic_join(a)
    both.pass_time(REBALANCE_MS - STEP_MS, {a: 2}, b=2)
    assert a in both.members
    both.pass_time(STEP_MS, {a: 2}, b=2)
    assert both.members == {"b"}


def test_a_classic_member_that_took_both_steps_stays(both: Both) -> None:
    a = both.stable()
    both.join("b")
    both.classic_join(a)
    both.sync(a, 2)
    both.pass_time(3 * REBALANCE_MS, {a: 2}, b=2)
    assert both.members == {a, "b"}


def test_a_classic_member_has_the_session_timeout_that_it_asked_for(both: Both) -> None:
    both.stable()
    both.join("b")
    both.pass_time(2 * SESSION_MS, {}, b=2)
    assert both.members == {"b"}


def test_sessions_begin_anew_after_a_restart(both: Both) -> None:
    a = both.stable()
    both.join("b")
    both.node.host.pass_time(SESSION_MS - 1)
    both.node.restart()
    both.node.host.pass_time(SESSION_MS - 1)
    assert both.members == {a, "b"}
    both.node.host.pass_time(1)
    assert both.members == {"b"}


def test_a_classic_member_commits_with_its_epoch_as_generation(both: Both) -> None:
    a = both.stable()
    both.join("b")
    both.classic_join(a)
    both.sync(a, 2)
    assert both.commit(a, 2, knows=False) is ErrorCode.NONE
    assert both.commit(a, 1, knows=False) is ErrorCode.NONE  # it has the partition since then
    assert both.commit(a, 1, partition=2, knows=False) is ErrorCode.ILLEGAL_GENERATION
    assert both.commit(a, 3, knows=True) is ErrorCode.ILLEGAL_GENERATION
    assert both.commit("b", 2, knows=False) is ErrorCode.UNSUPPORTED_VERSION
    refusal = both.node.coordinator.offsets.fetch_refusal
    assert refusal("g", a, 1) is ErrorCode.ILLEGAL_GENERATION
    assert refusal("g", a, 2) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("sticky", SUBSCRIPTION),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b"\0"),)}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"version": 9}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"member_id": "x", "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_classic_member_may_be_refused(
    both: Both, fields: dict[str, Any], code: ErrorCode
) -> None:
    both.stable()
    both.join("b")
    before = both.members
    assert [one.error for one in both.classic_join(**fields)] == [code]
    assert both.members == before


def test_a_classic_member_of_a_consumer_group_may_join_again_at_the_limit_of_all_groups(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as a new group with a new member. So it was refused and given up."""
    both.join("b")
    (joined,) = both.classic_join(instance_id="i")
    held = sum(shard.state.held_bytes for shard in both.node.shards.shards)
    monkeypatch.setattr(group_coordinator, "HELD_BYTES_MAX", held)
    (again,) = both.classic_join(joined.member_id, instance_id="i")
    assert again.error is ErrorCode.NONE
    (back,) = both.classic_join(instance_id="i")
    assert back.error is ErrorCode.NONE
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    (larger,) = both.classic_join(back.member_id, protocols=(("range", SUBSCRIPTION + bytes(9)),))
    assert larger.error is refused
    (new,) = both.classic_join()
    assert new.error is refused


def with_a_consumer_away(both: Both) -> tuple[JoinAnswer, JoinAnswer]:
    """Two classic members beside a static consumer that went for a while."""
    both.join("s", instance_id="i")
    for _ in range(2):
        both.classic_join()
    for _ in range(3):  # the consumer gives partitions up, and both others get them
        epoch = both.beat("s", both.epoch_of("s"), instance_id="i").epoch
        kept = both.assigned_to("s")
        both.beat("s", epoch, instance_id="i", owned={ORDERS: kept} if kept else {})
        joined = [both.classic_join(name)[0] for name in sorted(both.members - {"s"})]
        for one in joined:
            both.sync(one.member_id, one.generation)
    for one in joined:
        assert both.heartbeat(one.member_id, one.generation) is ErrorCode.NONE
    both.beat("s", -2, instance_id="i")
    return joined[0], joined[1]


def test_classic_members_do_not_wait_for_a_consumer_that_is_away(both: Both) -> None:
    """Only the heartbeat of a consumer had the partitions of a member that left given away."""
    a, b = with_a_consumer_away(both)
    both.node.groups.leave("g", [Leaver(b.member_id)])
    assert both.heartbeat(a.member_id, a.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    (synced,) = both.sync(a.member_id, a.generation)
    assert synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    (again,) = both.classic_join(a.member_id)
    (synced,) = both.sync(a.member_id, again.generation)
    assert len(told(synced)["orders"]) == 2
    assert both.heartbeat(a.member_id, again.generation) is ErrorCode.NONE


def test_classic_members_see_that_a_topic_has_grown_while_a_consumer_is_away(both: Both) -> None:
    a, _ = with_a_consumer_away(both)
    topics = both.node.host.topics
    topics["orders"].append(topics["orders"][0])
    both.node.shards.on_topics(has_new=False)
    assert both.heartbeat(a.member_id, a.generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_classic_members_wait_until_an_assignment_is_due() -> None:
    both = Both(group_consumer_assignment_interval_ms=5_000)
    both.join("c")
    (a,) = both.classic_join()
    (b,) = both.classic_join()
    both.node.groups.leave("g", [Leaver(b.member_id)])
    assert both.heartbeat(a.member_id, a.generation) is ErrorCode.NONE
    assert both.sync(a.member_id, a.generation)[0].error is ErrorCode.NONE
    both.node.host.pass_time(5_000)
    assert both.heartbeat(a.member_id, a.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert both.sync(a.member_id, a.generation)[0].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_consumer_group_may_be_full() -> None:
    both = Both(group_consumer_max_size=1)
    both.join("b")
    (answer,) = both.classic_join()
    assert answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED


# ---------------------------------------------------------------- downgrade


@pytest.mark.parametrize("way", ["leaves", "is removed", "falls silent"])
def test_the_group_is_classic_when_its_last_consumer_goes(both: Both, way: str) -> None:
    a = both.stable()
    both.join("b")
    both.classic_join(a)
    both.sync(a, 2)
    if way == "leaves":
        both.beat("b", -1)
    elif way == "is removed":
        assert both.node.groups.leave("g", [Leaver("b")]) == (ErrorCode.NONE,)
    else:
        both.pass_time(50_000, {a: 2})
    group = both.node.coordinator.group("g")
    assert group is not None
    assert (group.state, group.generation) == (GroupState.PREPARING_REBALANCE, 2)
    assert both.heartbeat(a, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    (answer,) = both.classic_join(a)
    assert (answer.generation, answer.leader) == (3, a)


def test_a_crash_behind_a_downgrade_does_not_lose_the_round(both: Both) -> None:
    """The record says Stable, with an assignment that lacks the partitions of the one that went.

    So the member went on, and nobody read them.
    """
    a = both.stable()
    both.join("b")
    both.classic_join(a)
    both.sync(a, 2)
    both.beat("b", -1)
    both.node.restart()
    assert both.heartbeat(a, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    (answer,) = both.classic_join(a)
    both.sync(a, answer.generation)
    both.node.restart()
    assert both.heartbeat(a, answer.generation) is ErrorCode.NONE


def test_a_group_that_may_not_become_classic_gives_all_to_those_that_are_left() -> None:
    """In Kafka nobody computes their assignment then."""
    both = Both(group_consumer_migration_policy="upgrade")
    a = both.stable()
    both.join("b")
    both.classic_join(a)
    both.sync(a, 2)
    both.beat("b", -1)
    assert both.is_consumer_group
    assert both.heartbeat(a, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    (answer,) = both.classic_join(a)
    (synced,) = both.sync(a, answer.generation)
    assert told(synced) == {"orders": (0, 1, 2)}
    assert both.heartbeat(a, answer.generation) is ErrorCode.NONE


def test_a_group_whose_downgrade_does_not_fit_into_a_batch_stays(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = both.stable()
    both.join("b")
    monkeypatch.setattr(
        consumer_groups.ConsumerGroups,
        "rules",
        property(lambda groups: Rules("bidirectional", 10, 10, 200)),
    )
    both.beat("b", -1)
    assert both.is_consumer_group
    assert both.members == {a}


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_group_with_a_protocol_that_cannot_be_read_is_not_downgraded(
    both: Both, is_silent: bool
) -> None:
    """A join reads the preferred protocol. The downgrade failed at the selected one, and for good.

    So nobody could leave, and members that went silent stayed.
    """
    both.join("b")
    (odd,) = both.classic_join(protocols=(("zz", SUBSCRIPTION), ("range", b"")))
    (plain,) = both.classic_join()
    left = {odd.member_id, plain.member_id}
    if is_silent:
        both.pass_time(50_000, {odd.member_id: odd.generation, plain.member_id: plain.generation})
    else:
        both.beat("b", -1)
    assert both.is_consumer_group
    assert both.members == left


def test_a_group_with_a_protocol_that_cannot_be_read_stays_classic(both: Both) -> None:
    """The selected protocol is readable, and the preferred one is not: it could not sync."""
    odd = both.classic_join(protocols=(("zz", b""), ("range", SUBSCRIPTION)))
    both.classic_join()
    both.node.host.pass_time(0)
    answer = both.join("b")
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "is malformed" in (answer.message or "")
    assert odd[0].member_id in both.members


def test_a_timer_that_failed_rings_again(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.join("b")

    def fail(_: object) -> None:
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(both.node.coordinator.consumer, "expire", fail)
        with pytest.raises(ValueError, match="a defect"):
            both.node.host.pass_time(50_000)
    assert both.members == {"b"}
    both.node.host.pass_time(RETRY_MS)
    assert both.members == set()


def test_a_group_without_members_is_not_downgraded(both: Both) -> None:
    both.join("b")
    both.beat("b", -1)
    assert both.is_consumer_group
    assert both.members == set()


def test_a_group_of_classic_members_alone_sees_that_a_topic_has_grown() -> None:
    """No heartbeat of the consumer protocol looks at the topics, so a new partition went unread."""
    both = Both(group_consumer_migration_policy="upgrade")
    a = both.stable()
    both.join("b")
    both.beat("b", -1)
    (joined,) = both.classic_join(a)
    both.sync(a, joined.generation)
    assert both.heartbeat(a, joined.generation) is ErrorCode.NONE
    topics = both.node.host.topics
    topics["orders"].append(topics["orders"][0])
    both.node.shards.on_topics(has_new=False)
    assert both.heartbeat(a, joined.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    (joined,) = both.classic_join(a)
    (synced,) = both.sync(a, joined.generation)
    assert told(synced) == {"orders": (0, 1, 2, 3)}
    both.node.shards.on_topics(has_new=True)
    assert both.heartbeat(a, joined.generation) is ErrorCode.NONE


def test_members_on_the_way_to_their_target_join_again_behind_a_static_members_change() -> None:
    """One that waited for a partition of the static member heard of it never again."""
    both = Both()
    both.join("s", instance_id="i")
    (waiting,) = both.classic_join()
    (synced,) = both.sync(waiting.member_id, waiting.generation)
    assert told(synced) == {}
    (changed,) = both.classic_join(instance_id="i")
    assert both.heartbeat(waiting.member_id, waiting.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = [
        both.classic_join(waiting.member_id),
        both.classic_join(changed.member_id, instance_id="i"),
    ]
    ((leader,), (other,)) = joined
    assert leader.generation == other.generation > waiting.generation


def test_a_group_that_nobody_leads_has_a_round_when_topics_change(both: Both) -> None:
    """A static member that comes back with the classic protocol needs no round.

    It does not know that it leads its group. So a partition that was added later went unread.
    """
    assert both.join("s", instance_id="i").epoch == 2
    (joined,) = both.classic_join(instance_id="i")
    assert (joined.error, joined.generation, joined.leader) == (ErrorCode.NONE, 2, "")
    code = both.node.groups.heartbeat
    named = ("g", joined.member_id, "i", 2)
    assert code(*named) is ErrorCode.NONE
    both.node.shards.on_topics(has_new=False)
    assert code(*named) is ErrorCode.REBALANCE_IN_PROGRESS
    (again,) = both.classic_join(joined.member_id, instance_id="i")
    assert (again.generation, again.leader) == (3, joined.member_id)
    both.sync(joined.member_id, 3)
    both.node.shards.on_topics(has_new=False)
    assert code("g", joined.member_id, "i", 3) is not ErrorCode.REBALANCE_IN_PROGRESS
