"""The command line: `txn`. One file per command; commands are noun then verb.

Exit codes: 0 done, 1 refused, 2 wrong usage.
"""

import sys
from typing import Annotated

import typer

import txn
from txn.cli.demo import demo
from txn.cli.log import log_app
from txn.cli.serve import serve
from txn.errors import ConfigError, TxnError

app = typer.Typer(
    name="txn",
    help="An exactly-once transactional message log that speaks the Kafka protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve)
app.command()(demo)
app.add_typer(log_app, name="log")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"txn {txn.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """An exactly-once transactional message log that speaks the Kafka protocol."""


def main() -> None:
    """Run the command line; every error txn raises on purpose becomes one line."""
    try:
        app()
    except TxnError as error:
        print(f"txn: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
