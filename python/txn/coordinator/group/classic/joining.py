"""JoinGroup, case by case: new, dynamic, static and returning members. Pure."""

from txn.coordinator.group.classic.draft import Draft, generation_answer
from txn.coordinator.group.classic.group import Group, Limits, S, group_value, select_protocol
from txn.coordinator.group.classic.refusals import (
    has_room,
    has_room_for_bytes,
    member_refusal,
    supports,
)
from txn.coordinator.group.classic.requests import (
    MEMBER_ID_REQUIRED_FROM,
    SKIP_ASSIGNMENT_FROM,
    GroupTransition,
    Join,
    JoinAnswer,
)
from txn.coordinator.group.members import Member
from txn.wire.error_codes import ErrorCode


def join(
    group: Group | None, request: Join, *, group_id: str, now_ms: int, limits: Limits
) -> GroupTransition:
    """Let a member into the next generation, or say why not.

    A member that is let in is answered when the round is complete. A follower that comes back to a
    Stable group unchanged is answered at once with its missing assignment.
    """
    if group is not None:
        return _join(Draft(group), request, now_ms, limits).outcome()
    if request.member_id:
        return _refused_join(request, ErrorCode.UNKNOWN_MEMBER_ID)
    made = Group(group_id, state_timestamp_ms=now_ms)
    draft = _join(Draft(made), request, now_ms, limits)
    if draft.group is made:
        return GroupTransition(None, tuple(draft.answers))
    if draft.record is None:
        draft.record = group_value(made)
    return draft.outcome()


def _join(draft: Draft, request: Join, now_ms: int, limits: Limits) -> Draft:
    group = draft.group
    if not (
        has_room(group, request.member_id, limits.group_max_size)
        and has_room_for_bytes(group, request, limits.group_bytes_max)
    ):
        if request.member_id in group.members:
            draft.remove((request.member_id,))
            draft.complete_if_all_joined(now_ms)
        draft.answer(request.ticket, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not supports(group, request.protocol_type, request.protocols):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        draft.answer(request.ticket, JoinAnswer(code, request.member_id))
    elif not request.member_id:
        _join_without_id(draft, request, now_ms)
    elif request.member_id in group.pending and request.instance_id is None:
        draft.add(request, request.member_id, now_ms)
        draft.rebalance_or_complete(now_ms)
    else:
        error = member_refusal(group, request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            draft.answer(request.ticket, JoinAnswer(error, request.member_id))
        else:
            _join_again(draft, request, now_ms)
    if group.state is S.EMPTY and draft.group.state is S.PREPARING_REBALANCE:
        draft.wait_for_first_members(limits.initial_rebalance_delay_ms, now_ms)
    return draft


def _join_without_id(draft: Draft, request: Join, now_ms: int) -> None:
    if request.instance_id is not None:
        known = draft.group.static_member(request.instance_id)
        if known is not None:
            _replace_static(draft, known, request, now_ms)
            return
    elif request.api_version >= MEMBER_ID_REQUIRED_FROM:
        draft.add_pending(request.fresh_member_id, now_ms + request.session_timeout_ms)
        code = ErrorCode.MEMBER_ID_REQUIRED
        draft.answer(request.ticket, JoinAnswer(code, request.fresh_member_id))
        return
    draft.add(request, request.fresh_member_id, now_ms)
    draft.rebalance_or_complete(now_ms)


def _join_again(draft: Draft, request: Join, now_ms: int) -> None:
    """A member of this generation joins: it missed an answer, changed, or wants a rebalance."""
    group = draft.group
    member = group.members[request.member_id]
    is_unchanged = member.protocols == request.protocols
    is_leader = group.leader == member.member_id
    missed_answer = is_unchanged and (
        group.state is S.COMPLETING_REBALANCE or (group.state is S.STABLE and not is_leader)
    )
    if missed_answer:
        draft.answer(request.ticket, generation_answer(group, member.member_id))
    else:
        draft.update(member, request)
        draft.rebalance_or_complete(now_ms)


def _replace_static(draft: Draft, known: Member, request: Join, now_ms: int) -> None:
    """A static member came back under a new id; a Stable group need not rebalance for it."""
    leader_before = draft.group.leader
    member = draft.replace_static(known, request, now_ms)
    group = draft.group
    if group.state is not S.STABLE or select_protocol(group) != group.protocol:
        draft.rebalance_or_complete(now_ms)
        return
    draft.put(member._replace(awaiting_join=None))
    draft.write()
    answer = generation_answer(group, member.member_id)
    if request.api_version >= SKIP_ASSIGNMENT_FROM:
        is_leader = group.leader == member.member_id
        draft.answer(request.ticket, answer._replace(skip_assignment=is_leader))
    else:
        # It must not take itself for the leader: a Stable group takes no assignment.
        draft.answer(request.ticket, answer._replace(leader=leader_before or "", members=()))


def _refused_join(request: Join, error: ErrorCode) -> GroupTransition:
    return GroupTransition(None, ((request.ticket, JoinAnswer(error, request.member_id)),))
