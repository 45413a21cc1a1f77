"""Response schemas of kio, with times of its own put right.

kio cannot read the time -1, which stands for none in some answers.
"""

from dataclasses import field, fields, make_dataclass
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from kio.static.primitive import i64

from txn.wire.kio import load_response_schema
from txn.wire.requests import OF_SCHEMA

CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TRANSACTIONS = 38, 39, 40, 65
WITHOUT_A_TIME: Final = (CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TRANSACTIONS)
"""APIs with answers in which a time may be -1."""


@cache
def response_schema(api_key: int, version: int) -> Any:
    schema = load_response_schema(api_key, version)
    return _with_numbers(schema) if api_key in WITHOUT_A_TIME else schema


def _with_numbers(schema: Any) -> Any:
    """The schema with numbers of milliseconds in the place of times, in its structures too."""
    hints = get_type_hints(schema)
    made = []
    for each in fields(schema):
        hint: Any = hints[each.name]
        metadata = dict(each.metadata)
        inner = next((one for one in get_args(hint) if hasattr(one, "__type__")), None)
        if metadata.get("kafka_type") == "datetime_i64":
            hint, metadata = i64, {**metadata, "kafka_type": "int64"}
        elif inner is not None:
            hint = tuple[_with_numbers(inner), ...]  # type: ignore[misc]
        made.append((each.name, hint, field(metadata=metadata)))
    named = {name: getattr(schema, name) for name in OF_SCHEMA}
    return make_dataclass(
        schema.__name__, made, namespace=named, frozen=True, slots=True, kw_only=True
    )
