"""The end of a transaction, from a Prepare in the log to its Complete: one plan, one generator.

    1  Prepare and the data: one wait for the disk. From then on Prepare is the decision (P2, P3);
       readers could else see records that are then undone
    2  nothing more gets into the transaction
    3  a marker in every partition; here the client gets its answer
    4  Complete. That of a commit carries the markers that are not on the disk; an abort syncs its
       partitions before it

Nothing behind the answer to a commit waits for the disk. After a power failure Prepare tells a
start which markers are missing, and so does the list in Complete (`unsynced`). A Prepare to commit
without `last_offsets` cannot tell the records of its transaction from those of the next one. Its
Complete is synced before the next one begins.

Readers pass the records of a transaction with its marker. If a power failure took them, other
records would get their offsets, and a group that committed a later offset would miss those. So all
of them are on the disk before the marker. A fenced producer hears of it at its next request, and
may write until then: its late records are synced, too. A partition that cannot be opened or synced
gets its marker later. The marker of an abort is on the disk before Complete, since a start writes
it again without.

The Prepare is the request's (`broker.transactions`). All that follows is here, for every end
alike: a client's, a time-out, a fence, an operator's, and a start that finds a Prepare. The plan
is made with the decision; no step asks the rules again.

Pure.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from txn.coordinator.operations import COMMITTED, Committed, Performed, Reply, Request, Synced
from txn.coordinator.transaction.decide import End
from txn.coordinator.transaction.states import PREPARE, Txn, TxnResult, UnsyncedMarker
from txn.errors import StorageError
from txn.identifiers import TopicPartition

_PREPARE_COMMIT: Final = PREPARE[TxnResult.COMMIT]


class Marked(NamedTuple):
    """The result of writing markers.

    Attributes:
        at_ms: The time.
        refused: The partitions that refused theirs.
        unsynced: The markers that Complete carries.
        to_sync: Partitions to sync instead, because their markers are too many to carry.
    """

    at_ms: int
    refused: dict[TopicPartition, StorageError]
    unsynced: tuple[UnsyncedMarker, ...] = ()
    to_sync: frozenset[TopicPartition] = frozenset()


@dataclass(slots=True)
class Ending:
    """A transaction's end under way.

    Attributes:
        plan: The decision.
        is_decided: The Prepare is the decision: it is as durable as promised, and so is the data.
            Where nothing is promised of a power failure it is from the beginning.
        is_one_step: No other request runs between Prepare and the markers, so no batch can either.
        data: Partitions whose records are synced with the Prepare. Those of an abort need not be
            there: they are synced one by one then.
        unmarked: Partitions that have no marker yet.
        held: Those of them that get none at this try, and why.
        written: Those of a commit that were written, where a power failure may take them.
        is_put_off: A disk refused a marker.
        is_fenced: Power failed behind it, so its client may mean a later transaction, now gone. Its
            Complete fences that client, and no end is answered before.
        when_complete: Called once Complete is in the log.
        logged: The failure that was logged last.
    """

    plan: End
    is_decided: bool = False
    is_one_step: bool = False
    data: frozenset[TopicPartition] = field(init=False)
    unmarked: frozenset[TopicPartition] = field(init=False)
    held: dict[TopicPartition, StorageError] = field(default_factory=dict)
    written: list[UnsyncedMarker] = field(default_factory=list)
    is_put_off: bool = False
    is_fenced: bool = False
    when_complete: Callable[[], object] | None = None
    logged: str = ""

    def __post_init__(self) -> None:
        prepare = self.plan.prepare
        is_with_data = prepare.last_offsets or not self.is_commit
        self.data = prepare.partitions if is_with_data else frozenset()
        self.unmarked = prepare.partitions

    @property
    def is_commit(self) -> bool:
        """False for an abort."""
        return self.plan.prepare.state is _PREPARE_COMMIT


class Block(Performed):
    """Close a transaction for batches, in the partitions that have no marker yet.

    Those that cannot be opened are put into `held`. The result is a collection of the partitions
    with records that a power failure may take.
    """

    __slots__ = ("ending",)

    def __init__(self, ending: Ending) -> None:
        self.ending = ending


class Mark(Performed):
    """Append the markers that are left, to one partition after the other, but to none in `held`.

    The result is a `Marked`.
    """

    __slots__ = ("ending",)

    def __init__(self, ending: Ending) -> None:
        self.ending = ending


def decide(ending: Ending) -> Request[None]:
    """Wait until a Prepare that is in the log is the decision.

    Raises:
        StorageError: a disk refused the Prepare, or the data of a commit.
    """
    if not ending.is_decided:
        try:
            yield Committed(ending.data)
        except StorageError:
            if ending.is_commit:
                raise
            yield COMMITTED
        ending.is_decided = True


def finish(ending: Ending, write: Callable[[Txn], object], answer: object = None) -> Request[None]:
    """Carry a Prepare that is in the log to its Complete.

    Args:
        ending: The plan, and how far an earlier try came.
        write: Appends the next state of the id and replays it. Raises StorageError: nothing
            changed.
        answer: Given once every partition was asked to take its marker; None: no client waits.

    Raises:
        StorageError: a disk refused; try again with the same `ending`.
    """
    if not ending.is_decided:
        yield from decide(ending)
    ending.held.clear()
    late: Collection[TopicPartition] = () if ending.is_one_step else (yield Block(ending))
    if late:
        yield from _sync_late(ending, late)
    marked: Marked = yield Mark(ending)
    ending.unmarked = frozenset(marked.refused)
    ending.is_put_off = bool(marked.refused)
    if answer is not None:
        yield Reply(answer)
    for refusal in marked.refused.values():
        raise refusal
    prepare = ending.plan.prepare
    to_sync = marked.to_sync if ending.is_commit else marked.to_sync | prepare.partitions
    if to_sync:
        yield Synced(to_sync)
    completed = ending.plan.complete
    if completed.updated_ms != marked.at_ms or completed.unsynced_markers != marked.unsynced:
        completed = completed._replace(updated_ms=marked.at_ms, unsynced_markers=marked.unsynced)
    write(completed)
    if ending.when_complete is not None:
        ending.when_complete()
    if ending.is_commit and not prepare.last_offsets:
        yield COMMITTED


def _sync_late(ending: Ending, late: Collection[TopicPartition]) -> Request[None]:
    """Sync late records, together; each partition that a disk refuses is held back alone."""
    try:
        yield Synced(late)
    except StorageError:
        for partition in late:
            try:
                yield Synced((partition,))
            except StorageError as error:
                ending.held[partition] = error
