"""Why a request of a member is refused: unknown, fenced, of another generation, no room. Pure."""

from typing import Final

from txn.coordinator.group.classic.group import Group, S
from txn.coordinator.group.classic.requests import Join, Leaver, Sync
from txn.coordinator.group.members import Protocols
from txn.wire.error_codes import ErrorCode

PENDING_MAX: Final = 10_000
"""Ids of a group that are given out and not used; each lapses with its session timeout."""


def leave_refusal(group: Group | None, leaver: Leaver) -> ErrorCode:
    """Say why nobody leaves by this name now; NONE: a member does, or an id that was given out."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.member_id:
        is_pending = leaver.member_id in group.pending
        named = group, leaver.member_id, leaver.instance_id
        return ErrorCode.NONE if is_pending else member_refusal(*named)
    is_known = leaver.instance_id is not None and group.static_member(leaver.instance_id)
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def commit_refusal(
    group: Group | None,
    member_id: str,
    instance_id: str | None,
    generation: int,
    *,
    is_transactional: bool,
    knows_group_not_found: bool,
) -> ErrorCode:
    """Say why this member may not commit offsets for the group; NONE if it may.

    A consumer outside any group (generation -1) may, as long as the group has no members. A
    transactional commit without a member (before version 3) always may: its transactional id
    fences it. Source: KIP-447.
    """
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        is_known = knows_group_not_found
        return ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is S.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = generation_refusal(group, member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
    elif not is_transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not is_transactional and group.state is S.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def has_room(group: Group, member_id: str, group_max_size: int) -> bool:
    """Say whether one more may join; in a round, those who are first in it have the places."""
    member = group.members.get(member_id)
    if group.state is S.EMPTY or len(group.members) < group_max_size:
        return True
    if group.state is S.PREPARING_REBALANCE:
        waiting = sum(m.awaiting_join is not None for m in group.members.values())
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or waiting < group_max_size
    return member is not None


def has_room_for_bytes(group: Group, request: Join, bytes_max: int) -> bool:
    """Return True if the group can keep a member's data, and one more id that is given out."""
    before = group.members.get(request.member_id)
    if before is None and request.instance_id is not None:
        before = group.static_member(request.instance_id)
    others = group.members.size_bytes - (0 if before is None else before.size_bytes)
    fits = others + request.size_bytes <= bytes_max
    return fits and (bool(request.member_id) or len(group.pending) < PENDING_MAX)


def supports(group: Group, protocol_type: str, protocols: Protocols) -> bool:
    """Say whether a member speaks a protocol that every member of the group speaks."""
    if group.state is S.EMPTY:
        return bool(protocol_type) and bool(protocols)
    speaks = not group.members or any(group.members.all_speak(name) for name, _ in protocols)
    return bool(protocols) and speaks and protocol_type == group.protocol_type


def sync_refusal(group: Group | None, request: Sync) -> ErrorCode:
    """Say why a SyncGroup is refused; NONE if it is not."""
    error = generation_refusal(group, request.member_id, request.instance_id, request.generation)
    if group is None or error is not ErrorCode.NONE:
        return error
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol, group.protocol
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is S.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def generation_refusal(
    group: Group | None, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Say why this is not a member of the current generation; NONE if it is."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = member_refusal(group, member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def member_refusal(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Say why this is not a member: unknown, or its instance id belongs to a newer one."""
    if instance_id is not None:
        known = group.static_member(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
