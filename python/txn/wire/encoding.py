"""Writes the protocol's structures from plain mappings, by the schemas of kio.

A writer is composed once for each schema and then goes through its fields in order. kio's
own writers take entities, whose making and writing costs five times as much; that the bytes
are the same is held by `tests/unit/test_encoding.py`.

A field that is not given has its default; names that the schema does not have are passed
over, so that one mapping serves all versions.

Sources: Kafka's protocol guide (primitive types), KIP-482 (flexible versions), KIP-893
(nullable structures).
"""

import datetime
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from txn.wire.varint import unsigned_varint

Values = Mapping[str, Any]

Put = Callable[[bytearray, Any], None]
"""Appends a value. Raises TypeError, AttributeError or struct.error: the field cannot have it."""

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""Kafka's types of a fixed size, and how `struct` names them."""

TIMES: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})
"""Given in milliseconds."""

NO_ARRAY: Final = b"\xff\xff\xff\xff"
"""The length of an array that is null, where lengths are not compact."""

NULL: Final = b"\xff"
NOT_NULL: Final = b"\x01"
"""Before a structure that may be null."""


def encode(schema: type, values: Values) -> bytes:
    """Encode one structure.

    Raises:
        TypeError: a field that has no default is not given, or cannot have its value.
    """
    out = bytearray()
    try:
        structure_writer(schema)(out, values)
    except (AttributeError, struct.error) as error:
        raise TypeError(f"{schema.__qualname__}: {error}") from error
    return bytes(out)


@cache
def structure_writer(schema: type) -> Put:
    """Compose what writes the structures of a schema."""
    hints = get_type_hints(schema)
    is_flexible = bool(schema.__flexible__)  # type: ignore[attr-defined]
    plain: list[tuple[str, Put, bytes | None]] = []
    tagged: list[tuple[int, str, Put, bytes | None]] = []
    for field in fields(schema):
        tag = field.metadata.get("tag")
        put = _field_writer(hints[field.name], field, is_flexible)
        absent = _absent(field, put, structure=_structure_in(hints[field.name]))
        if tag is None:
            plain.append((field.name, put, absent))
        else:
            tagged.append((tag, field.name, put, absent))
    tagged.sort(key=lambda entry: entry[0])

    def put_plain(out: bytearray, values: Values) -> None:
        for name, put, absent in plain:
            if name in values:
                put(out, values[name])
            elif absent is None:
                raise TypeError(f"{schema.__qualname__}.{name} is not given")
            else:
                out += absent

    def put_flexible(out: bytearray, values: Values) -> None:
        put_plain(out, values)
        count, given = 0, bytearray()
        for tag, name, put, absent in tagged:
            value = values.get(name)
            if value is None:
                continue
            data = bytearray()
            put(data, value)
            if bytes(data) != absent:
                count += 1
                given += unsigned_varint(tag) + unsigned_varint(len(data)) + data
        out += unsigned_varint(count)
        out += given

    return put_flexible if is_flexible else put_plain


def _absent(field: "Field[Any]", put: Put, *, structure: type | None) -> bytes | None:
    """The bytes of a field that is not given; None if it has to be."""
    kafka_type = field.metadata.get("kafka_type")
    out = bytearray()
    if structure is not None and field.default is not None:
        try:
            put(out, {})
        except TypeError:  # it has a field without a default
            return None
    elif field.default is not MISSING:
        put(out, _milliseconds(field.default) if kafka_type in TIMES else field.default)
    elif kafka_type == "timedelta_i32":  # throttle_time_ms
        put(out, 0)
    else:
        return None
    return bytes(out)


def _milliseconds(default: datetime.timedelta | datetime.datetime | None) -> int:
    if default is None:
        return -1
    if isinstance(default, datetime.datetime):
        return round(default.timestamp() * 1000)
    return round(default.total_seconds() * 1000)


def _field_writer(hint: Any, field: "Field[Any]", is_flexible: bool) -> Put:
    is_nullable = NoneType in get_args(hint)
    item = _item_of(hint)
    if item is not None:
        put_item = _item_writer(item, field, is_flexible)
        return _array_writer(put_item, is_flexible, is_nullable=is_nullable)
    structure = _structure_in(hint)
    if structure is not None:
        put = structure_writer(structure)
        return _nullable(put) if is_nullable else put
    return _primitive_writer(field.metadata["kafka_type"], is_flexible, is_nullable=is_nullable)


def _item_of(hint: Any) -> Any:
    """The type of an array's items; None for what is not an array."""
    for candidate in (hint, *get_args(hint)):
        if get_origin(candidate) is tuple:
            return get_args(candidate)[0]
    return None


def _item_writer(item: Any, field: "Field[Any]", is_flexible: bool) -> Put:
    structure = _structure_in(item)
    if structure is not None:
        return structure_writer(structure)
    return _primitive_writer(field.metadata["kafka_type"], is_flexible, is_nullable=False)


def _structure_in(hint: Any) -> type | None:
    """The schema that a hint names, alone or beside None."""
    for candidate in (hint, *get_args(hint)):
        if isinstance(candidate, type) and hasattr(candidate, "__type__"):
            return candidate
    return None


def _primitive_writer(kafka_type: str, is_flexible: bool, *, is_nullable: bool) -> Put:
    if kafka_type == "uuid":
        return _put_uuid
    if kafka_type in FIXED:
        put = _fixed_writer(FIXED[kafka_type])
        return _or_minus_one(put) if is_nullable else put
    if is_flexible:
        return _compact_writer(is_nullable=is_nullable)
    return _legacy_writer("h" if kafka_type == "string" else "i", is_nullable=is_nullable)


def _fixed_writer(layout: str) -> Put:
    pack = struct.Struct(">" + layout).pack

    def put(out: bytearray, value: Any) -> None:
        out += pack(value)

    return put


def _or_minus_one(put: Put) -> Put:
    """Of times, the only numbers that may be null."""

    def put_nullable(out: bytearray, value: int | None) -> None:
        put(out, -1 if value is None else value)

    return put_nullable


def _put_uuid(out: bytearray, value: uuid.UUID | bytes | None) -> None:
    if value is None:
        out += bytes(16)
        return
    data = value.bytes if isinstance(value, uuid.UUID) else value
    if len(data) != 16:
        raise TypeError(f"a UUID has 16 bytes, not {len(data)}")
    out += data


def _compact_writer(*, is_nullable: bool) -> Put:
    """Of strings and bytes, with a length that is one up; 0 is null."""

    def put(out: bytearray, value: str | bytes | None) -> None:
        if value is None and is_nullable:
            out += b"\0"
            return
        data = _bytes_of(value)
        out += unsigned_varint(len(data) + 1)
        out += data

    return put


def _legacy_writer(layout: str, *, is_nullable: bool) -> Put:
    """Of strings and bytes, with a length of a fixed size; -1 is null."""
    pack = struct.Struct(">" + layout).pack

    def put(out: bytearray, value: str | bytes | None) -> None:
        if value is None and is_nullable:
            out += pack(-1)
            return
        data = _bytes_of(value)
        out += pack(len(data))
        out += data

    return put


def _bytes_of(value: str | bytes | None) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if value is None:
        raise TypeError("a field that cannot be null is None")
    return value


def _array_writer(put_item: Put, is_flexible: bool, *, is_nullable: bool) -> Put:
    def put_items(out: bytearray, items: Any) -> None:
        for item in items:
            put_item(out, item)

    def put_compact(out: bytearray, items: Any) -> None:
        if items is None and is_nullable:
            out += b"\0"
            return
        out += unsigned_varint(len(items) + 1)
        put_items(out, items)

    def put_legacy(out: bytearray, items: Any) -> None:
        if items is None and is_nullable:
            out += NO_ARRAY
            return
        out += struct.pack(">i", len(items))
        put_items(out, items)

    return put_compact if is_flexible else put_legacy


def _nullable(put: Put) -> Put:
    def put_nullable(out: bytearray, values: Values | None) -> None:
        if values is None:
            out += NULL
            return
        out += NOT_NULL
        put(out, values)

    return put_nullable
