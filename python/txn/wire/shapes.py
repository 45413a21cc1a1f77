"""The shape of a body as a list of steps, made from kio's schema.

`_core.BodyShape` follows the steps before kio reads the body. kio reserves memory for as many
items as an array announces, so the counts are checked. It refuses tagged fields that it does not
know, so they are taken out (KIP-482). It refuses lengths below -1, so they become -1.
"""

from collections.abc import Iterator
from dataclasses import fields
from types import NoneType
from typing import Final, get_args, get_origin, get_type_hints

Step = tuple[int, int]
"""(kind, size); the kinds follow."""

FIXED: Final = 0
"""`size` bytes."""
STRING: Final = 1
BYTES: Final = 2
ARRAY: Final = 3
"""The next `size` steps are those of an item."""
NULLABLE: Final = 4
"""A structure that may be null (KIP-893); the next `size` steps are those of it."""
TAGS: Final = 5
NULLABLE_STRING: Final = 6
NULLABLE_BYTES: Final = 7
NULLABLE_ARRAY: Final = 8

OR_NULL: Final = {STRING: NULLABLE_STRING, BYTES: NULLABLE_BYTES, ARRAY: NULLABLE_ARRAY}

STEP_OF_TYPE: Final[dict[str, Step]] = {
    "bool": (FIXED, 1),
    "int8": (FIXED, 1),
    "int16": (FIXED, 2),
    "uint16": (FIXED, 2),
    "error_code": (FIXED, 2),
    "int32": (FIXED, 4),
    "timedelta_i32": (FIXED, 4),
    "int64": (FIXED, 8),
    "timedelta_i64": (FIXED, 8),
    "datetime_i64": (FIXED, 8),
    "float64": (FIXED, 8),
    "uuid": (FIXED, 16),
    "string": (STRING, 0),
    "bytes": (BYTES, 0),
    "records": (BYTES, 0),
}


def steps_of(schema: type) -> list[Step]:
    """List the steps through a body, or through a structure of it, in their order."""
    hints = get_type_hints(schema)
    steps: list[Step] = []
    for field in fields(schema):
        assert "tag" not in field.metadata, f"{schema.__qualname__}.{field.name} has a known tag"
        steps += _steps(hints[field.name], field.metadata.get("kafka_type", ""))
    return [*steps, (TAGS, 0)] if getattr(schema, "__flexible__", False) else steps


def _steps(hint: object, kafka_type: str) -> Iterator[Step]:
    is_nullable = NoneType in get_args(hint)
    inner = next(one for one in get_args(hint) if one is not NoneType) if is_nullable else hint
    if get_origin(inner) is tuple:
        item = list(_steps(get_args(inner)[0], kafka_type))
        yield OR_NULL[ARRAY] if is_nullable else ARRAY, len(item)
        yield from item
    elif isinstance(inner, type) and hasattr(inner, "__flexible__"):
        structure = steps_of(inner)
        if is_nullable:
            yield NULLABLE, len(structure)
        yield from structure
    else:
        kind, size = STEP_OF_TYPE[kafka_type]
        yield OR_NULL.get(kind, kind) if is_nullable else kind, size
