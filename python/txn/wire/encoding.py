"""Writes the protocol's structures, by the schemas of kio.

A response is a `NamedTuple` with the fields of every version. The writer of one version is
composed once; it takes the fields of that version by their positions. A request, which only
clients write, is a plain mapping. kio's own writers take entities, whose making and writing
costs five times as much; `tests/unit/test_encoding.py` holds that the bytes are the same.

A field of the schema that is not given has its default. A field that the schema lacks is left
out. Times are given in milliseconds: kio's `transaction_timeout` is `transaction_timeout_ms` in a
response class.

Sources: Kafka's protocol guide (primitive types), KIP-482 (flexible versions), KIP-893
(nullable structures).
"""

import datetime
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from types import NoneType
from typing import Final, NamedTuple, get_args, get_origin, get_type_hints

from txn.wire.varint import unsigned_varint

Values = Mapping[str, object]

Body = tuple[object, ...]
"""An instance of a response class or of one of its structures: a NamedTuple."""

Put = Callable[[bytearray, object], None]
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
"""Kafka's types of a fixed size → their codes in `struct`."""

TIMES: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})
"""Kafka's types of times, all in milliseconds."""

NO_ARRAY: Final = b"\xff\xff\xff\xff"
"""The length of an array that is null, where lengths are not compact."""

NULL: Final = b"\xff"
NOT_NULL: Final = b"\x01"
"""The byte before a structure that may be null and is not."""


def encode(schema: type, values: Values) -> bytes:
    """Encode one structure from a mapping.

    Raises:
        TypeError: a field that has no default is not given, or cannot have its value.
    """
    return _encoded(schema, structure_writer(schema), values)


def encode_body(schema: type, body: Body) -> bytes:
    """Encode one response, or a structure of one. Raises TypeError as `encode`."""
    return _encoded(schema, structure_writer(schema, type(body)), body)


def body_encoder(schema: type, kind: type) -> Callable[[Body], bytes]:
    """Compose the encoder of one class of responses, which raises as `encode_body`."""
    return partial(_encoded, schema, structure_writer(schema, kind))


def _encoded(schema: type, put: Put, value: object) -> bytes:
    out = bytearray()
    try:
        put(out, value)
    except (AttributeError, struct.error) as error:
        raise TypeError(f"{schema.__qualname__}: {error}") from error
    return bytes(out)


@cache
def structure_writer(schema: type, kind: type | None = None) -> Put:
    """Compose the writer of a schema's structures: instances of a class, or mappings.

    Raises:
        TypeError: the class lacks a field that has no default.
    """
    names = list(getattr(kind, "_fields", ()))
    hints, our_hints = get_type_hints(schema), {} if kind is None else get_type_hints(kind)
    is_flexible = bool(getattr(schema, "__flexible__", False))
    plain: list[_Plain] = []
    tagged: list[tuple[int, str, Put, bytes | None]] = []
    for field in fields(schema):
        name = field.name if kind is None else own_name(field)
        made_of = _body_in(our_hints.get(name))
        put = _field_writer(hints[field.name], field, is_flexible, made_of)
        absent = _absent(hints[field.name], field, is_flexible)
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append(_Plain(name, put, absent, _layout_of(hints[field.name], field)))
        else:
            tagged.append((tag, name, put, absent))
    tagged.sort(key=lambda entry: entry[0])
    is_body = kind is not None
    put_plain = _body_writer(schema, plain, names) if is_body else _mapping_writer(schema, plain)
    get = _of_body if is_body else _of_mapping
    return _flexible_writer(put_plain, tagged, get) if is_flexible else put_plain


class _Plain(NamedTuple):
    """A field without a tag."""

    name: str
    put: Put
    absent: bytes | None
    """The bytes of its default; None for a field without one."""
    layout: str | None
    """Its code in `struct`; None unless its size is fixed and it is never null."""


def _layout_of(hint: object, field: "Field[object]") -> str | None:
    is_plain = _item_of(hint) is None and NoneType not in get_args(hint)
    return FIXED.get(field.metadata.get("kafka_type", "")) if is_plain else None


def own_name(field: "Field[object]") -> str:
    """The name of a schema's field in our classes."""
    return f"{field.name}_ms" if field.metadata.get("kafka_type") in TIMES else field.name


def _body_in(hint: object) -> type | None:
    """The class of structures that a hint names, alone, in a sequence or beside None."""
    if isinstance(hint, type) and hasattr(hint, "_fields"):
        return hint
    return next((found for one in get_args(hint) if (found := _body_in(one))), None)


def _mapping_writer(schema: type, plain: list[_Plain]) -> Put:
    def put_mapping(out: bytearray, values: object) -> None:
        if not isinstance(values, Mapping):
            raise TypeError(f"{schema.__qualname__} is no mapping: {values!r}")
        for name, put, absent, _ in plain:
            if name in values:
                put(out, values[name])
            elif absent is None:
                raise TypeError(f"{schema.__qualname__}.{name} is not given")
            else:
                out += absent

    return put_mapping


def _body_writer(schema: type, plain: list[_Plain], names: list[str]) -> Put:
    """Compose the writer of NamedTuples; neighbours of a fixed size are packed together."""
    steps: list[tuple[Callable[[Body], object], Put]] = []
    for is_run, entries in groupby(
        plain, key=lambda entry: entry.layout is not None and entry.name in names
    ):
        if is_run:
            run = list(entries)
            get = itemgetter(*(names.index(entry.name) for entry in run))
            put = _run_writer([entry.layout or "" for entry in run]) if run[1:] else run[0].put
            steps.append((get, put))
            continue
        for entry in entries:
            if entry.name in names:
                steps.append((itemgetter(names.index(entry.name)), entry.put))
            elif entry.absent is None:
                raise TypeError(f"{schema.__qualname__}.{entry.name} is not given")
            else:
                steps.append((_nothing, _constant_writer(entry.absent)))

    def put_body(out: bytearray, body: object) -> None:
        if not isinstance(body, tuple):
            raise TypeError(f"{schema.__qualname__} is no NamedTuple: {body!r}")
        for get, put in steps:
            put(out, get(body))

    def put_packed(out: bytearray, body: object) -> None:
        if not isinstance(body, tuple):
            raise TypeError(f"{schema.__qualname__} is no NamedTuple: {body!r}")
        out += pack(*body)

    is_one_run = [entry.name for entry in plain] == names and all(
        entry.layout is not None for entry in plain
    )
    if not is_one_run:
        return put_body
    pack = struct.Struct(">" + "".join(entry.layout or "" for entry in plain)).pack
    return put_packed


def _run_writer(layouts: list[str]) -> Put:
    pack = struct.Struct(">" + "".join(layouts)).pack

    def put(out: bytearray, values: object) -> None:
        out += pack(*values)  # type: ignore[misc] # a tuple, by `itemgetter`

    return put


def _nothing(body: Body) -> None:
    """Stands where a constant needs nothing of a body."""


def _constant_writer(data: bytes) -> Put:
    def put(out: bytearray, value: object) -> None:
        out += data

    return put


def _of_mapping(body: object, name: str) -> object:
    return body.get(name) if isinstance(body, Mapping) else None


def _of_body(body: object, name: str) -> object:
    return getattr(body, name, None)


def _flexible_writer(
    put_plain: Put,
    tagged: list[tuple[int, str, Put, bytes | None]],
    get: Callable[[object, str], object],
) -> Put:
    if not tagged:

        def put_untagged(out: bytearray, values: object) -> None:
            put_plain(out, values)
            out.append(0)

        return put_untagged

    def put_flexible(out: bytearray, values: object) -> None:
        put_plain(out, values)
        count, tags = 0, bytearray()
        for tag, name, put, absent in tagged:
            value = get(values, name)
            if value is None:
                continue
            data = bytearray()
            put(data, value)
            if bytes(data) != absent:
                count += 1
                tags += unsigned_varint(tag) + unsigned_varint(len(data)) + data
        out += unsigned_varint(count)
        out += tags

    return put_flexible


def _absent(hint: object, field: "Field[object]", is_flexible: bool) -> bytes | None:
    """The bytes of a field that is not given; None if it has to be."""
    kafka_type = field.metadata.get("kafka_type")
    put = _field_writer(hint, field, is_flexible, None)
    out = bytearray()
    if _structure_in(hint) is not None and field.default is not None:
        try:
            put(out, {} if _item_of(hint) is None else ())
        except TypeError:  # the structure has a field without a default
            return None
    elif field.default is not MISSING:
        put(out, _milliseconds(field.default) if kafka_type in TIMES else field.default)
    elif kafka_type == "timedelta_i32":  # throttle_time_ms
        put(out, 0)
    else:
        return None
    return bytes(out)


def _milliseconds(default: object) -> int:
    if isinstance(default, datetime.datetime):
        return round(default.timestamp() * 1000)
    if isinstance(default, datetime.timedelta):
        return round(default.total_seconds() * 1000)
    return -1


def _field_writer(
    hint: object, field: "Field[object]", is_flexible: bool, made_of: type | None
) -> Put:
    is_nullable = NoneType in get_args(hint)
    item = _item_of(hint)
    if item is not None:
        put_item = _item_writer(item, field, is_flexible, made_of)
        return _array_writer(put_item, is_flexible, is_nullable=is_nullable)
    structure = _structure_in(hint)
    if structure is not None:
        put = structure_writer(structure, made_of)
        return _nullable(put) if is_nullable else put
    return _primitive_writer(field.metadata["kafka_type"], is_flexible, is_nullable=is_nullable)


def _item_of(hint: object) -> object:
    """The type of an array's items; None for any other type."""
    for candidate in (hint, *get_args(hint)):
        if get_origin(candidate) is tuple:
            return get_args(candidate)[0]
    return None


def _item_writer(
    item: object, field: "Field[object]", is_flexible: bool, made_of: type | None
) -> Put:
    structure = _structure_in(item)
    if structure is not None:
        return structure_writer(structure, made_of)
    return _primitive_writer(field.metadata["kafka_type"], is_flexible, is_nullable=False)


def _structure_in(hint: object) -> type | None:
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

    def put(out: bytearray, value: object) -> None:
        out += pack(value)

    return put


def _or_minus_one(put: Put) -> Put:
    """Write null as -1. Only times need it: no other number may be null."""

    def put_nullable(out: bytearray, value: object) -> None:
        put(out, -1 if value is None else value)

    return put_nullable


def _put_uuid(out: bytearray, value: object) -> None:
    if value is None:
        out += bytes(16)
        return
    data = value.bytes if isinstance(value, uuid.UUID) else _bytes_of(value)
    if len(data) != 16:
        raise TypeError(f"a UUID has 16 bytes, not {len(data)}")
    out += data


def _compact_writer(*, is_nullable: bool) -> Put:
    """Writer of strings and bytes in compact form: their length plus 1 first, 0 for null."""

    def put(out: bytearray, value: object) -> None:
        if value is None and is_nullable:
            out += b"\0"
            return
        data = _bytes_of(value)
        out += unsigned_varint(len(data) + 1)
        out += data

    return put


def _legacy_writer(layout: str, *, is_nullable: bool) -> Put:
    """Writer of strings and bytes with a length of a fixed size; -1 is null."""
    pack = struct.Struct(">" + layout).pack

    def put(out: bytearray, value: object) -> None:
        if value is None and is_nullable:
            out += pack(-1)
            return
        data = _bytes_of(value)
        out += pack(len(data))
        out += data

    return put


def _bytes_of(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if value is None:
        raise TypeError("a field that cannot be null is None")
    raise TypeError(f"neither text nor bytes: {value!r}")


def _array_writer(put_item: Put, is_flexible: bool, *, is_nullable: bool) -> Put:
    pack_count = struct.Struct(">i").pack

    def put_compact(out: bytearray, items: object) -> None:
        if items is None and is_nullable:
            out += b"\0"
            return
        if not isinstance(items, list | tuple):
            raise TypeError(f"no array: {items!r}")
        out += unsigned_varint(len(items) + 1)
        for item in items:
            put_item(out, item)

    def put_legacy(out: bytearray, items: object) -> None:
        if items is None and is_nullable:
            out += NO_ARRAY
            return
        if not isinstance(items, list | tuple):
            raise TypeError(f"no array: {items!r}")
        out += pack_count(len(items))
        for item in items:
            put_item(out, item)

    return put_compact if is_flexible else put_legacy


def _nullable(put: Put) -> Put:
    def put_nullable(out: bytearray, values: object) -> None:
        if values is None:
            out += NULL
            return
        out += NOT_NULL
        put(out, values)

    return put_nullable
