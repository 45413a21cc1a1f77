"""Keys and values as text, JSON or hexadecimal digits. Pure; nothing here makes markup."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

PREVIEW_CHARS: Final = 160
WHOLE_BYTES: Final = 64 << 10
"""The most bytes of a key or value that a page shows; a download has all of them."""

JSON_BYTES_MAX: Final = 1 << 20
HEX_COLUMNS: Final = 16


class Form(StrEnum):
    """The forms of a key or a value."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    SCHEMA = "schema"
    """A schema of the registry decodes the bytes; see `schemas`."""


def preview(content: bytes | None, form: Form) -> str:
    """The beginning of a key or value, in one line."""
    if content is None:
        return "null"
    if form is Form.HEX:
        text = content[: PREVIEW_CHARS // 3].hex(" ")
    else:
        text = _text(content[: PREVIEW_CHARS * 4])
    shown = text[:PREVIEW_CHARS]
    is_whole = len(shown) == len(text) and len(content) <= PREVIEW_CHARS * 4
    if form is Form.HEX:
        is_whole = len(content) <= PREVIEW_CHARS // 3
    return shown if is_whole else f"{shown}…"


def lines(content: bytes | None, form: Form) -> tuple[Sequence[str], str | None]:
    """The lines of a key or value, and a note where they are not all or have another form."""
    if content is None:
        return ("null",), None
    cut = content[:WHOLE_BYTES]
    note = None
    if len(cut) < len(content):
        note = f"These are the first {len(cut):,} of {len(content):,} bytes. The download has all"
    if form is Form.HEX:
        return _dump(cut), note
    if form is Form.JSON:
        found = _json(content)
        if found is not None:
            return found[: WHOLE_BYTES // 16], note if len(found) > WHOLE_BYTES // 16 else None
        note = note or "This is no JSON, so it is shown as text"
    if not _is_utf8(cut) and form is Form.TEXT:
        note = note or "These bytes are no UTF-8. The others stand as \\x and two digits"
    return _text(cut).split("\n"), note


def _json(content: bytes) -> list[str] | None:
    if len(content) > JSON_BYTES_MAX:
        return None
    try:
        return json.dumps(json.loads(content), ensure_ascii=False, indent=2).split("\n")
    except (ValueError, RecursionError):
        return None


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.end == len(content) and error.reason == "unexpected end of data"
    return True


def _dump(content: bytes) -> list[str]:
    found = []
    for start in range(0, len(content), HEX_COLUMNS):
        row = content[start : start + HEX_COLUMNS]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        found.append(f"{start:08x}  {row.hex(' '):<{HEX_COLUMNS * 3 - 1}}  {letters}")
    return found or [""]
