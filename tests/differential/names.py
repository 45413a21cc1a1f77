"""Names for the values that each broker chooses by itself, so that the rest can be compared.

Two brokers hand out different producer ids, topic ids and fetch sessions, listen on
different ports and read different clocks. A value that one broker chose is given a name,
the same on both: *the third producer id handed out*. Requests carry names, which each side
resolves to its own value; answers come back with names in the place of values. Nothing is
left out: a broker that answers another producer's id answers another name.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

CLOCK_SLACK_MS: Final = 15 * 60_000


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """The substitute for a value that differs between brokers."""

    kind: str
    number: int = 0

    def __str__(self) -> str:
        return f"<{self.kind} {self.number}>" if self.number else f"<{self.kind}>"

    __repr__ = __str__


NOW: Final = Name("now")
"""A time on the broker's own clock."""
TEXT: Final = Name("text")
"""A message for people."""
PORT: Final = Name("port")

KIND_OF_FIELD: Final = {
    "producer_id": "producer id",
    "ongoing_txn_producer_id": "producer id",
    "topic_id": "topic id",
    "session_id": "session",
    "port": "port",
}
TIMES: Final = {
    "timestamp",
    "last_timestamp",
    "log_append_time",
    "transaction_start_time",
    "base_timestamp",
    "max_timestamp",
}
TEXTS: Final = {"error_message", "batch_index_error_message"}


class Names:
    """One broker's values, by name and back."""

    def __init__(self) -> None:
        self._values: dict[Name, Any] = {}
        self._names: dict[tuple[str, Any], Name] = {}

    def bind(self, name: Name, value: Any) -> None:
        self._values[name] = value
        self._names[name.kind, value] = name

    def knows(self, kind: str, value: Any) -> bool:
        return (kind, value) in self._names

    def value(self, name: Name) -> Any:
        return self._values[name]

    def name_of(self, field: str, value: Any) -> Any:
        """The name of a field's value, or the value itself where it has none."""
        if field in TEXTS:
            return TEXT if value else value
        if field in TIMES and isinstance(value, int):
            return NOW if abs(value - time.time() * 1000) < CLOCK_SLACK_MS else value
        kind = KIND_OF_FIELD.get(field)
        return value if kind is None else self._names.get((kind, value), value)
