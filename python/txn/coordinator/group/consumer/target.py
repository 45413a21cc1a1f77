"""The target assignment of a consumer group: its time, its assignor and its records.

Pure. `Task.assigned` is the one door to the assignors. It is passed at most once in an assignment
interval (KIP-1263), so many members that join at once cost one assignment.

A small task is done within the heartbeat that needs it. A larger one is done beside the control
loop, and its group goes on with the old target until then. A group has one such task at a time.
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
    PatternValue,
    Records,
    record,
)
from txn.coordinator.group.consumer.topics import Topics

DEFAULT_ASSIGNOR: Final = "uniform"

INLINE_SIZE_MAX: Final = 5_000
"""The largest task that is done within a heartbeat. It takes some milliseconds."""


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
    if epoch <= target.epoch or group.computes_assignment:
        return False
    since_ms = now_ms - target.timestamp_ms
    return not 0 <= since_ms < limits.assignment_interval_ms


def preferred_assignor(subscriptions: Iterable[MemberValue], default: str) -> str:
    """The assignor that most members ask for; of several the first by name."""
    votes = Counter(each.assignor for each in subscriptions if each.assignor is not None)
    chosen = min(votes.items(), key=lambda vote: (-vote[1], vote[0]), default=(default, 0))
    return chosen[0] if chosen[0] in ASSIGNORS else default


class Task(NamedTuple):
    """Everything from which a target assignment is computed. No later event changes it.

    Attributes:
        epoch: The group's epoch, for which the assignment counts.
        subscriptions: Member id → its subscription.
        target: Member id → its part of the last target assignment.
        patterns: Pattern → the topics that it matches.
        topics: Name → id and partition count of each topic that members may subscribe to.
        default_assignor: The assignor if no member asks for one.
    """

    epoch: int
    subscriptions: Mapping[str, MemberValue]
    target: Mapping[str, Assignment]
    patterns: Mapping[str, PatternValue]
    topics: Mapping[str, tuple[UUID, int]]
    default_assignor: str

    @property
    def size(self) -> int:
        """The measure of its cost: partitions, members, and the topics of each subscription."""
        partitions = sum(count for _, count in self.topics.values())
        return partitions + sum(1 + self._names(each) for each in self.subscriptions.values())

    @property
    def is_large(self) -> bool:
        """Say whether it has to be done beside the control loop."""
        return self.size > INLINE_SIZE_MAX

    def _names(self, subscription: MemberValue) -> int:
        found = self.patterns.get(subscription.pattern or "")
        return len(subscription.topics) + (0 if found is None else len(found.topics))

    def assigned(self) -> Mapping[str, Assignment]:
        """The new target assignment. Another thread may call it."""
        ids: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
        """Topics and pattern of a subscription → the ids of its topics."""
        partitions: dict[UUID, int] = {}
        subscribers = {}
        for member_id, subscription in self.subscriptions.items():
            wanted = (subscription.topics, subscription.pattern)
            if wanted not in ids:
                found = self.patterns.get(subscription.pattern or "")
                names = {*subscription.topics, *(() if found is None else found.topics)}
                counts = dict(self.topics[name] for name in names if name in self.topics)
                partitions |= counts
                ids[wanted] = frozenset(counts)
            subscribers[member_id] = Subscriber(
                ids[wanted],
                self.target.get(member_id, NOTHING),
                subscription.rack_id,
                subscription.instance_id,
            )
        chosen = preferred_assignor(self.subscriptions.values(), self.default_assignor)
        return ASSIGNORS[chosen](subscribers, partitions)


def task(
    group: ConsumerGroup,
    epoch: int,
    subscriptions: Mapping[str, MemberValue],
    target: Mapping[str, Assignment],
    names: Iterable[str],
    topics: Topics,
    limits: Limits,
) -> Task:
    """The task of a target assignment.

    Args:
        group: The group.
        epoch: Its epoch.
        subscriptions: Those of its members.
        target: Their last target assignment; the task keeps this mapping.
        names: The topics of all subscriptions. The cost is linear in them.
        topics: The published topics.
        limits: The settings for the group.
    """
    found = ((name, topics.topic_id(name)) for name in names)
    known = {
        name: (topic_id, topics.partition_count(name))
        for name, topic_id in found
        if topic_id is not None
    }
    default = limits.default_assignor
    return Task(epoch, subscriptions, target, dict(group.patterns), known, default)


def computed(
    group: ConsumerGroup, done: Task, assigned: Mapping[str, Assignment], now_ms: int
) -> Records:
    """The records of a target assignment that was computed while the group went on.

    It counts for the epoch of its task, as if it had been there before all later changes. So the
    part of a member that left is dropped, and the successor of a static member has its part. The
    group's epoch is greater after such changes, and the next assignment follows for it. There are
    no records if the group has a newer target: all members left meanwhile.
    """
    if done.epoch <= group.target_value.epoch:
        return ()
    parts = {name: part for name, part in assigned.items() if name in group.members}
    for name in assigned.keys() - group.members.keys():
        instance_id = done.subscriptions[name].instance_id
        heir = None if instance_id is None else group.static_member(instance_id)
        if heir is not None:
            parts.setdefault(heir.member_id, assigned[name])
    return tuple(target_records(group, parts, group.target, done.epoch, now_ms))


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
            part = group.target_part(member_id, partitions)
            records.append(record(Kind.TARGET_MEMBER, group.group_id, part, member_id))
    value = group.target_value._replace(epoch=epoch, timestamp_ms=now_ms)
    return [*records, record(Kind.TARGET, group.group_id, value)]
