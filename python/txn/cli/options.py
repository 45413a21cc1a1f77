"""Options and arguments that several commands have."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from txn.cli.completing import complete_topics
from txn.errors import ConfigError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Let the cluster check the change, and stop.")
]
Yes = Annotated[bool, typer.Option("--yes", "--execute", help="Do not ask.")]
PlanAlone = Annotated[bool, typer.Option("--dry-run", help="Print the plan, and stop.")]


class IsolationLevel(StrEnum):
    """Kafka's names of the two isolation levels."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


Isolation = Annotated[
    IsolationLevel,
    typer.Option(help="read_uncommitted also shows records of open and aborted transactions."),
]
TopicsOrPartitions = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC[-PARTITION]",
        help="Topics, or some of their partitions.",
        autocompletion=complete_topics,
    ),
]


def named_values(texts: Iterable[str]) -> dict[str, str]:
    """Read settings of the form NAME=VALUE.

    Raises:
        ConfigError: one has another form, or a name is given twice.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{text!r} is no setting: give NAME=VALUE")
        if name.strip() in found:
            raise ConfigError(f"{name.strip()} is given twice: give it one value")
        found[name.strip()] = value
    return found
