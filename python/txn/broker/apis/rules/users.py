"""Rules of the APIs for authentication and for users of SCRAM.

A client that authenticates has no principal yet, so its requests are everybody's.
"""

from typing import Final, TypeVar

from txn.broker.apis.access import Access, Proceed, Rule
from txn.broker.apis.rules.cluster import REFUSED
from txn.broker.host import Context
from txn.broker.node import Node
from txn.security.acls import Operation
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.sasl import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from txn.wire.error_codes import ErrorCode

Request = TypeVar("Request", SaslHandshakeRequest, SaslAuthenticateRequest)
Response = TypeVar("Response", SaslHandshakeResponse, SaslAuthenticateResponse)


async def _for_everybody(
    access: Access,
    node: Node,
    request: Request,
    context: Context,
    proceed: Proceed[Request, Response],
) -> Response | bytes:
    """Ask nothing."""
    return await proceed.reply(request)


async def _describe_credentials(
    access: Access,
    node: Node,
    request: DescribeUserScramCredentialsRequest,
    context: Context,
    proceed: Proceed[DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse],
) -> DescribeUserScramCredentialsResponse | bytes:
    """DESCRIBE on the cluster.

    A refusal has a result without a name for each user that was named, as in Kafka.
    """
    if access.may_in_cluster(Operation.DESCRIBE):
        return await proceed.reply(request)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = [DescribedUser("", code, None)] * len(request.users or ())
    return DescribeUserScramCredentialsResponse(code, None, refused)


async def _alter_credentials(
    access: Access,
    node: Node,
    request: AlterUserScramCredentialsRequest,
    context: Context,
    proceed: Proceed[AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse],
) -> AlterUserScramCredentialsResponse | bytes:
    """ALTER on the cluster."""
    if access.may_in_cluster(Operation.ALTER):
        return await proceed.reply(request)
    users = {one.name: None for one in request.deletions}
    users |= {one.name: None for one in request.upsertions}
    return AlterUserScramCredentialsResponse([AlteredUser(user, *REFUSED) for user in users])


RULES: Final[tuple[Rule[Node], ...]] = (
    Rule(
        ApiKey.SASL_HANDSHAKE,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
        _for_everybody,
    ),
    Rule(
        ApiKey.SASL_AUTHENTICATE,
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        _for_everybody,
    ),
    Rule(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        _describe_credentials,
    ),
    Rule(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        _alter_credentials,
    ),
)
