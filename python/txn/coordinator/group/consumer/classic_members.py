"""Members of the classic protocol in a consumer group: their requests.

Pure. A generation is the member's epoch. JoinGroup is a heartbeat that names the member's
subscription and its partitions. It is answered at once, without a leader and a list of members.
SyncGroup fetches the partitions that the coordinator gives the member. Heartbeat tells the member
to join again when there is something to do. LeaveGroup removes members of both protocols.

    Heartbeat  ──REBALANCE_IN_PROGRESS──► JoinGroup ──► SyncGroup ──► Heartbeat

The member has its rebalance timeout for each of the two steps.

A classic member joins again too when the group's next target assignment is due: the join computes
it. The members of the consumer protocol may be away.

Where Kafka differs: if a group has only classic members, or all others are away, and it may not
become a classic one, nobody sends a heartbeat of the consumer protocol. So nobody notices that a
topic has changed. Here a classic member is told to join again then. If the stored metadata of a
member has no version, Kafka never answers its SyncGroup. Here it is UNKNOWN_SERVER_ERROR.

Source: Apache Kafka's group coordinator.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from txn.coordinator.group.classic.requests import (
    MEMBER_ID_REQUIRED_FROM,
    Join,
    JoinAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from txn.coordinator.group.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from txn.coordinator.group.consumer.beat import JOINS, Beat, Outcome
from txn.coordinator.group.consumer.decide import added_bytes, heartbeat, join_refusal
from txn.coordinator.group.consumer.embedded import (
    Subscription,
    decode_subscription,
    encode_assignment,
)
from txn.coordinator.group.consumer.group import (
    LEFT_FOR_A_WHILE,
    NO_PARTITIONS,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
)
from txn.coordinator.group.consumer.migration import (
    DISABLED,
    NO_PATTERN,
    Moment,
    Removal,
    Rules,
    by_id,
    by_name,
    needs_round,
    replace,
)
from txn.coordinator.group.consumer.records import (
    ClassicMember,
    MemberState,
    MemberValue,
)
from txn.coordinator.group.consumer.target import Limits, is_assignment_due
from txn.coordinator.group.consumer.topics import Topics, metadata_hash
from txn.wire.error_codes import ErrorCode

FENCED: Final = ErrorCode.FENCED_INSTANCE_ID


class Joined(NamedTuple):
    """The next steps of a JoinGroup: write the records of `outcome`, or carry out the downgrade."""

    answer: JoinAnswer
    outcome: Outcome | None = None
    downgrade: Removal | None = None


def join(
    group: ConsumerGroup,
    request: Join,
    *,
    at: Moment,
    topics: Topics,
    limits: Limits,
    rules: Rules,
    room_bytes: int,
) -> Joined:
    """Let a member of the classic protocol into a consumer group that has members, or go on.

    Args:
        group: The group.
        request: The JoinGroup.
        at: The time.
        topics: The published topics.
        limits: The settings for the group.
        rules: The settings for changes of the protocol.
        room_bytes: The memory that all groups may still take.
    """
    if rules.policy == DISABLED:
        return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    subscription = _subscription(request)
    beat = _beat(request, subscription or Subscription((), {}, None), topics)
    if added_bytes(group, beat) > room_bytes:
        return Joined(JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
    refusal = join_refusal(group, beat, limits)
    names = [name for name, _ in request.protocols]
    if refusal is not None:
        return _refused(refusal.error)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(map(group.speaks, names)):
        return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_new = not request.member_id and request.instance_id is None
    if is_new and request.api_version >= MEMBER_ID_REQUIRED_FROM:
        return Joined(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, beat.member_id))
    if subscription is None:
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    outcome = heartbeat(group, beat, now_ms=at.day_ms, topics=topics, limits=limits)
    if outcome.answer.error is not ErrorCode.NONE:
        return _refused(outcome.answer.error)
    answer = JoinAnswer(
        ErrorCode.NONE,
        beat.member_id,
        outcome.answer.epoch,
        CONSUMER_PROTOCOL_TYPE,
        names[0],
    )
    if outcome.replaced is None:
        return Joined(answer, outcome)
    member = _member(outcome, beat)
    downgrade = replace(group, outcome, member, topics=topics, rules=rules, at=at)
    if downgrade is None:
        return Joined(answer, outcome)
    generation = 0 if needs_round(group, outcome) else answer.generation
    return Joined(answer._replace(generation=generation), None, downgrade)


def _subscription(request: Join) -> Subscription | None:
    """The subscription of the preferred protocol; all have the same. None: it cannot be read."""
    try:
        return decode_subscription(request.protocols[0][1])
    except (IndexError, ValueError, struct.error):
        return None


def _beat(request: Join, subscription: Subscription, topics: Topics) -> Beat:
    return Beat(
        request.member_id or request.fresh_member_id,
        JOINS,
        request.client_id,
        request.client_host,
        request.instance_id,
        subscription.rack_id,
        request.rebalance_timeout_ms,
        subscription.topics,
        NO_PATTERN,
        None,
        by_id(subscription.owned, topics),
        ClassicMember(request.session_timeout_ms, request.protocols),
        bool(request.member_id),
    )


def _refused(error: ErrorCode) -> Joined:
    return Joined(JoinAnswer(error))


def _member(outcome: Outcome, beat: Beat) -> ConsumerMember:
    """The member that an outcome writes in the place of another one."""
    subscription = [
        each.value
        for each in outcome.records
        if each.key.name == beat.member_id and isinstance(each.value, MemberValue)
    ][-1]
    return ConsumerMember(beat.member_id, subscription, NO_PARTITIONS)


# ---------------------------------------------------------------- the other requests


def heartbeat_code(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    *,
    now_ms: int,
    topics: Topics,
    limits: Limits,
) -> ErrorCode:
    """The code for a heartbeat: NONE, REBALANCE_IN_PROGRESS to join again, or a refusal.

    With NONE, a group that `lacks_consumers` was compared with the topics.

    Args:
        group: The group.
        member_id: The sender.
        instance_id: Its instance id.
        generation: The epoch that it knows.
        now_ms: The time of day.
        topics: The published topics.
        limits: The settings for the group.
    """
    code = _refusal(group, member_id, instance_id, generation)
    if code is not ErrorCode.NONE:
        return code
    needs_join = (
        _needs_join(group, group.members[member_id])
        or is_assignment_due(group, group.epoch, now_ms, limits)
        or (
            group.is_outdated
            and lacks_consumers(group)
            and metadata_hash(group.subscribed_topics(), topics) != group.metadata_hash
        )
    )
    return ErrorCode.REBALANCE_IN_PROGRESS if needs_join else ErrorCode.NONE


def lacks_consumers(group: ConsumerGroup) -> bool:
    """Say whether all members of a group speak the classic protocol, or are away for a while."""
    return all(
        member.is_classic or member.epoch == LEFT_FOR_A_WHILE for member in group.members.values()
    )


def _needs_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.target_value.epoch:
        return True
    if member.current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    is_waiting = member.current.state is MemberState.UNRELEASED_PARTITIONS
    return is_waiting and not _awaits_others(group, member)


def _awaits_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Say whether another member still owns a partition of its target assignment."""
    target, assigned = group.target.get(member.member_id, NOTHING), member.current.assigned
    return any(
        partition not in assigned.get(topic_id, ()) and group.owner(topic_id, partition) is not None
        for topic_id, partitions in target.items()
        for partition in partitions
    )


def sync(
    group: ConsumerGroup, request: Sync, *, now_ms: int, topics: Topics, limits: Limits
) -> SyncAnswer:
    """Give a member its partitions, or send it to join again.

    Args:
        group: The group.
        request: The SyncGroup.
        now_ms: The time of day.
        topics: The published topics.
        limits: The settings for the group.
    """
    code = _refusal(group, request.member_id, request.instance_id, request.generation)
    if code is not ErrorCode.NONE:
        return SyncAnswer(code)
    member = group.members[request.member_id]
    classic = member.subscription.classic
    assert classic is not None, f"{request.member_id} speaks the consumer protocol"
    name, metadata = next(iter(classic.protocols), ("", b""))
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (
        None,
        name,
    ):
        return SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
    is_behind = group.target_value.epoch > member.epoch
    if not is_revoking and (is_behind or is_assignment_due(group, group.epoch, now_ms, limits)):
        return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    part = {topic_id: frozenset(each) for topic_id, each in member.current.assigned.items()}
    try:
        assigned = encode_assignment(by_name(part, topics), metadata)
    except ValueError:  # a stored record has metadata that no JoinGroup could bring
        return SyncAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
    return SyncAnswer(ErrorCode.NONE, request.protocol_type, request.protocol, assigned)


def _refusal(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    code = leaver_refusal(group, Leaver(member_id, instance_id))
    if code is not ErrorCode.NONE:
        return code
    member = group.members[member_id]
    if not member.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


def leaver_refusal(group: ConsumerGroup, leaver: Leaver) -> ErrorCode:
    """Say why this is not a member: unknown, or its instance id belongs to another one."""
    if leaver.instance_id is not None:
        holder = group.static_member(leaver.instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if holder.member_id == leaver.member_id else FENCED
    return ErrorCode.NONE if leaver.member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def leavers(
    group: ConsumerGroup, named: Iterable[Leaver]
) -> tuple[tuple[str, ...], tuple[ErrorCode, ...]]:
    """The ids of the members that leave, each once, and a code for each name."""
    gone: dict[str, None] = {}
    codes = []
    for leaver in named:
        code, member_id = leaver_refusal(group, leaver), leaver.member_id
        if not member_id and leaver.instance_id is not None:
            holder = group.static_member(leaver.instance_id)
            if holder is not None:  # removed by an administrator
                code, member_id = ErrorCode.NONE, holder.member_id
        if code is ErrorCode.NONE:
            gone[member_id] = None
        codes.append(code)
    return tuple(gone), tuple(codes)
