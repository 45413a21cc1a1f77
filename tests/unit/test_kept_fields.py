"""Tagged fields of a later Kafka in the records of a consumer group outlive its changes."""

from typing import Any

from support.eager_calls import EagerCalls
from support.group_host import TOPICS, GroupNode
from txn.coordinator.group.classic.requests import Join
from txn.coordinator.group.consumer.beat import Beat, BeatAnswer
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.coordinator.group.consumer.patterns import pattern_resolved
from txn.coordinator.group.consumer.records import (
    ConsumerKey,
    ConsumerRecord,
    ConsumerValue,
    CurrentValue,
    Kind,
    MemberValue,
    PatternValue,
    TargetMemberValue,
)
from txn.coordinator.group.records import decode_record
from txn.wire.error_codes import ErrorCode

ORDERS, PAYMENTS = TOPICS["orders"], TOPICS["payments"]
SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"
TAGS = {9: b"new"}
OF = {ORDERS: {3: b"orders"}, PAYMENTS: {4: b"payments"}}


class Stored:
    """A node with the group "g", whose records a later Kafka wrote with fields of its own."""

    def __init__(self) -> None:
        self.node = GroupNode(group_consumer_assignment_interval_ms=0)
        self.shard = self.node.shards.of("g")

    def beat(self, member_id: str, epoch: int, **fields: Any) -> BeatAnswer:
        beat = Beat(member_id, epoch, "client", "/127.0.0.1", **fields)
        answer: BeatAnswer = EagerCalls(self.node.coordinator.consumer).heartbeat("g", beat, None)
        assert answer.error is ErrorCode.NONE, answer
        return answer

    def join(self, member_id: str = "") -> str:
        """Let a member of the classic protocol join; its id."""
        request = Join(
            api_version=3,
            member_id=member_id,
            fresh_member_id="m",
            instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", SUBSCRIPTION),),
        )
        answer = EagerCalls(self.node.coordinator).join("g", request)
        assert answer.error is ErrorCode.NONE, answer
        return str(answer.member_id)

    def add_fields(self) -> None:
        """Write every record of the group again, each with fields that are unknown here."""
        written: list[ConsumerRecord] = []
        for key, value in self.latest().items():
            kept: Any = value._replace(tags=TAGS)
            if isinstance(value, CurrentValue):
                kept = kept._replace(topic_tags={each: OF[each] for each in value.assigned})
            if isinstance(value, TargetMemberValue):
                kept = kept._replace(topic_tags={each: OF[each] for each in value.partitions})
            if isinstance(value, MemberValue) and value.classic is not None:
                classic = value.classic._replace(tags=TAGS, protocol_tags={"range": TAGS})
                kept = kept._replace(classic=classic)
            written.append(ConsumerRecord(key, kept))
        self.shard.append(written)

    def latest(self) -> dict[ConsumerKey, ConsumerValue]:
        """The last value of each key in the log."""
        found: dict[ConsumerKey, ConsumerValue] = {}
        for batch in self.node.log_of("g").batches(0):
            for each in batch.records:
                stored = decode_record(each.key or b"", each.value, None)
                assert isinstance(stored, ConsumerRecord)
                if stored.value is None:
                    found.pop(stored.key, None)
                else:
                    found[stored.key] = stored.value
        return found

    def value(self, kind: Kind, name: str = "") -> ConsumerValue:
        return self.latest()[ConsumerKey(kind, "g", name)]

    @property
    def group(self) -> ConsumerGroup:
        group = self.node.coordinator.consumer.get("g")
        assert group is not None
        return group


def settled() -> Stored:
    """A member of each protocol, both with partitions of orders, and a resolved pattern."""
    stored = Stored()
    everything = {"rebalance_timeout_ms": 60_000, "owned": {}}
    stored.beat("a", 0, topics=("orders",), pattern="ord.*", **everything)
    stored.shard.append(
        pattern_resolved(stored.group, "ord.*", PatternValue(frozenset({"orders"}), 0, 0))
    )
    classic = stored.join()
    epoch = stored.group.members["a"].epoch
    kept = stored.beat("a", epoch, owned={ORDERS: frozenset({0, 1, 2})}).assignment or {}
    owned = {topic: frozenset(each) for topic, each in kept.items()}
    stored.beat("a", epoch, owned=owned)
    stored.join(classic)
    assert {*stored.group.target["a"]} == {*stored.group.target[classic]} == {ORDERS}
    stored.add_fields()
    return stored


def test_unknown_fields_stay_when_every_value_of_a_group_changes() -> None:
    """They were lost where a target assignment or the topics of a pattern changed."""
    stored = settled()
    before = stored.latest()
    found = PatternValue(frozenset({"orders", "payments"}), 1, 5)
    stored.shard.append(pattern_resolved(stored.group, "ord.*", found))
    (classic,) = stored.group.members.keys() - {"a"}
    stored.node.host.topics["orders"] *= 3
    stored.node.shards.on_topics(has_new=False)
    stored.beat("b", 0, topics=("orders",), rebalance_timeout_ms=60_000, owned={})
    stored.beat("a", stored.group.members["a"].epoch, rebalance_timeout_ms=50_000)
    stored.join(classic)
    after = stored.latest()
    changed = {key for key, value in before.items() if after[key] != value}
    assert {key.kind for key in changed} == {*Kind} - {Kind.PARTITIONS}
    assert [after[key] for key in changed if after[key].tags != TAGS] == []
    key = ConsumerKey(Kind.TARGET_MEMBER, "g", classic)
    part = after[key]
    assert isinstance(part, TargetMemberValue)
    assert key in changed
    assert ({*part.partitions}, dict(part.topic_tags)) == ({ORDERS}, {ORDERS: OF[ORDERS]})
    of_classic = stored.value(Kind.MEMBER, classic)
    assert isinstance(of_classic, MemberValue)
    assert of_classic.classic is not None
    assert (of_classic.classic.tags, of_classic.classic.protocol_tags) == (TAGS, {"range": TAGS})


def test_the_fields_of_a_topic_go_with_its_last_partition() -> None:
    """The group in memory is the one that its log tells (P8)."""
    stored = settled()
    facts = stored.group.facts()
    stored.node.restart()
    assert stored.group.facts() == facts
    stored.beat("a", stored.group.members["a"].epoch, topics=("payments",), pattern="")
    part = stored.value(Kind.TARGET_MEMBER, "a")
    assert isinstance(part, TargetMemberValue)
    assert {*part.partitions} == {PAYMENTS}
    assert not part.topic_tags
    facts = stored.group.facts()
    stored.node.restart()
    assert stored.group.facts() == facts


def test_the_successor_of_a_static_member_keeps_unknown_fields() -> None:
    stored = Stored()
    fields: dict[str, Any] = {"topics": ("orders",), "rebalance_timeout_ms": 60_000, "owned": {}}
    stored.beat("s", 0, instance_id="i", **fields)
    stored.add_fields()
    stored.beat("s", -2, instance_id="i")
    stored.beat("t", 0, instance_id="i", **fields)
    part = stored.value(Kind.TARGET_MEMBER, "t")
    assert isinstance(part, TargetMemberValue)
    assert (part.tags, part.topic_tags) == (TAGS, {ORDERS: {3: b"orders"}})
