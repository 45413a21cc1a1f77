"""Logs in memory: a `PartitionLog` over a list of batches.

It goes by the rules of the log on disk (`txn.partition.ProducerStateManager`); a model test holds
both against each other. It has no segments: a deletion removes whole batches.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.partition import ADMIT, ActiveProducer, ProducerStateManager
from txn.partition.producer_state_manager import ReplayedBatch
from txn.storage.base import BatchKind, Marker, Record, StoredBatch
from txn.wire.error_codes import ErrorCode

OFFSET_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)


class MemoryLog:
    """A `PartitionLog` over a list."""

    def __init__(
        self,
        topic: str,
        index: int,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        at_write: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin an empty log.

        Args:
            topic: The topic's name.
            index: The partition's number.
            now_ms: The timestamp of batches of clients.
            at_write: Called before and after each write of the broker's own; it may raise.
        """
        self.topic = topic
        self.index = index
        self.producer_state = ProducerStateManager()
        self.stored: list[StoredBatch] = []
        """The batches, oldest first."""
        self.synced = 0
        """Number of the batches that the last sync found."""
        self.is_read_only = False
        """Every write fails, with `error_code`."""
        self.is_unsyncable = False
        """Every sync fails."""
        self.error_code = StorageError.code
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.leader_epoch = 0
        self._now_ms = now_ms
        self._at_write = at_write
        self._bases: list[int] = []
        self._replays: list[ReplayedBatch | None] = []
        """Each batch as a start replays it; None for a plain one."""
        self._epochs: list[tuple[int, int]] = []
        """(leader epoch, first offset) of each that was written in, oldest first."""

    # ------------------------------------------------------------ offsets

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
    def synced_end(self) -> int:
        """Everything below this offset is on the disk."""
        return self._bases[self.synced] if self.synced < len(self._bases) else self.log_end_offset

    @property
    def size_bytes(self) -> int:
        """The size of keys and values."""
        records = self._records(self.log_end_offset)
        return sum(len(r.key or b"") + len(r.value or b"") for r in records)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Nothing here depends on settings."""

    def lead(self, leader_epoch: int) -> None:
        """Lead in an epoch from now on."""
        if leader_epoch > 0:
            self.producer_state.note_loss()
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was or will be written."""
        if offset >= self.log_end_offset:
            return self.leader_epoch
        begun = (epoch for epoch, first_offset in reversed(self._epochs) if first_offset <= offset)
        return next(begun, self.leader_epoch)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The log's own leader epoch and its end; earlier epochs are not known."""
        return (epoch, self.log_end_offset) if epoch == self.leader_epoch else None

    # ------------------------------------------------------------ appends

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None = None,
    ) -> int:
        """Append (key, value) records as one batch; return its base offset."""
        self._begin_write()
        if producer is not None:
            verdict, value = self._admitted(0, producer, -1, len(records), timestamp_ms, True, None)
            self._require(verdict, value)
        kind = BatchKind.PLAIN if producer is None else BatchKind.TRANSACTIONAL
        base = self._store_data(
            kind, producer or ProducerIdAndEpoch(-1, -1), -1, records, timestamp_ms
        )
        self._at_write()
        return base

    def append_marker(self, marker: Marker) -> int:
        """Append a transaction marker; return its offset."""
        self._begin_write()
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
        batch = StoredBatch(offset, marker.producer_id, marker.producer_epoch, kind, ())
        self._store(batch, 1, -1, marker.timestamp_ms, marker.coordinator_epoch)
        self._at_write()
        return offset

    def block_txn(self, producer_id: int, holder: object = None) -> int:
        """Block a producer's open transaction; return the offset behind its batches."""
        self.producer_state.block_txn(producer_id, holder)
        return self.producer_state.end_of(producer_id)

    def client_append(
        self,
        producer: ProducerIdAndEpoch,
        sequence: int,
        value: bytes,
        transaction_version: int,
        *,
        is_transactional: bool = True,
        transactional_id_hash: int | None = None,
    ) -> tuple[int, int]:
        """Append one record as a Produce does; no fault of the disk concerns it.

        Returns:
            The verdict of the producer state and its value: `ADMIT` and the base offset, or one of
            `txn.partition`'s other verdicts.
        """
        base, now_ms = self.log_end_offset, self._now_ms()
        verdict, found = self._admitted(
            transaction_version,
            producer,
            sequence,
            1,
            now_ms,
            is_transactional,
            transactional_id_hash,
        )
        if verdict != ADMIT:
            return verdict, found
        kind = BatchKind.TRANSACTIONAL if is_transactional else BatchKind.IDEMPOTENT
        self._store_data(kind, producer, sequence, [(None, value)], now_ms)
        return ADMIT, base

    def _admitted(
        self,
        origin: int,
        producer: ProducerIdAndEpoch,
        sequence: int,
        count: int,
        timestamp_ms: int,
        is_transactional: bool,
        transactional_id_hash: int | None,
    ) -> tuple[int, int]:
        verdict, value, _ = self.producer_state.admit(
            origin,
            self.log_end_offset,
            producer.producer_id,
            producer.producer_epoch,
            sequence,
            count,
            timestamp_ms,
            is_transactional,
            transactional_id_hash,
        )
        return verdict, value

    def _begin_write(self) -> None:
        self._at_write()
        if self.is_read_only:
            raise self._error("cannot be written", self.error_code)

    def _require(self, verdict: int, code: int) -> None:
        if verdict != ADMIT:
            raise self._error(f"refused a batch: error code {code}", code)

    def _error(self, fault: str, code: int = StorageError.code) -> StorageError:
        return StorageError(
            f"{self.topic}-{self.index} {fault}", topic=self.topic, partition=self.index, code=code
        )

    def _store_data(
        self,
        kind: BatchKind,
        producer: ProducerIdAndEpoch,
        sequence: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        timestamp_ms: int,
    ) -> int:
        base = self.log_end_offset
        stored = tuple(
            Record(base + position, timestamp_ms, key, value)
            for position, (key, value) in enumerate(records)
        )
        batch = StoredBatch(base, producer.producer_id, producer.producer_epoch, kind, stored)
        self._store(batch, len(records), sequence, timestamp_ms, -1)
        return base

    def _store(
        self,
        batch: StoredBatch,
        count: int,
        sequence: int,
        timestamp_ms: int,
        coordinator_epoch: int,
    ) -> None:
        replay = (
            batch.base_offset,
            batch.base_offset + count - 1,
            batch.producer_id,
            batch.producer_epoch,
            sequence,
            timestamp_ms,
            batch.kind,
            coordinator_epoch,
        )
        if not self._epochs or self._epochs[-1][0] < self.leader_epoch:
            self._epochs.append((self.leader_epoch, batch.base_offset))
        self._keep(batch, count, None if batch.kind is BatchKind.PLAIN else replay)

    def _keep(self, batch: StoredBatch, count: int, replay: ReplayedBatch | None) -> None:
        self.stored.append(batch)
        self._bases.append(batch.base_offset)
        self._replays.append(replay)
        self.log_end_offset += count

    # ------------------------------------------------------------ reads

    def batches(self, start: int = 0) -> Iterator[StoredBatch]:
        """Read stored batches in order, from the one that contains `start`."""
        first = max(bisect_right(self._bases, max(start, self.log_start_offset)) - 1, 0)
        yield from self.stored[first:]

    def committed(self) -> list[bytes | None]:
        """The values of committed transactions, in the order of their markers.

        Records outside transactions are not among them, and an open transaction before them holds
        nothing back: for a reader's view, stop at `last_stable_offset`.
        """
        seen: list[bytes | None] = []
        open_batches: dict[int, list[StoredBatch]] = {}
        for batch in self.stored:
            if batch.kind is BatchKind.TRANSACTIONAL:
                open_batches.setdefault(batch.producer_id, []).append(batch)
                continue
            ended = open_batches.pop(batch.producer_id, [])
            if batch.kind is BatchKind.COMMIT_MARKER:
                seen += [record.value for each in ended for record in each.records]
        return seen

    def markers(self) -> list[tuple[int, int, bool]]:
        """(producer_id, producer_epoch, is_commit) of every marker."""
        return [
            (batch.producer_id, batch.producer_epoch, batch.kind is BatchKind.COMMIT_MARKER)
            for batch in self.stored
            if batch.kind in (BatchKind.COMMIT_MARKER, BatchKind.ABORT_MARKER)
        ]

    def offset_for_timestamp(self, timestamp_ms: int, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the first record below `end` at or after a time."""
        hits = (r for r in self._records(end) if r.timestamp_ms >= timestamp_ms)
        hit = next(hits, None)
        return None if hit is None else (hit.offset, hit.timestamp_ms)

    def offset_of_max_timestamp(self, end: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the record below `end` with the largest timestamp.

        A marker counts as a record here, as in Kafka.
        """
        markers = (
            (base, timestamp_ms)
            for base, _, _, _, _, timestamp_ms, kind, _ in filter(None, self._replays)
            if kind in (BatchKind.COMMIT_MARKER, BatchKind.ABORT_MARKER)
            and self.log_start_offset <= base < end
        )
        records = ((record.offset, record.timestamp_ms) for record in self._records(end))
        return max([*records, *markers], key=lambda each: (each[1], -each[0]), default=None)

    def producers(self) -> list[ActiveProducer]:
        """List the producers that the log knows."""
        return self.producer_state.describe()

    def _records(self, end: int) -> Iterator[Record]:
        records = (record for batch in self.stored for record in batch.records)
        return (r for r in records if self.log_start_offset <= r.offset < end)

    # ------------------------------------------------------------ the disk

    def delete_records(self, offset: int) -> int:
        """Move the log start up to `offset`; batches wholly below go."""
        if offset > self.log_end_offset:
            raise self._error(f"ends at {self.log_end_offset}, below {offset}", OFFSET_OUT_OF_RANGE)
        self.log_start_offset = max(self.log_start_offset, offset)
        ends = [*self._bases[1:], self.log_end_offset]
        kept = bisect_right(ends, self.log_start_offset) if self._bases else 0
        del self.stored[:kept], self._bases[:kept], self._replays[:kept]
        self.synced = max(self.synced - kept, 0)
        self.producer_state.forget_below(self._bases[0] if self._bases else self.log_end_offset)
        return self.log_start_offset

    def sync(self) -> None:
        """Note that every batch is on the disk."""
        self.sync_first(len(self.stored))

    def sync_first(self, batches: int) -> None:
        """Mark the first batches as synced: the ones that existed when a sync began."""
        if self.is_unsyncable:
            raise self._error("cannot be synced")
        self.synced = max(self.synced, batches)

    def close(self) -> None:
        """Nothing to close."""

    def delete(self) -> None:
        """Forget everything."""
        self.stored.clear()
        self._bases.clear()
        self._replays.clear()
        self._epochs.clear()

    def recover(self, former: "MemoryLog", batches: int) -> None:
        """Take over the first batches of an earlier process's log, as its next start does."""
        self.log_start_offset = former.log_start_offset
        self.log_end_offset = former._bases[0] if former._bases else former.log_end_offset
        ends = [*former._bases[1:], former.log_end_offset]
        for batch, end, replay in zip(
            former.stored[:batches], ends[:batches], former._replays[:batches], strict=True
        ):
            self._keep(batch, end - batch.base_offset, replay)
        self.leader_epoch = former.leader_epoch
        self._epochs = [each for each in former._epochs if each[1] < self.log_end_offset]
        self.producer_state.replay([each for each in self._replays if each is not None])
        self.synced = min(former.synced, batches)
