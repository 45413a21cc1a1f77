"""Asks before data is lost, and reports how far a command came that stops half-way."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from txn.cli.no_answer import NOT_ASKED
from txn.printable import printable


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Return if a person at the terminal answers yes, or has given `--yes`.

    The command ends with 1 at a no, and with 2 if there is no terminal.
    """
    if is_confirmed:
        return
    if not sys.stdin.isatty():
        print(
            "txn: nobody can confirm it: standard input is no terminal. Give --yes",
            file=sys.stderr,
        )
        sys.exit(NOT_ASKED)
    # Not on standard output, which may be JSON: so neither `typer.confirm` nor `input`.
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise
    if answer.strip().lower() not in ("y", "yes"):
        print("" if answer else "\n", end="", file=sys.stderr)  # behind Ctrl-D
        print("txn: not confirmed, so nothing is changed", file=sys.stderr)
        sys.exit(1)


@contextmanager
def report_if_interrupted(done: Sequence[str]) -> Iterator[None]:
    """Print which names are done if an error or Ctrl-C ends the `with` block."""
    try:
        yield
    except BaseException:
        if done:
            print(f"txn: stopped half-way. Done are: {printable(', '.join(done))}", file=sys.stderr)
        raise
