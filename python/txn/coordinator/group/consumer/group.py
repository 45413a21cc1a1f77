"""A consumer group: the fold of its records, and the little that is in memory alone.

`replay` is the only way the recorded part changes, live and at a start alike (P8). In memory alone
are the times when members were last heard of, and the deadlines of those that have to give
partitions back. So are the note that a topic may have changed, and the epoch of an assignment that
is being computed. A restart begins that part anew.

Indexes are kept with the members: the owner of each partition, the members of each pattern, and
the number of subscriptions of each topic name. So a heartbeat that changes nothing costs the same
in a group of one and in a group of thousands.
"""

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from txn.coordinator.group.consumer.records import (
    Assignment,
    ConsumerRecord,
    CurrentValue,
    EpochValue,
    Kind,
    MemberState,
    MemberValue,
    Owned,
    PatternValue,
    TargetMemberValue,
    TargetValue,
)
from txn.coordinator.group.members import member_bytes, protocols_bytes, text_bytes

NOTHING: Final[Assignment] = MappingProxyType({})
OWNS_NOTHING: Final[Owned] = MappingProxyType({})

LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that left and is expected back."""

FIRST_EPOCH: Final = 1
"""The epoch of a group of which nothing is recorded. Its first assignment has the next one."""

EPOCH_MAX: Final = 2**31 - 1
"""The last epoch. A group that has it refuses a change that needs another assignment."""

GROUP_BYTES: Final = 2_048
NAME_BYTES: Final = 64
PARTITION_BYTES: Final = 128
"""Fixed costs of a group, of a topic's name, and of a partition that is assigned."""


class ConsumerGroupState(Enum):
    """The states of a consumer group, by the names Kafka shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerMember(NamedTuple):
    """A member: its id, its subscription, and the partitions it owns."""

    member_id: str
    subscription: MemberValue
    current: CurrentValue

    @property
    def epoch(self) -> int:
        """The epoch that its next heartbeat has to name."""
        return self.current.epoch

    @property
    def pattern(self) -> str:
        """The pattern of its subscription; empty for none."""
        return self.subscription.pattern or ""

    @property
    def is_classic(self) -> bool:
        """Speaks the classic protocol, in a group that came from it or goes to it."""
        return self.subscription.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Say whether it owns its part of the target assignment, and nothing else."""
        return self.current.state is MemberState.STABLE and self.current.epoch == target_epoch

    @property
    def size_bytes(self) -> int:
        """Its ids, its subscription, and the protocols of a classic member."""
        names = self.subscription
        protocols = () if names.classic is None else names.classic.protocols
        return (
            member_bytes(self.member_id, names.instance_id, names.client_id, names.client_host)
            + text_bytes(names.rack_id)
            + text_bytes(names.pattern)
            + sum(NAME_BYTES + text_bytes(topic) for topic in names.topics)
            + protocols_bytes(protocols)
        )


NO_SUBSCRIPTION: Final = MemberValue(None, None, "", "", (), None, -1, None)
NO_PARTITIONS: Final = CurrentValue(0, 0, MemberState.STABLE, OWNS_NOTHING, OWNS_NOTHING)


class ConsumerGroup:
    """A consumer group.

    Attributes:
        group_id: Its name.
        epoch: Grows with each change that needs another assignment.
        target: Member id → its part of the target assignment.
        patterns: Pattern → the topics it matched when it was last resolved.
        step_deadlines: Member id → when it must have given partitions back; of a classic member,
            when it must have joined again, or have asked for its assignment.
        members_bytes: The size of its members, as far as they chose it themselves.
        is_outdated: A topic may have changed since the hash of the topics was computed.
        has_new_topics: A topic may have been created since the patterns were resolved.
        computed_epoch: The epoch of the target assignment that is being computed; None for none.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._epoch = EpochValue(FIRST_EPOCH)
        self._target = TargetValue(FIRST_EPOCH)
        self.target: dict[str, Assignment] = {}
        self.patterns: dict[str, PatternValue] = {}
        self.step_deadlines: dict[str, int] = {}
        self.is_outdated = True
        self.has_new_topics = True
        self.computed_epoch: int | None = None
        self._tagged_targets: dict[str, TargetMemberValue] = {}
        """Member id → its part of the target, if it was stored with tagged fields."""
        self._members: dict[str, ConsumerMember] = {}
        self._heard_ms: dict[str, int] = {}
        self._classic_sessions: dict[str, int] = {}
        """Classic member → when its session ends; it chose the length itself."""
        self._speakers: Counter[str] = Counter()
        self._static: dict[str, str] = {}
        self._owners: dict[tuple[uuid.UUID, int], str] = {}
        self._pattern_members: Counter[str] = Counter()
        self._topic_members: Counter[str] = Counter()
        self.members_bytes = 0

    # ---- questions

    @property
    def epoch(self) -> int:
        """The epoch of the group."""
        return self._epoch.epoch

    @property
    def metadata_hash(self) -> int:
        """The hash of the topics that the group consumed when its epoch was written."""
        return self._epoch.metadata_hash

    @property
    def epoch_value(self) -> EpochValue:
        """The recorded epoch."""
        return self._epoch

    @property
    def target_value(self) -> TargetValue:
        """The recorded epoch and time of the target assignment."""
        return self._target

    @property
    def computes_assignment(self) -> bool:
        """Say whether its next target assignment is being computed."""
        return self.computed_epoch is not None

    @property
    def has_newer_epoch(self) -> bool:
        """Say whether the group's epoch awaits an assignment whose computation has yet to begin.

        Changes up to that computation need no epoch of their own.
        """
        return self.epoch > max(self._target.epoch, self.computed_epoch or 0)

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """Member id → member, in the order they joined."""
        return self._members

    @property
    def state(self) -> ConsumerGroupState:
        """The state that Kafka shows. Cost: a look at the members, up to the first one behind."""
        if not self._members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self._target.epoch:
            return ConsumerGroupState.ASSIGNING
        target_epoch = self._target.epoch
        if all(each.is_reconciled_to(target_epoch) for each in list(self._members.values())):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def size_bytes(self) -> int:
        """Its own id, its patterns, all of its members and their partitions."""
        patterns = sum(
            text_bytes(pattern) + NAME_BYTES * len(found.topics)
            for pattern, found in self.patterns.items()
        )
        parts = PARTITION_BYTES * len(self._owners)
        return GROUP_BYTES + text_bytes(self.group_id) + patterns + self.members_bytes + parts

    def target_part(self, member_id: str, partitions: Assignment) -> TargetMemberValue:
        """A member's part of a new target, with the tagged fields that it was stored with."""
        stored = self._tagged_targets.get(member_id)
        return TargetMemberValue(partitions) if stored is None else stored.changed(partitions)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member that holds an instance id."""
        return self._members.get(self._static.get(instance_id, ""))

    def owner(self, topic_id: uuid.UUID, partition: int) -> str | None:
        """The id of the member that owns a partition, or has still to give it back."""
        return self._owners.get((topic_id, partition))

    def members_of_pattern(self, pattern: str) -> int:
        """Number of members that subscribe to a pattern."""
        return self._pattern_members[pattern]

    @property
    def subscribed_patterns(self) -> Collection[str]:
        """The patterns of all members, each once."""
        return self._pattern_members.keys()

    def subscribed_topics(
        self, gone: Iterable[MemberValue] = (), new: MemberValue = NO_SUBSCRIPTION
    ) -> set[str]:
        """The names of the topics of all members, with those of resolved patterns.

        Args:
            gone: Subscriptions of members that do not count.
            new: A subscription that counts too.
        """
        topics, patterns = self._topic_members, self._pattern_members
        if any(gone):
            topics, patterns = topics.copy(), patterns.copy()
            for each in gone:
                _count_down(topics, each.topics)
                _count_down(patterns, (each.pattern,) if each.pattern else ())
        names = {*topics, *new.topics}
        for pattern in {*patterns, new.pattern or ""}:
            found = self.patterns.get(pattern)
            if found is not None:
                names |= found.topics
        return names

    def consumes(self, topic: str) -> bool:
        """Say whether a member subscribes to a topic, by its name or by a pattern."""
        return topic in self._topic_members or any(
            topic in found.topics
            for pattern, found in self.patterns.items()
            if pattern in self._pattern_members
        )

    def topics_of(self, subscription: MemberValue) -> set[str]:
        """The names of the topics of a subscription; a pattern not yet resolved matches none."""
        names = set(subscription.topics)
        found = self.patterns.get(subscription.pattern or "")
        if found is not None:
            names |= found.topics
        return names

    def next_deadline(self, session_timeout_ms: int) -> int | None:
        """When a member is given up next, if nothing is heard of it; None without members."""
        deadlines = [*self.step_deadlines.values(), *self._classic_sessions.values()]
        if self._heard_ms:
            deadlines.append(min(self._heard_ms.values()) + session_timeout_ms)
        return min(deadlines, default=None)

    def overdue(self, now_ms: int, session_timeout_ms: int) -> list[str]:
        """The members to give up now: they went silent, or did not give partitions back."""
        silent_since_ms = now_ms - session_timeout_ms
        silent = [name for name, heard in self._heard_ms.items() if heard <= silent_since_ms]
        silent += [name for name, due in self._classic_sessions.items() if due <= now_ms]
        late = [name for name, due in self.step_deadlines.items() if due <= now_ms]
        return [*dict.fromkeys([*silent, *late])]

    def deadline_of(self, member_id: str, session_timeout_ms: int) -> int | None:
        """When a member is given up, if nothing is heard of it; None if it is not there."""
        due_ms = self._classic_sessions.get(member_id)
        if member_id in self._heard_ms:
            due_ms = self._heard_ms[member_id] + session_timeout_ms
        return None if due_ms is None else min(due_ms, self.step_deadlines.get(member_id, due_ms))

    # ---- members of the classic protocol

    @property
    def classic_count(self) -> int:
        """Number of members that speak the classic protocol."""
        return len(self._classic_sessions)

    def speaks(self, protocol: str) -> bool:
        """Say whether all members of the classic protocol speak one of its protocols."""
        return self._speakers[protocol] == self.classic_count

    # ---- the part in memory alone

    def hear(self, member_id: str, now_ms: int) -> None:
        """Prolong a member's session."""
        member = self._members.get(member_id)
        if member is None:
            return
        classic = member.subscription.classic
        if classic is None:
            self._heard_ms[member_id] = now_ms
        else:
            self._classic_sessions[member_id] = now_ms + classic.session_timeout_ms

    def begin_sessions(self, now_ms: int) -> None:
        """Begin the sessions and deadlines of all members now: the group was just loaded."""
        for member in self._members.values():
            self.hear(member.member_id, now_ms)
            if member.member_id in self.step_deadlines:
                due_ms = now_ms + member.subscription.rebalance_timeout_ms
                self.step_deadlines[member.member_id] = due_ms

    # ---- records

    def replay(self, record: ConsumerRecord, now_ms: int) -> None:
        """Fold in a record that is in the log."""
        kind, _, name = record.key
        match record.value:
            case EpochValue():
                self._epoch = record.value
            case TargetValue():
                self._target = record.value
            case MemberValue():
                before = self._members.get(name)
                current = NO_PARTITIONS if before is None else before.current
                self._put(ConsumerMember(name, record.value, current))
                self._set_session(name, now_ms)
            case CurrentValue():
                before = self._members.get(name)
                subscription = NO_SUBSCRIPTION if before is None else before.subscription
                current = record.value.without_left_tags()
                self._put(ConsumerMember(name, subscription, current))
                self._set_revocation(name, current, subscription, now_ms)
            case TargetMemberValue():
                self.target[name] = record.value.partitions
                self._tagged_targets.pop(name, None)
                if record.value.tags or record.value.topic_tags:
                    self._tagged_targets[name] = record.value
            case PatternValue():
                self.patterns[name] = record.value
            case None:
                self._drop(kind, name)

    def _set_session(self, name: str, now_ms: int) -> None:
        """Begin the session of a member that is new, or speaks another protocol than before."""
        here, there = self._heard_ms, self._classic_sessions
        if self._members[name].is_classic:
            here, there = there, here
        if there.pop(name, None) is not None:
            self.step_deadlines.pop(name, None)
        if name not in here:
            self.hear(name, now_ms)

    def _set_revocation(
        self, name: str, current: CurrentValue, subscription: MemberValue, now_ms: int
    ) -> None:
        if subscription.classic is not None:
            return  # its heartbeats and its joins have deadlines
        # A static member that left keeps its state, but owns nothing any longer.
        is_gone = current.epoch == LEFT_FOR_A_WHILE
        if current.state is MemberState.UNREVOKED_PARTITIONS and not is_gone:
            self.step_deadlines[name] = now_ms + max(subscription.rebalance_timeout_ms, 0)
        else:
            self.step_deadlines.pop(name, None)

    def _drop(self, kind: Kind, name: str) -> None:
        """Fold in a tombstone."""
        member = self._members.get(name)
        if kind is Kind.MEMBER and member is not None:
            self._unindex(member)
            del self._members[name]
            self._heard_ms.pop(name, None)
            self._classic_sessions.pop(name, None)
            self.step_deadlines.pop(name, None)
        elif kind is Kind.CURRENT and member is not None:
            self._put(member._replace(current=NO_PARTITIONS))
            self.step_deadlines.pop(name, None)
        elif kind is Kind.TARGET_MEMBER:
            self.target.pop(name, None)
            self._tagged_targets.pop(name, None)
        elif kind is Kind.TARGET:
            self._target = TargetValue(FIRST_EPOCH)
        elif kind is Kind.PATTERN:
            self.patterns.pop(name, None)

    def _put(self, member: ConsumerMember) -> None:
        before = self._members.get(member.member_id)
        if before is not None:
            self._unindex(before)
        self._members[member.member_id] = member
        subscription = member.subscription
        if subscription.instance_id is not None:
            self._static[subscription.instance_id] = member.member_id
        if member.pattern:
            self._pattern_members[member.pattern] += 1
        self._topic_members.update(subscription.topics)
        self._speakers.update(_protocols(subscription))
        for place in _places(member.current):
            self._owners[place] = member.member_id
        self.members_bytes += member.size_bytes

    def _unindex(self, member: ConsumerMember) -> None:
        """Take a member out of the indexes and the sum."""
        subscription = member.subscription
        if self._static.get(subscription.instance_id or "") == member.member_id:
            del self._static[subscription.instance_id or ""]
        _count_down(self._pattern_members, (member.pattern,) if member.pattern else ())
        _count_down(self._topic_members, subscription.topics)
        _count_down(self._speakers, _protocols(subscription))
        for place in _places(member.current):
            if self._owners.get(place) == member.member_id:
                del self._owners[place]
        self.members_bytes -= member.size_bytes

    def facts(self) -> tuple[object, ...]:
        """The recorded part, for comparisons: equal facts were folded from records (P8)."""
        return (
            self.group_id,
            self._epoch,
            self._target,
            dict(self._members),
            dict(self.target),
            dict(self._tagged_targets),
            dict(self.patterns),
        )


def _protocols(subscription: MemberValue) -> Collection[str]:
    """The protocols of a classic member, each once."""
    classic = subscription.classic
    return () if classic is None else {name for name, _ in classic.protocols}


def _places(current: CurrentValue) -> Iterator[tuple[uuid.UUID, int]]:
    for owned in (current.assigned, current.revoking):
        for topic_id, epochs in owned.items():
            for partition in epochs:
                yield topic_id, partition


def _count_down(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]


def next_epoch(group: ConsumerGroup) -> int:
    """The epoch behind a change that needs another assignment; the last one has no successor.

    A member that leaves in the last epoch frees its partitions, and nobody gets them.
    """
    return min(group.epoch + 1, EPOCH_MAX)
