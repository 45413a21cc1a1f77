"""The members of a consumer group that may commit offsets, or fetch them.

Pure. Source: KIP-1251; Apache Kafka's behaviour where it is silent.
"""

from collections.abc import Iterable
from uuid import UUID

from txn.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from txn.wire.error_codes import ErrorCode


def commit_refusal(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    *,
    is_transactional: bool,
    partitions: Iterable[tuple[UUID | None, int]],
) -> ErrorCode:
    """Say why this member may not commit offsets of these partitions; NONE if it may.

    An epoch is valid from the one in which the member got the partition, up to its present one.
    Without members anybody may commit that names none. A transactional commit that names none
    always may: its transactional id fences it. A classic member knows no STALE_MEMBER_EPOCH.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if is_transactional and epoch < 0 and not member_id and instance_id is None:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    current, stale = member.current, _stale(member)
    if epoch == current.epoch:
        return ErrorCode.NONE
    if epoch > current.epoch:
        return stale
    for topic_id, partition in partitions:
        since = None
        if topic_id is not None:
            assigned, revoking = current.assigned, current.revoking
            since = assigned.get(topic_id, {}).get(partition)
            since = revoking.get(topic_id, {}).get(partition) if since is None else since
        if since is None or epoch < since:
            return stale
    return ErrorCode.NONE


def _stale(member: ConsumerMember) -> ErrorCode:
    """The code for another epoch than the member's, as its protocol knows it."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def fetch_refusal(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Say why a member may not fetch offsets; NONE if it may, or if no member asks."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale(member)
