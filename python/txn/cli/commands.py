"""Every command of `txn`, as typer reads them.

A command's module is imported when it is asked for: all of them together take longer than
`txn topics list` does.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

import txn

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("txn.cli.serve", "serve"),
    "settings": ("txn.cli.settings", "settings"),
    "demo": ("txn.cli.demo", "demo"),
    "explain": ("txn.cli.explain", "explain"),
    "produce": ("txn.cli.produce", "produce"),
    "consume": ("txn.cli.consume", "consume"),
    "topics": ("txn.cli.topics", "topics_app"),
    "offsets": ("txn.cli.offsets", "offsets_app"),
    "top": ("txn.cli.top", "top"),
    "configs": ("txn.cli.configs", "configs_app"),
    "cluster": ("txn.cli.clusters", "cluster_app"),
    "groups": ("txn.cli.groups", "groups_app"),
    "transactions": ("txn.cli.transactions", "transactions_app"),
    "acls": ("txn.cli.acls", "acls_app"),
    "users": ("txn.cli.users", "users_app"),
    "quotas": ("txn.cli.quotas", "quotas_app"),
    "log": ("txn.cli.log", "log_app"),
}
"""Name → module, and the function or the group of commands in it; in the order of the help."""


class Commands(TyperGroup):
    """The group of all commands, each loaded when it is asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # their names

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; None for an unknown name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, name = place
        found = getattr(import_module(module), name)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            alone = typer.Typer(
                add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
            )
            alone.command()(found)
            command = get_command(alone)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="txn",
    cls=Commands,
    help="An exactly-once transactional message log that speaks the Kafka protocol.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # of every command below it, too
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
