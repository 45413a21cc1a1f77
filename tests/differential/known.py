"""The definition of an accepted difference, and the differences that an entry accepts.

An entry says where a difference may occur (API, versions, path in the answer) and with
which values; anything else is a failure. The list itself is `accepted.KNOWN`.
"""

import fnmatch
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from differential.plain import Difference

ASKED_AGAIN: Final = "(asked again)"
"""The path of a difference that is not in an answer: Kafka had first to be asked again."""


Sent = tuple[int, Any, int, int, int]
"""A batch: (partition, producer id, producer epoch, first sequence, number of records)."""


@dataclass(frozen=True, slots=True)
class SentBatches:
    """The batches that a script has sent.

    Attributes:
        stored: Those that txn has stored.
        turned_away: The producer ids of those that Kafka's coordinator did not verify.
    """

    stored: set[Sent] = field(default_factory=set)
    turned_away: set[Any] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and both answers.

    `waits` are Kafka's codes before it had settled; `past` is the list of earlier answers.
    """

    api: str
    version: int
    request: Mapping[str, Any]
    txn: Mapping[str, Any]
    kafka: Mapping[str, Any]
    waits: Collection[str] = ()
    past: SentBatches = field(default_factory=SentBatches)


def anything(value: Any) -> bool:
    return True


def always(exchange: Exchange, difference: Difference) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """A difference that is known.

    Attributes:
        name: How reports call it.
        reason: Why it is there, and why it may stay.
        apis: Where it occurs.
        path: Of the field, `fnmatch` style; an error code that differs also excuses the
            other fields of the same entry, which follow from it.
        txn: The value of txn there: a value, a set of them, or a test.
        kafka: The value of Kafka there, likewise.
        versions: Of the API.
        when: A further condition.
        diverges: Whether the brokers' states differ afterwards, so that the rest of the
            history says nothing.
    """

    name: str
    reason: str
    apis: Collection[str]
    path: str
    txn: Any = anything
    kafka: Any = anything
    versions: Collection[int] = range(100)
    when: Callable[[Exchange, Difference], bool] = always
    diverges: bool = False

    def covers(self, exchange: Exchange, difference: Difference) -> bool:
        return (
            exchange.api in self.apis
            and exchange.version in self.versions
            and fnmatch.fnmatchcase(difference.path, self.path)
            and _is(difference.txn, self.txn)
            and _is(difference.kafka, self.kafka)
            and self.when(exchange, difference)
        )


def _is(value: Any, expected: Any) -> bool:
    if callable(expected):
        return bool(expected(value))
    if isinstance(expected, frozenset):
        return isinstance(value, Hashable) and value in expected
    return bool(value == expected)


def accepted_by(
    known: Sequence[KnownDifference], exchange: Exchange, found: list[Difference]
) -> tuple[list[Difference], list[KnownDifference]]:
    """Split differences into those nobody accepts, and the entries that accept the others."""
    used: list[KnownDifference] = []
    excused: set[str] = set()
    left: list[Difference] = []
    for difference in found:
        entry = next((e for e in known if e.covers(exchange, difference)), None)
        if entry is None:
            left.append(difference)
            continue
        if entry not in used:
            used.append(entry)
        if difference.place.endswith(("error_code", "connection", "transaction_state")):
            excused.add(difference.place.rpartition(".")[0])
    return [d for d in left if d.place.rpartition(".")[0] not in excused], used
