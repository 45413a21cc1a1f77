"""Groups and their members on the wire.

Every handler translates: request fields to the words of `txn.broker.group_coordinator`, and its
answers to response fields. Rules of a version live here, rules of a group do not. LeaveGroup
before 3 tells the one member's error at the top.

Sources: the message schemas of these requests; KIP-345, KIP-394, KIP-518 (states), KIP-559,
KIP-848 (types), KIP-1043 (GROUP_ID_NOT_FOUND).
"""

from collections.abc import Coroutine
from typing import Final

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    GROUP_FAILED,
    READ_GROUP,
)
from txn.broker.audit import audit
from txn.broker.group_coordinator import GroupCoordinator, group_error
from txn.broker.host import Context
from txn.broker.turns import Turns
from txn.coordinator.group.classic.group import Group, GroupState
from txn.coordinator.group.classic.requests import Join, JoinAnswer, Leaver, Sync
from txn.coordinator.group.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from txn.coordinator.group.members import Member
from txn.errors import StorageError
from txn.metadata.image import OFFSETS_TOPIC
from txn.security.acls import OPERATIONS_OF, Operation, ResourceType, operation_bits
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.groups import (
    OPERATIONS_NOT_ASKED,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

STRING_BYTES_MAX: Final = 32_000
"""Ids and names go into records whose strings are at most 32,767 bytes long; member ids get a
random part."""

PROTOCOLS_MAX: Final = 100
"""Assignors of one member; clients have up to five."""

GROUP_OPERATIONS: Final = operation_bits(OPERATIONS_OF[ResourceType.GROUP])
"""Told where nobody is refused."""

WRITTEN_ITEMS: Final = 10
"""Cost of an entry for which a record is written, in the items of `Turns`."""

ANSWER_BYTES_MAX: Final = 32 << 20
"""Size of the groups, or of the offsets of groups, in one answer. The first group is always in it.
Those behind the limit are refused with COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again."""

CLASSIC: Final = "classic"


# ---------------------------------------------------------------- members


async def join_group(
    groups: GroupCoordinator, request: JoinGroupRequest, context: Context
) -> JoinGroupResponse:
    """Answer when the member's next generation begins, or at once with an error."""
    fault = _join_fault(groups, request)
    if fault is not ErrorCode.NONE:
        return joined(JoinAnswer(fault, request.member_id), context)
    instance_id = request.group_instance_id
    has_rebalance_timeout = context.api_version >= 1
    wanted_ms = (
        request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
    )
    prefix = context.client_id if instance_id is None else instance_id
    join = Join(
        api_version=context.api_version,
        member_id=request.member_id,
        fresh_member_id=f"{shortened(prefix)}-{groups.make_id()}",
        instance_id=instance_id,
        client_id=shortened(context.client_id),
        client_host=java_host(context.client_host),
        rebalance_timeout_ms=max(wanted_ms, 0),
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
    )
    joining = groups.join(request.group_id, join, context.session.owner)
    del request, join  # the wait may be long
    return joined(await joining, context)


def _join_fault(groups: GroupCoordinator, request: JoinGroupRequest) -> ErrorCode:
    if not is_group_id(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    low = groups.host.setting("group.min.session.timeout.ms")
    high = groups.host.setting("group.max.session.timeout.ms")
    if not low <= request.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    instance_id = request.group_instance_id or ""
    if len(request.protocols) > PROTOCOLS_MAX:
        return ErrorCode.INVALID_REQUEST
    sizes = (len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    if sum(sizes) > groups.batch_bytes_max:
        return ErrorCode.MESSAGE_TOO_LARGE  # no generation with it could be written
    names = (protocol.name for protocol in request.protocols)
    if not all(map(fits, (instance_id, request.protocol_type, *names))):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def joined(answer: JoinAnswer, context: Context) -> JoinGroupResponse:
    """The response to a member that joined, or was refused."""
    can_be_null = context.api_version >= 7
    return JoinGroupResponse(
        answer.error,
        answer.generation,
        answer.protocol_type,
        answer.protocol if can_be_null else answer.protocol or "",
        answer.leader,
        answer.skip_assignment,
        answer.member_id,
        [JoinGroupMember(*member) for member in answer.members],
    )


def lacks_protocol(request: SyncGroupRequest, context: Context) -> bool:
    """Say whether a request does not name the protocol that its version has to."""
    has_protocol = None not in (request.protocol_type, request.protocol_name)
    return context.api_version >= 5 and not has_protocol


async def sync_group(
    groups: GroupCoordinator, request: SyncGroupRequest, context: Context
) -> SyncGroupResponse:
    """Answer with the member's assignment, when the leader has sent it."""
    if lacks_protocol(request, context):
        return SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not is_group_id(request.group_id):
        return SyncGroupResponse(ErrorCode.INVALID_GROUP_ID)
    assigned_bytes = sum(len(entry.assignment) for entry in request.assignments)
    if assigned_bytes > groups.batch_bytes_max:
        return SyncGroupResponse(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka answers
    sync = Sync(
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={entry.member_id: entry.assignment for entry in request.assignments},
    )
    syncing = groups.sync(request.group_id, sync)
    del request, sync  # the wait may be long
    answer = await syncing
    return SyncGroupResponse(answer.error, answer.protocol_type, answer.protocol, answer.assignment)


async def heartbeat(
    groups: GroupCoordinator, request: HeartbeatRequest, context: Context
) -> HeartbeatResponse:
    """Prolong a member's session."""
    if not is_group_id(request.group_id):
        return HeartbeatResponse(ErrorCode.INVALID_GROUP_ID)
    code = await groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(code)


async def leave_group(
    groups: GroupCoordinator, request: LeaveGroupRequest, context: Context
) -> LeaveGroupResponse:
    """Remove one member (before version 3) or several."""
    if not is_group_id(request.group_id):
        return LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID)
    is_single = context.api_version < 3
    turns = Turns()
    leavers = [Leaver(request.member_id)] if is_single else []
    for member in () if is_single else request.members:
        await turns.next()
        leavers.append(Leaver(member.member_id, member.group_instance_id))
    try:
        codes = await groups.leave(request.group_id, leavers)
    except StorageError as error:
        return LeaveGroupResponse(group_error(error))
    if is_single:
        return LeaveGroupResponse(codes[0])
    left = []
    for leaver, code in zip(leavers, codes, strict=True):
        await turns.next()
        left.append(LeftMember(leaver.member_id, leaver.instance_id, code))
    return LeaveGroupResponse(ErrorCode.NONE, left)


# ---------------------------------------------------------------- groups


async def describe_groups(
    groups: GroupCoordinator, request: DescribeGroupsRequest, context: Context
) -> DescribeGroupsResponse:
    """Tell a group's state, its members and their assignments; each group once."""
    turns = Turns()
    described = []
    left_bytes = ANSWER_BYTES_MAX
    for group_id in dict.fromkeys(request.groups):
        group = groups.group(group_id)
        await turns.next(1 if group is None else 1 + len(group.members))
        if left_bytes < 0:
            described.append(_not_described(group_id))
            continue
        left_bytes -= 0 if group is None else group.size_bytes
        answer = _described(groups, group_id, context)
        if request.include_authorized_operations and answer.error_code is ErrorCode.NONE:
            answer = answer._replace(authorized_operations=GROUP_OPERATIONS)
        described.append(answer)
    return DescribeGroupsResponse(described)


def _not_described(group_id: str) -> DescribedGroup:
    message = "The answer is full. Ask for this group again, with fewer others."
    return DescribedGroup(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message, group_id, "")


def _described(groups: GroupCoordinator, group_id: str, context: Context) -> DescribedGroup:
    group = groups.group(group_id)
    if groups.refusal(group_id) is not ErrorCode.NONE:
        partition = groups.group_partition(group_id)
        message = f"Partition {partition} of {OFFSETS_TOPIC}, which keeps it, cannot be read."
        return DescribedGroup(ErrorCode.NOT_COORDINATOR, message, group_id, "")
    if group is None:
        code = ErrorCode.GROUP_ID_NOT_FOUND if context.api_version >= 6 else ErrorCode.NONE
        is_other = groups.any_group(group_id) is not None
        message = f"Group {group_id} {'is not a classic group' if is_other else 'not found'}."
        return DescribedGroup(code, message, group_id, GroupState.DEAD.value)
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        ErrorCode.NONE,
        None,
        group_id,
        group.state.value,
        group.protocol_type or "",
        group.protocol or "" if is_stable else "",
        [
            _described_member(member, group.protocol if is_stable else None)
            for member in group.members.values()
        ],
    )


def _described_member(member: Member, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.metadata(protocol),
        member.assignment,
    )


async def list_groups(
    groups: GroupCoordinator, request: ListGroupsRequest, context: Context
) -> ListGroupsResponse:
    """List groups, in some states or of some types if the request says so."""
    states = {name.strip().lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}  # as they are; states are trimmed
    turns = Turns()
    listed = []
    for group in groups.groups():
        await turns.next()
        kind, protocol_type = CONSUMER_PROTOCOL_TYPE, CONSUMER_PROTOCOL_TYPE
        if isinstance(group, Group):
            kind, protocol_type = CLASSIC, group.protocol_type or ""
        state = group.state.value
        if (states and state.lower() not in states) or (types and kind not in types):
            continue
        listed.append(ListedGroup(group.group_id, protocol_type, state, kind))
    return ListGroupsResponse(ErrorCode.NONE, listed)


async def delete_groups(
    groups: GroupCoordinator, request: DeleteGroupsRequest, context: Context
) -> DeleteGroupsResponse:
    """Delete groups without members, each by itself."""
    turns = Turns()
    results = []
    for group_id in dict.fromkeys(request.group_ids):
        await turns.next(WRITTEN_ITEMS)
        code = await _deleted(groups, group_id)
        if code is ErrorCode.NONE:
            audit.acted(context, "group.deleted", "GROUP", group_id)
        results.append(DeletedGroup(group_id, code))
    return DeleteGroupsResponse(results)


async def _deleted(groups: GroupCoordinator, group_id: str) -> ErrorCode:
    try:
        return await groups.delete_group(group_id)
    except StorageError as error:
        return group_error(error)


# ---------------------------------------------------------------- words on the wire


def is_group_id(group_id: str) -> bool:
    """Say whether a text can be the id of a group."""
    return bool(group_id) and fits(group_id)


def fits(text: str) -> bool:
    """Say whether a text fits into a record."""
    return len(text.encode()) <= STRING_BYTES_MAX


def shortened(text: str) -> str:
    """The beginning of a name that only people read; as much as is stored."""
    return text[:255]


def java_host(host: str) -> str:
    """An address as Java prints it, which is how Kafka stores a member's host."""
    return host if host.startswith("/") else f"/{host}"


# ---------------------------------------------------------------- access


def _guard_sync(
    call: Call[GroupCoordinator, SyncGroupRequest, SyncGroupResponse],
) -> Coroutine[object, None, SyncGroupResponse | bytes]:
    """READ on the group. The handler refuses a request without the name of its protocol before."""
    if lacks_protocol(call.request, call.context):
        return call.proceed()
    return READ_GROUP.or_else(SyncGroupResponse(GROUP_FAILED))(call)


async def _guard_describe_groups(
    call: Call[GroupCoordinator, DescribeGroupsRequest, DescribeGroupsResponse],
) -> DescribeGroupsResponse:
    """DESCRIBE on the group; the allowed operations on it where they are asked for."""
    request = call.request
    allowed = await call.access.among(Operation.DESCRIBE, ResourceType.GROUP, request.groups)
    refused = [
        DescribedGroup(GROUP_FAILED, None, group_id, "")
        for group_id in request.groups
        if group_id not in allowed
    ]
    kept = tuple(group_id for group_id in request.groups if group_id in allowed)
    response = await call.proceed_with(changed(request, groups=kept))
    described = [
        one
        if one.authorized_operations == OPERATIONS_NOT_ASKED
        else one._replace(
            authorized_operations=call.access.operations(ResourceType.GROUP, one.group_id)
        )
        for one in response.groups
    ]
    return DescribeGroupsResponse([*refused, *described])


async def _guard_list_groups(
    call: Call[GroupCoordinator, ListGroupsRequest, ListGroupsResponse],
) -> ListGroupsResponse:
    """DESCRIBE on the cluster; without it groups without DESCRIBE are left out."""
    response = await call.proceed_with(call.request)
    if call.access.may_in_cluster(Operation.DESCRIBE, is_logged=False):
        return response
    ids = [one.group_id for one in response.groups]
    seen = await call.access.among(Operation.DESCRIBE, ResourceType.GROUP, ids, is_logged=False)
    return response._replace(groups=[one for one in response.groups if one.group_id in seen])


async def _guard_delete_groups(
    call: Call[GroupCoordinator, DeleteGroupsRequest, DeleteGroupsResponse],
) -> DeleteGroupsResponse:
    """DELETE on the group."""
    named = dict.fromkeys(call.request.group_ids)
    allowed = await call.access.among(Operation.DELETE, ResourceType.GROUP, named)
    kept = tuple(group_id for group_id in named if group_id in allowed)
    deleted = iter((await call.proceed_with(changed(call.request, group_ids=kept))).results)
    return DeleteGroupsResponse(
        [
            next(deleted) if group_id in allowed else DeletedGroup(group_id, GROUP_FAILED)
            for group_id in named
        ]
    )


APIS: Final = Area(
    lambda node: node.groups,
    Api(
        ApiKey.JOIN_GROUP,
        (0, 9),
        JoinGroupRequest,
        JoinGroupResponse,
        READ_GROUP.or_by(lambda _, context: joined(JoinAnswer(GROUP_FAILED, ""), context)),
        join_group,
    ),
    Api(
        ApiKey.HEARTBEAT,
        (0, 4),
        HeartbeatRequest,
        HeartbeatResponse,
        READ_GROUP.or_else(HeartbeatResponse(GROUP_FAILED)),
        heartbeat,
    ),
    Api(
        ApiKey.LEAVE_GROUP,
        (0, 5),
        LeaveGroupRequest,
        LeaveGroupResponse,
        READ_GROUP.or_else(LeaveGroupResponse(GROUP_FAILED)),
        leave_group,
    ),
    Api(ApiKey.SYNC_GROUP, (0, 5), SyncGroupRequest, SyncGroupResponse, _guard_sync, sync_group),
    Api(
        ApiKey.DESCRIBE_GROUPS,
        (0, 6),
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        _guard_describe_groups,
        describe_groups,
    ),
    Api(
        ApiKey.LIST_GROUPS,
        (0, 5),
        ListGroupsRequest,
        ListGroupsResponse,
        _guard_list_groups,
        list_groups,
    ),
    Api(
        ApiKey.DELETE_GROUPS,
        (0, 3),
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        _guard_delete_groups,
        delete_groups,
    ),
)
