"""Requests as bytes, made from kio's schemas: sound ones of every API, and the largest.

`Body` writes a request field by field; `Values` gives the value of each field. No entities are
made, so that an array of millions costs only its bytes.
"""

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from support.served import SERVED_IN_PYTHON, Versions
from txn import _core
from txn.broker.apis.table import SERVED_BY_REACTORS, TWO_PHASE_FROM
from txn.wire.api_keys import ApiKey
from txn.wire.kio import load_request_schema
from txn.wire.varint import unsigned_varint

PRODUCE: Final = 0
SERVED: Final[Versions] = {
    **SERVED_IN_PYTHON,
    **SERVED_BY_REACTORS,
    ApiKey.INIT_PRODUCER_ID: (0, TWO_PHASE_FROM - 1),
}
CORRELATION_ID: Final = 7
SIZES: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}
USUAL: Final = {
    "partition_max_bytes": 1 << 20,
    "max_bytes": 1 << 20,
    "acks": -1,
    "session_timeout": 6_000,
    "rebalance_timeout": 100,
    "max_wait": 10,
    "timeout": 100,
}
"""Numbers without which a request is not answered, or not soon."""


def frame(api_key: int, api_version: int, body: bytes) -> bytes:
    """A whole request: length, header, body."""
    tags = b"\0" if load_request_schema(api_key, api_version).__flexible__ else b""
    header = struct.pack(">hhih", api_key, api_version, CORRELATION_ID, -1) + tags
    return struct.pack(">i", len(header) + len(body)) + header + body


def apis() -> Iterator[tuple[int, int]]:
    """Every API and version that kio knows and txn serves."""
    for key, (low, high) in sorted(SERVED.items()):
        for version in range(low, high + 1):
            try:
                load_request_schema(key, version)
            except (ImportError, NotImplementedError, KeyError, ValueError):
                continue  # newer than kio
            yield key, version


@dataclass(frozen=True)
class SchemaField:
    """One field of a schema.

    Attributes:
        name: By which values are chosen.
        kind: Of `SIZES`, or "string", "bytes", "records", "structure".
        item: The schema of a structure, alone or in an array.
        is_array: Many of them.
        is_nullable: A structure that may be null, and has a byte before it.
    """

    name: str
    kind: str
    item: Any
    is_array: bool
    is_nullable: bool = False


@cache
def fields_of(schema: Any) -> tuple[SchemaField, ...]:
    """The fields of a schema, in their order, without tagged ones."""
    hints = get_type_hints(schema)
    found = []
    for each in fields(schema):
        if "tag" in each.metadata:
            continue
        hint = hints[each.name]
        inner = [one for one in get_args(hint) if one is not NoneType]
        may_be_null = NoneType in get_args(hint)
        if may_be_null:
            hint = inner[0]
        is_array = get_origin(hint) is tuple
        item = get_args(hint)[0] if is_array else hint
        kind = each.metadata.get("kafka_type", "structure")
        is_nullable = may_be_null and kind == "structure" and not is_array
        found.append(SchemaField(each.name, kind, item, is_array, is_nullable))
    return tuple(found)


class Values:
    """The fields of a sound request: names of `prefix`, short arrays."""

    def __init__(self, chance: random.Random, prefix: str) -> None:
        self._chance = chance
        self._prefix = prefix

    def count(self, _field: SchemaField, _path: tuple[str, ...]) -> int:
        """Number of items of an array."""
        return self._chance.choice((0, 1, 1, 1, 2, 3))

    def fixed(self, field: SchemaField) -> bytes:
        """The bytes of a number, a flag or an id."""
        size = SIZES[field.kind]
        if field.kind == "uuid":
            return self._chance.randbytes(16) if self._chance.random() < 0.5 else bytes(16)
        if field.kind == "bool":
            return bytes([self._chance.randrange(2)])
        number = USUAL.get(field.name, self._chance.choice((0, 0, 0, 1, 1, 2, -1, 10, 100)))
        return number.to_bytes(size, "big", signed=True)

    def text(self, field: SchemaField) -> bytes:
        """The bytes of a string."""
        return f"{self._prefix}-{field.name[:2]}-{self._chance.randrange(3)}".encode()

    def content(self, field: SchemaField) -> bytes:
        """The bytes of a bytes field."""
        if field.kind == "records":
            return _core.encode_batch([(b"key", b"value")], 1_700_000_000_000)
        return self._chance.randbytes(self._chance.randrange(20))


def body_of(schema: Any, values: Values) -> bytes:
    """Write a request."""
    parts: list[bytes] = []
    _write(schema, values, parts, ())
    return b"".join(parts)


def _write(schema: Any, values: Values, parts: list[bytes], path: tuple[str, ...]) -> None:
    is_flexible = schema.__flexible__
    for field in fields_of(schema):
        here = (*path, field.name)
        if field.is_array:
            count = values.count(field, here)
            parts.append(
                unsigned_varint(count + 1) if is_flexible else count.to_bytes(4, "big", signed=True)
            )
            if count:
                _write_items(field, values, parts, here, count, is_flexible)
        else:
            if field.is_nullable:
                parts.append(b"\x01")
            _write_item(field, values, parts, here, is_flexible)
    if is_flexible:
        parts.append(b"\0")


def _write_items(
    field: SchemaField,
    values: Values,
    parts: list[bytes],
    path: tuple[str, ...],
    count: int,
    is_flexible: bool,
) -> None:
    if count <= MANY:
        for _ in range(count):
            _write_item(field, values, parts, path, is_flexible)
        return
    item: list[bytes] = []
    _write_item(field, values, item, path, is_flexible)
    parts.append(b"".join(item) * count)


MANY: Final = 16
"""Beyond this all items of an array are alike."""


def _write_item(
    field: SchemaField, values: Values, parts: list[bytes], path: tuple[str, ...], is_flexible: bool
) -> None:
    if field.kind == "structure":
        _write(field.item, values, parts, path)
    elif field.kind in SIZES:
        parts.append(values.fixed(field))
    elif field.kind == "string":
        text = values.text(field)
        parts.append(
            unsigned_varint(len(text) + 1) if is_flexible else len(text).to_bytes(2, "big")
        )
        parts.append(text)
    else:
        content = values.content(field)
        parts.append(
            unsigned_varint(len(content) + 1) if is_flexible else len(content).to_bytes(4, "big")
        )
        parts.append(content)


# ---------------------------------------------------------------- the largest requests


class _Huge(Values):
    """One array is as long as it can be, all others have an item that leads to it, or none."""

    def __init__(self, where: tuple[str, ...], items: int) -> None:
        super().__init__(random.Random(0), "huge")
        self._where = where
        self._items = items

    def count(self, _field: SchemaField, path: tuple[str, ...]) -> int:
        if path == self._where:
            return self._items
        return 1 if self._where[: len(path)] == path else 0

    def text(self, _field: SchemaField) -> bytes:
        return b"h"

    def content(self, _field: SchemaField) -> bytes:
        return b""


def arrays_of(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path to every array of a request, by the names of the fields that lead there."""
    for field in fields_of(schema):
        here = (*path, field.name)
        if field.is_array:
            yield here
        if field.kind == "structure":
            yield from arrays_of(field.item, here)


def huge_body(schema: Any, where: Sequence[str], bytes_max: int) -> bytes:
    """A request in which one array has as many items as `bytes_max` bytes hold."""
    one = len(body_of(schema, _Huge(tuple(where), 1)))
    each = len(body_of(schema, _Huge(tuple(where), 2))) - one
    items = 1 + (bytes_max - one) // max(each, 1)
    return body_of(schema, _Huge(tuple(where), items))
