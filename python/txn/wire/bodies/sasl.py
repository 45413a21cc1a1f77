"""SaslHandshake, SaslAuthenticate, and the SCRAM credentials of users."""

from collections.abc import Sequence
from typing import NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body


@request_body
class SaslHandshakeRequest:
    """Names the mechanism of the tokens that follow."""

    mechanism: str


class SaslHandshakeResponse(NamedTuple):
    """The listener's mechanisms."""

    error_code: ErrorCode
    mechanisms: Sequence[str]


@request_body
class SaslAuthenticateRequest:
    """A token of a mechanism."""

    auth_bytes: bytes


class SaslAuthenticateResponse(NamedTuple):
    """The next token; `session_lifetime_ms` is 0 for a session as long as the connection."""

    error_code: ErrorCode
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int = 0


@request_body
class UserName:
    """A user to describe."""

    name: str


@request_body
class DescribeUserScramCredentialsRequest:
    """Asks for the mechanisms of users; none or null: of all."""

    users: tuple[UserName, ...] | None


class CredentialInfo(NamedTuple):
    """A credential, without its secrets."""

    mechanism: int
    iterations: int


class DescribedUser(NamedTuple):
    """The credentials of one user."""

    user: str
    error_code: ErrorCode
    error_message: str | None
    credential_infos: Sequence[CredentialInfo] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    """Credentials by user."""

    error_code: ErrorCode
    error_message: str | None
    results: Sequence[DescribedUser] = ()


@request_body
class ScramCredentialDeletion:
    """A credential to take away."""

    name: str
    mechanism: int


@request_body
class ScramCredentialUpsertion:
    """A credential to make or replace."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


@request_body
class AlterUserScramCredentialsRequest:
    """Changes credentials of users."""

    deletions: tuple[ScramCredentialDeletion, ...]
    upsertions: tuple[ScramCredentialUpsertion, ...]


class AlteredUser(NamedTuple):
    """The result for one user."""

    user: str
    error_code: ErrorCode
    error_message: str | None


class AlterUserScramCredentialsResponse(NamedTuple):
    """Results by user."""

    results: Sequence[AlteredUser]
