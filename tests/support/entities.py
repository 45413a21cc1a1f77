"""Makes kio's entities from plain mappings, so that tests name the fields they care about."""

import datetime
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from kio.static.primitive import i32Timedelta, i64Timedelta

from txn.wire.error_codes import ErrorCode

NO_TIME = i32Timedelta.parse(datetime.timedelta(0))
"""throttle_time_ms = 0."""


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


def _long_time(value: int | datetime.timedelta) -> Any:
    """A time of 64 bits, from milliseconds or as it is: kio parses no negative one."""
    if isinstance(value, datetime.timedelta):
        return value
    return i64Timedelta.parse(datetime.timedelta(milliseconds=value))


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
    if kafka_type == "timedelta_i64":
        return _long_time
    if kafka_type == "uuid":
        return lambda value: uuid.UUID(bytes=value) if isinstance(value, bytes) else value
    entity = arguments[0] if arguments and isinstance(arguments[0], type) else hint
    if isinstance(entity, type) and hasattr(entity, "__type__"):
        build = entity_builder(entity)
        return lambda values: None if values is None else build(values)
    return lambda value: value
