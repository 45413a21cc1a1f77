"""Dead letters and delayed retries: a record with its origin and its error in headers.

A letter has the key, the value and the headers of the original record, and behind these headers its
own. Their names begin with `txn.`; all values are UTF-8 text. Its timestamp is the time at which it
was written: with that of an old record, retention would delete it before anybody has seen it.

| header | value |
|---|---|
| `txn.original.topic`, `.partition`, `.offset` | where the record was |
| `txn.original.timestamp` | its timestamp, milliseconds since 1970; left out if it has none |
| `txn.error.class` | the class of the exception, with its module |
| `txn.error.message` | the message of the exception, at most `MESSAGE_CHARS` characters |
| `txn.error.where` | the innermost line of the traceback, `shop.py:31 in price` |
| `txn.error.digest` | 12 hexadecimal digits: equal for errors of one class at one place |
| `txn.attempts` | how often the handler failed on it |
| `txn.group` | the group of the processor |
| `txn.retry.due` | of a delayed retry: when it is due, milliseconds since 1970 |
| `txn.retry.stage` | of a delayed retry: 1 for the first delay, and so on |

Anybody who writes to a topic chooses its headers. Those that cannot be read count as missing.
"""

import hashlib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from txn.processor.records import Headers, Output, Record

MESSAGE_CHARS: Final = 1_000
NUMBER_DIGITS: Final = 19

TOPIC: Final = "txn.original.topic"
PARTITION: Final = "txn.original.partition"
OFFSET: Final = "txn.original.offset"
TIMESTAMP: Final = "txn.original.timestamp"
ERROR_CLASS: Final = "txn.error.class"
ERROR_MESSAGE: Final = "txn.error.message"
ERROR_WHERE: Final = "txn.error.where"
ERROR_DIGEST: Final = "txn.error.digest"
ATTEMPTS: Final = "txn.attempts"
GROUP: Final = "txn.group"
DUE: Final = "txn.retry.due"
STAGE: Final = "txn.retry.stage"

NAMES: Final = frozenset(
    {
        *(TOPIC, PARTITION, OFFSET, TIMESTAMP, ATTEMPTS, GROUP, DUE, STAGE),
        *(ERROR_CLASS, ERROR_MESSAGE, ERROR_WHERE, ERROR_DIGEST),
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The last error of a record.

    Attributes:
        error: The exception.
        attempts: How often the handler failed on the record, in all stages.
    """

    error: Exception
    attempts: int


@dataclass(frozen=True, slots=True)
class Letter:
    """The facts in the headers of a letter; None where a header is missing or cannot be read."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    error_class: str | None
    error_message: str | None
    error_where: str | None
    error_digest: str | None
    attempts: int | None
    group: str | None


def dead_letter(record: Record, failure: Failure, *, topic: str, group: str) -> Output:
    """Return the dead letter of a record, for a topic of dead letters."""
    return _output(topic, record, [*_origin(record), *_error(failure), (GROUP, group)])


def delayed(
    record: Record, failure: Failure, *, topic: str, group: str, due_ms: int, stage: int
) -> Output:
    """Return the record as a retry topic keeps it until `due_ms`, milliseconds since 1970."""
    times = [(DUE, str(due_ms)), (STAGE, str(stage))]
    return _output(topic, record, [*_origin(record), *_error(failure), (GROUP, group), *times])


def due_ms(headers: Headers) -> int:
    """Return when a record of a retry topic is due, milliseconds since 1970; 0: at once."""
    return _number(headers, DUE) or 0


def stage_of(headers: Headers) -> int:
    """Return how many delays a record has behind it; 0 for one of an input topic."""
    return _number(headers, STAGE) or 0


def letter_of(headers: Headers) -> Letter:
    """Return the facts of a letter."""
    return Letter(
        _text(headers, TOPIC),
        _number(headers, PARTITION),
        _number(headers, OFFSET),
        _number(headers, TIMESTAMP),
        _text(headers, ERROR_CLASS),
        _text(headers, ERROR_MESSAGE),
        _text(headers, ERROR_WHERE),
        _text(headers, ERROR_DIGEST),
        _number(headers, ATTEMPTS),
        _text(headers, GROUP),
    )


def original_of(record: Record) -> Record:
    """Return the record of an input topic that a retry topic holds."""
    letter = letter_of(record.headers)
    return Record(
        record.topic if letter.topic is None else letter.topic,
        record.partition if letter.partition is None else letter.partition,
        record.offset if letter.offset is None else letter.offset,
        letter.timestamp_ms,
        record.key,
        record.value,
        original_headers(record.headers),
        letter.attempts or 0,
    )


def original_headers(headers: Headers) -> Headers:
    """Return the headers without those of a letter."""
    return tuple((name, value) for name, value in headers if name not in NAMES)


def error_class(error: BaseException) -> str:
    """Return the name of an exception's class, with its module unless that is `builtins`."""
    kind = type(error)
    is_plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def _output(topic: str, record: Record, more: Sequence[tuple[str, str]]) -> Output:
    headers = [*original_headers(record.headers), *((name, text.encode()) for name, text in more)]
    return Output(topic, record.value, record.key, headers)


def _origin(record: Record) -> list[tuple[str, str]]:
    origin = [
        (TOPIC, record.topic),
        (PARTITION, str(record.partition)),
        (OFFSET, str(record.offset)),
    ]
    if record.timestamp_ms is not None:
        origin.append((TIMESTAMP, str(record.timestamp_ms)))
    return origin


def _error(failure: Failure) -> list[tuple[str, str]]:
    name = error_class(failure.error)
    where = _where(failure.error)
    digest = hashlib.sha256(f"{name}\n{where}".encode("utf-8", "replace")).hexdigest()[:12]
    message = str(failure.error)[:MESSAGE_CHARS].encode("utf-8", "replace").decode()
    return [
        (ERROR_CLASS, name),
        (ERROR_MESSAGE, message),
        (ERROR_WHERE, where),
        (ERROR_DIGEST, digest),
        (ATTEMPTS, str(failure.attempts)),
    ]


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "unknown"
    last = frames[-1]
    return f"{PurePath(last.filename).name}:{last.lineno} in {last.name}"


def _text(headers: Headers, name: str) -> str | None:
    for each, value in reversed(headers):
        if each == name:
            return None if value is None else value.decode("utf-8", "replace")
    return None


def _number(headers: Headers, name: str) -> int | None:
    text = _text(headers, name)
    is_number = text is not None and text.isascii() and text.isdigit()
    if text is None or not is_number or len(text) > NUMBER_DIGITS:
        return None
    return int(text)
