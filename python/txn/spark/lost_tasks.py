"""The decided transactions of tasks that are gone, and the texts that report them to an operator.

A text names each task with its rows, and the ways that `txn.on.lost` leaves open.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from txn.spark.progress import Progress, Slot, TransactionIdentity


@dataclass(frozen=True, slots=True)
class LostTask:
    """A decided transaction that could not be committed, with the cluster's answer."""

    slot: Slot
    answer: str
    is_unknown: bool
    """Its transactional id may have expired after a commit."""


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """The answers to the commits of a decided batch."""

    lost: tuple[LostTask, ...]
    next_identities: tuple[TransactionIdentity, ...]


REPLAYED: Final = ". Their tasks write again when the batch does (txn.on.lost=replay)"


TO_ACCEPT: Final = (
    "start the query once with txn.on.lost=accept: it goes on behind the batch, and writes none of "
    "these rows"
)


TO_REPLAY: Final = (
    ". If the query gives every task the same rows when the batch runs again, start it once with "
    "txn.on.lost=replay: only these tasks will write. Otherwise write the rows by other means, and "
    + TO_ACCEPT
)


BY_HAND: Final = (
    ". The other tasks' rows are in the output, and a write without txn.id cannot be finished "
    "later: write the missing rows by other means"
)


def lost_text(lost: Sequence[LostTask], decided: Progress) -> str:
    """The report of transactions that were aborted after the decision."""
    return (
        f"batch {decided.batch} was decided, and {len(lost)} of its {len(decided.slots)} "
        "transactions were aborted before they could be committed: no driver came back within "
        f"txn.timeout.ms, or the cluster lost power. Missing in the output: {_tasks(lost)}"
    )


def expired_text(lost: Sequence[LostTask], decided: Progress) -> str:
    """The report of transactions that the cluster does not know any more."""
    return (
        f"batch {decided.batch} was decided, and the cluster does not know {len(lost)} of its "
        f"{len(decided.slots)} transactions any more (transactional.id.expiration.ms), so they may "
        f"have been committed before: {_tasks(lost)}. Look whether their rows are in the output. "
        "If they are, or once you have written them by other means, "
    )


def _tasks(lost: Sequence[LostTask]) -> str:
    return "; ".join(
        f"task {item.slot.task}, {item.slot.rows} rows, {item.slot.identity.transactional_id}: "
        f"{item.answer}"
        for item in lost
    )
