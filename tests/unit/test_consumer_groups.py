"""Groups of the consumer protocol (KIP-848) on the coordinator, one rule at a time."""

import uuid
from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.eager_calls import EagerCalls
from support.group_host import TOPICS, GroupNode
from txn.broker import consumer_groups, group_coordinator
from txn.broker.committed_offsets import Committer
from txn.broker.consumer_groups import RESOLVE_PAUSE_MS
from txn.broker.group_coordinator import GROUP_BATCHES
from txn.coordinator.group.consumer.beat import Beat, BeatAnswer
from txn.coordinator.group.consumer.group import (
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
)
from txn.coordinator.group.consumer.patterns import PATTERNS_MAX
from txn.coordinator.group.consumer.records import MemberValue
from txn.coordinator.group.records import OffsetKey
from txn.wire.error_codes import ErrorCode

SESSION_MS = 45_000
INTERVAL_MS = 1_000
ORDERS, PAYMENTS = TOPICS["orders"], TOPICS["payments"]

Parts = Mapping[uuid.UUID, tuple[int, ...]]


class Consumers:
    """Members of the group "g" of one node, and their heartbeats."""

    def __init__(self, **settings: object) -> None:
        self.node = GroupNode(**settings)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> BeatAnswer:
        beat = Beat(member_id, epoch, "client", "/127.0.0.1", **fields)
        answer: BeatAnswer = EagerCalls(self.node.coordinator.consumer).heartbeat("g", beat, None)
        return answer

    def join(self, member_id: str, *topics: str, **fields: Any) -> BeatAnswer:
        fields.setdefault("pattern", None)
        return self.beat(
            member_id,
            0,
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", 60_000),
            topics=topics or ("orders",),
            owned={},
            **fields,
        )

    def report(self, member_id: str, epoch: int, owned: Parts) -> BeatAnswer:
        return self.beat(
            member_id, epoch, owned={topic: frozenset(each) for topic, each in owned.items()}
        )

    def report_static(self, member_id: str, epoch: int, instance_id: str) -> BeatAnswer:
        return self.beat(member_id, epoch, instance_id=instance_id, owned={})

    @property
    def group(self) -> ConsumerGroup:
        group = self.node.coordinator.consumer.get("g")
        assert group is not None
        return group

    def pass_time(self, duration_ms: int) -> None:
        self.node.host.pass_time(duration_ms)


def told(answer: BeatAnswer) -> dict[uuid.UUID, tuple[int, ...]] | None:
    assert answer.error is ErrorCode.NONE, answer
    if answer.assignment is None:
        return None
    return {topic: tuple(sorted(epochs)) for topic, epochs in answer.assignment.items()}


@pytest.fixture
def consumers() -> Consumers:
    return Consumers()


@pytest.fixture
def pair(consumers: Consumers) -> Consumers:
    """Two members, `a` with the partitions 0 and 1 of orders, `b` with 2, both in epoch 3."""
    consumers.join("a")
    consumers.pass_time(INTERVAL_MS)
    consumers.join("b")
    answer = consumers.report("a", 2, {ORDERS: (0, 1, 2)})
    kept = told(answer)
    assert kept == {ORDERS: (0, 1)}
    assert consumers.report("a", 2, kept).epoch == 3
    assert told(consumers.report("b", 3, {})) == {ORDERS: (2,)}
    return consumers


def test_the_first_member_gets_every_partition_at_once(consumers: Consumers) -> None:
    answer = consumers.join("a")
    assert (answer.member_id, answer.epoch) == ("a", 2)
    assert told(answer) == {ORDERS: (0, 1, 2)}
    assert consumers.group.state is ConsumerGroupState.STABLE


def test_a_partition_is_given_only_when_it_was_given_back(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.pass_time(INTERVAL_MS)
    answer = consumers.join("b")
    assert (told(answer), answer.epoch) == ({}, 3)
    kept = consumers.report("a", 2, {ORDERS: (0, 1, 2)})
    assert (told(kept), kept.epoch) == ({ORDERS: (0, 1)}, 2)
    assert told(consumers.report("b", 3, {})) is None
    acknowledged = consumers.report("a", 2, {ORDERS: (0, 1)})
    assert (told(acknowledged), acknowledged.epoch) == (None, 3)
    assert told(consumers.report("b", 3, {})) == {ORDERS: (2,)}
    assert consumers.group.state is ConsumerGroupState.STABLE


def test_members_that_come_at_once_cost_one_assignment(consumers: Consumers) -> None:
    """KIP-1263: an assignment waits for the interval since the last one."""
    consumers.join("a")
    for name in "bcd":
        assert told(consumers.join(name)) == {}
    assert consumers.group.epoch == 5
    assert consumers.group.target_value.epoch == 2
    assert consumers.group.state is ConsumerGroupState.ASSIGNING
    consumers.pass_time(INTERVAL_MS)
    consumers.report("d", 2, {})
    assert consumers.group.target_value.epoch == 5


def test_an_idle_heartbeat_looks_at_no_other_member(monkeypatch: pytest.MonkeyPatch) -> None:
    consumers = Consumers(group_consumer_max_size=3_000)
    for number in range(2_000):
        consumers.join(f"m{number}")
    consumers.pass_time(INTERVAL_MS)
    answer = consumers.report("m7", 2, {})
    assert answer.epoch == consumers.group.epoch
    looks: list[str] = []
    members = consumers.group.members

    class Watched(UserDict[str, ConsumerMember]):
        def __iter__(self) -> Iterator[str]:
            looks.append("all members")
            return super().__iter__()

    def next_deadline(group: ConsumerGroup, session_timeout_ms: int) -> int | None:
        looks.append("all deadlines")
        return None

    def topics_of(group: ConsumerGroup, subscription: MemberValue) -> set[str]:
        looks.append("all topics")
        return set()

    monkeypatch.setattr(ConsumerGroup, "members", property(lambda _: Watched(members)))
    monkeypatch.setattr(ConsumerGroup, "next_deadline", next_deadline)
    monkeypatch.setattr(ConsumerGroup, "topics_of", topics_of)
    looks.clear()
    assert consumers.beat("m7", answer.epoch).error is ErrorCode.NONE
    assert looks == []


def test_equal_subscriptions_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    consumers = Consumers()
    for name in "abcdefgh":
        consumers.join(name)
    looks: list[MemberValue] = []

    def topics_of(group: ConsumerGroup, subscription: MemberValue) -> set[str]:
        looks.append(subscription)
        return set(subscription.topics)

    monkeypatch.setattr(ConsumerGroup, "topics_of", topics_of)
    consumers.pass_time(INTERVAL_MS)
    consumers.beat("h", 2)
    assert consumers.group.target_value.epoch == consumers.group.epoch
    assert len(looks) <= 2  # the assignment, and the member's own part


def test_an_interval_of_nothing_assigns_with_each_change() -> None:
    consumers = Consumers(group_consumer_assignment_interval_ms=0)
    for epoch, name in enumerate("abc", 2):
        assert consumers.join(name).epoch == epoch


def test_a_lost_answer_is_told_again(pair: Consumers) -> None:
    """A member of the previous epoch that owns nothing else did not get the last answer."""
    assert pair.report("a", 2, {ORDERS: (0,)}).error is ErrorCode.NONE
    fenced = pair.report("a", 2, {ORDERS: (0, 1, 2)})
    assert fenced.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert pair.report("a", 4, {}).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_was_fenced_joins_again_under_its_id(pair: Consumers) -> None:
    answer = pair.join("a")
    assert (told(answer), answer.epoch) == ({ORDERS: (0, 1)}, 3)


def test_an_unknown_member_has_to_join(consumers: Consumers) -> None:
    nobody = consumers.report("a", 2, {})
    assert nobody.error is ErrorCode.GROUP_ID_NOT_FOUND
    consumers.join("a")
    assert consumers.report("b", 2, {}).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_partitions_of_a_member_that_left_go_to_the_others(pair: Consumers) -> None:
    assert pair.beat("b", -1).epoch == -1
    pair.pass_time(INTERVAL_MS)
    assert told(pair.report("a", 3, {ORDERS: (0, 1)})) == {ORDERS: (0, 1, 2)}


def test_a_silent_member_is_given_up(pair: Consumers) -> None:
    pair.pass_time(SESSION_MS - 1)
    pair.report("a", 3, {ORDERS: (0, 1)})
    pair.pass_time(1)
    assert [*pair.group.members] == ["a"]
    assert pair.report("b", 3, {}).error is ErrorCode.UNKNOWN_MEMBER_ID
    pair.pass_time(SESSION_MS)
    assert pair.group.state is ConsumerGroupState.EMPTY


def test_a_member_that_keeps_what_it_lost_is_given_up(consumers: Consumers) -> None:
    """The rebalance timeout is the time for the callback of a consumer."""
    consumers.join("a", rebalance_timeout_ms=10_000)
    consumers.pass_time(INTERVAL_MS)
    consumers.join("b")
    consumers.report("a", 2, {ORDERS: (0, 1, 2)})
    for _ in range(10):
        assert "a" in consumers.group.members
        consumers.report("a", 2, {ORDERS: (0, 1, 2)})
        consumers.pass_time(1_000)
    assert [*consumers.group.members] == ["b"]


def test_a_static_member_finds_its_partitions_again(pair: Consumers) -> None:
    answer = pair.join("s1", instance_id="i")
    pair.pass_time(INTERVAL_MS)
    pair.report("a", 3, {ORDERS: (0, 1)})
    pair.report("a", 3, {ORDERS: (0,)})
    owned = told(pair.report_static("s1", answer.epoch, "i"))
    assert owned == {ORDERS: (1,)}
    taken = pair.join("s2", instance_id="i")
    assert taken.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert pair.beat("s1", -2, instance_id="i").epoch == -2
    epoch = pair.group.epoch
    again = pair.join("s2", instance_id="i")
    assert (told(again), pair.group.epoch) == (owned, epoch)
    fenced = pair.beat("s1", 4, instance_id="i", owned={})
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    assert pair.beat("s3", 3, instance_id="j").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_else() -> None:
    consumers = Consumers(group_consumer_max_size=1)
    consumers.join("a")
    refused = consumers.join("b")
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert consumers.report("a", 2, {ORDERS: (0, 1, 2)}).error is ErrorCode.NONE


def test_a_topic_that_grows_is_shared_out_again(pair: Consumers) -> None:
    host = pair.node.host
    host.topics["orders"].append(host.topics["orders"][0])
    pair.node.shards.on_topics(has_new=False)
    pair.pass_time(INTERVAL_MS)
    pair.report("a", 3, {ORDERS: (0, 1)})
    assert told(pair.report("b", 3, {ORDERS: (2,)})) == {ORDERS: (2, 3)}


def test_topics_that_did_not_change_cost_no_assignment(pair: Consumers) -> None:
    pair.node.host.create_topic("elsewhere", 1)
    pair.node.shards.on_topics(has_new=True)
    pair.pass_time(INTERVAL_MS)
    pair.report("a", 3, {ORDERS: (0, 1)})
    assert pair.group.epoch == 3


def test_a_pattern_gets_the_topics_that_match_it(consumers: Consumers) -> None:
    answer = consumers.beat("a", 0, rebalance_timeout_ms=1, pattern="pay.*", owned={})
    assert told(answer) == {}
    consumers.pass_time(INTERVAL_MS)
    assert told(consumers.report("a", answer.epoch, {})) == {PAYMENTS: (0, 1, 2)}
    refused = consumers.beat("b", 0, rebalance_timeout_ms=1, pattern="(", owned={})
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (refused.message or "").startswith("SubscribedTopicRegex `(` is not a valid regular")


def test_a_group_has_a_limited_number_of_patterns(consumers: Consumers) -> None:
    for number in range(PATTERNS_MAX):
        assert consumers.join(f"m{number}", pattern=f"p{number}").error is ErrorCode.NONE
    refused = consumers.join("other", pattern="other")
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "different patterns" in (refused.message or "")
    assert consumers.join("alike", pattern="p7").error is ErrorCode.NONE
    assert consumers.join("plain").error is ErrorCode.NONE
    assert consumers.join("m8", pattern="instead").error is ErrorCode.NONE
    assert consumers.join("m7", pattern="more").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def create_topics(consumers: Consumers, count: int) -> set[str]:
    """Topics whose names have 249 characters."""
    names = {f"t{number:0248}" for number in range(count)}
    for name in names:
        consumers.node.host.create_topic(name, 1)
    return names


def resolve(consumers: Consumers, member_id: str) -> None:
    """Let the patterns be resolved with a member's next heartbeat."""
    consumers.pass_time(RESOLVE_PAUSE_MS)
    consumers.beat(member_id, consumers.group.members[member_id].epoch)
    for _ in range(10):
        consumers.pass_time(0)


def test_patterns_need_not_fit_in_one_batch_together(consumers: Consumers) -> None:
    names = create_topics(consumers, 1_000)
    patterns = ("t.*", "t.+", "t0.*", "[t].*", "t[0-9]*")
    for pattern in patterns:
        consumers.join(pattern, pattern=pattern)
    resolve(consumers, "t.*")
    for pattern in patterns:
        assert consumers.group.patterns[pattern].topics == names
    before = consumers.group.facts()
    consumers.node.restart()
    assert consumers.group.facts() == before


def test_a_pattern_with_too_many_topics_holds_up_no_other_one(consumers: Consumers) -> None:
    create_topics(consumers, 5_000)
    consumers.join("a", pattern="t.*")
    consumers.join("b", pattern="pay.*")
    resolve(consumers, "b")
    assert consumers.group.patterns["t.*"].topics == frozenset()
    assert consumers.group.patterns["pay.*"].topics == {"payments"}


def test_patterns_that_could_not_be_written_are_resolved_again(consumers: Consumers) -> None:
    consumers.join("a", pattern="pay.*")
    resolve(consumers, "a")
    consumers.node.host.create_topic("paychecks", 1)
    consumers.node.shards.on_topics(has_new=True)
    consumers.node.host.break_disk()
    resolve(consumers, "a")
    assert consumers.group.patterns["pay.*"].topics == {"payments"}
    consumers.node.host.mend_disk()
    resolve(consumers, "a")
    assert consumers.group.patterns["pay.*"].topics == {"payments", "paychecks"}


def test_a_pattern_without_time_keeps_the_topics_that_it_matched(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers.join("a", pattern="pay.*")
    resolve(consumers, "a")
    consumers.node.host.create_topic("paychecks", 1)
    consumers.node.shards.on_topics(has_new=True)
    with monkeypatch.context() as without_time:
        without_time.setattr(consumer_groups, "MATCH_S", 0.0)
        resolve(consumers, "a")
    assert consumers.group.patterns["pay.*"].topics == {"payments"}
    consumers.node.shards.on_topics(has_new=True)
    resolve(consumers, "a")
    assert consumers.group.patterns["pay.*"].topics == {"payments", "paychecks"}


def test_topics_that_others_read_already_are_assigned_to_a_new_pattern(
    consumers: Consumers,
) -> None:
    """The group's topics are the same with the pattern as without it."""
    consumers.join("a", "payments")
    consumers.pass_time(INTERVAL_MS)
    answer = consumers.beat("b", 0, rebalance_timeout_ms=1, pattern="pay.*", owned={})
    assert answer.error is ErrorCode.NONE
    resolve(consumers, "b")
    consumers.pass_time(INTERVAL_MS)
    consumers.report("b", consumers.group.members["b"].epoch, {})
    assert consumers.group.target["b"]


def test_a_restart_restores_the_group(pair: Consumers) -> None:
    """P8: epochs, targets and partitions are those of the log, and sessions begin anew."""
    before = pair.group.facts()
    pair.pass_time(SESSION_MS - 1)
    pair.node.restart()
    assert pair.group.facts() == before
    pair.pass_time(SESSION_MS - 1)
    assert told(pair.report("a", 3, {ORDERS: (0, 1)})) is None
    pair.pass_time(1)
    assert [*pair.group.members] == ["a"]


def test_nothing_changes_while_the_disk_refuses(pair: Consumers) -> None:
    before = pair.group.facts()
    pair.node.host.break_disk()
    assert pair.join("c").error is ErrorCode.NOT_COORDINATOR
    assert pair.beat("a", -1).error is ErrorCode.NOT_COORDINATOR
    assert pair.group.facts() == before
    pair.pass_time(SESSION_MS)  # a member that is due stays until it can be written
    assert pair.group.facts() == before
    pair.node.host.mend_disk()
    pair.pass_time(SESSION_MS)
    assert pair.group.state is ConsumerGroupState.EMPTY


def commit(consumers: Consumers, member_id: str, epoch: int, partition: int) -> ErrorCode:
    key = OffsetKey("g", "orders", partition)
    code: ErrorCode = consumers.node.offsets.commit(
        Committer("g", epoch, member_id),
        {key: consumers.node.value(5)},
        knows_group_not_found=True,
    )
    return code


def test_a_commit_is_valid_from_the_epoch_of_the_assignment(pair: Consumers) -> None:
    """KIP-1251: a commit that was sent before a heartbeat's answer came counts."""
    assert commit(pair, "a", 3, 0) is ErrorCode.NONE
    assert commit(pair, "a", 2, 0) is ErrorCode.NONE
    assert commit(pair, "b", 3, 2) is ErrorCode.NONE
    assert commit(pair, "b", 2, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(pair, "a", 2, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(pair, "a", 4, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(pair, "c", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(pair, "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_commits_offsets_only_in_a_valid_epoch(pair: Consumers) -> None:
    node = pair.node
    stale = node.commit_in_transaction("g", 1, committer=Committer("g", 4, "a"))
    assert stale is ErrorCode.STALE_MEMBER_EPOCH
    assert node.commit_in_transaction("g", 1, committer=Committer("g", 3, "a")) is ErrorCode.NONE
    assert node.commit_in_transaction("g", 2) is ErrorCode.NONE  # fenced by its transactional id


def test_anybody_commits_to_a_group_without_members(pair: Consumers) -> None:
    for name in "ab":
        pair.beat(name, -1)
    assert commit(pair, "", -1, 0) is ErrorCode.NONE


def test_offsets_are_fetched_by_members_of_the_present_epoch(pair: Consumers) -> None:
    refusal = pair.node.coordinator.offsets.fetch_refusal
    assert refusal("g", None, -1) is ErrorCode.NONE
    assert refusal("g", "a", 3) is ErrorCode.NONE
    assert refusal("g", "a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal("g", "c", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_group_without_members_becomes_a_consumer_group(consumers: Consumers) -> None:
    """Its offsets stay; the groups of a protocol are of the protocol of their last member."""
    assert consumers.node.commit("g", 7) is ErrorCode.NONE
    assert told(consumers.join("a")) == {ORDERS: (0, 1, 2)}
    assert consumers.node.offset("g") == 7
    assert consumers.node.coordinator.group("g") is None
    consumers.node.restart()
    assert [*consumers.group.members] == ["a"]


def test_a_group_with_members_keeps_its_protocol_where_it_may_not_change() -> None:
    consumers = Consumers(group_consumer_migration_policy="disabled")
    node = consumers.node
    joined = node.join("g")
    refused = consumers.join("a")
    assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
    node.host.pass_time(1_000)
    assert joined[0].error is ErrorCode.NONE
    other = Consumers(group_consumer_migration_policy="disabled")
    other.join("a")
    assert other.node.join("g")[0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_consumer_group_without_members_becomes_a_classic_group(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.beat("a", -1)
    joined = consumers.node.join("g")
    consumers.pass_time(1_000)
    assert joined[0].error is ErrorCode.NONE
    consumers.node.restart()
    assert consumers.node.coordinator.consumer.get("g") is None


def test_a_group_is_deleted_once_it_is_empty(pair: Consumers) -> None:
    node = pair.node
    assert commit(pair, "a", 3, 0) is ErrorCode.NONE
    assert node.groups.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    for name in "ab":
        pair.beat(name, -1)
    assert node.groups.delete_group("g") is ErrorCode.NONE
    assert node.coordinator.any_group("g") is None
    node.restart()
    assert node.coordinator.any_group("g") is None
    assert node.offset("g") is None


def test_offsets_of_topics_that_members_read_do_not_expire() -> None:
    week_ms = 7 * 86_400_000
    consumers = Consumers(group_consumer_session_timeout_ms=10 * week_ms)
    consumers.join("a")
    assert commit(consumers, "a", 2, 0) is ErrorCode.NONE
    consumers.pass_time(2 * week_ms)
    assert consumers.node.offset("g") == 5
    consumers.beat("a", -1)
    consumers.pass_time(week_ms)
    assert consumers.node.offset("g") is None
    assert consumers.node.coordinator.any_group("g") is None


def test_a_member_in_an_unknown_state_joins_again(pair: Consumers) -> None:
    """A later Kafka may have written states that nobody knows here."""
    log = pair.node.log_of("g")
    value = b"\x00\x00" + b"\x00\x00\x00\x03" * 2 + b"\x09" + b"\x01\x01\x00"
    log.append([(b"\x00\x08\x00\x01g\x00\x01a", value)], timestamp_ms=0)
    pair.node.restart()
    assert pair.report("a", 3, {ORDERS: (0, 1)}).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert pair.report("a", 3, {}).error is ErrorCode.NONE


def test_a_static_member_that_left_has_nothing_to_give_back(consumers: Consumers) -> None:
    """It is waited for as long as its session lasts, also if it left in the midst of a handover."""
    consumers.join("a", instance_id="i", rebalance_timeout_ms=10_000)
    consumers.pass_time(INTERVAL_MS)
    consumers.join("b")
    consumers.beat("a", 2, instance_id="i", owned={ORDERS: frozenset({0, 1, 2})})
    assert consumers.beat("a", -2, instance_id="i").epoch == -2
    consumers.pass_time(SESSION_MS - INTERVAL_MS - 1)
    assert "a" in consumers.group.members


def test_the_vote_of_a_replaced_static_member_counts_no_longer(consumers: Consumers) -> None:
    consumers.join("s1", instance_id="i", assignor="range")
    consumers.pass_time(INTERVAL_MS)
    consumers.beat("s1", -2, instance_id="i")
    epoch = consumers.group.epoch
    consumers.join("s2", instance_id="i", assignor="uniform")
    assert consumers.group.epoch == epoch + 1


def test_a_member_that_cannot_be_written_is_not_silent(pair: Consumers) -> None:
    """Trouble of the disk gives up nobody who went on with heartbeats."""
    pair.pass_time(SESSION_MS - 1)
    pair.node.host.break_disk()
    refused = pair.beat("a", 3, topics=("payments",))
    assert refused.error is ErrorCode.NOT_COORDINATOR
    pair.node.host.mend_disk()
    pair.pass_time(1)
    assert [*pair.group.members] == ["a"]


def test_any_number_of_members_may_fall_silent_together(consumers: Consumers) -> None:
    """Their tombstones do not fit into one batch, so the members go one part after another."""
    for number in range(41):
        assert consumers.join(f"{number:032000}").error is ErrorCode.NONE
    consumers.pass_time(SESSION_MS)
    assert consumers.group.state is ConsumerGroupState.EMPTY
    facts = consumers.group.facts()
    consumers.node.restart()
    assert consumers.group.facts() == facts


def test_a_rack_counts_for_the_size_of_a_group(consumers: Consumers) -> None:
    size_bytes = consumers.join("a").epoch and consumers.group.members_bytes
    rack_id = "r" * 1_000
    assert consumers.beat("a", 2, rack_id=rack_id).error is ErrorCode.NONE
    assert consumers.group.members_bytes == size_bytes + len(rack_id)
    batch = "r" * consumers.node.coordinator.batch_bytes_max
    refused = consumers.beat("a", 2, rack_id=GROUP_BATCHES * batch)
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    "growth", [{"topics": ("payments", "orders")}, {"rack_id": "r"}, {"pattern": "orders"}]
)
def test_members_do_not_grow_beyond_what_the_broker_holds(
    pair: Consumers, monkeypatch: pytest.MonkeyPatch, growth: dict[str, Any]
) -> None:
    """A member that joins again does not count twice."""
    held_bytes = sum(shard.state.held_bytes for shard in pair.node.shards.shards)
    monkeypatch.setattr(group_coordinator, "HELD_BYTES_MAX", held_bytes)
    pair.node.restart()
    refused = pair.beat("a", 3, **growth)
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pair.join("c").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert pair.beat("a", 3, topics=("orders",)).error is ErrorCode.NONE
    assert pair.join("a").error is ErrorCode.NONE


def crowd(consumers: Consumers) -> list[str]:
    """Members whose target assignments are larger than a batch; each was told its first one."""
    consumers.node.host.create_topic("many", 20)
    names = [f"{number:02}".rjust(30_000, "m") for number in range(40)]
    for name in names:
        assert consumers.join(name, "many").error is ErrorCode.NONE
    consumers.pass_time(INTERVAL_MS)
    return names


def test_an_assignment_may_be_larger_than_a_batch(consumers: Consumers) -> None:
    names = crowd(consumers)
    answer = consumers.join("last", "many")
    assert (answer.error, answer.epoch) == (ErrorCode.NONE, consumers.group.epoch)
    assert consumers.group.target_value.epoch == consumers.group.epoch
    assert [*consumers.group.target] == [*consumers.group.members] == [*names, "last"]
    facts = consumers.group.facts()
    consumers.node.restart()
    assert consumers.group.facts() == facts


def test_half_of_a_large_assignment_is_made_again(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails between its batches leaves the epoch of the target behind the group's."""
    names = crowd(consumers)
    log = consumers.node.log_of("g")
    append = log.append

    def fail_after_one(*args: Any, **kwargs: Any) -> int:
        offset = append(*args, **kwargs)
        consumers.node.host.break_disk()
        return offset

    monkeypatch.setattr(log, "append", fail_after_one)
    refused = consumers.join("last", "many")
    assert refused.error is ErrorCode.NOT_COORDINATOR
    assert "last" not in consumers.group.members
    assert "last" not in consumers.group.target
    assert consumers.group.target_value.epoch < consumers.group.epoch
    monkeypatch.undo()
    consumers.node.host.mend_disk()
    consumers.node.restart()
    assert consumers.report(names[0], 2, {}).error is ErrorCode.NONE
    assert consumers.group.target_value.epoch == consumers.group.epoch
    parts = [part for each in consumers.group.target.values() for part in each.values()]
    assert sorted(number for part in parts for number in part) == [*range(20)]
