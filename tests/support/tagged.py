"""Requests as a newer client may send them: with tagged fields that nobody knows (KIP-482)."""

import datetime
import io
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from kio.serial import entity_writer
from kio.serial._serialize import get_field_writer
from kio.static.primitive import i32Timedelta, i64Timedelta

from txn.wire.varint import unsigned_varint

UNKNOWN_TAGS: Final = b"\x02" + b"\x63\x01x" + b"\xe8\x07\x00"
"""Two of them: number 99 with one byte, number 1000 with none."""
NO_TAGS: Final = b"\0"
PRESENT: Final = b"\1"
"""Stands before a structure that could be null (KIP-893)."""

EXAMPLES: Final[dict[str, Any]] = {
    "bool": True,
    "int8": 1,
    "int16": 1,
    "uint16": 1,
    "int32": 1,
    "int64": 1,
    "float64": 1.0,
    "string": "x",
    "bytes": b"x",
    "records": b"x",
    "uuid": uuid.UUID(int=7),
    "timedelta_i32": i32Timedelta.parse(datetime.timedelta(milliseconds=1)),
    "timedelta_i64": i64Timedelta.parse(datetime.timedelta(milliseconds=1)),
}


def encode(request: Any, tags: bytes = NO_TAGS) -> bytes:
    """Encode a kio entity, with these bytes as the tagged fields of every structure in it."""
    schema = type(request)
    assert schema.__flexible__, f"{schema.__name__} {schema.__version__} has no tagged fields"
    untagged = [field for field in fields(schema) if "tag" not in field.metadata]
    may_be_null = {name for name, hint in get_type_hints(schema).items() if _is_nullable(hint)}
    encoded = []
    for field in untagged:
        value = getattr(request, field.name)
        if field.name in may_be_null:
            encoded.append(b"\xff" if value is None else b"\x01" + encode(value, tags))
        else:
            encoded.append(_field(field, value, tags))
    return b"".join(encoded) + tags


def _is_nullable(hint: Any) -> bool:
    """Say whether a hint is of one structure that may be null."""
    arguments = get_args(hint)
    return NoneType in arguments and any(hasattr(one, "__flexible__") for one in arguments)


def _field(field: Field[Any], value: Any, tags: bytes) -> bytes:
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return unsigned_varint(len(value) + 1) + b"".join(encode(item, tags) for item in value)
    if is_dataclass(value):
        return encode(value, tags)
    buffer = io.BytesIO()
    get_field_writer(field, flexible=True, is_request_header=False, is_tag=False)(buffer, value)
    return buffer.getvalue()


def encode_plainly(request: Any) -> bytes:
    """Encode a kio entity as kio does."""
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def example(schema: type, given: Mapping[str, Any]) -> Any:
    """Make an entity: two items in every list, and these values wherever a field is so named."""
    hints = get_type_hints(schema)
    return schema(
        **{
            field.name: given.get(field.name, _example(hints[field.name], field, given))
            for field in fields(schema)
            if "tag" not in field.metadata
        }
    )


def _example(hint: Any, field: Field[Any], given: Mapping[str, Any]) -> Any:
    inner = next((one for one in get_args(hint) if one is not NoneType), hint)
    if get_origin(hint) is tuple:
        return (_example(inner, field, given),) * 2
    if get_origin(inner) is tuple:
        return _example(inner, field, given)
    if hasattr(inner, "__flexible__"):
        return example(inner, given)
    return EXAMPLES[field.metadata["kafka_type"]]


def values_in_order(structure: Any) -> tuple[Any, ...]:
    """The values of an entity, or of a request decoded into ours, in the order of the schema."""
    return tuple(_plain_value(getattr(structure, field.name)) for field in fields(structure))


def structures_of(structure: Any) -> Iterator[Any]:
    """A decoded structure, and those in it."""
    yield structure
    for field in fields(structure):
        value = getattr(structure, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                yield from structures_of(item)


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain_value(item) for item in value)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    return values_in_order(value) if is_dataclass(value) else value


def nullable_fields(schema: type) -> Iterator[str]:
    """The names of the fields that may be null, those of inner structures too."""
    hints = get_type_hints(schema)
    for field in fields(schema):
        arguments = get_args(hints[field.name])
        if NoneType in arguments:
            yield field.name
        for one in (hints[field.name], *arguments):
            for inner in (one, *get_args(one)):
                if hasattr(inner, "__flexible__"):
                    yield from nullable_fields(inner)
