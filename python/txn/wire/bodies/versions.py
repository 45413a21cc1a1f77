"""ApiVersions."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

NO_NODE: Final = -1
"""The client knows no node yet."""


@request_body
class ApiVersionsRequest:
    """Asks for APIs and features; names the client's software and the node it is meant for."""

    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = NO_NODE


class ApiVersion(NamedTuple):
    """The versions of one API."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(NamedTuple):
    """The levels of one feature that the broker supports."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    """The level of one feature that is in force."""

    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(NamedTuple):
    """The APIs and features of the broker."""

    error_code: ErrorCode
    api_keys: Sequence[ApiVersion]
    supported_features: Sequence[SupportedFeature]
    finalized_features_epoch: int
    finalized_features: Sequence[FinalizedFeature]
