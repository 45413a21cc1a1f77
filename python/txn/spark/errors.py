"""Errors that stop a query, arranged by whether starting it again can help.

| error | starting the query again |
|---|---|
| `NotPreparedError` | replays the batch |
| `ReplayError` | replays the lost tasks of the batch, as `txn.on.lost=replay` asks |
| `NoAnswerError`, `UnreachableError` (of `txn.errors`) | helps once the cluster answers again |
| `FencedError` (of `txn.errors`) | helps once, if the other driver was its own predecessor |
| `RefusedError`, `LostError`, `DataLossError`, `ConfigError`, `RejectedError` | cannot help |

Errors of tasks and planner processes reach the user as text, so `txn.spark.run` recognises them by
these class names: `is_hopeless`, `is_fenced`, `is_outage`. `reason_of` finds the line with the
reason in that text, between Java's lines and Python's.
"""

import re
from typing import Final

from txn.errors import RejectedError, RetriableError


class NotPreparedError(RetriableError):
    """A task's transaction is not open any more, or about to time out; nothing was decided."""

    batch: int | None = None


class NoAnswerError(RetriableError):
    """The cluster did not answer in time."""


class RefusedError(RejectedError):
    """Checkpoint and progress contradict each other; going on would lose or repeat rows."""

    batch: int | None = None
    known_batch: int | None = None
    query: str | None = None
    known_query: str | None = None


class ReplayError(RetriableError):
    """Decided transactions are gone, and the batch has to run again for their tasks."""

    batch: int | None = None


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


_OUTAGE: Final = re.compile(r"\btxn\.(?:spark\.errors\.NoAnswer|errors\.Unreachable)Error\b")
_OURS: Final = re.compile(r"^(?:txn|_core)\.(?:\w+\.)*(\w+: .+)$", re.MULTILINE)
_PYTHONS: Final = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)
_JAVAS: Final = re.compile(r"^(?:Caused by)?: (.+)$", re.MULTILINE)
_CALL_OF_JAVA: Final = "Py4JJavaError"


def is_hopeless(message: str) -> bool:
    """Return whether a query that ended with this message would end the same way again."""
    return _HOPELESS.search(message) is not None


def is_fenced(message: str) -> bool:
    """Return whether a query ended because another driver replaced it."""
    return _FENCED.search(message) is not None


def is_outage(message: str) -> bool:
    """Return whether a query ended because the cluster did not answer."""
    return _OUTAGE.search(message) is not None


def reason_of(message: str) -> str:
    """The line that says why a query ended: txn's own error, else Python's last, else the first.

    Where Python's error is a failed call of Java, the line has Java's error and its causes.
    """
    ours = _OURS.findall(message)
    if ours:
        return str(ours[-1])
    _, is_python, traceback = message.rpartition("Traceback (most recent call last)")
    matches = _PYTHONS.findall(traceback) if is_python else []
    if not matches:
        return next(iter(message.splitlines()), "no message")
    reason = str(matches[0])
    return (_causes(traceback) or reason) if reason.startswith(_CALL_OF_JAVA) else reason


def _causes(stack_trace: str) -> str:
    """Java's error and its causes, each once."""
    told: list[str] = []
    for cause in _JAVAS.findall(stack_trace):
        if not any(cause in known for known in told):
            told.append(cause.rstrip("."))
    return ", caused by ".join(told)
