"""The end of a transaction, from a Prepare in the log to its Complete: one plan, one generator.

    1  the partitions of the transaction       else a commit could outlive its records (P2)
    2  Prepare: the decision (P3)              else readers could see records that are then undone
    3  a marker in every partition; here the client gets its answer
    4  the markers                             else a Complete that forgets the partitions
                                               could outlive a marker: an open transaction
                                               that nobody would ever end (P5)
    5  Complete                                else the next transaction could outlive it, and
                                               recovery end that one by this Prepare (P3)

Steps 1, 2, 4 and 5 wait for the disk unless `durability` is `process`. Step 1 and the Prepare are
the request's (`broker.txn_coordinator`): only a commit needs the data. All that follows is here,
for every end alike: a client's, a time-out, a fence, an operator's, and a start that finds a
Prepare. The plan is made with the decision; no step asks the rules again.

Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from txn.coordinator.operations import COMMITTED, Append, Remote, Reply, Request, Synced
from txn.coordinator.transaction.decide import End
from txn.coordinator.transaction.records import TxnRecord
from txn.coordinator.transaction.states import TopicPartition
from txn.errors import StorageError


class Marked(NamedTuple):
    """The result of writing markers: the time, and the partitions that refused one."""

    at_ms: int
    refused: dict[TopicPartition, StorageError]


@dataclass(slots=True)
class Ending:
    """A transaction's end under way.

    Attributes:
        plan: The decision.
        unmarked: Partitions that have no marker yet.
        is_put_off: A disk refused a marker; the decision itself is as durable as promised.
        told: The failure that was logged last.
    """

    plan: End
    unmarked: frozenset[TopicPartition] = field(init=False)
    is_put_off: bool = False
    told: str = ""

    def __post_init__(self) -> None:
        self.unmarked = self.plan.prepare.partitions


WriteMarkers = Callable[[Ending], Marked]
"""Appends the markers that an ending lacks, to one partition after the other."""


def finish(
    transactional_id: str, ending: Ending, write_markers: WriteMarkers, answer: object = None
) -> Request[None]:
    """Carry a Prepare that is in the log to its Complete.

    Args:
        transactional_id: Whose transaction.
        ending: Its plan, and how far an earlier try came.
        write_markers: Writes the markers that are left.
        answer: Given once every partition was asked to take its marker; None: nobody waits.

    Raises:
        StorageError: a disk refused; try again with the same `ending`.
    """
    yield COMMITTED
    marked: Marked = yield Remote(lambda: write_markers(ending))
    ending.unmarked = frozenset(marked.refused)
    ending.is_put_off = bool(marked.refused)
    if answer is not None:
        yield Reply(answer)
    for error in marked.refused.values():
        raise error
    yield Synced(ending.plan.prepare.partitions)
    completed = ending.plan.complete
    if completed.updated_ms != marked.at_ms:
        completed = completed._replace(updated_ms=marked.at_ms)
    yield Append([TxnRecord(transactional_id, completed)])
    yield COMMITTED
