"""Groups whose stored records are unusual: bytes behind the last field, and the last epoch.

Apache Kafka 4.4 ignores such bytes. Behind the epoch 2³¹-1 it goes on with -2³¹, and no member of
the group gets a partition from then on. Here the group says what to do.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from support.eager_calls import EagerCalls
from support.group_host import TOPICS, GroupNode
from txn.coordinator.group.consumer.beat import Beat, BeatAnswer
from txn.coordinator.group.consumer.records import (
    CurrentValue,
    EpochValue,
    Kind,
    MemberState,
    MemberValue,
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
from txn.wire.error_codes import ErrorCode

LAST = 2**31 - 1
ORDERS = TOPICS["orders"]


@pytest.fixture
def node() -> GroupNode:
    return GroupNode()


def store(node: GroupNode, group_id: str, records: Sequence[Any], behind: bytes = b"") -> None:
    """Start the coordinator on these records of a group, with some bytes behind each value."""
    pairs = []
    for each in records:
        key, value = encode_record(each)
        pairs.append((key + behind, None if value is None else value + behind))
    node.log_of(group_id).append(pairs, timestamp_ms=node.host.now_ms())
    node.restart()


def beat(node: GroupNode, group_id: str, member_id: str, epoch: int, **fields: Any) -> BeatAnswer:
    sent = Beat(member_id, epoch, "client", "/127.0.0.1", **fields)
    consumer = EagerCalls(node.coordinator.consumer)
    answer: BeatAnswer = consumer.heartbeat(group_id, sent, None, "owner")
    return answer


def join(node: GroupNode, group_id: str, member_id: str = "new") -> BeatAnswer:
    return beat(
        node, group_id, member_id, 0, topics=("orders",), rebalance_timeout_ms=60_000, owned={}
    )


def of_one_member(group_id: str, epoch: int) -> list[Any]:
    """The records of a group whose only member owns the partition 0."""
    member = MemberValue(None, None, "client", "/127.0.0.1", ("orders",), None, 60_000, None)
    owned = {ORDERS: {0: epoch}}
    return [
        record(Kind.MEMBER, group_id, member, "m"),
        record(Kind.EPOCH, group_id, EpochValue(epoch)),
        record(Kind.TARGET_MEMBER, group_id, TargetMemberValue({ORDERS: frozenset({0})}), "m"),
        record(Kind.TARGET, group_id, TargetValue(epoch)),
        record(
            Kind.CURRENT, group_id, CurrentValue(epoch, epoch, MemberState.STABLE, owned, {}), "m"
        ),
    ]


def test_bytes_behind_the_records_of_a_consumer_group_are_ignored_as_by_Kafka(
    node: GroupNode,
) -> None:
    store(node, "g", of_one_member("g", 7), b"\1\2\3")
    assert node.shards.of("g").refusal is ErrorCode.NONE
    group = node.coordinator.consumer.get("g")
    assert group is not None
    assert group.epoch == 7
    assert group.members["m"].current.assigned == {ORDERS: {0: 7}}


def test_bytes_behind_an_offset_and_a_generation_are_ignored_as_by_Kafka(node: GroupNode) -> None:
    generation = GroupValue("consumer", 3, None, None, 5, ())
    offset = OffsetValue(11, -1, "", node.host.now_ms(), topic_id=ORDERS)
    records = [
        GroupRecord(GroupKey("g"), generation),
        OffsetRecord(OffsetKey("g", "orders", 0), offset),
    ]
    store(node, "g", records, b"\0")
    assert node.shards.of("g").refusal is ErrorCode.NONE
    assert node.offset("g") == 11
    assert node.form("g").generation == 4


def test_a_group_in_the_last_epoch_says_that_nobody_can_join(node: GroupNode) -> None:
    store(node, "g", of_one_member("g", LAST))
    answer = join(node, "g")
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert "Stop its members and delete the group" in str(answer.message)
    assert "last epoch" in str(beat(node, "g", "m", LAST, topics=("payments",)).message)


def test_a_member_of_a_group_in_the_last_epoch_may_leave_and_the_group_is_then_empty(
    node: GroupNode,
) -> None:
    store(node, "g", of_one_member("g", LAST))
    assert beat(node, "g", "m", -1).error is ErrorCode.NONE
    node.restart()
    group = node.coordinator.consumer.get("g")
    assert group is not None
    assert (group.epoch, dict(group.members)) == (LAST, {})


def test_a_group_in_the_last_epoch_disturbs_no_other_group(node: GroupNode) -> None:
    others = (f"g{number}" for number in range(1000))
    other = next(each for each in others if node.place_of(each) == node.place_of("g"))
    store(node, "g", of_one_member("g", LAST))
    node.host.pass_time(60_000)  # the session of its member is over
    join(node, "g")
    assert node.host.failures == []
    assert join(node, other).error is ErrorCode.NONE
    node.restart()
    assert node.coordinator.consumer.get(other) is not None


def test_the_first_generation_follows_the_last_one(node: GroupNode) -> None:
    store(node, "g", [GroupRecord(GroupKey("g"), GroupValue("consumer", LAST, None, None, 5, ()))])
    assert node.form("g").generation == 1
    node.restart()
    assert node.shards.of("g").refusal is ErrorCode.NONE
