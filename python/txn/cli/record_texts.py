"""Records as text and as JSON, written by `txn consume`; lines of JSON are read by `txn produce`.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1763744767145,
     "key": "ann", "value": "7 apples", "headers": [{"key": "trace", "value": "1f"}]}

Each is one line. A timestamp is milliseconds since 1970. Bytes that are no UTF-8 stand as
`{"base64": "…"}`, a missing key or value as null.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.moments import moment

TEXT: Final = "utf-8"
BASE64: Final = "base64"

PARTS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The parts of a line of JSON."""

TIMESTAMPS_END: Final = 2**63
PARTITIONS_END: Final = 2**31

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was read, or that is to be written."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    topic: str = ""
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The parts of a record that its text shows before the value."""

    timestamps: bool = False
    offsets: bool = False
    keys: bool = False
    headers: bool = False


class Format(StrEnum):
    """The forms of printed records."""

    TEXT = "text"
    HEX = "hex"
    JSON = "json"
    JSONL = "jsonl"


def as_json_line(record: Record) -> bytes:
    """Return a record as one line of JSON."""
    data = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_of(record.key),
        "value": json_of(record.value),
        "headers": [{"key": key, "value": json_of(value)} for key, value in record.headers],
    }
    return json.dumps(data, ensure_ascii=False).encode(TEXT) + b"\n"


def as_line(record: Record, columns: Columns, *, is_hex: bool = False) -> bytes:
    """Return a record as a line of text: its columns and its value, with a tab between them.

    Keys and values stand as they are, or as hexadecimal digits. A missing one is `null`.
    """
    shown = _hex_of if is_hex else _bytes_of
    parts = []
    if columns.timestamps:
        at_ms = record.timestamp_ms
        parts.append(b"-" if at_ms is None else moment(at_ms).encode())
    if columns.offsets:
        parts.append(f"{record.topic}-{record.partition} offset {record.offset}".encode())
    if columns.keys:
        parts.append(shown(record.key))
    if columns.headers:
        headers = (key.encode() + b"=" + shown(value) for key, value in record.headers)
        parts.append(b",".join(headers) or b"-")
    return b"\t".join([*parts, shown(record.value)]) + b"\n"


def record_of(line: str, place: str) -> Record:
    """Read a line of JSON.

    Args:
        line: The line.
        place: Its place, as a message begins: `line 3 of orders.jsonl`.

    Raises:
        ConfigError: it is no record.
    """
    try:
        data = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place} is no JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{place} is no record: it is nested too deep") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{place} is no record: it begins with {line[:20]!r}, not with {{")
    for name in data:
        if name not in PARTS:
            hint = did_you_mean(name, PARTS) or f"; it has {', '.join(PARTS)}"
            raise ConfigError(f"{place}: a record has no part {name!r}{hint}")
    timestamp_ms, partition = data.get("timestamp"), data.get("partition")
    for name, number, end in (
        ("timestamp", timestamp_ms, TIMESTAMPS_END),
        ("partition", partition, PARTITIONS_END),
    ):
        if number is not None and (type(number) is not int or not 0 <= number < end):
            raise ConfigError(f"{place}: {name} is a whole number below {end}, not {number!r:.40}")
    if timestamp_ms == 0:
        raise ConfigError(
            f"{place}: timestamp 0 cannot be written, as librdkafka takes it for the time now. "
            "Give 1, or leave it out for the time now"
        )
    return Record(
        _bytes_in(data.get("key"), f"{place}: key"),
        _bytes_in(data.get("value"), f"{place}: value"),
        _headers_in(data.get("headers"), place),
        timestamp_ms,
        partition=partition,
    )


def json_of(content: bytes | None) -> Any:
    """Return a key or a value as JSON has it: null, text, or `{"base64": "…"}`."""
    if content is None:
        return None
    try:
        return content.decode(TEXT)
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(content).decode("ascii")}


def _bytes_of(content: bytes | None) -> bytes:
    return b"null" if content is None else content


def _hex_of(content: bytes | None) -> bytes:
    return b"null" if content is None else content.hex().encode()


def _bytes_in(data: Any, name: str) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, str):
        return _text_in(data, name)
    if isinstance(data, dict) and data.keys() == {BASE64}:
        try:
            return base64.b64decode(data[BASE64], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ConfigError(f"{name} is no base64") from None
    raise ConfigError(f'{name} is a text, null or {{"base64": "…"}}, not {json.dumps(data)[:40]}')


def _text_in(text: str, name: str) -> bytes:
    """Encode a text; bytes of the line that were no UTF-8 stay as they were."""
    try:
        return text.encode(TEXT, "surrogateescape")
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has half of a pair of surrogates, which is no text") from None


def _headers_in(data: Any, place: str) -> list[Header]:
    if data is None:
        return []
    if isinstance(data, dict):
        data = [{"key": key, "value": value} for key, value in data.items()]
    headers = []
    for each in data if isinstance(data, list) else [None]:
        if not isinstance(each, dict) or not isinstance(key := each.get("key"), str):
            raise ConfigError(f'{place}: headers are a list of {{"key": …, "value": …}}')
        _text_in(key, f"{place}: a header's key")
        headers.append((key, _bytes_in(each.get("value"), f"{place}: header {key!r}")))
    return headers
