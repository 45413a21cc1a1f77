"""Answers as nested dicts and lists, named and in an order that does not depend on the broker.

The protocol leaves the order of topics, partitions, producers and ids in an answer open (Kafka
takes them from hash maps). So lists of such entries are sorted by the fields that identify an
entry. Everything else keeps its order.
"""

import dataclasses
import datetime
import enum
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from differential.batches import decode
from differential.names import Names

IDENTIFYING: Final = (
    *("name", "topic", "topic_id", "transactional_id", "group_id", "key", "api_key"),
    *("index", "partition_index", "partition", "producer_id"),
)
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MISSING: Final = "(not there)"


def plain(entity: Any, names: Names) -> dict[str, Any]:
    """A response entity as a dict; `records` become lists of batches."""
    return {
        field.name: _value(field.name, getattr(entity, field.name), names)
        for field in dataclasses.fields(entity)
    }


def _value(field: str, value: Any, names: Names) -> Any:
    if field == "records" and isinstance(value, bytes):
        return [
            {name: names.name_of(name, number) for name, number in batch.items()}
            for batch in decode(value)
        ]
    if isinstance(value, tuple | list):
        items = [_value(field, item, names) for item in value]
        return sorted(items, key=_identity)
    if dataclasses.is_dataclass(value):
        return plain(value, names)
    return names.name_of(field, _scalar(value))


def _scalar(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    return str(value) if isinstance(value, uuid.UUID) else value


def _identity(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    return next((str(item[field]).zfill(20) for field in IDENTIFYING if field in item), "")


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One place where two answers are not the same.

    `path` is the name in an accepted difference; `place` also names the entry of a list.
    """

    path: str
    place: str
    txn: Any
    kafka: Any
    within: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    """The two entries that hold the field."""

    def __str__(self) -> str:
        return f"{self.place}: txn {self.txn!r}, Kafka {self.kafka!r}"


def differences(
    txn: Any,
    kafka: Any,
    path: str = "",
    place: str = "",
    within: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
) -> Iterator[Difference]:
    """Every place where two plain values differ."""
    if isinstance(txn, dict) and isinstance(kafka, dict):
        for field in txn | kafka:
            yield from differences(
                txn.get(field, MISSING),
                kafka.get(field, MISSING),
                f"{path}.{field}".lstrip("."),
                f"{place}.{field}".lstrip("."),
                (txn, kafka),
            )
    elif isinstance(txn, list) and isinstance(kafka, list):
        ours, theirs = _keyed(txn), _keyed(kafka)
        for key in ours | theirs:
            yield from differences(
                ours.get(key, MISSING),
                theirs.get(key, MISSING),
                path,
                f"{place}[{key}]",
                within,
            )
    elif txn != kafka:
        yield Difference(path, place, txn, kafka, within)


def _keyed(items: list[Any]) -> dict[str, Any]:
    keyed: dict[str, Any] = {}
    for position, item in enumerate(items):
        is_entry = isinstance(item, dict) and "record_count" not in item  # a batch has its place
        name = next((str(item[f]) for f in IDENTIFYING if f in item), None) if is_entry else None
        key = str(position) if name is None else name
        while key in keyed:  # the same entry twice
            key += "'"
        keyed[key] = item
    return keyed


def error_codes(answer: Any) -> set[str]:
    """The names of all error codes anywhere in an answer."""
    if isinstance(answer, list):
        return set().union(*map(error_codes, answer)) if answer else set()
    if not isinstance(answer, Mapping):
        return set()
    found = {str(v) for k, v in answer.items() if str(k).endswith("error_code")}
    return found.union(*map(error_codes, answer.values()))
