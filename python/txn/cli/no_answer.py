"""Errors on standard error, and a cluster that does not answer. It imports no typer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from txn.errors import RetriableError, TxnError
from txn.printable import printable

DEFAULT_SERVERS: Final = "127.0.0.1:9092"

ADVICE: Final = "Give --bootstrap the address of a broker that runs"

TIMEOUT_S: Final = 10.0
"""Limit of a connect, and of the wait for each answer."""

NOT_ASKED: Final = 2
"""Exit code: wrong usage, or no broker answered."""


def one_line(error: TxnError) -> str:
    """An error with its notes, in one line that a terminal shows as it is; without its page."""
    notes = getattr(error, "__notes__", ())
    sentences = [str(error), *(each for each in notes if each != error.see)]
    ended = [each if each.endswith("?") else f"{each}." for each in sentences[:-1]]
    return printable(" ".join([*ended, sentences[-1]]))


def print_error(error: TxnError) -> None:
    """Print an error on standard error; at a terminal its page, too, in a line of its own.

    Scripts that compare the line are not at a terminal.
    """
    with suppress(OSError):  # the disk of a log file may be full
        print(f"txn: {one_line(error)}", file=sys.stderr)
        if sys.stderr.isatty():
            print(error.see, file=sys.stderr)


@contextmanager
def exit_if_unreachable() -> Iterator[None]:
    """End the command in the `with` block with `NOT_ASKED` if no broker answers there."""
    try:
        yield
    except RetriableError as error:
        print_error(error)
        sys.exit(NOT_ASKED)
