"""DescribeClientQuotas and AlterClientQuotas: the quotas of clients and addresses.

The permitted changes of a request are one batch of the metadata log, as in Kafka: all or none.

Source: KIP-546; Apache Kafka 4.2, ClientQuotaControlManager and ClientQuotasImage.
"""

from typing import Final

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import (
    CLUSTER_FAILED,
    CLUSTER_REFUSED,
    Need,
)
from txn.broker.audit import audit
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.errors import StorageError
from txn.metadata.quotas import (
    QuotaFault,
    Quotas,
    alteration,
    displayed,
    entity_of,
    filter_of,
)
from txn.metadata.records import ClientQuotaRecord, Entity
from txn.security.acls import Operation
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    QuotaAlteration,
    QuotaEntity,
    QuotaValue,
)
from txn.wire.error_codes import ErrorCode

CHANGES_MAX: Final = 10_000
"""The most records of one request, as in Kafka."""

ALTERATION_ITEMS: Final = 5
"""Cost of altering one entity, in the items of `Turns`."""

Outcome = tuple[ErrorCode, str | None]

DONE: Final = (ErrorCode.NONE, None)
TOO_MANY: Final = (
    ErrorCode.POLICY_VIOLATION,
    "Request parameters do not satisfy the configured policy.",
)


async def describe_client_quotas(
    node: Node, request: DescribeClientQuotasRequest, context: Context
) -> DescribeClientQuotasResponse:
    """List the quotas of the entities that a filter selects."""
    components = ((one.entity_type, one.match_type, one.match) for one in request.components)
    try:
        wanted = filter_of(components, is_strict=request.strict)
    except QuotaFault as fault:
        return DescribeClientQuotasResponse(fault.code, fault.message, None)
    turns = Turns()
    entries = []
    for entity, quotas in list(node.image.client_quotas.items()):
        await turns.next()
        if wanted.selects(entity):
            values = [QuotaValue(key, value) for key, value in quotas.items()]
            entries.append(DescribedQuotas(_parts(entity), values))
    return DescribeClientQuotasResponse(ErrorCode.NONE, "", entries)  # not null, as from Kafka


async def alter_client_quotas(
    node: Node, request: AlterClientQuotasRequest, context: Context
) -> AlterClientQuotasResponse:
    """Set quotas and take quotas away; they count from the answer on."""
    turns = Turns()
    outcomes: dict[Entity, Outcome] = {}
    records: list[ClientQuotaRecord] = []
    for entry in request.entries:
        await turns.next(ALTERATION_ITEMS)
        entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
        if entity in outcomes:  # the changes of the first stand, as in Kafka
            outcomes[entity] = _ignored(entity)
            continue
        try:
            records += _records_of(node.controller.image.client_quotas, entity, entry)
            outcomes[entity] = DONE
        except QuotaFault as fault:
            outcomes[entity] = (fault.code, fault.message)
    if len(records) > CHANGES_MAX:
        outcomes = dict.fromkeys(outcomes, TOO_MANY)
    elif records and not request.validate_only:
        try:
            await node.controller.alter_client_quotas(records)
        except StorageError as error:
            outcomes = dict.fromkeys(outcomes, (ErrorCode(error.code), error.message))
        else:
            for record in records:
                audit.altered_quota(context, record)
    return AlterClientQuotasResponse(
        [AlteredQuotas(*outcome, _parts(entity)) for entity, outcome in outcomes.items()]
    )


def _records_of(quotas: Quotas, entity: Entity, entry: QuotaAlteration) -> list[ClientQuotaRecord]:
    changes = {change.key: None if change.remove else change.value for change in entry.ops}
    if len(changes) < len(entry.ops):
        raise QuotaFault(*_ignored(entity))
    return alteration(quotas, entity, changes)


def _ignored(entity: Entity) -> tuple[ErrorCode, str]:
    """The refusal of an entity, or of one of its keys, that is named twice."""
    return ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {displayed(entity)}"


def _parts(entity: Entity) -> list[QuotaEntity]:
    return [QuotaEntity(kind, name) for kind, name in entity]


# ---------------------------------------------------------------- access


def _not_altered(request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        [
            AlteredQuotas(
                *CLUSTER_REFUSED,
                [QuotaEntity(part.entity_type, part.entity_name) for part in entry.entity],
            )
            for entry in request.entries
        ]
    )


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        (0, 1),
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        Need(Operation.DESCRIBE_CONFIGS).or_else(
            DescribeClientQuotasResponse(CLUSTER_FAILED, None, None)
        ),
        describe_client_quotas,
    ),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        (0, 1),
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        Need(Operation.ALTER_CONFIGS).or_by(_not_altered),
        alter_client_quotas,
    ),
)
