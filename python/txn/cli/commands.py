"""Every command of `txn`, as typer reads them.

A command's module is imported when the command runs: importing all of them takes longer than
`txn topics list` does.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

import txn
from txn.cli import INTERRUPTED
from txn.errors import ConfigError

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
    "console": ("txn.cli.console", "console"),
    "configs": ("txn.cli.configs", "configs_app"),
    "cluster": ("txn.cli.clusters", "cluster_app"),
    "groups": ("txn.cli.groups", "groups_app"),
    "transactions": ("txn.cli.transactions", "transactions_app"),
    "dead-letters": ("txn.cli.dead_letters", "dead_letters_app"),
    "acls": ("txn.cli.acls", "acls_app"),
    "users": ("txn.cli.users", "users_app"),
    "quotas": ("txn.cli.quotas", "quotas_app"),
    "log": ("txn.cli.log", "log_app"),
    "docs": ("txn.cli.docs", "docs"),
}
"""Name → module, and the function or the group of commands in it; in the order of the help."""


_UNKNOWN_COMMAND: Final = re.compile(r"No such command '(.*)'")


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
        loaded = import_module(module)
        found = getattr(loaded, name)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            alone = typer.Typer(
                add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
            )
            alone.command(context_settings=getattr(loaded, "CONTEXT_SETTINGS", None))(found)
            command = get_command(alone)
        command.name = cmd_name
        _refuse_repetitions(command)
        return command


def _refuse_repetitions(command: Any) -> None:
    """Make a command, or all of a group, refuse to repeat an option with one value.

    click uses the last value: a command for two topics changed one of them, and ended with 0.
    """
    for below in getattr(command, "commands", {}).values():
        _refuse_repetitions(below)
    parse_args = command.parse_args

    def parse_args_once(ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing:  # by the completion of a shell
            _, _, given = command.make_parser(ctx).parse_args(args=list(args))
            _require_once(given)
        return parse_args(ctx, args)

    command.parse_args = parse_args_once


def _require_once(given: Sequence[Any]) -> None:
    """Raise ConfigError at an option with one value that is given again; --help goes first."""
    if any(each.is_eager for each in given):
        return
    for option, times in Counter(given).items():
        takes_one = option.param_type_name == "option" and not (option.multiple or option.is_flag)
        if takes_one and times > 1:
            raise ConfigError(
                f"{option.opts[0]} takes one value and is given {times} times: give it once, or "
                "run the command for each"
            )


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


def run() -> None:
    """Run the command that `sys.argv` names.

    Ends the process with its exit code where that is not 0. Raises ConfigError at wrong usage, and
    KeyboardInterrupt at Ctrl-C, which typer or click turn into exceptions of their own.
    """
    usage_error: Any = typer.BadParameter.__base__  # a class of click, or of typer itself
    try:
        code = app(prog_name="txn", standalone_mode=False)  # also as `python -m txn`
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as error:
        text = error.format_message()
        if "\n" in text:  # the help of a group of commands that was called alone
            print(text, file=sys.stderr)
            sys.exit(error.exit_code)
        raise ConfigError(_in_one_line(text, error)) from None
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        sys.exit(code)


def _in_one_line(text: str, error: Any) -> str:
    """Print a mistake in the words of a command line, and how to see its help."""
    plain = text.replace(": Value error, ", ": ").rstrip(".")  # said by pydantic below typer
    parts = [plain if plain.endswith("?") else f"{plain}."]
    option = getattr(error, "option_name", "")
    if error.ctx is not None:
        parts += [_without_option(option, error.ctx)] if option else []
        unknown = _UNKNOWN_COMMAND.fullmatch(plain)
        parts += [_with_more_words(unknown[1], error.ctx)] if unknown else []
        parts.append(f"`{error.ctx.command_path} -h` shows its usage")
    return " ".join(filter(None, parts))


def _without_option(option: str, ctx: Any) -> str:
    """Return a sentence if the value of an unknown option stands in the command without it."""
    for param in ctx.command.params:
        name = (param.metavar or "").lower().partition("[")[0]
        if param.param_type_name == "argument" and f"--{name}" == option:
            return f"The {name} stands without it: {ctx.command_path} NAME."
        # Kafka's tools have an option for each kind of value, such as --to-earliest.
        for known in param.opts if param.param_type_name == "option" else ():
            if option.startswith(f"{known}-") and param.metavar:
                return f"Use {known} {param.metavar}."
    return ""


def _with_more_words(name: str, ctx: Any) -> str:
    """Return a question with the commands that an unknown name is a part of, as reset-offsets."""
    longer = [each for each in getattr(ctx.command, "commands", ()) if name in each.split("-")]
    return f"Did you mean {', '.join(map(repr, longer))}?" if longer else ""
