"""Errors on standard error, and a cluster that does not answer. It imports no typer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    """An error with its notes, in one line that a terminal shows as it is."""
    sentences = [str(error), *getattr(error, "__notes__", ())]
    ended = [each if each.endswith("?") else f"{each}." for each in sentences[:-1]]
    return printable(" ".join([*ended, sentences[-1]]))


@contextmanager
def exit_if_unreachable() -> Iterator[None]:
    """End the command in the `with` block with `NOT_ASKED` if no broker answers there."""
    try:
        yield
    except RetriableError as error:
        print(f"txn: {one_line(error)}", file=sys.stderr)
        sys.exit(NOT_ASKED)
