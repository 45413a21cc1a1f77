"""Filters of DescribeAcls and DeleteAcls as fields of a request."""

from typing import Any

from txn.security.acls import Operation, PatternType, Permission, ResourceType


def any_acl(**changes: Any) -> dict[str, Any]:
    """Return a filter that selects every entry, but for the fields that are given."""
    return {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
        **changes,
    }
