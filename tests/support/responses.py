"""Responses that a handler gives as bytes, read back into their classes."""

from functools import cache
from typing import Any, get_args, get_type_hints

from kio.serial import entity_reader

from txn.broker.apis.table import Reply
from txn.wire.error_codes import ErrorCode
from txn.wire.kio import load_response_schema


def typed(kind: type, key: int, version: int, reply: Reply) -> Any:
    """Return a reply as an instance of its class; fields that the version lacks have defaults."""
    if not isinstance(reply, bytes):
        return reply
    entity, size = entity_reader(load_response_schema(key, version))(reply, 0)
    assert size == len(reply), f"api key {key} version {version}: bytes follow the answer"
    return _made(kind, entity)


@cache
def _fields_of(kind: type) -> dict[str, type | None]:
    """The fields of a response class, and the class of the structures in each."""
    return {name: _structure_in(hint) for name, hint in get_type_hints(kind).items()}


def _structure_in(hint: object) -> type | None:
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        return hint
    return next((found for one in get_args(hint) if (found := _structure_in(one))), None)


def _made(kind: type, entity: object) -> Any:
    values = {
        name: _value(structure, getattr(entity, name))
        for name, structure in _fields_of(kind).items()
        if hasattr(entity, name)
    }
    if "error_code" in values:
        values["error_code"] = ErrorCode(values["error_code"])
    return kind(**values)


def _value(structure: type | None, value: Any) -> Any:
    if structure is None:
        return value
    return [_made(structure, one) for one in value]
