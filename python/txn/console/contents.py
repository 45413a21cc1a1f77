"""Keys and values as text, JSON or hexadecimal digits. Pure; nothing here makes markup.

JSON is laid out from its own text: `1e999`, a long number or a key that stands twice is shown as
the record has it. The layout ends with the page's budget, so its cost has a bound.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

PREVIEW_CHARS: Final = 160
WHOLE_BYTES: Final = 64 << 10
"""The most bytes of a key or value that a page shows; a download has all of them."""

JSON_BYTES_MAX: Final = 1 << 20
LAYOUT_LINES: Final = WHOLE_BYTES // 16
LAYOUT_CHARS: Final = WHOLE_BYTES * 2
"""The most lines and characters of a layout that a page shows; its indentation counts."""

DEPTH_MAX: Final = 64
"""The deepest nesting that is laid out: indentation multiplies each item by its depth."""

TOO_DEEP: Final = f"It is nested deeper than {DEPTH_MAX} levels, so it is shown as text"
TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]|[^\s\[\]{},:"]+')

HEX_COLUMNS: Final = 16


class Form(StrEnum):
    """The forms of a key or a value."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    SCHEMA = "schema"
    """A schema of the registry decodes the bytes; see `txn.console.registry`."""


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
    notes: list[str] = []
    if form is Form.JSON:
        found, note = _json(content)
        if found is not None:
            return found, note
        notes.append(note or "This is no JSON, so it is shown as text")
    cut = content[:WHOLE_BYTES]
    is_cut = len(cut) < len(content)
    if form is not Form.HEX and not _is_utf8(cut, is_cut=is_cut):
        notes.append("These bytes are no UTF-8. The others stand as \\x and two digits")
    if is_cut:
        notes.append(
            f"These are the first {len(cut):,} of {len(content):,} bytes. The download has all"
        )
    return _dump(cut) if form is Form.HEX else _text(cut).split("\n"), noted(*notes)


def noted(*notes: str | None) -> str | None:
    """Several notes as one; None without any."""
    return ". ".join(note for note in notes if note is not None) or None


def laid_out(text: str) -> tuple[list[str] | None, str | None]:
    """The first lines of JSON, and a note if there are more; no lines if it is nested too deeply.

    Args:
        text: Correct JSON. Its numbers and the order of its keys stay as they are.
    """
    found: list[str] = []
    left = LAYOUT_CHARS
    try:
        for line in _layout(text):
            if len(found) == LAYOUT_LINES or left <= 0:
                return found, f"These are the first {len(found):,} lines. The download has all"
            found.append(line if len(line) <= left else f"{line[:left]}…")
            left -= len(line)
    except RecursionError:
        return None, TOO_DEEP
    is_whole = left >= 0
    return found, None if is_whole else "The last line is cut. The download has all"


def _json(content: bytes) -> tuple[list[str] | None, str | None]:
    """The lines of JSON, and a note; no lines if it cannot be laid out."""
    if len(content) > JSON_BYTES_MAX:
        return None, f"It is larger than {JSON_BYTES_MAX:,} bytes, so it is shown as text"
    twice: set[str] = set()

    def look(pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            twice.update(name for name, times in Counter(n for n, _ in pairs).items() if times > 1)

    try:
        text = content.decode()
        # A text stands for each number: int() refuses 5,000 digits, and the value is not used.
        json.loads(text, object_pairs_hook=look, parse_int=str, parse_float=str)
    except ValueError:
        return None, None
    except RecursionError:
        return None, TOO_DEEP
    found, note = laid_out(text)
    key = min(twice, default=None)
    again = None if key is None else f"An object has the key {key[:PREVIEW_CHARS]!r} twice"
    return found, noted(again, note)


def _layout(text: str) -> Iterator[str]:
    """The lines of JSON. Raises RecursionError: it is nested deeper than `DEPTH_MAX`."""
    line, before, depth = "", "", 0
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in ("]", "}"):
            depth -= 1
            if before not in ("[", "{"):
                yield line
                line = "  " * depth
        elif before in ("[", "{", ","):
            yield line
            line = "  " * depth
        if token in ("[", "{"):
            depth += 1
            if depth > DEPTH_MAX:
                raise RecursionError
        if "\\u" in token:  # letters are read more easily; the others stay escaped
            token = json.dumps(json.loads(token), ensure_ascii=False)
        line += f"{token} " if token == ":" else token
        before = token
    yield line


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _is_utf8(content: bytes, *, is_cut: bool) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return is_cut and error.reason == "unexpected end of data"
    return True


def _dump(content: bytes) -> list[str]:
    found = []
    for start in range(0, len(content), HEX_COLUMNS):
        row = content[start : start + HEX_COLUMNS]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        found.append(f"{start:08x}  {row.hex(' '):<{HEX_COLUMNS * 3 - 1}}  {letters}")
    return found or [""]
