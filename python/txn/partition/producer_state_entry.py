"""State of one producer id in one partition, and the changes that a stored batch makes to it.

A producer numbers its records per partition with a *sequence*; a batch covers
`base_sequence … last_sequence`. Sequences are int32, and 0 follows 2147483647. The
*producer epoch* distinguishes incarnations of one producer id: within one epoch sequences
are consecutive, and a new epoch starts at 0. The last five batches are kept, because a client
may have five requests under way and retry any of them.

`append` and `end_transaction` are `apply` for one producer: they check nothing and refuse nothing.
So a live append and the replay of the log arrive at the same state (P8). Producers that expired and
came back are the exception, see `expiry`. `admission` decides whether a batch may be stored at all.

Pure, and on the path of every idempotent batch: slots, and plain tuples in the window.

Sources: KIP-98, KIP-360 (state goes with the epoch), Kafka's producer state entries.
"""

from collections import deque
from typing import Final

from txn.identifiers import NO_PRODUCER_EPOCH

NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP_MS: Final = -1
NO_COORDINATOR_EPOCH: Final = -1

SEQUENCE_COUNT: Final = 1 << 31
"""Number of sequences; the largest is one less."""

BATCHES_KEPT: Final = 5
"""A client may have this many requests under way (`max.in.flight.requests.per.connection`)."""

StoredBatch = tuple[int, int, int, int]
"""(base_sequence, last_sequence, base_offset, last_offset), all inclusive; sequences are -1
for a coordinator's batch."""


def last_sequence_of(base_sequence: int, record_count: int) -> int:
    """Compute the sequence of a batch's last record; -1 when the batch has no sequences."""
    if base_sequence < 0:
        return NO_SEQUENCE
    last = base_sequence + record_count - 1
    return last if last < SEQUENCE_COUNT else last - SEQUENCE_COUNT


def base_sequence_of(last_sequence: int, record_count: int) -> int:
    """Compute the sequence of a batch's first record; the inverse of `last_sequence_of`."""
    if last_sequence < 0:
        return NO_SEQUENCE
    base = last_sequence - record_count + 1
    return base if base >= 0 else base + SEQUENCE_COUNT


def is_later(sequence: int, than: int) -> bool:
    """Return True if a sequence comes after another, taking the shorter way round."""
    return 0 < (sequence - than) % SEQUENCE_COUNT < SEQUENCE_COUNT // 2


class ProducerStateEntry:
    """The state of one producer id on one partition.

    Attributes:
        producer_epoch: Epoch of the newest batch or marker; -1 before the first.
        coordinator_epoch: Epoch of the coordinator that wrote the newest marker, or -1.
        last_timestamp_ms: Largest timestamp of the newest batch, or the newest marker's.
        txn_first_offset: First offset of the open transaction, or -1.
        next_sequence: The only base sequence that is neither a gap nor a retry.
        batches: The newest batches of `producer_epoch`, oldest first, at most five. Emptied by
            putting a new window in place, never in place, so a reader beside it sees one or
            the other.
        idle_since_ms: When a sweep first found this producer idle, -1 when it was not.
            Not part of the state that the log determines.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "idle_since_ms",
        "last_timestamp_ms",
        "next_sequence",
        "producer_epoch",
        "txn_first_offset",
    )

    def __init__(self) -> None:
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp_ms = NO_TIMESTAMP_MS
        self.txn_first_offset = NO_OFFSET
        self.next_sequence = 0
        self.batches: deque[StoredBatch] = deque(maxlen=BATCHES_KEPT)
        self.idle_since_ms = NO_TIMESTAMP_MS

    def append(
        self,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
    ) -> None:
        """Fold in a data batch. A change of epoch empties the window first."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = deque(maxlen=BATCHES_KEPT)
        self.batches.append((base_sequence, last_sequence, base_offset, last_offset))
        self.next_sequence = last_sequence + 1 if last_sequence != SEQUENCE_COUNT - 1 else 0
        self.last_timestamp_ms = timestamp_ms
        self.idle_since_ms = NO_TIMESTAMP_MS

    def end_transaction(
        self, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
    ) -> int:
        """Fold in a marker; return the first offset of the transaction it ended, or -1.

        A marker of a new epoch (every one under transaction version 2) empties the window,
        so that the next batch starts at sequence 0. One of the same epoch keeps it.
        """
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches = deque(maxlen=BATCHES_KEPT)
            self.next_sequence = 0
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = timestamp_ms
        self.idle_since_ms = NO_TIMESTAMP_MS
        first_offset, self.txn_first_offset = self.txn_first_offset, NO_OFFSET
        return first_offset

    def offset_of_stored(self, base_sequence: int, last_sequence: int) -> int:
        """Find the base offset of a remembered batch with exactly these sequences, or -1.

        From the newest batch back to the first gap. Behind a gap are batches of before expiry,
        which replay finds in the log; the producer may have used their sequences again since.
        """
        before = NO_SEQUENCE
        for batch in reversed(self.batches):
            if before >= 0 and (batch[1] + 1) % SEQUENCE_COUNT != before:
                return NO_OFFSET
            if batch[0] == base_sequence and batch[1] == last_sequence:
                return batch[2]
            before = batch[0]
        return NO_OFFSET

    def recall(self, batch: StoredBatch) -> None:
        """Put a batch of the current epoch, older than the newest one, back into the window.

        In any order and more than once; only the newest five stay. An empty window stays
        empty: then the log has no batch of this epoch, and the next sequence must not change.
        """
        if not self.batches or batch[2] >= self.batches[-1][2] or batch in self.batches:
            return
        by_offset = sorted([*self.batches, batch], key=lambda stored: stored[2])
        self.batches = deque(by_offset[-BATCHES_KEPT:], BATCHES_KEPT)

    def kept_offsets(self) -> list[int]:
        """List the last offsets of the batches by which a retry is known; [-1] if there is none.

        Of batches without sequences the newest is enough: it has the epoch.
        """
        numbered = [batch[3] for batch in self.batches if batch[0] >= 0]
        return numbered or [self.last_offset]

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record, or -1."""
        batches = self.batches
        return batches[-1][1] if batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the newest record, or -1."""
        batches = self.batches
        return batches[-1][3] if batches else NO_OFFSET
