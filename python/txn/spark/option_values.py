"""The possible values of options of `format("txn")`, and their texts.

Pure: a text goes in, a value comes out, or ValueError.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from txn.errors import ConfigError
from txn.java_pattern import UnsupportedPatternError, of_names
from txn.spark.mark import is_reserved_key

PROGRESS_TOPIC: Final = "__txn_spark"
"""Where sinks keep their progress unless `txn.progress.topic` says otherwise."""

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets that stand for a place, as Kafka's ListOffsets and Spark's JSON have them."""

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""Readable columns, in the order of Spark's Kafka source."""

ID_LENGTH_MAX: Final = 200

SMALL_BATCH_RECORDS: Final = 256
SMALL_BATCH_RECORDS_MAX: Final = 100_000
"""The rows pass through the driver, one by one on their way into Spark's block."""

FETCH_BYTES: Final = 4 << 20
"""Size of an answer with records; the source asks for one partition at a time."""

Positions = int | Mapping[str, Mapping[int, int]]
"""One number for all partitions, or one per topic and partition."""

PositionsByTopic = int | Mapping[str, int | Mapping[int, int]]
"""The same, where a topic may have one number for all its partitions."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option reads its text, or has a default."""

    parse: Callable[[str], Any]
    default: Any
    expects: str


def some_text(default: str | None = None) -> Option:
    """Accept any text."""
    return Option(str, default, "text")


def whole(default: int | None, low: int, high: int = 2**63 - 1) -> Option:
    """Accept a whole number of a range."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    bounds = f"from {low} to {high}" if high < 2**63 - 1 else f"of at least {low}"
    return Option(parse, default, f"a whole number {bounds}")


def flag(default: bool) -> Option:
    """Accept true or false."""
    words = {"true": True, "false": False}
    return Option(lambda text: words[text.lower()], default, "true or false")


def one_of(default: str, *others: str) -> Option:
    """Accept one of some words."""
    words = {word: word for word in (default, *others)}
    return Option(lambda text: words[text.lower()], default, ", ".join(words))


def names(text: str) -> tuple[str, ...]:
    """Topic names, each once."""
    found = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not found:
        raise ValueError(text)
    return found


def servers(text: str) -> str:
    """Addresses with their ports; a comma too many is none, as in Java's client."""
    addresses = [part.strip() for part in text.split(",") if part.strip()]
    if not addresses or not all(re.fullmatch(r".+:[0-9]+", address) for address in addresses):
        raise ValueError(text)
    return ",".join(addresses)


def topic(text: str) -> str:
    """The name of a topic."""
    if not text.strip():
        raise ValueError(text)
    return text.strip()


WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def positions(text: str) -> PositionsByTopic:
    """Offsets, or the words that stand for one.

    The end of a query's batch is taken as it stands, with its notes.
    """
    word = text.strip().lower()
    if word in WORDS:
        return WORDS[word]
    given = {topic: at for topic, at in json.loads(text).items() if not is_reserved_key(topic)}
    words = {topic: WORDS[at.lower()] for topic, at in given.items() if isinstance(at, str)}
    others = {topic: at for topic, at in given.items() if topic not in words}
    return {**words, **_numbers(others, EARLIEST)}


def times(text: str) -> Positions:
    """Milliseconds since 1970 of each partition."""
    return _numbers(json.loads(text), 0)


def _numbers(given: Mapping[str, Mapping[str, Any]], low: int) -> Mapping[str, Mapping[int, int]]:
    numbers = {
        topic: {int(partition): number for partition, number in partitions.items()}
        for topic, partitions in given.items()
    }
    if any(
        type(number) is not int or number < low or partition < 0
        for partitions in numbers.values()
        for partition, number in partitions.items()
    ):
        raise ValueError(given)
    return numbers


_UNITS_US: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""The units of Spark's times."""


def milliseconds(text: str) -> int:
    """A length of time as Spark has them."""
    match = re.fullmatch(r"([0-9]+)([a-z]*)", text.strip().lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS_US[match[2] or "ms"] // 1_000


def assignment(text: str) -> Mapping[str, tuple[int, ...]]:
    """Partitions of each topic."""
    assigned = {
        topic: tuple(sorted({int(partition) for partition in partitions}))
        for topic, partitions in json.loads(text).items()
    }
    if not assigned or any(not partitions or partitions[0] < 0 for partitions in assigned.values()):
        raise ValueError(text)
    return assigned


def pattern(text: str) -> str:
    """A regular expression of Java, which Python can follow."""
    if not text.strip():
        raise ValueError(text)
    try:
        of_names(text.strip())
    except UnsupportedPatternError as error:
        raise ConfigError(
            f"option subscribePattern cannot be {text!r}: {error}. Write it otherwise, or name "
            "the topics by subscribe",
            option="subscribePattern",
            value=text,
        ) from None
    return text.strip()


def chosen_columns(text: str) -> tuple[str, ...]:
    """Readable columns, in their order."""
    known = {name.lower(): name for name in COLUMNS}
    chosen = {known[name.lower()] for name in names(text)}
    return tuple(name for name in COLUMNS if name in chosen)


def txn_id(text: str) -> str:
    """A name for `txn.id`."""
    if not text or len(text) > ID_LENGTH_MAX or not text.isprintable():
        raise ValueError(text)
    return text


def time(text: str) -> int:
    """Milliseconds since 1970."""
    since = int(text)
    if since < 0:
        raise ValueError(text)
    return since
