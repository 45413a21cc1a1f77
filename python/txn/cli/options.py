"""Options that several commands have."""

from enum import StrEnum
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Have the cluster check it, and stop.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


class IsolationLevel(StrEnum):
    """Kafka's names of the two isolation levels."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


Isolation = Annotated[
    IsolationLevel,
    typer.Option(help="read_uncommitted also shows records of open and aborted transactions."),
]
