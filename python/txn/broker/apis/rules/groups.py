"""Rules of the APIs for groups and committed offsets."""

from collections.abc import Sequence
from typing import Final, TypeVar

from txn.broker.apis.access import Access, Proceed, Rule
from txn.broker.apis.group_offsets import OFFSET_FETCH_FAILS_WHOLE_FROM, resolved, topic_id_of
from txn.broker.apis.groups import joined, lacks_protocol
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.host import Context
from txn.broker.turns import Turns
from txn.coordinator.group.classic import JoinAnswer
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.groups import (
    OPERATIONS_NOT_ASKED,
    CommittedPartition,
    CommittedTopic,
    DeletedGroup,
    DeletedOffset,
    DeletedOffsets,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

GROUP: Final = ResourceType.GROUP
TOPIC: Final = ResourceType.TOPIC
FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED

OFFSETS_BY_GROUP_FROM: Final = 8
"""The first version of OffsetFetch for several groups."""


async def _join(
    access: Access,
    groups: GroupCoordinator,
    request: JoinGroupRequest,
    context: Context,
    proceed: Proceed[JoinGroupRequest, JoinGroupResponse],
) -> JoinGroupResponse:
    """READ on the group."""
    if not access.may(Operation.READ, GROUP, request.group_id):
        return joined(JoinAnswer(FAILED, ""), context)
    joining = proceed(request)
    del request  # the wait may be long
    return await joining


async def _sync(
    access: Access,
    groups: GroupCoordinator,
    request: SyncGroupRequest,
    context: Context,
    proceed: Proceed[SyncGroupRequest, SyncGroupResponse],
) -> SyncGroupResponse:
    """READ on the group. A request without the name of its protocol is refused before."""
    is_refused_anyhow = lacks_protocol(request, context)
    if not is_refused_anyhow and not access.may(Operation.READ, GROUP, request.group_id):
        return SyncGroupResponse(FAILED)
    syncing = proceed(request)
    del request  # the wait may be long
    return await syncing


async def _heartbeat(
    access: Access,
    groups: GroupCoordinator,
    request: HeartbeatRequest,
    context: Context,
    proceed: Proceed[HeartbeatRequest, HeartbeatResponse],
) -> HeartbeatResponse:
    """READ on the group."""
    if access.may(Operation.READ, GROUP, request.group_id):
        return await proceed(request)
    return HeartbeatResponse(FAILED)


async def _leave(
    access: Access,
    groups: GroupCoordinator,
    request: LeaveGroupRequest,
    context: Context,
    proceed: Proceed[LeaveGroupRequest, LeaveGroupResponse],
) -> LeaveGroupResponse:
    """READ on the group."""
    if access.may(Operation.READ, GROUP, request.group_id):
        return await proceed(request)
    return LeaveGroupResponse(FAILED)


# ---------------------------------------------------------------- offsets

CommitTopic = OffsetCommitTopic | TxnOffsetCommitTopic
CommitRequest = TypeVar("CommitRequest", OffsetCommitRequest, TxnOffsetCommitRequest)


async def _offset_commit(
    access: Access,
    groups: GroupCoordinator,
    request: OffsetCommitRequest,
    context: Context,
    proceed: Proceed[OffsetCommitRequest, OffsetCommitResponse],
) -> OffsetCommitResponse:
    """READ on the group and on the topics."""
    if not access.may(Operation.READ, GROUP, request.group_id):
        return _not_committed(request, FAILED)
    return await _commit(access, groups, request, proceed)


async def _txn_offset_commit(
    access: Access,
    groups: GroupCoordinator,
    request: TxnOffsetCommitRequest,
    context: Context,
    proceed: Proceed[TxnOffsetCommitRequest, OffsetCommitResponse],
) -> OffsetCommitResponse:
    """WRITE on the transactional id, READ on the group and on the topics."""
    transactional_id = request.transactional_id
    if not access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _not_committed(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not access.may(Operation.READ, GROUP, request.group_id):
        return _not_committed(request, FAILED)
    return await _commit(access, groups, request, proceed)


async def _commit(
    access: Access,
    groups: GroupCoordinator,
    request: CommitRequest,
    proceed: Proceed[CommitRequest, OffsetCommitResponse],
) -> OffsetCommitResponse:
    """Commit offsets of the topics that may be read; an unknown id is the handler's to refuse."""
    turns = Turns()
    is_kept = []
    for topic in request.topics:
        await turns.next()
        name, _ = resolved(groups, topic.name, topic_id_of(topic))
        is_kept.append(name is None or access.may(Operation.READ, TOPIC, name))
    kept = tuple(topic for topic, is_one in zip(request.topics, is_kept, strict=True) if is_one)
    committed = iter((await proceed(changed(request, topics=kept))).topics)
    return OffsetCommitResponse(
        [
            next(committed) if is_one else _refused_topic(topic, TOPIC_FAILED)
            for topic, is_one in zip(request.topics, is_kept, strict=True)
        ]
    )


def _not_committed(
    request: OffsetCommitRequest | TxnOffsetCommitRequest, code: ErrorCode
) -> OffsetCommitResponse:
    return OffsetCommitResponse([_refused_topic(topic, code) for topic in request.topics])


def _refused_topic(topic: CommitTopic, code: ErrorCode) -> CommittedTopic:
    partitions = [CommittedPartition(one.partition_index, code) for one in topic.partitions]
    return CommittedTopic(topic.name or "", topic_id_of(topic), partitions)


async def _offset_fetch(
    access: Access,
    groups: GroupCoordinator,
    request: OffsetFetchRequest,
    context: Context,
    proceed: Proceed[OffsetFetchRequest, OffsetFetchResponse],
) -> OffsetFetchResponse:
    """DESCRIBE on the group and on the topics; a list of all topics leaves out the others."""
    if context.api_version >= OFFSETS_BY_GROUP_FROM:
        return await _offsets_of_groups(access, groups, request, proceed)
    if not access.may(Operation.DESCRIBE, GROUP, request.group_id):
        if context.api_version >= OFFSET_FETCH_FAILS_WHOLE_FROM:
            return OffsetFetchResponse(FAILED)
        topics = [_refused_offsets(topic, FAILED) for topic in request.topics or ()]
        return OffsetFetchResponse(topics=topics)
    is_kept = await _seen(access, groups, request.topics)
    kept = _kept(request.topics, is_kept)
    response = await proceed(changed(request, topics=kept))
    if response.error_code is not ErrorCode.NONE:
        return response
    topics = await _visible(access, response.topics, request.topics, is_kept)
    return response._replace(topics=topics)


async def _offsets_of_groups(
    access: Access,
    groups: GroupCoordinator,
    request: OffsetFetchRequest,
    proceed: Proceed[OffsetFetchRequest, OffsetFetchResponse],
) -> OffsetFetchResponse:
    turns = Turns()
    asked: list[tuple[OffsetFetchGroup, list[bool] | None]] = []
    for group in request.groups:
        await turns.next()
        is_allowed = access.may(Operation.DESCRIBE, GROUP, group.group_id)
        asked.append((group, await _seen(access, groups, group.topics) if is_allowed else None))
    reduced = tuple(
        changed(group, topics=_kept(group.topics, is_kept))
        for group, is_kept in asked
        if is_kept is not None
    )
    found = iter((await proceed(changed(request, groups=reduced))).groups)
    fetched = []
    for group, is_kept in asked:
        if is_kept is None:
            fetched.append(FetchedGroup(group.group_id, FAILED, []))
            continue
        answer = next(found)
        topics = answer.topics
        if answer.error_code is ErrorCode.NONE:
            topics = await _visible(access, answer.topics, group.topics, is_kept)
        fetched.append(answer._replace(topics=topics))
    return OffsetFetchResponse(groups=fetched)


async def _seen(
    access: Access, groups: GroupCoordinator, topics: tuple[OffsetFetchTopic, ...] | None
) -> list[bool]:
    """Say which of the named topics may be described; the handler refuses an unknown id."""
    turns = Turns()
    is_kept = []
    for topic in topics or ():
        await turns.next()
        name, _ = resolved(groups, topic.name, topic.topic_id)
        is_kept.append(name is None or access.may(Operation.DESCRIBE, TOPIC, name))
    return is_kept


def _kept(
    topics: tuple[OffsetFetchTopic, ...] | None, is_kept: list[bool]
) -> tuple[OffsetFetchTopic, ...] | None:
    if topics is None:
        return None
    return tuple(topic for topic, is_one in zip(topics, is_kept, strict=True) if is_one)


async def _visible(
    access: Access,
    fetched: Sequence[FetchedTopic],
    asked: tuple[OffsetFetchTopic, ...] | None,
    is_kept: list[bool],
) -> list[FetchedTopic]:
    """The topics of an answer: those that were asked for, or all that may be described."""
    if asked is None:
        names = [topic.name for topic in fetched]
        seen = await access.among(Operation.DESCRIBE, TOPIC, names, is_told=False)
        return [topic for topic in fetched if topic.name in seen]
    found = iter(fetched)
    return [
        next(found) if is_one else _refused_offsets(topic, TOPIC_FAILED)
        for topic, is_one in zip(asked, is_kept, strict=True)
    ]


def _refused_offsets(topic: OffsetFetchTopic, code: ErrorCode) -> FetchedTopic:
    partitions = [FetchedOffset(index, code) for index in topic.partition_indexes]
    return FetchedTopic(topic.name or "", topic.topic_id, partitions)


async def _offset_delete(
    access: Access,
    groups: GroupCoordinator,
    request: OffsetDeleteRequest,
    context: Context,
    proceed: Proceed[OffsetDeleteRequest, OffsetDeleteResponse],
) -> OffsetDeleteResponse:
    """DELETE on the group, READ on the topics."""
    if not access.may(Operation.DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(FAILED)
    names = [topic.name for topic in request.topics]
    allowed = await access.among(Operation.READ, TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    response = await proceed(changed(request, topics=kept))
    if response.error_code is not ErrorCode.NONE:
        return response
    refused = [
        DeletedOffsets(
            topic.name,
            [DeletedOffset(one.partition_index, TOPIC_FAILED) for one in topic.partitions],
        )
        for topic in request.topics
        if topic.name not in allowed
    ]
    return response._replace(topics=[*response.topics, *refused])


# ---------------------------------------------------------------- groups


async def _describe_groups(
    access: Access,
    groups: GroupCoordinator,
    request: DescribeGroupsRequest,
    context: Context,
    proceed: Proceed[DescribeGroupsRequest, DescribeGroupsResponse],
) -> DescribeGroupsResponse:
    """DESCRIBE on the group; the allowed operations on it where they are asked for."""
    allowed = await access.among(Operation.DESCRIBE, GROUP, request.groups)
    refused = [
        DescribedGroup(FAILED, None, group_id, "")
        for group_id in request.groups
        if group_id not in allowed
    ]
    kept = tuple(group_id for group_id in request.groups if group_id in allowed)
    response = await proceed(changed(request, groups=kept))
    described = [
        one
        if one.authorized_operations == OPERATIONS_NOT_ASKED
        else one._replace(authorized_operations=access.operations(GROUP, one.group_id))
        for one in response.groups
    ]
    return DescribeGroupsResponse([*refused, *described])


async def _list_groups(
    access: Access,
    groups: GroupCoordinator,
    request: ListGroupsRequest,
    context: Context,
    proceed: Proceed[ListGroupsRequest, ListGroupsResponse],
) -> ListGroupsResponse:
    """DESCRIBE on the cluster; without it groups without DESCRIBE are left out."""
    response = await proceed(request)
    if access.may_in_cluster(Operation.DESCRIBE, is_told=False):
        return response
    ids = [one.group_id for one in response.groups]
    seen = await access.among(Operation.DESCRIBE, GROUP, ids, is_told=False)
    return response._replace(groups=[one for one in response.groups if one.group_id in seen])


async def _delete_groups(
    access: Access,
    groups: GroupCoordinator,
    request: DeleteGroupsRequest,
    context: Context,
    proceed: Proceed[DeleteGroupsRequest, DeleteGroupsResponse],
) -> DeleteGroupsResponse:
    """DELETE on the group."""
    named = dict.fromkeys(request.group_ids)
    allowed = await access.among(Operation.DELETE, GROUP, named)
    kept = tuple(group_id for group_id in named if group_id in allowed)
    deleted = iter((await proceed(changed(request, group_ids=kept))).results)
    return DeleteGroupsResponse(
        [
            next(deleted) if group_id in allowed else DeletedGroup(group_id, FAILED)
            for group_id in named
        ]
    )


RULES: Final[tuple[Rule[GroupCoordinator], ...]] = (
    Rule(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, _join),
    Rule(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, _sync),
    Rule(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse, _heartbeat),
    Rule(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, _leave),
    Rule(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, _offset_commit),
    Rule(
        ApiKey.TXN_OFFSET_COMMIT,
        TxnOffsetCommitRequest,
        OffsetCommitResponse,
        _txn_offset_commit,
    ),
    Rule(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, _offset_fetch),
    Rule(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, _offset_delete),
    Rule(
        ApiKey.DESCRIBE_GROUPS,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        _describe_groups,
    ),
    Rule(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse, _list_groups),
    Rule(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse, _delete_groups),
)
