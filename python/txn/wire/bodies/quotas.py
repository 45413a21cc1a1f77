"""AlterClientQuotas and DescribeClientQuotas."""

from collections.abc import Sequence
from typing import NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body


@request_body
class FilterComponent:
    """Selects entities by a part of one type; `match_type` is a number of KIP-546."""

    entity_type: str
    match_type: int
    match: str | None


@request_body
class DescribeClientQuotasRequest:
    """Asks for the quotas of entities; strict: with parts of the named types and no others."""

    components: tuple[FilterComponent, ...]
    strict: bool


class QuotaEntity(NamedTuple):
    """A part of an entity; a null name is the default."""

    entity_type: str
    entity_name: str | None


class QuotaValue(NamedTuple):
    """A quota by its key."""

    key: str
    value: float


class DescribedQuotas(NamedTuple):
    """The quotas of one entity."""

    entity: Sequence[QuotaEntity]
    values: Sequence[QuotaValue]


class DescribeClientQuotasResponse(NamedTuple):
    """Quotas by entity; null beside an error."""

    error_code: ErrorCode
    error_message: str | None
    entries: Sequence[DescribedQuotas] | None


@request_body
class AlteredEntity:
    """A part of an entity whose quotas are altered."""

    entity_type: str
    entity_name: str | None


@request_body
class QuotaOperation:
    """A quota to set, or to take away."""

    key: str
    value: float
    remove: bool


@request_body
class QuotaAlteration:
    """The changes of one entity's quotas."""

    entity: tuple[AlteredEntity, ...]
    ops: tuple[QuotaOperation, ...]


@request_body
class AlterClientQuotasRequest:
    """Changes quotas."""

    entries: tuple[QuotaAlteration, ...]
    validate_only: bool


class AlteredQuotas(NamedTuple):
    """The result for one entity."""

    error_code: ErrorCode
    error_message: str | None
    entity: Sequence[QuotaEntity]


class AlterClientQuotasResponse(NamedTuple):
    """Results by entity."""

    entries: Sequence[AlteredQuotas]
