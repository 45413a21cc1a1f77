"""Logs in memory: the reference for model tests, and quick to make.

The same rules (`txn.partition.ProducerStateManager`) over a list of batches. Nothing survives.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txn.errors import StorageError
from txn.partition import ActiveProducer, ProducerStateManager
from txn.storage.base import BatchKind, Marker, ProducerIdentity, Record, StoredBatch

ADMIT, DUPLICATE = 0, 1
OFFSET_OUT_OF_RANGE = 1


class MemoryLog:
    """A `PartitionLog` over a list."""

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.producer_state = ProducerStateManager()
        self.stored: list[StoredBatch] = []
        self._bases: list[int] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.leader_epoch = 0

    @property
    def high_watermark(self) -> int:
        """The log end: there is no other replica."""
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of the records for a read_committed reader."""
        unstable = self.producer_state.first_unstable_offset()
        stable = self.log_end_offset if unstable < 0 else unstable
        return max(stable, self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        """The size of keys and values."""
        records = self._records(self.log_end_offset)
        return sum(len(r.key or b"") + len(r.value or b"") for r in records)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Nothing here depends on settings."""

    def lead(self, leader_epoch: int) -> None:
        """Lead in an epoch from now on; stored batches count as written in it."""
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was or will be written."""
        return self.leader_epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The one epoch it knows, and the log's end."""
        return (epoch, self.log_end_offset) if epoch == self.leader_epoch else None

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        timestamp_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> int:
        """Append (key, value) records as one batch; return its base offset."""
        base = self.log_end_offset
        identity = producer or ProducerIdentity(-1, -1)
        kind = BatchKind.PLAIN
        if producer is not None:
            kind = BatchKind.TRANSACTIONAL
            verdict, value, _ = self.producer_state.admit(
                0,
                base,
                producer.producer_id,
                producer.producer_epoch,
                -1,
                len(records),
                timestamp_ms,
                True,
            )
            self._require(verdict, value)
        stored = tuple(
            Record(base + position, timestamp_ms, key, record)
            for position, (key, record) in enumerate(records)
        )
        self._store(
            StoredBatch(base, identity.producer_id, identity.producer_epoch, kind, stored),
            len(records),
        )
        return base

    def append_marker(self, marker: Marker) -> int:
        """Append a transaction marker; return its offset."""
        offset = self.log_end_offset
        verdict, value, _ = self.producer_state.admit_marker(
            offset,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.is_commit,
            marker.timestamp_ms,
        )
        self._require(verdict, value)
        kind = BatchKind.COMMIT_MARKER if marker.is_commit else BatchKind.ABORT_MARKER
        self._store(StoredBatch(offset, marker.producer_id, marker.producer_epoch, kind, ()), 1)
        return offset

    def batches(self, start: int = 0) -> Iterator[StoredBatch]:
        """Read stored batches in order, from the one that contains `start`."""
        first = max(bisect_right(self._bases, start) - 1, 0)
        yield from self.stored[first:]

    def offset_for_timestamp(self, timestamp_ms: int, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the first record below `end` at or after a time."""
        hits = (r for r in self._records(end) if r.timestamp_ms >= timestamp_ms)
        hit = next(hits, None)
        return None if hit is None else (hit.offset, hit.timestamp_ms)

    def offset_of_max_timestamp(self, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the record below `end` with the largest timestamp."""
        newest = max(self._records(end), key=lambda r: r.timestamp_ms, default=None)
        return None if newest is None else (newest.offset, newest.timestamp_ms)

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset`; batches wholly below go."""
        if offset > self.log_end_offset:
            raise StorageError(
                f"{self.topic}-{self.index} ends at {self.log_end_offset}, below {offset}",
                topic=self.topic,
                partition=self.index,
                code=OFFSET_OUT_OF_RANGE,
            )
        self.log_start_offset = max(self.log_start_offset, offset)
        kept = max(bisect_right(self._bases, self.log_start_offset) - 1, 0)
        del self.stored[:kept], self._bases[:kept]
        self.producer_state.forget_below(self.log_start_offset)
        return self.log_start_offset

    def producers(self) -> list[ActiveProducer]:
        """List the producers that the log knows."""
        return self.producer_state.describe()

    def sync(self) -> None:
        """Nothing to force."""

    def close(self) -> None:
        """Nothing to close."""

    def delete(self) -> None:
        """Forget everything."""
        self.stored.clear()
        self._bases.clear()

    def _records(self, end: int) -> Iterator[Record]:
        return (r for batch in self.stored for r in batch.records if r.offset < end)

    def _require(self, verdict: int, value: int) -> None:
        if verdict != ADMIT:
            raise StorageError(
                f"{self.topic}-{self.index} refused a batch: error code {value}",
                topic=self.topic,
                partition=self.index,
                code=value,
            )

    def _store(self, batch: StoredBatch, count: int) -> None:
        self.stored.append(batch)
        self._bases.append(batch.base_offset)
        self.log_end_offset += count
