"""Kafka's request and response bodies, by the protocol library kio.

Messages go in as plain mappings: `encode` knows which fields the version has, leaves out the
others, and fills defaults, so that a handler is written once for all versions. Requests from
others are decoded by `txn.server.requests`.
"""

import datetime
import io
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from txn.wire.varint import unsigned_varint

NO_TIME = i32Timedelta.parse(datetime.timedelta(0))
"""throttle_time_ms = 0."""


def encode_request(api_key: int, api_version: int, values: Mapping[str, Any]) -> bytes:
    """Encode a request body; fields the version does not have are left out."""
    build, write = _request_codec(api_key, api_version)
    buffer = io.BytesIO()
    write(buffer, build(values))
    return buffer.getvalue()


@cache
def is_flexible(api_key: int, api_version: int) -> bool:
    """Say whether the response carries the flexible (tagged) header."""
    return bool(load_response_schema(api_key, api_version).__flexible__)


Codec = tuple[Callable[[Mapping[str, Any]], Any], Callable[[Any, Any], None]]
"""Makes an entity from names and values; writes an entity."""


@cache
def _request_codec(api_key: int, api_version: int) -> Codec:
    schema = load_request_schema(api_key, api_version)
    return entity_builder(schema), entity_writer(schema)


@cache
def _response_codec(api_key: int, api_version: int) -> Codec:
    schema = load_response_schema(api_key, api_version)
    return entity_builder(schema), entity_writer(schema)


def encode_response(api_key: int, api_version: int, values: Mapping[str, Any]) -> bytes:
    """Encode a response body; fields the version does not have are left out."""
    build, write = _response_codec(api_key, api_version)
    buffer = io.BytesIO()
    write(buffer, build(values))
    return buffer.getvalue()


def decode_response(api_key: int, api_version: int, body: bytes) -> Any:
    """Decode a response body. Raises what the protocol library raises for bytes it cannot read."""
    response, _ = entity_reader(load_response_schema(api_key, api_version))(body, 0)
    return response


@cache
def _entry_codec(api_key: int, api_version: int, name: str) -> Codec:
    (entry, _) = get_args(get_type_hints(load_response_schema(api_key, api_version))[name])
    return entity_builder(entry), entity_writer(entry)


def encode_entry(api_key: int, api_version: int, name: str, values: Mapping[str, Any]) -> bytes:
    """Encode one entry of a response's list, so that long answers can be made bit by bit."""
    build, write = _entry_codec(api_key, api_version, name)
    buffer = io.BytesIO()
    write(buffer, build(values))
    return buffer.getvalue()


def join_entries(api_key: int, api_version: int, entries: Sequence[bytes]) -> bytes:
    """Make the body of a response that is a throttle time and one list."""
    no_throttle = bytes(4)
    if not is_flexible(api_key, api_version):
        return no_throttle + len(entries).to_bytes(4, "big") + b"".join(entries)
    no_tags = b"\0"
    return no_throttle + unsigned_varint(len(entries) + 1) + b"".join(entries) + no_tags


@cache
def entity_builder(schema: type) -> Callable[[Mapping[str, Any]], Any]:
    """Make a function that builds one kio entity, and those inside it, from a mapping."""
    hints = get_type_hints(schema)
    converters: dict[str, Callable[[Any], Any]] = {}
    required: list[tuple[str, Any]] = []
    for field in fields(schema):
        converters[field.name] = _converter(hints[field.name], field.metadata.get("kafka_type"))
        if field.default is MISSING and field.default_factory is MISSING:
            required.append((field.name, _absent(field.metadata.get("kafka_type"))))

    def build(values: Mapping[str, Any]) -> Any:
        found = {
            name: convert(values[name]) for name, convert in converters.items() if name in values
        }
        for name, absent in required:
            if name not in found:
                assert absent is not MISSING, f"{schema.__qualname__}.{name} is not given"
                found[name] = absent
        return schema(**found)

    return build


def _absent(kafka_type: str | None) -> Any:
    """The value of a field that no handler has to give: only the throttle time."""
    return NO_TIME if kafka_type == "timedelta_i32" else MISSING


def _converter(hint: Any, kafka_type: str | None) -> Callable[[Any], Any]:
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    if get_origin(hint) is tuple or (arguments and get_origin(arguments[0]) is tuple):
        item_hint = get_args(hint if get_origin(hint) is tuple else arguments[0])[0]
        item = _converter(item_hint, kafka_type)
        return lambda values: None if values is None else tuple(map(item, values))
    if kafka_type == "error_code":
        return ErrorCode
    if kafka_type == "timedelta_i32":
        return lambda ms: i32Timedelta.parse(datetime.timedelta(milliseconds=ms))
    if kafka_type == "uuid":
        return lambda value: uuid.UUID(bytes=value) if isinstance(value, bytes) else value
    entity = arguments[0] if arguments and isinstance(arguments[0], type) else hint
    if isinstance(entity, type) and hasattr(entity, "__type__"):
        build = entity_builder(entity)
        return lambda values: None if values is None else build(values)
    return lambda value: value
