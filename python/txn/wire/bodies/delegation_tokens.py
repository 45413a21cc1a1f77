"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

NO_TIME_MS: Final = -1


@request_body
class TokenPrincipal:
    """A renewer or an owner of tokens."""

    principal_type: str
    principal_name: str


@request_body
class CreateDelegationTokenRequest:
    """Asks for a token."""

    owner_principal_type: str | None = None
    owner_principal_name: str | None = None
    renewers: tuple[TokenPrincipal, ...]
    max_lifetime_ms: int


class CreateDelegationTokenResponse(NamedTuple):
    """The token."""

    error_code: ErrorCode
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int = NO_TIME_MS
    expiry_timestamp_ms: int = NO_TIME_MS
    max_timestamp_ms: int = NO_TIME_MS
    token_id: str = ""
    hmac: bytes = b""


@request_body
class RenewDelegationTokenRequest:
    """Prolongs a token."""

    hmac: bytes
    renew_period_ms: int


@request_body
class ExpireDelegationTokenRequest:
    """Ends a token."""

    hmac: bytes
    expiry_time_period_ms: int


class TokenExpiry(NamedTuple):
    """The time at which a token ends, for RenewDelegationToken and ExpireDelegationToken."""

    error_code: ErrorCode
    expiry_timestamp_ms: int = NO_TIME_MS


@request_body
class DescribeDelegationTokenRequest:
    """Asks for the tokens of owners; null stands for all."""

    owners: tuple[TokenPrincipal, ...] | None


class TokenRenewer(NamedTuple):
    """A renewer of a token."""

    principal_type: str
    principal_name: str


class DescribedToken(NamedTuple):
    """One token."""

    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    token_id: str
    hmac: bytes
    renewers: Sequence[TokenRenewer]


class DescribeDelegationTokenResponse(NamedTuple):
    """Tokens."""

    error_code: ErrorCode
    tokens: Sequence[DescribedToken] = ()
