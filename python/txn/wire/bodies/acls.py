"""CreateAcls, DescribeAcls, DeleteAcls. Types, operations and permissions are numbers here."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

LITERAL: Final = 3
"""The pattern type of an entry that names none."""


@request_body
class AclCreation:
    """An access control entry to add."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int = LITERAL
    principal: str
    host: str
    operation: int
    permission_type: int


@request_body
class CreateAclsRequest:
    """Adds access control entries."""

    creations: tuple[AclCreation, ...]


class AclCreationResult(NamedTuple):
    """The result for one entry."""

    error_code: ErrorCode
    error_message: str | None = None


class CreateAclsResponse(NamedTuple):
    """Results in the order of the request."""

    results: Sequence[AclCreationResult]


@request_body
class DescribeAclsRequest:
    """Asks for the entries that a filter selects; null selects any name, principal or host."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int = LITERAL
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class AclDescription(NamedTuple):
    """An entry of one resource pattern."""

    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResource(NamedTuple):
    """A resource pattern and its entries."""

    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[AclDescription]


class DescribeAclsResponse(NamedTuple):
    """Selected entries by resource pattern."""

    error_code: ErrorCode
    error_message: str | None
    resources: Sequence[DescribeAclsResource]


@request_body
class DeleteAclsFilter:
    """Selects entries to delete, see `DescribeAclsRequest`."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int = LITERAL
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


@request_body
class DeleteAclsRequest:
    """Deletes the entries that any of the filters selects."""

    filters: tuple[DeleteAclsFilter, ...]


class DeleteAclsMatchingAcl(NamedTuple):
    """A deleted entry."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class DeleteAclsFilterResult(NamedTuple):
    """The entries that one filter selected."""

    error_code: ErrorCode
    error_message: str | None
    matching_acls: Sequence[DeleteAclsMatchingAcl]


class DeleteAclsResponse(NamedTuple):
    """Results in the order of the filters."""

    filter_results: Sequence[DeleteAclsFilterResult]
