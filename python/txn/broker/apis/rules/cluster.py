"""Rules of the APIs for the cluster: coordinators, settings, directories, access control lists."""

from collections import Counter
from collections.abc import Collection
from typing import Final, TypeVar

from txn.broker.apis.access import Access, Proceed, Rule
from txn.broker.apis.configs import described_configs, each_once, has_unknown_kind, is_sound
from txn.broker.apis.metadata import TRANSACTION_KEY
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.metadata.records import TOPIC_RESOURCE
from txn.security.acls import CLUSTER_NAME, Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from txn.wire.bodies.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredResource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from txn.wire.bodies.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from txn.wire.bodies.metadata import (
    GROUP_KEY,
    NO_OPERATIONS,
    Coordinator,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, join_entries
from txn.wire.requests import changed

MESSAGES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's own texts."""

BATCHED_COORDINATORS_FROM: Final = 4


async def _find_coordinator(
    access: Access,
    node: Node,
    request: FindCoordinatorRequest,
    context: Context,
    proceed: Proceed[FindCoordinatorRequest, FindCoordinatorResponse],
) -> FindCoordinatorResponse:
    """DESCRIBE on the group or the transactional id."""
    kinds = {
        GROUP_KEY: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        TRANSACTION_KEY: (
            ResourceType.TRANSACTIONAL_ID,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    }
    if request.key_type not in kinds:
        return await proceed(request)
    kind, code = kinds[request.key_type]
    if context.api_version < BATCHED_COORDINATORS_FROM:
        if access.may(Operation.DESCRIBE, kind, request.key):
            return await proceed(request)
        return FindCoordinatorResponse(error_code=code, error_message=MESSAGES[code])
    allowed = await access.among(Operation.DESCRIBE, kind, request.coordinator_keys)
    keys = tuple(key for key in request.coordinator_keys if key in allowed)
    found = iter((await proceed(changed(request, coordinator_keys=keys))).coordinators)
    refused = Coordinator("", -1, "", -1, code, None)
    return FindCoordinatorResponse(
        coordinators=[
            next(found) if key in allowed else refused._replace(key=key)
            for key in request.coordinator_keys
        ]
    )


async def _describe_cluster(
    access: Access,
    node: Node,
    request: DescribeClusterRequest,
    context: Context,
    proceed: Proceed[DescribeClusterRequest, DescribeClusterResponse],
) -> DescribeClusterResponse:
    """Everybody is told; the allowed operations to those who may DESCRIBE the cluster."""
    response = await proceed(request)
    if response.cluster_authorized_operations == NO_OPERATIONS:
        return response
    return response._replace(cluster_authorized_operations=cluster_operations(access))


def cluster_operations(access: Access) -> int:
    """The allowed operations on the cluster; none for those who may not DESCRIBE it."""
    if not access.may_in_cluster(Operation.DESCRIBE):
        return 0
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _fault_of_config(
    access: Access, operation: Operation, kind: int, name: str
) -> ErrorCode | None:
    """The error that keeps the settings of a resource from a client."""
    if kind == TOPIC_RESOURCE:
        is_allowed = access.may(operation, ResourceType.TOPIC, name)
        return None if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if kind == GROUP_RESOURCE:
        is_allowed = access.may(operation, ResourceType.GROUP, name)
        return None if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    if kind in CLUSTER_RESOURCES:
        is_allowed = access.may_in_cluster(operation)
        return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None  # there is no such type: the handler says so


GROUP_RESOURCE: Final = 32
CLUSTER_RESOURCES: Final = frozenset({4, 8, 16})
"""Resource types whose settings belong to the cluster: brokers, loggers, client metrics."""


async def _describe_configs(
    access: Access,
    node: Node,
    request: DescribeConfigsRequest,
    context: Context,
    proceed: Proceed[DescribeConfigsRequest, DescribeConfigsResponse],
) -> bytes:
    """DESCRIBE_CONFIGS on the topic, the group or the cluster."""
    turns = Turns()
    allowed: dict[tuple[int, str], Collection[str]] = {}
    refused = []
    wanted = await each_once(request.resources)
    is_refused_anyhow = has_unknown_kind(wanted)
    for (kind, name), keys in wanted.items():
        await turns.next()
        code = None
        if not is_refused_anyhow:
            code = _fault_of_config(access, Operation.DESCRIBE_CONFIGS, kind, name)
        if code is None:
            allowed[kind, name] = keys
            continue
        result = DescribeConfigsResult(code, MESSAGES[code], kind, name)
        refused.append(encode_entry(context.api_key, context.api_version, "results", result))
    described = await described_configs(node, allowed, request, context)
    return join_entries(context.api_key, context.api_version, [*described, *refused])


AlterRequest = TypeVar("AlterRequest", AlterConfigsRequest, IncrementalAlterConfigsRequest)


async def _alter_configs(
    access: Access,
    node: Node,
    request: AlterRequest,
    context: Context,
    proceed: Proceed[AlterRequest, AlterConfigsResponse],
) -> AlterConfigsResponse:
    """ALTER_CONFIGS on the topic, the group or the cluster."""
    turns = Turns()
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    refused: list[AlteredResource] = []
    allowed = []
    for resource in request.resources:
        await turns.next()
        kind, name = resource.resource_type, resource.resource_name
        code = None
        if named[kind, name] == 1 and is_sound(node, resource):  # or the handler refuses it anyhow
            code = _fault_of_config(access, Operation.ALTER_CONFIGS, kind, name)
        if code is None:
            allowed.append(resource)
        else:
            refused.append(AlteredResource(code, MESSAGES[code], kind, name))
    response: AlterConfigsResponse = await proceed(changed(request, resources=tuple(allowed)))
    return AlterConfigsResponse([*refused, *response.responses])


async def _list_config_resources(
    access: Access,
    node: Node,
    request: ListConfigResourcesRequest,
    context: Context,
    proceed: Proceed[ListConfigResourcesRequest, ListConfigResourcesResponse],
) -> ListConfigResourcesResponse:
    """DESCRIBE_CONFIGS on the cluster."""
    if access.may_in_cluster(Operation.DESCRIBE_CONFIGS):
        return await proceed(request)
    return ListConfigResourcesResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


async def _describe_log_dirs(
    access: Access,
    node: Node,
    request: DescribeLogDirsRequest,
    context: Context,
    proceed: Proceed[DescribeLogDirsRequest, DescribeLogDirsResponse],
) -> DescribeLogDirsResponse:
    """DESCRIBE on the cluster."""
    if access.may_in_cluster(Operation.DESCRIBE):
        return await proceed(request)
    return DescribeLogDirsResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


REFUSED: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    MESSAGES[ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
)


async def _create_acls(
    access: Access,
    node: Node,
    request: CreateAclsRequest,
    context: Context,
    proceed: Proceed[CreateAclsRequest, CreateAclsResponse],
) -> CreateAclsResponse:
    """ALTER on the cluster."""
    if access.may_in_cluster(Operation.ALTER):
        return await proceed(request)
    return CreateAclsResponse([AclCreationResult(*REFUSED)] * len(request.creations))


async def _describe_acls(
    access: Access,
    node: Node,
    request: DescribeAclsRequest,
    context: Context,
    proceed: Proceed[DescribeAclsRequest, DescribeAclsResponse],
) -> DescribeAclsResponse:
    """DESCRIBE on the cluster."""
    if access.may_in_cluster(Operation.DESCRIBE):
        return await proceed(request)
    return DescribeAclsResponse(*REFUSED, [])


async def _delete_acls(
    access: Access,
    node: Node,
    request: DeleteAclsRequest,
    context: Context,
    proceed: Proceed[DeleteAclsRequest, DeleteAclsResponse],
) -> DeleteAclsResponse:
    """ALTER on the cluster."""
    if access.may_in_cluster(Operation.ALTER):
        return await proceed(request)
    return DeleteAclsResponse([DeleteAclsFilterResult(*REFUSED, [])] * len(request.filters))


RULES: Final[tuple[Rule[Node], ...]] = (
    Rule(
        ApiKey.FIND_COORDINATOR,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        _find_coordinator,
    ),
    Rule(
        ApiKey.DESCRIBE_CLUSTER,
        DescribeClusterRequest,
        DescribeClusterResponse,
        _describe_cluster,
    ),
    Rule(
        ApiKey.DESCRIBE_CONFIGS,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        _describe_configs,
    ),
    Rule(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse, _alter_configs),
    Rule(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest,
        AlterConfigsResponse,
        _alter_configs,
    ),
    Rule(
        ApiKey.LIST_CONFIG_RESOURCES,
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
        _list_config_resources,
    ),
    Rule(
        ApiKey.DESCRIBE_LOG_DIRS,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        _describe_log_dirs,
    ),
    Rule(ApiKey.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse, _create_acls),
    Rule(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse, _describe_acls),
    Rule(ApiKey.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse, _delete_acls),
)
