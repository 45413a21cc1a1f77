"""Quotas: their entities, their possible values, and the one of several that applies. Pure.

An entity is a user, a client id, both, or an address; each part has a name or is the default. A
client is bound by one value of each key: that of the first entity in `precedence` that has the key.

Deviations from Apache Kafka:
- An entity `ip` is an address without a zone. Kafka looks up a host name when the quota is set and
  at each start. A host name that Kafka stored has no effect, and can be removed.
- NaN and infinite values are refused; Kafka accepts them for quotas that need not be whole.

Sources: KIP-13, KIP-55 (users), KIP-124 (request percentage), KIP-546 (the APIs), KIP-599 (topics),
KIP-612 (addresses); Apache Kafka 4.2, ClientQuotaControlManager and ClientQuotasImage.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from txn.metadata.records import ClientQuotaRecord, Entity
from txn.security.listeners import is_address
from txn.wire.error_codes import ErrorCode

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

LONG_MAX: Final = 2.0**63
INT_MAX: Final = 2.0**31 - 1

CLIENT_KEYS: Final[Mapping[str, float | None]] = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""Keys of users and client ids → the largest value of those that are whole numbers."""

IP_KEYS: Final[Mapping[str, float | None]] = {CONNECTION_CREATION_RATE: INT_MAX}
"""Keys of addresses."""

_INTEGER_NAMES: Final = {LONG_MAX: "a LONG", INT_MAX: "an INT"}
_FRACTION_MAX: Final = 1e-6

Quotas = Mapping[Entity, Mapping[str, float]]


class QuotaFault(Exception):
    """A request that is refused, with Kafka's code and text."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# ---------------------------------------------------------------- alterations


def _invalid(message: str) -> QuotaFault:
    return QuotaFault(ErrorCode.INVALID_REQUEST, message)


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """An entity from its parts; of two parts of a type the later counts, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def alteration(
    quotas: Quotas, entity: Entity, changes: Mapping[str, float | None]
) -> list[ClientQuotaRecord]:
    """The records that alter the quotas of one entity; none for a value that it has already.

    Args:
        quotas: The quotas so far.
        entity: By `entity_of`.
        changes: Key → value; None takes a quota away.

    Raises:
        QuotaFault: the entity or a value cannot be. The first fault counts.
    """
    keys = _keys_of(entity)
    now = quotas.get(entity, {})
    host = dict(entity).get(IP)
    is_removal = entity in quotas and not any(value is not None for value in changes.values())
    if host is not None and not is_address(host) and not is_removal:
        raise _invalid(f"{host} is not a valid IP or resolvable host.")
    records = []
    for key, value in changes.items():
        if value is not None:
            _require_value(keys, key, value)
        if now.get(key) != value:
            records.append(ClientQuotaRecord(entity, key, value))
    return records


def _keys_of(entity: Entity) -> Mapping[str, float | None]:
    """The keys that an entity may have. Raises QuotaFault."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    parts = dict(entity)
    if IP not in parts:
        return CLIENT_KEYS
    if len(parts) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )
    return IP_KEYS


def _require_value(keys: Mapping[str, float | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:  # NaN too
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = keys[key]
    if largest is None:
        if math.isinf(value):
            raise _invalid(f"Quota {key} must be finite")
        return
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {_INTEGER_NAMES[largest]}.")
    if value % 1.0 > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def displayed(entity: Entity) -> str:
    """An entity as Kafka writes it in messages."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


# ---------------------------------------------------------------- filters

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
"""Numbers of matches: a part has this name, is the default, or is there. Source: KIP-546."""


class Filter(NamedTuple):
    """Selects entities.

    `names`: parts by their types; None is the default. `kinds`: types of parts of any name.
    `is_strict`: an entity has no further part.
    """

    names: Mapping[str, str | None]
    kinds: frozenset[str]
    is_strict: bool

    def selects(self, entity: Entity) -> bool:
        """Return True if an entity is selected; a filter without parts selects all, or none."""
        asked = len(self.names) + len(self.kinds)
        if self.is_strict and asked != len(entity):
            return False
        parts = dict(entity)
        return all(
            kind in parts and parts[kind] == name for kind, name in self.names.items()
        ) and all(kind in parts for kind in self.kinds)


def filter_of(components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> Filter:
    """A filter from its components: type, number of the match, name.

    Raises:
        QuotaFault: the components contradict each other, or cannot be.
    """
    names: dict[str, str | None] = {}
    kinds: set[str] = set()
    for kind, match_type, name in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in names or kind in kinds:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise QuotaFault(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == EXACT:
            if name is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            names[kind] = name
        elif match_type in (DEFAULT, SPECIFIED):
            if name is not None:
                said = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
                raise _invalid(
                    f"Request specified MATCH_TYPE_{said}, but also specified a match string."
                )
            if match_type == DEFAULT:
                names[kind] = None
            else:
                kinds.add(kind)
        else:
            raise _invalid(f"Unknown match type {match_type}")
    asked = names.keys() | kinds
    if IP in asked and len(asked) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return Filter(names, frozenset(kinds), is_strict)


# ---------------------------------------------------------------- precedence


def precedence(user: str, client_id: str) -> Iterator[Entity]:
    """The eight entities whose quotas may bind a client, the first to count first."""
    for name in (user, None):
        for client in (client_id, None):
            yield ((CLIENT_ID, client), (USER, name))
        yield ((USER, name),)
    for client in (client_id, None):
        yield ((CLIENT_ID, client),)


def binding(quotas: Quotas, key: str, user: str, client_id: str) -> Entity | None:
    """The entity whose quota of a key binds a client; None if the client is free."""
    return next(
        (entity for entity in precedence(user, client_id) if key in quotas.get(entity, ())), None
    )


def creation_rates(quotas: Quotas) -> tuple[float | None, dict[str, float]]:
    """The rates at which addresses may connect: the default, None for any, and their own.

    Names that are no address, and rates that are not above 0, are left out.
    """
    rates = _stored_creation_rates(quotas)
    own = {name: rate for name, rate in rates.items() if name is not None and is_address(name)}
    return rates.get(None), own


def names_without_address(quotas: Quotas) -> list[str]:
    """The names of entities `ip` that have a creation rate and are no address."""
    return [
        name for name in _stored_creation_rates(quotas) if name is not None and not is_address(name)
    ]


def _stored_creation_rates(quotas: Quotas) -> dict[str | None, float]:
    rates = {
        dict(entity)[IP]: values[CONNECTION_CREATION_RATE]
        for entity, values in quotas.items()
        if IP in dict(entity) and CONNECTION_CREATION_RATE in values
    }
    # Another broker may have stored any number.
    return {name: rate for name, rate in rates.items() if rate > 0}
