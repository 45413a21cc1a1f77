"""Rules of the APIs for quotas."""

from typing import Final

from txn.broker.apis.access import Access, Proceed, Rule
from txn.broker.apis.rules.cluster import REFUSED
from txn.broker.host import Context
from txn.broker.node import Node
from txn.security.acls import Operation
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntity,
)
from txn.wire.error_codes import ErrorCode


async def _describe_client_quotas(
    access: Access,
    node: Node,
    request: DescribeClientQuotasRequest,
    context: Context,
    proceed: Proceed[DescribeClientQuotasRequest, DescribeClientQuotasResponse],
) -> DescribeClientQuotasResponse:
    """DESCRIBE_CONFIGS on the cluster."""
    if access.may_in_cluster(Operation.DESCRIBE_CONFIGS):
        return await proceed(request)
    return DescribeClientQuotasResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None, None)


async def _alter_client_quotas(
    access: Access,
    node: Node,
    request: AlterClientQuotasRequest,
    context: Context,
    proceed: Proceed[AlterClientQuotasRequest, AlterClientQuotasResponse],
) -> AlterClientQuotasResponse:
    """ALTER_CONFIGS on the cluster."""
    if access.may_in_cluster(Operation.ALTER_CONFIGS):
        return await proceed(request)
    return AlterClientQuotasResponse(
        [
            AlteredQuotas(
                *REFUSED,
                [QuotaEntity(part.entity_type, part.entity_name) for part in entry.entity],
            )
            for entry in request.entries
        ]
    )


RULES: Final[tuple[Rule[Node], ...]] = (
    Rule(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        _describe_client_quotas,
    ),
    Rule(
        ApiKey.ALTER_CLIENT_QUOTAS,
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        _alter_client_quotas,
    ),
)
