"""Quotas of clients, set and described by requests as bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

from support.wire_client import RawConnection
from txn.wire.api_keys import ApiKey

Parts = Mapping[str, str | None]
"""An entity: type → name, None for the default."""


def alteration(entity: Parts, changes: Mapping[str, float | None]) -> dict[str, Any]:
    """One entry of AlterClientQuotas; None takes a quota away."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in changes.items()
        ],
    }


def alter(
    servers: str, *entries: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[tuple[dict[str, str | None], int, str | None]]:
    """Alter quotas; return entity, code and message of each result."""
    with RawConnection(servers) as connection:
        answer = connection.ask(
            ApiKey.ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=validate_only
        )
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            int(entry.error_code),
            entry.error_message,
        )
        for entry in answer.entries
    ]


def set_quota(servers: str, entity: Parts, **changes: float | None) -> None:
    """Alter quotas of one entity, which is done."""
    ((_, code, message),) = alter(servers, alteration(entity, changes))
    assert code == 0, message


def describe(
    servers: str,
    components: Sequence[tuple[str, int, str | None]] = (),
    *,
    strict: bool = False,
    version: int = 1,
) -> Any:
    """The answer to DescribeClientQuotas."""
    asked = [{"entity_type": t, "match_type": m, "match": name} for t, m, name in components]
    with RawConnection(servers) as connection:
        return connection.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=strict
        )


def described(servers: str, *components: tuple[str, int, str | None]) -> list[Any]:
    """Entities and their quotas, in the order of their text."""
    answer = describe(servers, components)
    assert answer.error_code == 0, answer.error_message
    found = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in answer.entries
    ]
    return sorted(found, key=str)
