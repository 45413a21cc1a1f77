"""What request bodies are made of, for whoever looks through them before kio reads them.

kio reserves memory for as many items as an array announces, and refuses tagged fields that it
does not know: `_core.BodyShape` checks the counts and takes such fields out (KIP-482), by the
steps that `steps_of` makes of kio's schema.
"""

from collections.abc import Iterator
from dataclasses import fields
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

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

STEP_OF_TYPE: Final[dict[str, Step]] = {
    "bool": (FIXED, 1),
    "int8": (FIXED, 1),
    "int16": (FIXED, 2),
    "uint16": (FIXED, 2),
    "int32": (FIXED, 4),
    "timedelta_i32": (FIXED, 4),
    "int64": (FIXED, 8),
    "timedelta_i64": (FIXED, 8),
    "float64": (FIXED, 8),
    "uuid": (FIXED, 16),
    "string": (STRING, 0),
    "bytes": (BYTES, 0),
    "records": (BYTES, 0),
}


def steps_of(schema: Any) -> list[Step]:
    """List the steps through a request body, or through a structure of it, in their order."""
    hints = get_type_hints(schema)
    steps: list[Step] = []
    for field in fields(schema):
        assert "tag" not in field.metadata, f"{schema.__qualname__}.{field.name} has a known tag"
        steps += _steps(hints[field.name], field.metadata.get("kafka_type", ""))
    return [*steps, (TAGS, 0)] if schema.__flexible__ else steps


def _steps(hint: Any, kafka_type: str) -> Iterator[Step]:
    inner = next((one for one in get_args(hint) if one is not NoneType), hint)
    if get_origin(hint) is tuple:
        item = list(_steps(inner, kafka_type))
        yield ARRAY, len(item)
        yield from item
    elif get_origin(inner) is tuple:  # an array that may be null
        yield from _steps(inner, kafka_type)
    elif hasattr(inner, "__flexible__"):
        structure = steps_of(inner)
        if inner is not hint:
            yield NULLABLE, len(structure)
        yield from structure
    else:
        yield STEP_OF_TYPE[kafka_type]
