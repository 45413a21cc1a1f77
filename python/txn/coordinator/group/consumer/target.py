"""The target assignment of a consumer group: its time, its assignor and its records.

Pure. `assignment` is the one door to the assignors. It is passed at most once in an assignment
interval (KIP-1263), so many members that join at once cost one assignment.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from txn.coordinator.group.assignors import ASSIGNORS, Subscriber
from txn.coordinator.group.consumer.group import NOTHING, ConsumerGroup
from txn.coordinator.group.consumer.records import (
    Assignment,
    ConsumerRecord,
    Kind,
    MemberValue,
    TargetMemberValue,
    record,
)
from txn.coordinator.group.consumer.topics import Topics

DEFAULT_ASSIGNOR: Final = "uniform"


class Limits(NamedTuple):
    """The settings for a group."""

    max_size: int
    group_bytes_max: int
    assignment_interval_ms: int
    default_assignor: str = DEFAULT_ASSIGNOR


def is_assignment_due(group: ConsumerGroup, epoch: int, now_ms: int, limits: Limits) -> bool:
    """Say whether the group needs another target assignment, and may have it now.

    A time of day that was set back does not keep it from one.
    """
    target = group.target_value
    if epoch <= target.epoch:
        return False
    since_ms = now_ms - target.timestamp_ms
    return not 0 <= since_ms < limits.assignment_interval_ms


def preferred_assignor(subscriptions: Iterable[MemberValue], default: str) -> str:
    """The assignor that most members ask for; of several the first by name."""
    votes = Counter(each.assignor for each in subscriptions if each.assignor is not None)
    chosen = min(votes.items(), key=lambda vote: (-vote[1], vote[0]), default=(default, 0))
    return chosen[0] if chosen[0] in ASSIGNORS else default


def assignment(
    group: ConsumerGroup,
    subscriptions: Mapping[str, MemberValue],
    target: Mapping[str, Assignment],
    topics: Topics,
    limits: Limits,
) -> Mapping[str, Assignment]:
    """The target assignment for members with these subscriptions."""
    ids: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
    """Topics and pattern of a subscription → the ids of its topics."""
    partitions: dict[UUID, int] = {}
    subscribers = {}
    for member_id, subscription in subscriptions.items():
        wanted = (subscription.topics, subscription.pattern)
        if wanted not in ids:
            found = {name: topics.topic_id(name) for name in group.topics_of(subscription)}
            for name, topic_id in found.items():
                if topic_id is not None:
                    partitions[topic_id] = topics.partition_count(name)
            ids[wanted] = frozenset(each for each in found.values() if each is not None)
        subscribers[member_id] = Subscriber(
            ids[wanted],
            target.get(member_id, NOTHING),
            subscription.rack_id,
            subscription.instance_id,
        )
    assign = ASSIGNORS[preferred_assignor(subscriptions.values(), limits.default_assignor)]
    return assign(subscribers, partitions)


def target_records(
    group: ConsumerGroup,
    assigned: Mapping[str, Assignment],
    before: Mapping[str, Assignment],
    epoch: int,
    now_ms: int,
) -> list[ConsumerRecord]:
    """The records of a new target assignment: the members whose part changes, then its epoch."""
    records = []
    for member_id, partitions in assigned.items():
        if member_id not in before or dict(before[member_id]) != partitions:
            part = TargetMemberValue(partitions)
            records.append(record(Kind.TARGET_MEMBER, group.group_id, part, member_id))
    value = group.target_value._replace(epoch=epoch, timestamp_ms=now_ms)
    return [*records, record(Kind.TARGET, group.group_id, value)]
