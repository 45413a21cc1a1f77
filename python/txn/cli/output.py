"""Standard output: text, tables and JSON. Its reader may leave early, as `head` does."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from txn.cli import UnwritableError
from txn.printable import printable


@contextmanager
def written() -> Iterator[None]:
    """Print in the `with` block. Raises UnwritableError, and BrokenPipeError without a reader."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None  # it keeps the text, and would fail again
        raise UnwritableError(error.strerror) from None


@contextmanager
def until_reader_closes() -> Iterator[None]:
    """Print in the `with` block, until the reader has gone: it has read enough.

    The block ends there without an error. So the exit code stays that of the command's findings.
    """
    try:
        yield
        with written():
            sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # for the text that is still in the buffer
        os.close(nowhere)


def print_lines(lines: Iterable[str]) -> None:
    """Print text without a blank line at its end."""
    with until_reader_closes():
        print_text("\n".join(map(printable, lines)).rstrip("\n"))


def print_text(text: str) -> None:
    """Print a line or more as they are. Raises UnwritableError, BrokenPipeError."""
    with written():
        print(text)


def print_bytes(lines: bytes) -> None:
    """Print lines as they are, at once; on a terminal without characters that it would obey."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()
        return
    for line in lines.decode("utf-8", "backslashreplace").split("\n")[:-1]:
        print("\t".join(map(printable, line.split("\t"))))
    sys.stdout.flush()


def print_json(data: Any, indent: int | None = 2) -> None:
    """Print data as JSON; its reader may have gone.

    A command that continues afterwards does not notice that the reader left. Such a command prints
    its lines in one `until_reader_closes`.
    """
    with until_reader_closes():
        print_text(json.dumps(data, indent=indent))


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, names: int = 1, texts: int = 0
) -> list[str]:
    """Lay out rows below a header.

    The first `names` columns and the last `texts` ones are to the left, the others to the right.
    """
    lines = [header, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            f"{cell:{width}}"
            if number < names or number >= len(header) - texts
            else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
