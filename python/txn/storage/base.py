"""`PartitionLog`: the operations that a broker needs of the log of a partition.

There are two implementations: `native` (the Rust logs, on disk) and `txn.testing.MemoryLog` (for
tests). Appends are synchronous and go to the page cache; only `sync` waits for the disk.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from txn.identifiers import ProducerIdAndEpoch
from txn.partition import ActiveProducer, ProducerStateManager


class BatchKind(IntEnum):
    """The kind of a stored batch, as far as producers and transactions go."""

    PLAIN = -1
    IDEMPOTENT = 0
    TRANSACTIONAL = 1
    ABORT_MARKER = 2
    COMMIT_MARKER = 3


class Marker(NamedTuple):
    """The end of a transaction on one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    timestamp_ms: int


class Record(NamedTuple):
    """One stored record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class StoredBatch(NamedTuple):
    """One stored batch, decoded. Markers carry no records."""

    base_offset: int
    producer_id: int
    producer_epoch: int
    kind: BatchKind
    records: tuple[Record, ...]


class Space(NamedTuple):
    """The directory that holds every partition, and the space of its disk."""

    directory: str
    total_bytes: int
    usable_bytes: int


class PartitionLog(Protocol):
    """One partition's log and its rules."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def index(self) -> int:
        """The partition's number within the topic."""
        ...

    @property
    def producer_state(self) -> ProducerStateManager:
        """The partition's rules."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The first offset that is stored."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        ...

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the records for a read_uncommitted reader; on one node the log end."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of the records for a read_committed reader."""
        ...

    @property
    def synced_end(self) -> int:
        """Everything below this offset is on the disk."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size of the stored bytes."""
        ...

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Apply the topic settings in force, by Kafka's names; they count at once."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The epoch it is led in, and its batches are written in."""
        ...

    def lead(self, leader_epoch: int) -> None:
        """Lead in an epoch from now on, if it is later than that of the newest batch."""
        ...

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was or will be written."""
        ...

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The latest epoch up to the given one and the offset where it ends; None for one to come.

        Source: OffsetsForLeaderEpoch, KIP-101 and KIP-279.
        """
        ...

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None = None,
    ) -> int:
        """Append (key, value) records as one batch; return its base offset.

        With `producer` the batch is part of that producer's transaction.

        Raises:
            StorageError: the log refused or could not write it; nothing was appended.
        """
        ...

    def append_marker(self, marker: Marker) -> int:
        """Append a transaction marker; return its offset. Raises StorageError."""
        ...

    def block_txn(self, producer_id: int, holder: object = None) -> int:
        """Block a producer's open transaction; return the offset behind its batches.

        Nothing more gets in until the marker; with a `holder`, until `producer_state.unblock_txn`
        if that is earlier. Raises StorageError: the log cannot be read.
        """
        ...

    def batches(self, start: int = 0) -> Iterator[StoredBatch]:
        """Read stored batches in order, from the one that contains `start` or the log's first."""
        ...

    def offset_for_timestamp(self, timestamp_ms: int, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the first record below `end` at or after a time.

        Raises:
            CorruptLogError: a part that has to be read for it is damaged.
            StorageError: it cannot be read.
        """
        ...

    def offset_of_max_timestamp(self, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the record below `end` with the largest timestamp.

        A marker counts as a record here, as in Kafka.

        Raises: as `offset_for_timestamp`.
        """
        ...

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset`, never down; return the log start. Blocks.

        Durable when it returns. Segments that lie wholly below go.

        Raises:
            StorageError: `offset` is beyond the high watermark (OFFSET_OUT_OF_RANGE), or the
                disk failed.
        """
        ...

    def producers(self) -> list[ActiveProducer]:
        """List the producers that the log knows, as its stored batches make them.

        Raises StorageError: an append failed, and the disk cannot show its outcome.
        """
        ...

    def sync(self) -> None:
        """Force appended batches to the disk; blocks. Raises StorageError."""
        ...

    def close(self) -> None:
        """Sync and close, leaving the files that the next start needs. Raises StorageError."""
        ...

    def delete(self) -> None:
        """Remove the partition for ever. Raises StorageError."""
        ...
