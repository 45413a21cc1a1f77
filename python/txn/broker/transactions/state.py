"""The state of a shard of `__transaction_state`, and the appends that change it.

Invariant: the content of the log is in `TxnShardState.transactions` alone, and changes only by the
replay of a record. All the rest is in memory: an id's timer and its end under way (`Volatile`), and
the findings of the start (`Findings`), which no log has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from txn.broker.host import Timer
from txn.broker.shard import Shard
from txn.coordinator.operations import Committed, Request, Synced
from txn.coordinator.transaction.ending import Ending
from txn.coordinator.transaction.records import TxnRecord
from txn.coordinator.transaction.states import UnsyncedMarker
from txn.coordinator.transaction.store import TxnStore
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch

RECORDS_PER_BATCH: Final = 1_000
"""Ids that one append forgets, or fences after a power failure."""


@dataclass(slots=True)
class Volatile:
    """The state of one transactional id that is in memory alone; a start begins without it.

    Attributes:
        begun_ms: The time when its open transaction began, on the monotonic clock.
        due_ms: The time when its timer rings, on that clock.
        timer: Looks whether the transaction is past its time, or can be decided on.
        following_timeout_ms: Asked for by the client of a transaction that is kept and has more.
        ending: The end under way.
        given_up: The producer whose commit was aborted here; a retry gets the same error.
    """

    begun_ms: int = 0
    due_ms: int = 0
    timer: Timer | None = None
    following_timeout_ms: int | None = None
    ending: Ending | None = None
    given_up: ProducerIdAndEpoch | None = None

    @property
    def is_unused(self) -> bool:
        """True if nothing of it is needed while the id is at rest."""
        return self.timer is None and self.given_up is None


@dataclass(slots=True)
class Findings:
    """The findings of a start about the ids of one shard. They outlive an unloading.

    Attributes:
        undecided: Ids with a prepared commit of which a start cannot read all records.
        withheld: Ids of which a marker may be gone from a partition that cannot be opened; the
            next start looks again.
        written_again: Markers that a start wrote again for an id in a Prepare; its Complete
            carries them.
    """

    undecided: set[str] = field(default_factory=set)
    withheld: set[str] = field(default_factory=set)
    written_again: dict[str, tuple[UnsyncedMarker, ...]] = field(default_factory=dict)

    @property
    def are_incomplete(self) -> bool:
        """True if an id waits for a partition that cannot be read."""
        return bool(self.undecided or self.withheld)

    def ends_nothing(self, transactional_id: str) -> bool:
        """Return True if a start ends nothing of an id, since a partition cannot be read."""
        return transactional_id in self.undecided or transactional_id in self.withheld


class TxnShardState:
    """The state of a shard: the fold of its log, and the state in memory alone.

    Attributes:
        transactions: The fold.
        volatile: The state in memory of each id that is not at rest.
        findings: The findings of the start.
    """

    __slots__ = ("findings", "transactions", "volatile")

    def __init__(self, findings: Findings | None = None) -> None:
        self.transactions = TxnStore()
        self.volatile: dict[str, Volatile] = {}
        self.findings = Findings() if findings is None else findings


TxnShard = Shard[TxnShardState, TxnRecord]


def append_in_batches(shard: TxnShard, records: Sequence[TxnRecord]) -> None:
    """Append records, many at a time. Raises StorageError: of some of them nothing changed."""
    for start in range(0, len(records), RECORDS_PER_BATCH):
        shard.append(records[start : start + RECORDS_PER_BATCH])


def until_synced(wait: Committed | Synced, *, is_due: bool = False) -> Request[None]:
    """Wait for the disk; a disk that refuses raises StorageError only if the wait `is_due`."""
    try:
        yield wait
    except StorageError:
        if is_due:
            raise
