"""Transaction states, every legal move between them, and the known state of one id.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ─┐
      ▲          │ ▲                                        │
      │          │ └────────────────────────────────────────┤ next transaction
      │          └──► PrepareAbort ───► CompleteAbort ──────┤
      └─────────────────────────────────────────────────────┘ InitProducerId

A move absent from `MOVES` is illegal. The numbers are the bytes stored in
`__transaction_state`; they are never reused. Prepare is the decision: every partition of the
transaction will get a marker with its result, whatever happens in between (P3). A PrepareCommit
decides once it and its records are on the disk. Before that it may become a PrepareAbort: no client
got an answer, and it has no marker.

Where this differs from Kafka: a Complete state may be written again with a later epoch.
That is how a producer is fenced after a power failure without forgetting how its last
transaction ended; see `decide.decide_after_power_failure`.

A transaction has one identity, which its records and its markers carry. Its client has the same
identity, unless it asks to keep its prepared transaction (KIP-939). Then the transaction stays open
under its identity, and the client continues with a later one, which fences every earlier instance.

Sources: KIP-98 (states), KIP-360 (epoch fence), KIP-890 (epoch bump at the end; an abort
with nothing open), KIP-939 (two-phase commit).
"""

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from txn.identifiers import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TopicPartition,
)

NO_TIME_MS: Final = -1

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of transactions that another system decides on: they never time out (KIP-939)."""


class TxnState(IntEnum):
    """Where a transactional id stands."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id expired: the tombstone that forgets it. Never a stored value."""
    PREPARE_EPOCH_FENCE = 7
    """A step inside Kafka's coordinator; neither Kafka nor txn ever stores it."""

    @property
    def label(self) -> str:
        """The name that DescribeTransactions and ListTransactions use: `PrepareCommit`."""
        return self.name.title().replace("_", "")


class TxnResult(Enum):
    """The end of a transaction."""

    COMMIT = "commit"
    ABORT = "abort"

    __hash__ = object.__hash__  # Enum's own is a call of Python; this is asked in every decision


PREPARE: Final[Mapping[TxnResult, TxnState]] = {
    TxnResult.COMMIT: TxnState.PREPARE_COMMIT,
    TxnResult.ABORT: TxnState.PREPARE_ABORT,
}
COMPLETE: Final[Mapping[TxnResult, TxnState]] = {
    TxnResult.COMMIT: TxnState.COMPLETE_COMMIT,
    TxnResult.ABORT: TxnState.COMPLETE_ABORT,
}
PREPARED: Final = frozenset(PREPARE.values())
COMPLETED: Final = frozenset(COMPLETE.values())
AT_REST: Final = COMPLETED | {TxnState.EMPTY}
"""Nothing is open; the id may expire."""

COMPLETION: Final[Mapping[TxnState, TxnState]] = {PREPARE[o]: COMPLETE[o] for o in TxnResult}

EMPTY: Final = TxnState.EMPTY
ONGOING: Final = TxnState.ONGOING
"""Each transaction uses these members many times; see `broker.members` for the measurement."""

_BEGIN_OR_FORGET = frozenset(
    {TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}
)
MOVES: Final[Mapping[TxnState, frozenset[TxnState]]] = {
    TxnState.EMPTY: _BEGIN_OR_FORGET,
    TxnState.ONGOING: frozenset(
        {TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT}
    ),
    TxnState.PREPARE_COMMIT: frozenset({TxnState.COMPLETE_COMMIT, TxnState.PREPARE_ABORT}),
    TxnState.PREPARE_ABORT: frozenset({TxnState.COMPLETE_ABORT}),
    TxnState.COMPLETE_COMMIT: _BEGIN_OR_FORGET | {TxnState.COMPLETE_COMMIT},
    TxnState.COMPLETE_ABORT: _BEGIN_OR_FORGET | {TxnState.COMPLETE_ABORT},
    TxnState.DEAD: frozenset({TxnState.EMPTY}),
    TxnState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""State → states that may be written next. An unknown id is Dead."""


class LastOffset(NamedTuple):
    """The end of a partition's records when a commit of a transaction in it was prepared.

    Attributes:
        topic_id: The 16 bytes of its topic's id; a later topic of the name is another one.
        partition: Its number.
        leader_epoch: The epoch in which the offset was written.
        offset: The offset before the log end; -1 in an empty log.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int


class UnsyncedMarker(NamedTuple):
    """A marker that may not be on the disk.

    Attributes:
        topic_id: The 16 bytes of the id of its partition's topic.
        partition: Its partition's number.
        offset: Where it was appended.
        producer_id: Of the transaction that it ended.
        producer_epoch: Its own; that of the records, or one above.
        is_commit: Whether it committed the transaction.
    """

    topic_id: bytes
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool


class Txn(NamedTuple):
    """The known state of one transactional id; exactly the content of its newest record.

    Attributes:
        producer_id: In use now.
        producer_epoch: In use now; under transaction version 2 a Prepare bumps it.
        timeout_ms: How long a transaction may stay open, from `start_ms`; `NO_TIMEOUT_MS`.
        state: Where it stands.
        partitions: Those of the open transaction; empty at rest.
        start_ms: When the newest transaction began, -1 before the first.
        updated_ms: When this was written.
        previous_producer_id: The one before, while its last holder may come again for the
            one in use, having been given it because the epochs were used up; else -1.
        next_producer_id: In a Prepare, the one that its Complete changes to; in a transaction
            that was kept open over a start, the one its client has; else -1.
        last_producer_epoch: An epoch below the current one with which the producer that
            got the current one may come again, its answer having been lost; else -1.
        client_version: Transaction version of the client that brought it here, 0 or 2.
        next_producer_epoch: Of `next_producer_id`, if the transaction was kept open; else -1.
        last_offsets: In a PrepareCommit, those of its partitions; empty where nothing is promised
            of a power failure.
        unsynced_markers: Markers of this id's transactions that a power failure may take.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState
    partitions: frozenset[TopicPartition]
    start_ms: int
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    last_offsets: tuple[LastOffset, ...] = ()
    unsynced_markers: tuple[UnsyncedMarker, ...] = ()

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The identity of the transaction: of its records and its markers."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def client(self) -> ProducerIdAndEpoch:
        """The identity its client has to show; in a Prepare, once that is completed."""
        if self.next_producer_id < 0:
            return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)
        return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))

    def is_of(self, producer: ProducerIdAndEpoch) -> bool:
        """Return True if its client has this identity."""
        if self.next_producer_id < 0:  # the usual case, without making a `client`
            return self[:2] == producer
        return self.client == producer

    @property
    def is_prepared(self) -> bool:
        """True if it was kept open over a start of its client, which can only end it now."""
        return self.next_producer_epoch >= 0

    @property
    def is_two_phase(self) -> bool:
        """True if another system decides how its transactions end."""
        return self.timeout_ms == NO_TIMEOUT_MS


def is_move(before: Txn | None, after: Txn | None) -> bool:
    """Return True if one record may follow another; None is an unknown or forgotten id."""
    start = TxnState.DEAD if before is None else before.state
    end = TxnState.DEAD if after is None else after.state
    return end in MOVES[start]
