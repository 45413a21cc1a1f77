"""Every command of `txn`, as typer reads them."""

from typing import Annotated

import typer

import txn
from txn.cli.acls import acls_app
from txn.cli.demo import demo
from txn.cli.explain import explain
from txn.cli.groups import groups_app
from txn.cli.log import log_app
from txn.cli.quotas import quotas_app
from txn.cli.serve import serve
from txn.cli.settings import settings
from txn.cli.transactions import transactions_app
from txn.cli.users import users_app

app = typer.Typer(
    name="txn",
    help="An exactly-once transactional message log that speaks the Kafka protocol.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every command below it, too
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve)
app.command()(settings)
app.command()(demo)
app.command()(explain)
app.add_typer(acls_app, name="acls")
app.add_typer(groups_app, name="groups")
app.add_typer(log_app, name="log")
app.add_typer(quotas_app, name="quotas")
app.add_typer(transactions_app, name="transactions")
app.add_typer(users_app, name="users")


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
