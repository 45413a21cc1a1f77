"""A question before something is lost."""

import sys

import typer

from txn.cli.no_answer import NOT_ASKED


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
    if not typer.confirm(question):
        sys.exit(1)
