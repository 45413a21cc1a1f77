"""The change of a group from the classic protocol to the consumer protocol, and back.

Pure. Both changes are one batch: it ends the group of one protocol and begins that of the other.

    classic group ──a member of the consumer protocol joins──► consumer group
    consumer group ──its last member of the consumer protocol goes──► classic group

The group's epoch is the former generation, and the other way round. Its members keep their ids and
their assignments. After an upgrade the members of the classic protocol go on in the consumer group
(`classic_members.py`). After a downgrade the members join again, as in any rebalance.

A group with subscriptions or assignments that cannot be read stays as it is. So does a group whose
downgrade does not fit into a batch. The subscriptions of all protocols of a member have to be
readable, since a round may select any of them.

A downgrade by a static member that changes its protocol needs no round, if the target assignment is
for the group's epoch, and the other members have their parts of it. No member knows that it leads
such a group. So the coordinator begins a round when topics change, which a leader would notice.

Where Kafka differs: it tells members that wait of another rebalance before it knows that the group
changes. A classic group without any generation has no protocol yet; it fails to change it. If a
static member changes its protocol in a round, Kafka assigns nothing to the others of that round. It
begins no round for a group that nobody leads, nor for members on the way to their target. It reads
one protocol of each member.

Sources: KIP-848; Apache Kafka's group coordinator.
"""

import struct
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from txn.coordinator.group.classic.group import Group, GroupState, group_value, select_protocol
from txn.coordinator.group.classic.membership import begin_round
from txn.coordinator.group.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from txn.coordinator.group.consumer.beat import Beat, Outcome, Refusal
from txn.coordinator.group.consumer.decide import heartbeat
from txn.coordinator.group.consumer.departures import dissolve, fence
from txn.coordinator.group.consumer.embedded import (
    Partitions,
    Subscription,
    are_readable,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from txn.coordinator.group.consumer.group import (
    NOTHING,
    OWNS_NOTHING,
    ConsumerGroup,
    ConsumerMember,
    next_epoch,
)
from txn.coordinator.group.consumer.records import (
    Assignment,
    ClassicMember,
    ConsumerRecord,
    CurrentValue,
    EpochValue,
    Kind,
    MemberState,
    MemberValue,
    TargetMemberValue,
    TargetValue,
    record,
)
from txn.coordinator.group.consumer.target import Limits
from txn.coordinator.group.consumer.topics import Topics, metadata_hash
from txn.coordinator.group.members import Member, Members
from txn.coordinator.group.records import GroupKey, GroupRecord, encode_record
from txn.coordinator.group.store import GroupLogRecord
from txn.wire.error_codes import ErrorCode

UPGRADES: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADES: Final = frozenset({"bidirectional", "downgrade"})
"""The values of `group.consumer.migration.policy` that allow a change."""

DISABLED: Final = "disabled"

NO_PATTERN: Final = ""

ASSIGNED: Final = -(1 << 31)
"""The order of an assignment among the claims of members: before all generations."""


class Rules(NamedTuple):
    """The settings for changes of the protocol.

    Attributes:
        policy: The value of `group.consumer.migration.policy`.
        consumer_max_size: The most members of a consumer group.
        classic_max_size: The most members of a classic group.
        bytes_max: The largest batch.
    """

    policy: str
    consumer_max_size: int
    classic_max_size: int
    bytes_max: int


class Moment(NamedTuple):
    """A time: of the monotonic clock, and of day."""

    monotonic_ms: int
    day_ms: int


class Removal(NamedTuple):
    """The next steps: write the records, then put the classic group in memory if there is one."""

    records: tuple[GroupLogRecord, ...]
    classic: Group | None = None


# ---------------------------------------------------------------- upgrade


def join_classic(
    group: Group, beat: Beat, *, at: Moment, topics: Topics, limits: Limits, rules: Rules
) -> tuple[tuple[GroupLogRecord, ...], Outcome]:
    """Let a member of the consumer protocol into a classic group.

    A group in a round has no assignment for all of its members. So it gets another epoch, where the
    new member does not change the epoch by itself: it took the place of a static member.

    Returns:
        The records that change the group's protocol, and the heartbeat's outcome behind them.

    Raises:
        Refusal: the group stays as it is; says why.
    """
    if group.state is GroupState.EMPTY:
        ended: tuple[GroupLogRecord, ...] = (GroupRecord(GroupKey(group.group_id), None),)
        known = ConsumerGroup(group.group_id)
        return ended, heartbeat(known, beat, now_ms=at.day_ms, topics=topics, limits=limits)
    upgraded = _upgrade(group, topics, rules)
    known = _folded(group.group_id, upgraded, at.monotonic_ms)
    outcome = heartbeat(known, beat, now_ms=at.day_ms, topics=topics, limits=limits)
    if group.state is GroupState.STABLE or has_old_target(known, outcome):
        return upgraded, outcome
    value = known.epoch_value._replace(epoch=next_epoch(known))
    upgraded = (*upgraded, record(Kind.EPOCH, group.group_id, value))
    known = _folded(group.group_id, upgraded, at.monotonic_ms)
    return upgraded, heartbeat(known, beat, now_ms=at.day_ms, topics=topics, limits=limits)


def _upgrade(group: Group, topics: Topics, rules: Rules) -> tuple[GroupLogRecord, ...]:
    """The records that make a classic group with members a consumer group.

    Its members have the state Stable, with their last assignments. Raises Refusal.
    """
    reason = None
    if rules.policy not in UPGRADES:
        reason = "online upgrade is disabled."
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol."
    elif len(group.members) > rules.consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size."
    if reason is not None:
        raise _not_upgraded(group, reason)
    try:
        members = _upgraded_members(group, topics)
    except (ValueError, struct.error) as error:
        raise _not_upgraded(group, "the embedded consumer protocol is malformed.") from error
    names = {name for member in members for name in member.subscription.topics}
    group_id, epoch = group.group_id, group.generation
    parts = [
        (member.member_id, {topic_id: frozenset(each) for topic_id, each in owned.items()})
        for member in members
        for owned in (member.current.assigned,)
    ]
    epoch_value = EpochValue(epoch, metadata_hash(names, topics))
    return (
        GroupRecord(GroupKey(group_id), None),
        *(record(Kind.MEMBER, group_id, each.subscription, each.member_id) for each in members),
        record(Kind.EPOCH, group_id, epoch_value),
        *(
            record(Kind.TARGET_MEMBER, group_id, TargetMemberValue(part), member_id)
            for member_id, part in parts
        ),
        record(Kind.TARGET, group_id, TargetValue(epoch)),
        *(record(Kind.CURRENT, group_id, each.current, each.member_id) for each in members),
    )


def _upgraded_members(group: Group, topics: Topics) -> list[ConsumerMember]:
    subscriptions = {}
    claims: list[tuple[int, str, Partitions]] = []
    """(order, member, partitions): a partition belongs to the first member that claims it."""
    for member_id, member in group.members.items():
        if not are_readable(member.protocols):
            raise ValueError(f"{member_id} has metadata that is no subscription")
        metadata = member.metadata(group.protocol) or member.protocols[0][1]
        subscription = subscriptions[member_id] = decode_subscription(metadata)
        partitions, user_data = decode_assignment(member.assignment)
        if user_data:
            raise _not_upgraded(
                group,
                "an unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade.",
            )
        claims.append((ASSIGNED, member_id, partitions))
        if group.state is not GroupState.STABLE or member_id in group.unsynced:
            # Members of a cooperative protocol read on until they hear of their assignment. One
            # that joined the round may have withdrawn those that were stored.
            claims.append((-subscription.generation, member_id, subscription.owned))
    owned = _owned(claims, group.generation, topics)
    return [
        _upgraded(member, subscriptions[member_id], group.generation, owned[member_id])
        for member_id, member in group.members.items()
    ]


def _owned(
    claims: Iterable[tuple[int, str, Partitions]], generation: int, topics: Topics
) -> dict[str, dict[UUID, dict[int, int]]]:
    """The partitions of each member; a leader may have assigned one of them twice."""
    owned: dict[str, dict[UUID, dict[int, int]]] = {}
    taken: set[tuple[UUID, int]] = set()
    for _, member_id, partitions in sorted(claims, key=lambda claim: claim[0]):
        part = owned.setdefault(member_id, {})
        for topic_id, numbers in by_id(partitions, topics).items():
            free = {each for each in numbers if (topic_id, each) not in taken}
            taken.update((topic_id, each) for each in free)
            if free:
                free.update(part.get(topic_id, ()))
                part[topic_id] = dict.fromkeys(sorted(free), generation)
    return owned


def _upgraded(
    member: Member, subscription: Subscription, generation: int, owned: dict[UUID, dict[int, int]]
) -> ConsumerMember:
    value = MemberValue(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted({*subscription.topics})),
        NO_PATTERN,
        member.rebalance_timeout_ms,
        None,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )
    current = CurrentValue(generation, generation, MemberState.STABLE, owned, OWNS_NOTHING)
    return ConsumerMember(member.member_id, value, current)


def by_id(partitions: Partitions, topics: Topics) -> Assignment:
    """Partitions by the ids of their topics; topics that are not there are left out."""
    found = {topics.topic_id(name): frozenset(each) for name, each in partitions.items()}
    return {topic_id: each for topic_id, each in found.items() if topic_id is not None and each}


def _not_upgraded(group: Group, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}",
    )


def _folded(group_id: str, records: Iterable[GroupLogRecord], now_ms: int) -> ConsumerGroup:
    """The consumer group that an upgrade makes."""
    group = ConsumerGroup(group_id)
    for each in records:
        if isinstance(each, ConsumerRecord):
            group.replay(each, now_ms)
    return group


# ---------------------------------------------------------------- downgrade


def remove(
    group: ConsumerGroup,
    member_ids: Collection[str],
    *,
    topics: Topics,
    rules: Rules,
    at: Moment,
) -> Removal:
    """Remove members; if only members of the classic protocol are left, the group changes."""
    stay = [each for name, each in group.members.items() if name not in member_ids]
    if len(stay) < len(group.members) and stay and _may_downgrade(stay, rules):
        removal = _downgrade(group, stay, {}, topics=topics, at=at, begins_round=True)
        if removal is not None and _size(removal.records) <= rules.bytes_max:
            return removal
    return Removal(fence(group, member_ids, topics=topics))


def replace(
    group: ConsumerGroup,
    outcome: Outcome,
    joining: ConsumerMember,
    *,
    topics: Topics,
    rules: Rules,
    at: Moment,
) -> Removal | None:
    """Downgrade a group whose last member of the consumer protocol was replaced; None: it stays.

    The members join again if the target assignment is old, or one of them waits for a part of it.

    Args:
        group: The group as it was.
        outcome: The replacement of a static member.
        joining: The member of the classic protocol that takes its place.
        topics: The published topics.
        rules: The settings.
        at: The time.
    """
    replaced = outcome.replaced
    if replaced is None or group.members[replaced].is_classic:
        return None
    stay = [joining if name == replaced else each for name, each in group.members.items()]
    if not _may_downgrade(stay, rules):
        return None
    removal = _downgrade(
        group,
        stay,
        {joining.member_id: replaced},
        topics=topics,
        at=at,
        begins_round=needs_round(group, outcome),
    )
    if removal is None or _size(removal.records) > rules.bytes_max:
        return None
    return removal._replace(records=(*outcome.records, *removal.records))


def needs_round(group: ConsumerGroup, outcome: Outcome) -> bool:
    """Say whether the members of a group that is downgraded by a replacement join again.

    Otherwise they would learn neither of partitions that become theirs, nor of those they lose.
    """
    epoch = group.target_value.epoch
    return has_old_target(group, outcome) or not all(
        member.is_reconciled_to(epoch)
        for name, member in group.members.items()
        if name != outcome.replaced
    )


def has_old_target(group: ConsumerGroup, outcome: Outcome) -> bool:
    """Say whether a group's target assignment is not for its epoch behind a heartbeat."""
    writes_epoch = any(each.key.kind is Kind.EPOCH for each in outcome.records)
    return writes_epoch or group.epoch > group.target_value.epoch


def _may_downgrade(stay: Collection[ConsumerMember], rules: Rules) -> bool:
    return (
        all(each.is_classic for each in stay)
        and rules.policy in DOWNGRADES
        and len(stay) <= rules.classic_max_size
    )


def _downgrade(
    group: ConsumerGroup,
    stay: Iterable[ConsumerMember],
    former_ids: dict[str, str],
    *,
    topics: Topics,
    at: Moment,
    begins_round: bool,
) -> Removal | None:
    members = Members(_classic_member(each, at.monotonic_ms) for each in stay)
    if not members.common_protocols():  # an Apache Kafka let them in
        return None
    # A join reads the preferred protocol alone, and the round may select any of them.
    if not all(are_readable(member.protocols) for member in members.values()):
        return None
    stable = Group(
        group.group_id,
        GroupState.STABLE,
        group.epoch,
        CONSUMER_PROTOCOL_TYPE,
        leader=next(iter(members)),
        members=members,
        state_timestamp_ms=at.day_ms,
    )
    protocol = select_protocol(stable)
    replaced = {*former_ids.values()}
    known = [name for name in group.members if name not in replaced]
    assigned = []
    for member in members.values():
        part = group.target.get(former_ids.get(member.member_id, member.member_id), NOTHING)
        data = encode_assignment(by_name(part, topics), member.metadata(protocol))
        assigned.append(member._replace(assignment=data))
    stable = stable._replace(protocol=protocol, members=Members(assigned))
    written = GroupRecord(GroupKey(group.group_id), group_value(stable))
    live = stable._replace(is_unled=True)
    if begins_round:
        live = begin_round(stable, now_ms=at.monotonic_ms)
    ended = dissolve(group.group_id, [*dict.fromkeys([*known, *members])], group.patterns)
    return Removal((*ended, written), live)


def _classic_member(member: ConsumerMember, now_ms: int) -> Member:
    value = member.subscription
    classic = value.classic
    assert classic is not None, f"{member.member_id} speaks the consumer protocol"
    return Member(
        member.member_id,
        value.instance_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        classic.session_timeout_ms,
        classic.protocols,
        now_ms + classic.session_timeout_ms,
    )


def by_name(part: Assignment, topics: Topics) -> Partitions:
    """Partitions by the names of their topics; topics that are not there are left out."""
    found = {topics.topic_name(topic_id): numbers for topic_id, numbers in part.items()}
    return {name: numbers for name, numbers in found.items() if name is not None}


def _size(records: Iterable[GroupLogRecord]) -> int:
    encoded = (encode_record(each) for each in records)
    return sum(len(key) + len(value or b"") for key, value in encoded)
