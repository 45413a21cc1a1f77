"""What a member of a classic group asks after it has joined, and what the time brings. Pure."""

from txn.coordinator.group.classic.draft import Draft, assignment_answer
from txn.coordinator.group.classic.group import Group, S, touch
from txn.coordinator.group.classic.refusals import generation_refusal, member_refusal, sync_refusal
from txn.coordinator.group.classic.requests import (
    Answer,
    GroupTransition,
    JoinAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from txn.wire.error_codes import ErrorCode


def sync(group: Group | None, request: Sync, *, now_ms: int) -> GroupTransition:
    """Hand a member its assignment, now or once the leader has handed all of them in."""
    draft = Draft(group) if group is not None else None
    error = sync_refusal(group, request)
    if draft is None or error is not ErrorCode.NONE:
        return GroupTransition(group, ((request.ticket, SyncAnswer(error)),))
    draft.mark_synced((request.member_id,))
    if draft.group.state is S.STABLE:
        draft.answer(request.ticket, assignment_answer(draft.group, request.member_id))
        return draft.outcome()
    draft.await_sync(request.member_id, request.ticket)
    if request.member_id == draft.group.leader:
        draft.become_stable(request.assignments, now_ms)
    return draft.outcome()


def heartbeat(
    group: Group | None, member_id: str, instance_id: str | None, generation: int, *, now_ms: int
) -> tuple[Group | None, ErrorCode]:
    """Prolong a member's session; REBALANCE_IN_PROGRESS tells it to join again."""
    error = generation_refusal(group, member_id, instance_id, generation)
    if group is None or error is not ErrorCode.NONE:
        return group, error
    is_rebalancing = group.state is S.PREPARING_REBALANCE
    code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
    return touch(group, member_id, now_ms=now_ms), code


def leave(
    group: Group | None, leavers: tuple[Leaver, ...], *, now_ms: int
) -> tuple[GroupTransition, tuple[ErrorCode, ...]]:
    """Remove members at once, all of them before the others are told to rebalance.

    Returns:
        The outcome, and one code for each leaver, in order.
    """
    if group is None:
        return GroupTransition(None), (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leavers)
    draft = Draft(group)
    going: dict[str, None] = {}
    lapsing: set[str] = set()
    codes = tuple(_leave_one(group, leaver, going, lapsing) for leaver in leavers)
    draft.forget_pending(lapsing)
    draft.remove(going)
    if going:
        draft.rebalance_or_complete(now_ms)
    else:
        draft.complete_if_all_joined(now_ms)
    return draft.outcome(), codes


def expire(group: Group, *, now_ms: int) -> GroupTransition:
    """Do due work: give up members that went silent, end rounds that took too long.

    All that is due at once goes in one step.
    """
    draft = Draft(group)
    lapsed = {member_id for member_id, lapses_ms in group.pending.items() if lapses_ms <= now_ms}
    if lapsed:
        draft.forget_pending(lapsed)
        draft.complete_if_all_joined(now_ms)
    silent = [m.member_id for m in draft.group.members.values() if _is_due(m.deadline_ms, now_ms)]
    if silent:
        draft.remove(silent)
        draft.rebalance_or_complete(now_ms)
    if _is_due(draft.group.join_deadline_ms, now_ms):
        draft.end_wait_for_joins(now_ms)
    if _is_due(draft.group.sync_deadline_ms, now_ms):
        draft.remove(sorted(draft.group.unsynced))
        draft.prepare_rebalance(now_ms)
    return draft.outcome()


def begin_round(group: Group, *, now_ms: int) -> Group:
    """Let the members of a Stable group, none of which waits for an answer, join again.

    The time at which it came to its state stays as it is: it is a time of day.
    """
    draft = Draft(group)
    draft.prepare_rebalance(now_ms)
    return draft.group._replace(state_timestamp_ms=group.state_timestamp_ms)


def dismissed(group: Group, error: ErrorCode) -> tuple[Answer, ...]:
    """The answers to all requests that wait in a group that ends."""
    answers: list[Answer] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            answers.append((member.awaiting_join, JoinAnswer(error, member.member_id)))
        if member.awaiting_sync is not None:
            answers.append((member.awaiting_sync, SyncAnswer(error)))
    return tuple(answers)


def next_deadline(group: Group) -> int | None:
    """When `expire` has something to do next, in milliseconds since the epoch; None for never."""
    deadlines = [
        member.session_deadline_ms
        for member in group.members.values()
        if member.is_new or (member.awaiting_join is None and member.awaiting_sync is None)
    ]  # those of `deadline_ms`, without a call for each of thousands
    deadlines += group.pending.values()
    deadlines += [ms for ms in (group.join_deadline_ms, group.sync_deadline_ms) if ms is not None]
    return min(deadlines, default=None)


def _leave_one(
    group: Group, leaver: Leaver, going: dict[str, None], lapsing: set[str]
) -> ErrorCode:
    """Note the member, or the id that was given out, and say why not if it is neither any more.

    `going` and `lapsing` are noted already.
    """
    member_id = leaver.member_id
    if not member_id:
        known = group.static_member(leaver.instance_id) if leaver.instance_id is not None else None
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known.member_id
    elif member_id in group.pending and member_id not in lapsing:
        lapsing.add(member_id)
        return ErrorCode.NONE
    elif (error := member_refusal(group, member_id, leaver.instance_id)) is not ErrorCode.NONE:
        is_gone = error is ErrorCode.FENCED_INSTANCE_ID and _holder(group, leaver) in going
        return ErrorCode.UNKNOWN_MEMBER_ID if is_gone else error
    if member_id in going:
        return ErrorCode.UNKNOWN_MEMBER_ID
    going[member_id] = None
    return ErrorCode.NONE


def _holder(group: Group, leaver: Leaver) -> str | None:
    """The member id that belongs to a leaver's instance id."""
    known = group.static_member(leaver.instance_id or "")
    return None if known is None else known.member_id


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
