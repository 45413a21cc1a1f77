"""Standard output whose reader may leave early, as `head` does."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from txn.printable import printable


@contextmanager
def for_its_reader() -> Iterator[None]:
    """Print in the `with` block, until the reader has gone: it has read enough.

    The block ends there without an error. So the exit code stays that of the command's findings.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # for the text that is still in the buffer
        os.close(nowhere)


def print_lines(lines: Iterable[str]) -> None:
    """Print text without a blank line at its end."""
    with for_its_reader():
        print("\n".join(map(printable, lines)).rstrip("\n"))


def print_json(data: Any, indent: int | None = 2) -> None:
    """Print data as JSON."""
    with for_its_reader():
        print(json.dumps(data, indent=indent))
