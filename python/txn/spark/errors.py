"""What stops a query, arranged by whether starting it again can help.

| error | starting the query again |
|---|---|
| `NotPreparedError` | replays the batch |
| `FencedError` (of `txn.errors`) | helps once, if the other driver was its own predecessor |
| `RefusedError`, `LostError`, `DataLossError`, `ConfigError` | cannot help: somebody has to look |

Errors of tasks and planner processes reach the user as text, so `txn.spark.run` tells them
by these class names: `is_hopeless`.
"""

import re
from typing import Final

from txn.errors import RejectedError, RetriableError


class NotPreparedError(RetriableError):
    """A task's transaction is not open any more, or about to time out; nothing was decided."""


class RefusedError(RejectedError):
    """Checkpoint and progress contradict each other; going on would lose or repeat rows."""

    batch: int | None = None
    known_batch: int | None = None
    query: str | None = None
    known_query: str | None = None


class LostError(RejectedError):
    """Transactions that were decided to commit are gone: their driver was away too long."""

    batch: int | None = None


class DataLossError(RejectedError):
    """Records the query has still to read are not there any more."""


_HOPELESS: Final = re.compile(
    r"\btxn\.(?:spark\.)?errors\."
    r"(RefusedError|LostError|DataLossError|ConfigError|RejectedError)\b"
)
_FENCED: Final = re.compile(r"\btxn\.errors\.FencedError\b")


def is_hopeless(message: str) -> bool:
    """Say whether a query that ended with this message would end the same way again."""
    return _HOPELESS.search(message) is not None


def is_fenced(message: str) -> bool:
    """Say whether a query ended because another driver took its place."""
    return _FENCED.search(message) is not None
