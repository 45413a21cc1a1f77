"""A setting: the type of its value, the check of its text, its default and its purpose.

`Property.parse` takes a text and returns the value, or raises ValueError or KeyError. So a
`Property` never holds a value that its text could not have. Each function here that returns a
`Property` is one form of value that Kafka's settings have.
"""

import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


class ConfigType(IntEnum):
    """The type of a property's value, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Property(NamedTuple):
    """One setting: the parser of its text, its default, and its purpose.

    `is_dynamic`: of a broker's property, whether it may change while the broker runs.
    `is_internal`: for tests and tools, or for the authorizer alone; taken, but not described. One
    of the broker's that was altered is described.
    `is_dense`: a list that takes no empty entry; one that is stored already is passed over.
    """

    kind: ConfigType
    parse: Callable[[str], Any]
    default: Any
    expects: str
    about: str = ""
    is_dynamic: bool = False
    is_internal: bool = False
    is_dense: bool = False


_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
"""The sizes of whole numbers."""


class UnfitError(ValueError):
    """A value does not fit; the text says it in Kafka's words, which scripts know."""


def whole_number(kind: ConfigType, text: str) -> int:
    """A whole number as every setting has it; it may have a sign.

    Raises ValueError in Kafka's words: it is none, or has more bits than its kind.
    """
    limit = 1 << _BITS[kind] - 1
    value = int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", text) else None
    if value is None or not -limit <= value < limit:
        raise UnfitError(f"Not a number of type {kind.name}")
    return value


def number(
    kind: ConfigType, default: int | None, low: int, high: int, expects: str = ""
) -> Property:
    """A whole number from `low` to `high`; both are allowed."""

    def parse(text: str) -> int:
        value = whole_number(kind, text)
        if value < low:
            raise UnfitError(f"Value must be at least {low}")
        if value > high:
            raise UnfitError(f"Value must be no more than {high}")
        return value

    return Property(kind, parse, default, expects or f"a whole number from {low} to {high}")


def integer(default: int | None, low: int, high: int = INT32_MAX, expects: str = "") -> Property:
    """A whole number of 32 bits."""
    return number(ConfigType.INT, default, low, high, expects)


def long(default: int | None, low: int) -> Property:
    """A whole number of 64 bits that is at least `low`."""
    return number(ConfigType.LONG, default, low, INT64_MAX)


def double(default: float, low: float, high: float) -> Property:
    """A number from `low` to `high`; both are allowed."""

    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high or math.isnan(value):
            raise ValueError(text)
        return value

    return Property(ConfigType.DOUBLE, parse, default, f"a number from {low:g} to {high:g}")


def flag(default: bool) -> Property:
    """True or false."""
    words = {"true": True, "false": False}
    return Property(
        ConfigType.BOOLEAN, lambda text: words[text.strip().lower()], default, "true or false"
    )


def one_of(default: str, *others: str) -> Property:
    """One of these words; the first is the default."""
    words = {word: word for word in (default, *others)}
    *firsts, last = words
    expects = f"{', '.join(firsts)} or {last}" if firsts else last

    def parse(text: str) -> str:
        if text not in words:
            raise UnfitError(f"String must be one of: {', '.join(words)}")
        return text

    return Property(ConfigType.STRING, parse, default, expects)


def split_list(text: str) -> list[str]:
    """The entries of a list as Kafka writes it, in order; without blanks and empty ones."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


def list_of(default: str, pattern: str, expects: str) -> Property:
    """A comma-separated list whose entries match a pattern, none of them twice."""

    def parse(text: str) -> str:
        words = split_list(text)
        if not all(re.fullmatch(pattern, word) for word in words):
            raise ValueError(text)
        return ",".join(dict.fromkeys(words))

    return Property(ConfigType.LIST, parse, default, expects)


def split_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 address may be in brackets. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(text)
    return host.strip("[]"), int(port)


def split_overrides(text: str) -> dict[str, int]:
    """The number of each host in a list of HOST:NUMBER; an IPv6 address has no brackets. Raises
    ValueError.
    """
    found = {}
    for entry in split_list(text):
        host, colon, number = entry.rpartition(":")
        if not colon or not host.strip() or not re.fullmatch(r"\s*[0-9]{1,10}\s*", number):
            raise ValueError(entry)
        found[host.strip()] = int(number)
        if found[host.strip()] > INT32_MAX:
            raise ValueError(entry)
    return found


def secret() -> Property:
    """A text that is never shown."""
    return Property(ConfigType.PASSWORD, str, None, "a text")


def text_of(expects: str) -> Property:
    """A text without blanks around it; there is no default."""
    return Property(ConfigType.STRING, str.strip, None, expects)


def cleanup_policies() -> Property:
    """A list of delete and compact; it may be empty."""
    policies = list_of("delete", "delete|compact", "a comma-separated list of delete, compact")
    return policies._replace(is_dense=True)


def partition_replicas() -> Property:
    """A list of partitions with a replica each, or `*` for all of them."""
    expects = "* or a comma-separated list of PARTITION:BROKER"
    return list_of("", r"[0-9]+:[0-9]+|\*", expects)


def described(
    table: Mapping[str, tuple[Property, str]],
    *,
    is_dynamic: bool = False,
    is_internal: bool = False,
) -> dict[str, Property]:
    """The properties of a table, each with its purpose and with these flags."""
    return {
        name: entry._replace(about=about, is_dynamic=is_dynamic, is_internal=is_internal)
        for name, (entry, about) in table.items()
    }


def as_text(value: object) -> str:
    """A parsed value as Kafka writes it."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(value).replace("e+", "E").replace("e", "E")
        case _:
            return str(value)


def fits(entry: Property, text: str) -> bool:
    """Return True if a property can have a value."""
    try:
        entry.parse(text)
    except (ValueError, KeyError):
        return False
    return True
