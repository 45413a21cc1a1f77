"""ApiVersions."""

from collections.abc import Sequence
from typing import NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body


@request_body
class ApiVersionsRequest:
    """Asks for APIs and features; names the client's software."""

    client_software_name: str = ""
    client_software_version: str = ""


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
