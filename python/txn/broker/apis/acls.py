"""CreateAcls, DescribeAcls, DeleteAcls: the access control entries of the cluster.

Without an authorizer each request is answered with SECURITY_DISABLED, as in Kafka. A code 0 closes
the sender's connection, as in Kafka too. Other unused codes are UNKNOWN: they create no entry and
select none. A request changes at most `CHANGES_MAX` entries. An entry that several filters select
is listed for each filter, and counts for each.

Sources: KIP-140, KIP-290 (pattern types); the validations of Apache Kafka 4.2.
"""

from collections.abc import Awaitable
from enum import IntEnum
from typing import Final, TypeVar
from uuid import UUID, uuid4

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import (
    ALTER_CLUSTER,
    CLUSTER_REFUSED,
    DESCRIBE_CLUSTER,
)
from txn.broker.audit import audit
from txn.broker.host import Context, UnknownNumberError
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.errors import StorageError
from txn.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    acl_fault,
    filter_fault,
    matching,
)
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from txn.wire.error_codes import ErrorCode

NO_AUTHORIZER: Final = "No Authorizer is configured."
NO_AUTHORIZER_TO_DESCRIBE: Final = "No Authorizer is configured on the broker"

CHANGES_MAX: Final = 10_000
"""The most records of one request, as in Kafka."""

TOO_MANY_TO_CREATE: Final = (
    ErrorCode.POLICY_VIOLATION,
    "Unable to perform excessively large batch operation.",
)
TOO_MANY_TO_DELETE: Final = (
    ErrorCode.INVALID_REQUEST,
    f"Cannot remove more than {CHANGES_MAX} acls in a single delete operation.",
)

CREATION_ITEMS: Final = 10
"""Cost of an entry in the items of `Turns`."""

Number = TypeVar("Number", bound=IntEnum)


async def create_acls(
    node: Node, request: CreateAclsRequest, context: Context
) -> CreateAclsResponse:
    """Add entries; one that is there already stays as it is."""
    turns = Turns()
    asked: list[tuple[Acl, str | None]] = []
    for creation in request.creations:
        await turns.next(CREATION_ITEMS)
        acl = _acl(creation)
        asked.append((acl, acl_fault(acl)))
    if node.authorizer is None:
        refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse([refused] * len(asked))
    results = [
        AclCreationResult(ErrorCode.NONE if fault is None else ErrorCode.INVALID_REQUEST, fault)
        for _, fault in asked
    ]
    known = set(node.controller.image.acls.values())
    fresh = {acl for acl, fault in asked if fault is None} - known
    failure: tuple[ErrorCode, str] | None = TOO_MANY_TO_CREATE
    if len(fresh) <= CHANGES_MAX:
        # Without a fresh one it still waits for those of other requests, which may not be durable.
        failure = await _failure(node.controller.create_acls({uuid4(): acl for acl in fresh}))
    if failure is not None:
        failed = AclCreationResult(*failure)
        return CreateAclsResponse([result if result.error_code else failed for result in results])
    for acl in fresh:
        audit.administered(context, "acl.added", acl)
    return CreateAclsResponse(results)


async def describe_acls(
    node: Node, request: DescribeAclsRequest, context: Context
) -> DescribeAclsResponse:
    """Tell the entries that a filter selects."""
    wanted = _filter(request)
    if node.authorizer is None:
        return DescribeAclsResponse(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER_TO_DESCRIBE, [])
    turns = Turns()
    by_pattern: dict[tuple[ResourceType, str, PatternType], list[AclDescription]] = {}
    for acl in tuple(node.image.acls.values()):
        await turns.next()
        if wanted.matches(acl):
            described = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            by_pattern.setdefault(acl[:3], []).append(described)
    return DescribeAclsResponse(
        ErrorCode.NONE,
        None,
        [DescribeAclsResource(*pattern, acls) for pattern, acls in by_pattern.items()],
    )


async def delete_acls(
    node: Node, request: DeleteAclsRequest, context: Context
) -> DeleteAclsResponse:
    """Delete the entries that any of the filters selects, and tell them."""
    filters = [_filter(one) for one in request.filters]
    if node.authorizer is None:
        refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER, [])
        return DeleteAclsResponse([refused] * len(filters))
    turns = Turns()
    known = dict(node.controller.image.acls)
    selected: list[dict[UUID, Acl]] = []
    doomed: dict[UUID, Acl] = {}
    found_by: dict[AclFilter, dict[UUID, Acl]] = {}
    selected_count = 0
    for wanted in filters:
        if wanted not in found_by:
            found_by[wanted] = matching(known, wanted)
            await turns.next(1 + len(known))
        selected.append(found_by[wanted])
        doomed |= selected[-1]
        selected_count += len(selected[-1])
        if selected_count > CHANGES_MAX:
            break
        await turns.next(1 + len(selected[-1]))
    failure: tuple[ErrorCode, str] | None = TOO_MANY_TO_DELETE
    if selected_count <= CHANGES_MAX:
        failure = await _failure(node.controller.delete_acls(doomed))
    if failure is not None:
        return DeleteAclsResponse([DeleteAclsFilterResult(*failure, [])] * len(filters))
    for acl in doomed.values():
        audit.administered(context, "acl.removed", acl)
    return DeleteAclsResponse(
        [
            DeleteAclsFilterResult(
                ErrorCode.NONE if fault is None else ErrorCode.INVALID_REQUEST,
                fault,
                [DeleteAclsMatchingAcl(ErrorCode.NONE, None, *acl) for acl in found.values()],
            )
            for fault, found in zip(map(filter_fault, filters), selected, strict=True)
        ]
    )


async def _failure(change: Awaitable[None]) -> tuple[ErrorCode, str] | None:
    """The failure of a change, None once it is durable and counts."""
    try:
        await change
    except StorageError as error:
        return ErrorCode(error.code), error.message
    return None


def _acl(creation: AclCreation) -> Acl:
    """An entry to be added. Raises UnknownNumberError: a number is 0."""
    kind, pattern, operation, permission = _known(
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )
    return Acl(
        kind,
        creation.resource_name,
        pattern,
        creation.principal,
        creation.host,
        operation,
        permission,
    )


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """A filter. Raises UnknownNumberError: a number is 0."""
    kind, pattern, operation, permission = _known(
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.operation,
        wanted.permission_type,
    )
    return AclFilter(
        kind,
        wanted.resource_name_filter,
        pattern,
        wanted.principal_filter,
        wanted.host_filter,
        operation,
        permission,
    )


def _known(
    kind: int, pattern: int, operation: int, permission: int
) -> tuple[ResourceType, PatternType, Operation, Permission]:
    if 0 in (kind, pattern, operation, permission):
        raise UnknownNumberError("a part of an access control list has the number 0")
    return (
        _member(ResourceType, kind),
        _member(PatternType, pattern),
        _member(Operation, operation),
        _member(Permission, permission),
    )


def _member(kind: type[Number], number: int) -> Number:
    """The member with a number; UNKNOWN if there is none."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.CREATE_ACLS,
        (1, 3),
        CreateAclsRequest,
        CreateAclsResponse,
        ALTER_CLUSTER.or_by(
            lambda request, _: CreateAclsResponse(
                [AclCreationResult(*CLUSTER_REFUSED)] * len(request.creations)
            )
        ),
        create_acls,
    ),
    Api(
        ApiKey.DESCRIBE_ACLS,
        (1, 3),
        DescribeAclsRequest,
        DescribeAclsResponse,
        DESCRIBE_CLUSTER.or_else(DescribeAclsResponse(*CLUSTER_REFUSED, [])),
        describe_acls,
    ),
    Api(
        ApiKey.DELETE_ACLS,
        (1, 3),
        DeleteAclsRequest,
        DeleteAclsResponse,
        ALTER_CLUSTER.or_by(
            lambda request, _: DeleteAclsResponse(
                [DeleteAclsFilterResult(*CLUSTER_REFUSED, [])] * len(request.filters)
            )
        ),
        delete_acls,
    ),
)
