"""Delegation tokens: there are none, as on an Apache Kafka without `delegation.token.secret.key`.

A client that did not authenticate is refused. The others learn that there are none.

Source: KIP-48.
"""

from typing import Final

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import for_everybody
from txn.broker.host import Context
from txn.broker.node import Node
from txn.security.acls import Operation, ResourceType
from txn.security.sessions import ANONYMOUS, is_sasl
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.delegation_tokens import (
    NO_TIME_MS,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    TokenExpiry,
)
from txn.wire.error_codes import ErrorCode


def _refusal(context: Context) -> ErrorCode:
    session = context.session
    protocol = session.listener.security_protocol
    if is_sasl(protocol) or session.principal != ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def create_delegation_token(
    node: Node, request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse:
    """Answer that no token can be had."""
    return _not_created(request, context, _refusal(context))


def _not_created(
    request: CreateDelegationTokenRequest, context: Context, code: ErrorCode
) -> CreateDelegationTokenResponse:
    owner_type, _, owner = _owner(request, context).partition(":")
    asking_type, _, asking = context.session.principal.partition(":")
    time_ms = _time_ms(code)
    return CreateDelegationTokenResponse(
        code, owner_type, owner, asking_type, asking, time_ms, time_ms, time_ms
    )


def _time_ms(code: ErrorCode) -> int:
    """The time in a refusal: Kafka's controller, which finds that there are no tokens, tells 0."""
    return 0 if code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else NO_TIME_MS


async def no_token(_: Node, request: object, context: Context) -> TokenExpiry:
    """Answer a renewal or an expiry: there is no token."""
    code = _refusal(context)
    return TokenExpiry(code, _time_ms(code))


def _owner(request: CreateDelegationTokenRequest, context: Context) -> str:
    """The principal that is to have the token: by default the one that asks."""
    if not request.owner_principal_name:
        return context.session.principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


async def describe_delegation_token(
    node: Node, request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    """Answer that there is no token."""
    return DescribeDelegationTokenResponse(_refusal(context))


async def _guard_creation(
    call: Call[Node, CreateDelegationTokenRequest, CreateDelegationTokenResponse],
) -> CreateDelegationTokenResponse:
    """CREATE_TOKENS on another user whose token it is to be."""
    request, context = call.request, call.context
    owner = _owner(request, context)
    response = await call.proceed_with(request)
    is_own = owner == context.session.principal
    if response.error_code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED or is_own:
        return response
    if call.access.may(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        return response
    return _not_created(request, context, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.CREATE_DELEGATION_TOKEN,
        (1, 3),
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
        _guard_creation,
        create_delegation_token,
    ),
    Api(
        ApiKey.RENEW_DELEGATION_TOKEN,
        (1, 2),
        RenewDelegationTokenRequest,
        TokenExpiry,
        for_everybody,
        no_token,
    ),
    Api(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        (1, 2),
        ExpireDelegationTokenRequest,
        TokenExpiry,
        for_everybody,
        no_token,
    ),
    Api(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        (1, 3),
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
        for_everybody,
        describe_delegation_token,
    ),
)
