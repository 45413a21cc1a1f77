"""The machine's disk: the batches written to every log, and how many of them were forced.

A file is a row of whole batches with one boundary. The first `synced` of them are on the disk, the
others in the page cache. A process that dies leaves both. A machine that loses power leaves the
first part and any beginning of the second, for recovery cuts a log at the first batch that is torn.
A batch that a process was just writing when it died is torn too, so it is not there.

`SimLog` is a partition's log on such a file. It stands for `PartitionLog` in
`rust/txn-log/src/log.rs` and follows its order: ask the producer state, write, publish. When a
write fails, the producer state is brought back to the contents of the file before the next batch.
After a failed sync nothing is taken until the log is opened again.
"""

import random
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from sim.cleaning import Cleaned, Uncleaned, clean, key_of, position_of
from txn.errors import CorruptLogError, StorageError
from txn.metadata.image import Image, Topic
from txn.partition import ActiveProducer
from txn.partition.admission import AbortedTxn
from txn.partition.producer_state_manager import ReplayedBatch
from txn.storage.base import (
    BatchKind,
    Marker,
    PartitionLog,
    ProducerIdentity,
    Record,
    Space,
    StoredBatch,
)
from txn.storage.memory import ADMIT, MemoryLog
from txn.storage.strays import Stray
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import java_hash

KAFKA_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)

Place = tuple[str, int]
Append = tuple[int, int]
"""The verdict of the producer state and its value; for `ADMIT` the base offset."""


class File:
    """One log as the disk and the page cache hold it."""

    __slots__ = (
        "batches",
        "believed",
        "cleaned_data",
        "cleaned_end",
        "cleanings",
        "damaged",
        "ends",
        "first_kept",
        "indexed",
        "is_full",
        "is_unsyncable",
        "log_start_offset",
        "originals",
        "replays",
        "synced",
        "topic_id",
    )

    def __init__(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id
        self.batches: list[StoredBatch] = []
        self.replays: list[ReplayedBatch | None] = []
        """Each batch as a producer state gets it at recovery; None for a plain one."""
        self.ends: dict[int, int] = {}
        """Base offset of each batch → offset behind it, independent of cleaning."""
        self.originals: list[StoredBatch] = []
        """Every batch as it was written, for the checkers: the cleaner passes none of it."""
        self.cleaned_data: dict[int, bytes] = {}
        """Base offset → bytes of each batch that a cleaning left."""
        self.cleaned_end = 0
        """Up to where the log is clean, as `cleaner-offset-checkpoint` says."""
        self.indexed: list[AbortedTxn] = []
        """The transaction indexes as a cleaning left them; batches may tell less."""
        self.cleanings: list[tuple[int, int]] = []
        """Where each cleaning was to end, and when it began; for the checkers."""
        self.synced = 0
        self.is_full = False
        """Every write fails."""
        self.is_unsyncable = False
        self.log_start_offset = 0
        """Records below it were deleted."""
        self.first_kept = 0
        """Base offset of the first batch that was not removed for it."""
        self.damaged: set[int] = set()
        """Base offsets of batches in which a bit is wrong."""
        self.believed = 0
        """Recovery reads no checksum of the first batches: they lie below the recovery point."""

    def copy(self) -> "File":
        """The file as it is now, for an operator to put back."""
        kept = File(self.topic_id)
        for name in File.__slots__:
            value = getattr(self, name)
            setattr(kept, name, value.copy() if isinstance(value, list | dict | set) else value)
        return kept

    def ends_with_a_marker(self) -> StoredBatch | None:
        """The newest batch, if it ended a transaction."""
        if not self.batches or self.batches[-1].kind < BatchKind.ABORT_MARKER:
            return None
        marker = self.batches[-1]
        for batch in reversed(self.batches[:-1]):
            if batch.producer_id == marker.producer_id:
                return marker if batch.kind is BatchKind.TRANSACTIONAL else None
        return None

    def cut(self, batches: int) -> None:
        """Lose everything but the first batches."""
        lost = self.batches[batches:]
        self.damaged.difference_update(batch.base_offset for batch in lost)
        if lost:
            start = lost[0].base_offset
            del self.originals[position_of(self.originals, start) :]
            self.indexed = [entry for entry in self.indexed if entry[2] < start]
        del self.batches[batches:], self.replays[batches:]
        self.synced = min(self.synced, batches)
        self.believed = min(self.believed, batches)

    def flip(self, number: int, *, is_believed: bool) -> int | None:
        """Damage a batch; return its base offset, None if that could not be told from a torn tail.

        Args:
            number: Of the batch, counted round and round.
            is_believed: It lies below the recovery point. Else a start finds it by its checksum,
                unless no batch is behind it: then the process may have died writing it.
        """
        count = len(self.batches)
        if not is_believed:
            count -= 1
        if count <= 0:
            return None
        number %= count
        if is_believed:
            self.believed = max(self.believed, number + 1)
            self.synced = max(self.synced, self.believed)
        self.damaged.add(self.batches[number].base_offset)
        return self.batches[number].base_offset

    def first_damaged(self, start: int) -> int:
        """The position of the first damaged batch from a position on; the end if there is none."""
        for position in range(start, len(self.batches)):
            if self.batches[position].base_offset in self.damaged:
                return position
        return len(self.batches)

    def take(self, cleaned: Cleaned, start: int, end: int) -> None:
        """Replace the batches between two offsets by those of a cleaning."""
        synced, believed = self._offset_at(self.synced), self._offset_at(self.believed)
        first, last = position_of(self.batches, start), position_of(self.batches, end)
        left = [each for each in cleaned.left if start <= each.batch.base_offset < end]
        self.batches[first:last] = [each.batch for each in left]
        self.replays[first:last] = [each.replay for each in left]
        self.cleaned_data |= {each.batch.base_offset: each.data for each in left}
        self.synced = position_of(self.batches, max(synced, end))
        self.believed = position_of(self.batches, believed)

    def _offset_at(self, position: int) -> int:
        if position < len(self.batches):
            return self.batches[position].base_offset
        return self.ends[self.batches[-1].base_offset] if self.batches else 0


class Disk:
    """Every file of one machine."""

    def __init__(self) -> None:
        self.files: dict[Place, File] = {}
        self.accepted: set[Place] = set()
        """The partitions whose loss an operator accepted."""

    def lose_power(self, chance: random.Random, bias: str) -> None:
        """Forget unsynced batches: all of them, none, or any number in each file.

        Args:
            chance: For `bias` "any".
            bias: "all", "none", or "any".
        """
        for _, file in sorted(self.files.items()):
            # Damage counts as a torn tail, unless a recovery point is above it.
            if file.damaged:
                file.believed = file.synced
                file.cut(file.first_damaged(file.synced))
            written = len(file.batches)
            if bias == "all":
                file.cut(file.synced)
            elif bias == "any":
                file.cut(chance.randint(file.synced, written))
            file.synced = len(file.batches)
        self.files = {place: file for place, file in self.files.items() if file.batches}

    def heal(self) -> None:
        """Let every write and sync succeed again."""
        for file in self.files.values():
            file.is_full = file.is_unsyncable = False


class Watcher(Protocol):
    """The process that uses the disk: told of every operation, and may die of it."""

    def before_lock(self) -> None:
        """An append is about to take the partition's lock."""
        ...

    def about_to(self, operation: str, log: "SimLog") -> None:
        """Boundary before an operation."""
        ...

    def did(self, operation: str, log: "SimLog") -> None:
        """Boundary after it."""
        ...

    def begin_sync(self, log: "SimLog") -> bool:
        """Take note of a sync that is done beside the caller; False: do it now."""
        ...


class SimLog(MemoryLog):
    """One partition, open in one process."""

    def __init__(self, disk: Disk, topic: str, index: int, topic_id: uuid.UUID) -> None:
        super().__init__(topic, index)
        self._disk = disk
        self._topic_id = topic_id
        self.watcher: Watcher | None = None
        self._stable = 0
        self._meta = (-1, 0, -1)
        """Base sequence, timestamp and coordinator epoch of the batch being appended."""
        self._is_diverged = False
        self._has_failed = False
        self._is_being_cleaned = False
        self._unverified: set[int] = set()
        """Base offsets of batches that are read with their checksum when somebody wants them."""
        file = disk.files.get((topic, index))
        if file is not None:
            self._load(file)

    @property
    def place(self) -> Place:
        return self.topic, self.index

    @property
    def has_failed(self) -> bool:
        """A sync failed; nothing is taken any more."""
        return self._has_failed

    @property
    def is_quiet(self) -> bool:
        """Gate and file agree."""
        return not self._is_diverged

    def state(self) -> tuple[object, ...]:
        """All that its producer state knows and a replay has to find again.

        In a cleaned log a replay may not know of markers that ended nothing. It then lacks the time
        of a producer's newest batch, and its coordinator epoch.
        """
        producer_state = self.producer_state
        producers = sorted(producer_state.describe())
        if self.is_cleaned:
            producers = [
                each._replace(last_timestamp_ms=-1, coordinator_epoch=-1) for each in producers
            ]
        return (
            producers,
            sorted(producer_state.last_batches()),
            self.aborted(),
            producer_state.first_unstable_offset(),
        )

    def aborted(self) -> list[tuple[int, ...]]:
        """The aborted transactions that its producer state knows, as far as a replay can tell.

        Of a log that was cleaned those are producer and marker: the first batch may be gone.
        """
        return [
            (e[0], e[2]) if self.is_cleaned else e for e in self.producer_state.aborted_entries()
        ]

    @property
    def is_cleaned(self) -> bool:
        """True if the cleaner has passed."""
        return self.file is not None and bool(self.file.cleanings)

    @property
    def file(self) -> File | None:
        return self._disk.files.get((self.topic, self.index))

    def _load(self, file: File) -> None:
        if file.topic_id != self._topic_id:
            raise StorageError(f"{self.topic}-{self.index} is of another topic: {file.topic_id}")
        self.stored = list(file.batches)
        self._bases = [batch.base_offset for batch in self.stored]
        self.log_start_offset = file.log_start_offset
        self._unverified = set(self._bases[: file.believed])
        for base in self._bases[file.believed :]:
            if base in file.damaged:
                raise self._damage(base)
        if self.stored:
            self.log_end_offset = file.ends[self.stored[-1].base_offset]
        self._replay(file)
        self._publish()

    def _replay(self, file: File) -> None:
        self.producer_state.restore(None, file.indexed)
        self.producer_state.replay([replay for replay in file.replays if replay is not None])
        self.producer_state.forget_below(file.first_kept)

    def _publish(self) -> None:
        unstable = self.producer_state.first_unstable_offset()
        stable = self.log_end_offset if unstable < 0 else unstable
        self._stable = max(self._stable, stable, self.log_start_offset)

    @property
    def first_kept(self) -> int:
        """Base offset of the first batch that the producer state still knows of."""
        return 0 if self.file is None else self.file.first_kept

    # ------------------------------------------------------------ reading

    @property
    def last_stable_offset(self) -> int:
        return self._stable

    def end_of(self, batch: StoredBatch) -> int:
        """The offset behind a batch, even where a cleaning removed parts of it."""
        return 0 if self.file is None else self.file.ends[batch.base_offset]

    def batches(self, start: int = 0) -> Iterator[StoredBatch]:
        file = self.file
        start = max(start, self.log_start_offset)
        for batch in super().batches(start):
            if self.end_of(batch) <= start:
                continue  # behind it is a gap
            if file is not None and self.is_damaged(batch.base_offset):
                raise self._damage(batch.base_offset)
            self._unverified.discard(batch.base_offset)
            yield batch

    def is_damaged(self, base_offset: int) -> bool:
        """True if a batch is damaged and this process has not had it in memory before."""
        file = self.file
        is_damaged = file is not None and base_offset in file.damaged
        return is_damaged and base_offset in self._unverified

    def _damage(self, base_offset: int) -> CorruptLogError:
        return CorruptLogError(
            f"{self.topic}-{self.index} is damaged at offset {base_offset}",
            path=f"{self.topic}-{self.index}",
            offset=base_offset,
        )

    # ------------------------------------------------------------ writing

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        timestamp_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> int:
        self._make_ready()
        self._meta = (-1, timestamp_ms, -1)
        return super().append(records, timestamp_ms=timestamp_ms, producer=producer)

    def append_marker(self, marker: Marker) -> int:
        self._make_ready()
        self._meta = (-1, marker.timestamp_ms, marker.coordinator_epoch)
        return super().append_marker(marker)

    def append_client_batch(
        self,
        origin: int,
        producer: ProducerIdentity,
        base_sequence: int,
        values: Sequence[bytes],
        timestamp_ms: int,
        *,
        transactional_id: str | None,
    ) -> Append:
        """Append a batch as a Produce does; raises StorageError if it cannot be written."""
        self._make_ready()
        base = self.log_end_offset
        is_transactional = transactional_id is not None
        self._meta = (base_sequence, timestamp_ms, -1)
        kind, value, _ = self.producer_state.admit(
            origin,
            base,
            producer.producer_id,
            producer.producer_epoch,
            base_sequence,
            len(values),
            timestamp_ms,
            is_transactional,
            None if transactional_id is None else java_hash(transactional_id),
        )
        if kind != ADMIT:
            return kind, value
        batch = StoredBatch(
            base,
            producer.producer_id,
            producer.producer_epoch,
            BatchKind.TRANSACTIONAL if is_transactional else BatchKind.IDEMPOTENT,
            tuple(
                Record(base + position, timestamp_ms, key_of(each), each)
                for position, each in enumerate(values)
            ),
        )
        self._store(batch, len(values))
        return ADMIT, base

    def _make_ready(self) -> None:
        if self.watcher is not None:
            self.watcher.before_lock()
        if self._has_failed:
            raise self._error("takes no batches since a sync failed")
        self._settle()

    def _settle(self) -> None:
        if self._is_diverged:
            if self.file is None:
                self.producer_state.restore(None, ())
            else:
                self._replay(self.file)
            self._is_diverged = False

    def producers(self) -> list[ActiveProducer]:
        self._settle()
        return super().producers()

    def _store(self, batch: StoredBatch, count: int) -> None:
        self._tell("write")
        file = self.file
        if file is None:
            file = self._disk.files[self.place] = File(self._topic_id)
        if file.is_full:
            self._is_diverged = batch.producer_id >= 0
            raise self._error("cannot be written")
        sequence, timestamp_ms, coordinator_epoch = self._meta
        super()._store(batch, count)
        file.batches.append(batch)
        file.originals.append(batch)
        file.ends[batch.base_offset] = batch.base_offset + count
        file.replays.append(
            None
            if batch.kind is BatchKind.PLAIN
            else (
                batch.base_offset,
                batch.base_offset + count - 1,
                batch.producer_id,
                batch.producer_epoch,
                sequence,
                timestamp_ms,
                batch.kind,
                coordinator_epoch,
            )
        )
        self._publish()
        if self.watcher is not None:
            self.watcher.did("write", self)

    def delete_records(self, offset: int) -> int:
        file = self.file
        if file is None or offset > self.log_end_offset:
            return super().delete_records(offset)
        if offset <= self.log_start_offset:
            return self.log_start_offset
        if self._has_failed:
            raise self._error("failed to sync before")
        if file.is_unsyncable:
            self._has_failed = True
            raise self._error("cannot be synced")
        self.force(len(self.stored))
        self.log_start_offset = offset
        self._stable = max(
            self._stable, offset
        )  # the producer state may be ahead of the stored batches
        self._tell("log start")
        file.log_start_offset = offset
        file.first_kept = self._bases[bisect_right(self._bases, offset) - 1]
        self.producer_state.forget_below(file.first_kept)
        if self.watcher is not None:
            self.watcher.did("log start", self)
        return offset

    def begin_cleaning(self, batches_per_segment: int, now_ms: int) -> Cleaned | None:
        """Have the cleaner work; None if it does, has nothing to do, or the disk is not whole."""
        file = self.file
        if file is None or file.damaged or file.is_full or file.is_unsyncable or file.first_kept:
            return None
        if not self.is_quiet or self._has_failed or self._is_being_cleaned:
            return None
        log = Uncleaned(
            file.batches,
            file.replays,
            file.ends,
            file.cleaned_data,
            file.cleaned_end,
            self.producer_state,
            is_of_clients=not self.topic.startswith("__"),
        )
        cleaned = clean(log, batches_per_segment, now_ms)
        self._is_being_cleaned = cleaned is not None
        return cleaned

    def end_cleaning(self, cleaned: Cleaned) -> None:
        """Put cleaned segments in their places, a group after the other, as `swap.rs` does."""
        file = self.file
        self._is_being_cleaned = False
        if file is None or file.damaged:
            return
        file.cleanings.append((cleaned.end, cleaned.now_ms))
        start = 0
        for end in cleaned.ends:
            self._tell("clean")
            self.producer_state.forget_aborted(
                [each for each in cleaned.forgotten if start <= each < end]
            )
            file.take(cleaned, start, end)
            file.indexed = self.producer_state.aborted_entries()
            self.stored = list(file.batches)
            self._bases = [batch.base_offset for batch in self.stored]
            start = end
        self._tell("cleaned")
        file.cleaned_end = cleaned.end

    def sync(self) -> None:
        if self._has_failed:
            raise self._error("failed to sync before")
        file = self.file
        if file is not None and file.is_unsyncable:
            self._has_failed = True
            raise self._error("cannot be synced")
        if self.watcher is not None and self.watcher.begin_sync(self):
            return
        self._tell("sync")
        self.force(len(self.stored))
        if self.watcher is not None:
            self.watcher.did("sync", self)

    def force(self, batches: int) -> None:
        """Have the first batches on the disk."""
        file = self.file
        if file is not None:
            file.synced = max(file.synced, min(batches, len(file.batches)))

    def _tell(self, operation: str) -> None:
        if self.watcher is not None:
            self.watcher.about_to(operation, self)

    def _error(self, what: str) -> StorageError:
        return StorageError(
            f"{self.topic}-{self.index} {what}",
            topic=self.topic,
            partition=self.index,
            code=KAFKA_STORAGE_ERROR,
        )


class SimStorage:
    """The partitions of one disk; a `txn.broker.shell.LogStorage`."""

    def __init__(self, disk: Disk, watcher: Watcher) -> None:
        self._disk = disk
        self._watcher = watcher
        self.logs: dict[Place, SimLog] = {}
        self.damage: CorruptLogError | None = None
        """Why a start refused a partition, if it did; the first it met."""
        self.expected: dict[Place, tuple[object, ...]] = {}
        """The producer states when the process before this one died."""
        self.diverged: list[tuple[Place, str]] = []
        """Where recovery came to something else."""

    def open(self, topic: Topic, index: int) -> SimLog:
        log = SimLog(self._disk, topic.name, index, topic.topic_id)
        expected = self.expected.get(log.place)
        if expected is not None and expected != log.state():
            self.diverged.append((log.place, f"{expected} became {log.state()}"))
        log.watcher = self._watcher
        self.logs[log.place] = log
        return log

    def open_all(
        self, wanted: Sequence[tuple[Topic, int]]
    ) -> list[PartitionLog | CorruptLogError | StorageError | None]:
        return [self._opened(topic, index) for topic, index in wanted]

    def _opened(self, topic: Topic, index: int) -> SimLog | CorruptLogError | StorageError:
        try:
            return self.open(topic, index)
        except CorruptLogError as error:
            self.damage = self.damage or error
            return error
        except StorageError as error:
            return error

    def advice_on(self, topic: str, index: int) -> str:
        return "Put back a copy"

    def accepts_loss(self, topic: str, index: int) -> bool:
        return (topic, index) in self._disk.accepted

    def note_contradiction(self, topic: str, index: int, reason: str) -> None:
        """A start refuses a partition: an operator is told, and ends the run."""
        self.damage = self.damage or CorruptLogError(f"{topic}-{index}: {reason}")

    def close_all(self, stores: Sequence[PartitionLog]) -> list[StorageError]:
        return []

    def strays(self, image: Image, deleted: Collection[uuid.UUID]) -> list[Stray]:
        """List no directory: no log is found here that the metadata log does not name."""
        return []

    def discard(self, deleted: Collection[uuid.UUID], known: Mapping[str, Topic]) -> None:
        """No topic is deleted here."""

    def require_room(self, topic: str, indexes: range) -> None:
        """No directory is left here by another topic."""

    def begin(self, topic: str) -> None:
        """Begin a topic; no directory is left here by another one."""

    @property
    def given_up(self) -> Collection[Place]:
        return ()

    def metadata_snapshot(self, log: PartitionLog) -> tuple[int, list[bytes]]:
        return 0, []

    def space(self) -> Space:
        return Space("", 0, 0)


class SimCatalog:
    """Nobody listens; a `txn.broker.shell.Catalog`."""

    def __init__(self) -> None:
        self.forced: set[int] = set()
        """The producer ids whose batches are on the disk before they are acknowledged."""

    def add_topic(self, topic: Topic, partitions: Any) -> None:
        """Nothing to serve."""

    def remove_topic(self, name: str) -> None:
        """Nothing was served."""

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        if is_forced:
            self.forced.add(producer_id)
        else:
            self.forced.discard(producer_id)
