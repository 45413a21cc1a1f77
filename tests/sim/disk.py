"""The partitions of a simulated broker: the real Rust log of each, on a disk that fails as told.

`machine` below knows what a power failure cannot take. A process that dies changes no file any
more, and leaves a batch torn that it was writing. A full disk takes a part of a write, and one that
cannot be synced fails the sync. Recovery, producer state, segments, snapshots and the cleaner are
those of the product.

`SimLog` adds the boundaries: moments before and after each operation, at which the process may die.
`SimFile` remembers every batch that was written, for the checkers.
"""

import errno
import random
import tempfile
import uuid
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sim.agenda import Crash
from sim.cleaning import SimCleaning, key_of, stored_value
from sim.machine import Machine, SyncMarks
from sim.segments import LocatedBatch, batches_in, batches_of, decoded, is_sound
from support.memory import MEMORY
from support.python_syncs import sync_in_turn
from txn import _core
from txn.config import BrokerSettings, topic_settings
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import Image, Topic
from txn.partition import ADMIT, ActiveProducer
from txn.partition.producer_state_entry import BATCHES_KEPT
from txn.storage.base import BatchKind, Marker, PartitionLog, Record, Space, StoredBatch
from txn.storage.log_offsets import CleanedEnds, LogStarts, RecoveryPoints
from txn.storage.native_log import NativeLog
from txn.storage.strays import Stray
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import java_hash

KAFKA_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
DEFAULTS = topic_settings({}, BrokerSettings({}))

Place = tuple[str, int]
Append = tuple[int, int]
"""The verdict of the producer state and its value; for `ADMIT` the base offset."""

ON_THIS_THREAD = _core.Durability(0)
"""Forces logs on the calling thread, where the simulated disk sees it."""


def name_of(place: Place) -> str:
    """The directory of a partition."""
    return f"{place[0]}-{place[1]}"


@cache
def place_of(directory: str) -> Place | None:
    """The partition of a directory; None for another one."""
    topic, _, index = directory.rpartition("-")
    return (topic, int(index)) if index.isdigit() else None


class SimFile:
    """The knowledge about one partition's files that outlives a process."""

    def __init__(self, disk: "Disk", place: Place, topic_id: uuid.UUID) -> None:
        self._disk = disk
        self.place = place
        self.directory = name_of(place)
        self.topic_id = topic_id
        self.originals: list[StoredBatch] = []
        """Every batch as it was written, for the checkers: the cleaner passes none of it."""
        self.incoming: StoredBatch | None = None
        """A batch that is being written; it may be there though nobody was told."""
        self.ends: dict[int, int] = {}
        """Base offset of each batch → offset behind it, independent of cleaning."""
        self.cleaned_end = 0
        """Up to where the log is clean, as `cleaner-offset-checkpoint` says."""
        self.cleanings: list[tuple[int, int]] = []
        """Where each cleaning was to end, and when it began; for the checkers."""
        self.outdated: set[int] = set()
        """Last offsets of batches that were not among the newest five of their producer when a
        cleaning began. It may take them, and a snapshot may know them still."""
        self.has_lost_since_cleaned = False
        """A start did not find batches that a cleaning may have counted on."""
        self.is_full = False
        """Every write fails."""
        self.is_unsyncable = False
        self.recovery_point = 0
        """As the checkpoint says: a start reads no segment below it."""
        self.damaged: set[int] = set()
        """Base offsets of batches in which a bit is wrong, or is once no process has them."""
        self._flipped: set[int] = set()
        """Those whose bytes are wrong now."""
        self._version = -1
        """The version of the directory as which the rest is known."""
        self._found: list[LocatedBatch] = []
        self._first_segment = 0
        self._active_segment = ""
        self._batches: list[StoredBatch] | None = None

    @property
    def checkpointed_end(self) -> int | None:
        """Its entry in `cleaner-offset-checkpoint`; None if it was never cleaned."""
        return self.cleaned_end if self.cleanings else None

    def note_outdated(self) -> None:
        """Note the batches that a cleaning may take, whatever becomes of the newer ones."""
        by_producer: dict[tuple[int, int], list[int]] = {}
        for batch in self.originals:
            if batch.kind in (BatchKind.IDEMPOTENT, BatchKind.TRANSACTIONAL):
                known = by_producer.setdefault((batch.producer_id, batch.producer_epoch), [])
                known.append(self.ends[batch.base_offset] - 1)
        for last_offsets in by_producer.values():
            self.outdated.update(last_offsets[:-BATCHES_KEPT])

    def may_be_newest(self, producer_id: int, producer_epoch: int, last_offset: int) -> bool:
        """Say whether a producer wrote this, and later only batches that a cleaning may take.

        Args:
            producer_id: The producer.
            producer_epoch: The newest that is known of it.
            last_offset: Of its data there; -1 without any.
        """
        known = (producer_epoch, last_offset)
        written = {
            (batch.producer_epoch, self.ends[batch.base_offset] - 1)
            if batch.kind in (BatchKind.IDEMPOTENT, BatchKind.TRANSACTIONAL)
            else (batch.producer_epoch, -1)
            for batch in self.originals
            if batch.producer_id == producer_id
        }
        return known in written and not any(
            each > known and each[1] not in self.outdated for each in written
        )

    def contents(self) -> dict[str, bytes]:
        return self._disk.machine.files(self.directory)

    def found(self) -> list[LocatedBatch]:
        """The stored batches."""
        self._look()
        return self._found

    def first_segment(self) -> int:
        """Base offset of the first segment."""
        self._look()
        return self._first_segment

    def active_segment(self) -> str:
        """Name of the last segment, which may hold no batch yet."""
        self._look()
        return self._active_segment

    def _look(self) -> None:
        version = self._disk.machine.versions[self.directory]
        if self._version != version:
            files = self._disk.machine.files(self.directory, ".log")
            self._version, self._found, self._batches = version, batches_of(files), None
            self._first_segment = int(min(files)[:-4]) if files else 0
            self._active_segment = max(files, default="")

    def batches(self) -> list[StoredBatch]:
        """The stored batches, decoded; a damaged one as it was written."""
        found = self.found()
        if self._batches is None:
            written = {batch.base_offset: batch for batch in self.originals}
            self._batches = [
                written[each.base_offset]
                if each.base_offset in self._flipped
                else self.as_written(decoded(each.data))
                for each in found
            ]
        return self._batches

    def as_written(self, batch: StoredBatch) -> StoredBatch:
        """A batch with the values of its tombstones, by which the checkers know a record."""
        if self.place[0].startswith("__") or all(each.value is not None for each in batch.records):
            return batch
        known = {each.offset: each for old in self.originals for each in old.records}
        records = tuple(self._recognized(each, known.get(each.offset)) for each in batch.records)
        return batch._replace(records=records)

    @staticmethod
    def _recognized(record: Record, known: Record | None) -> Record:
        if known is not None and record == known._replace(value=stored_value(known.value)):
            return known
        return record

    def opened(self, log_end_offset: int) -> None:
        """Forget batches that a start did not find, and learn of one nobody was told of."""
        incoming, self.incoming = self.incoming, None
        while self.originals and self.originals[-1].base_offset >= log_end_offset:
            self.originals.pop()
            self.has_lost_since_cleaned = bool(self.cleanings)
        end = self.ends[self.originals[-1].base_offset] if self.originals else 0
        if incoming is not None and end == incoming.base_offset < log_end_offset:
            self.originals.append(incoming)
        self.damaged = {base for base in self.damaged if base < log_end_offset}
        self._flipped &= self.damaged

    # ------------------------------------------------------------ damage

    def ends_with_a_marker(self) -> StoredBatch | None:
        """The newest batch, if it ended a transaction."""
        batches = self.batches()
        if not batches or batches[-1].kind < BatchKind.ABORT_MARKER:
            return None
        marker = batches[-1]
        for batch in reversed(batches[:-1]):
            if batch.producer_id == marker.producer_id:
                return marker if batch.kind is BatchKind.TRANSACTIONAL else None
        return None

    def lose_last(self) -> dict[str, bytes]:
        """Lose the last batch, as an older copy would; return the files as they were."""
        contents = self.contents()
        last = batches_of(contents)[-1]
        left = {
            name: data
            for name, data in contents.items()
            if name in ("partition.metadata", "leader-epoch-checkpoint")
            or (name.endswith(".log") and name < last.name)
        }
        left[last.name] = contents[last.name][: last.position]
        self._disk.machine.put(self.directory, left)
        self.originals.pop()
        self.recovery_point = min(self.recovery_point, last.base_offset)
        return contents

    def put_back(self, contents: dict[str, bytes], lost: StoredBatch) -> None:
        """Undo `lose_last`."""
        self._disk.machine.put(self.directory, contents)
        self.originals.append(lost)

    def flip(self, number: int, *, is_believed: bool) -> int | None:
        """Damage a batch; return its base offset, None if that could not be told from a torn tail.

        Args:
            number: Of the batch, counted round and round.
            is_believed: Its segment lies below the recovery point. Else a start finds it by its
                checksum, unless no batch is behind it: then the process may have died writing it.
        """
        found = [*takewhile(is_sound, self.found())]  # power may have torn the next one
        count = len(found) if is_believed else len(found) - 1
        if count <= 0:
            return None
        chosen = found[number % count]
        if is_believed:
            last = max(each.base_offset for each in found if each.name == chosen.name)
            self.recovery_point = max(self.recovery_point, self.ends[last])
            self._disk.machine.settle(self.directory)
        self.damaged.add(chosen.base_offset)
        return chosen.base_offset

    def harm(self) -> None:
        """Have damage in the bytes that no process has in memory any more."""
        self._toggle(self.damaged - self._flipped)
        self._flipped = set(self.damaged)

    def repair(self) -> None:
        """Put back a sound copy."""
        self._toggle(self._flipped)
        self._flipped.clear()
        self.damaged.clear()

    def power_failed(self, sure: Mapping[str, bytes]) -> None:
        """Note that the files were written anew; damage counts as a torn tail, unless the recovery
        point is above it.
        """
        self._flipped.clear()
        if self.damaged:
            self.recovery_point = max(self.recovery_point, self._whole_end(sure))

    def _whole_end(self, files: Mapping[str, bytes]) -> int:
        """Up to where the segments have every batch; 0 without any."""
        end = 0
        for name in sorted(name for name in files if name.endswith(".log")):
            if end and int(name.removesuffix(".log")) > max(end, self.cleaned_end):
                break  # the segment before lost its last batches
            batches = [*takewhile(self._is_whole, batches_in(name, files[name]))]
            if batches:
                end = self.ends[batches[-1].base_offset]
            if sum(len(each.data) for each in batches) < len(files[name]):
                break  # its last batch is torn
        return end

    def _is_whole(self, batch: LocatedBatch) -> bool:
        """Say whether all bytes of a batch are there, though a bit may be wrong."""
        return batch.base_offset in self.damaged or is_sound(batch)

    def is_damage(self, refusal: CorruptLogError) -> bool:
        """True if a refusal names a damaged batch of this file."""
        return any(
            f"{self.directory}/{each.name}" in refusal.message
            and str(each.position) in refusal.message
            for each in self.found()
            if each.base_offset in self._flipped
        )

    def _toggle(self, bases: Collection[int]) -> None:
        if not bases:
            return
        for each in self.found():
            if each.base_offset in bases:
                path = self._disk.machine.root / self.directory / each.name
                with path.open("r+b") as file:
                    file.seek(each.position + len(each.data) - 1)
                    file.write(bytes([each.data[-1] ^ 1]))
        self._disk.machine.versions[self.directory] += 1


class DiskWatcher(Protocol):
    """The process that uses the disk: told of every operation, and may die of it."""

    @property
    def is_dead(self) -> bool:
        """True once it died: it changes nothing any more."""
        ...

    def before_lock(self) -> None:
        """An append is about to take the partition's lock."""
        ...

    def about_to(self, operation: str, place: Place) -> None:
        """Boundary before an operation."""
        ...

    def did(self, operation: str, log: "SimLog") -> None:
        """Boundary after it."""
        ...

    def end_later(self, log: "SimLog", marks: SyncMarks) -> bool:
        """Take a sync that ends beside the caller; False: end it now."""
        ...


class Disk:
    """Every partition of one machine. To be released."""

    def __init__(self, chance: random.Random, *, segment_bytes: int = 1 << 20) -> None:
        self.files: dict[Place, SimFile] = {}
        self.accepted: set[Place] = set()
        """The partitions whose loss an operator accepted."""
        self.settings = {"segment.bytes": segment_bytes, "index.interval.bytes": 200}
        self.watcher: DiskWatcher | None = None
        """The process that runs."""
        self.is_opening = False
        """A log is being opened; a full disk lets it write, or it would be offline for a while."""
        self.cleaning: SimCleaning | None = None
        """The cleaner at work."""
        self._chance = chance
        root = Path(tempfile.mkdtemp(prefix="sim-", dir=MEMORY))
        self.machine = Machine(root, self._refuses)

    def release(self) -> None:
        """Remove the files."""
        self.machine.release()

    @property
    def root(self) -> Path:
        return self.machine.root

    def _refuses(self, kind: str, directory: str, name: str) -> tuple[float, int] | None:
        """Let a change happen, or not: the process is dead, or dies now, or the disk refuses."""
        watcher = self.watcher
        if watcher is not None and watcher.is_dead:
            return 0, errno.EIO
        place = place_of(directory)
        if self.cleaning is not None:
            self.cleaning.before(kind, directory, name)
            if watcher is not None and watcher.is_dead:
                return 0, errno.EIO
        if watcher is not None and place is not None and not kind.startswith("sync"):
            try:
                watcher.about_to(kind, place)
            except Crash:
                return self._chance.random(), errno.EIO
        file = None if place is None else self.files.get(place)
        if file is not None and file.is_full and kind in ("create", "write"):
            if self.is_opening:
                return None
            return self._chance.choice((0, self._chance.random())), errno.ENOSPC
        if file is not None and file.is_unsyncable and kind.startswith("sync"):
            return 0, errno.EIO
        return None

    def lose_power(self, chance: random.Random, bias: str) -> None:
        """Forget unsynced changes: all of them, none, or any.

        Args:
            chance: For `bias` "any".
            bias: "all", "none", or "any".
        """
        for file in self.files.values():
            file.power_failed(self.machine.sure_bytes(file.directory) if file.damaged else {})
        self.machine.lose_power(chance, bias)

    def heal(self) -> None:
        """Let every write and sync succeed again."""
        for file in self.files.values():
            file.is_full = file.is_unsyncable = False

    def forget_snapshots(self, place: Place) -> None:
        """Remove a partition's snapshots of producers, so that all batches are replayed.

        They stay where a segment was removed, or a batch is damaged: then they may tell more than
        the batches.
        """
        file = self.files.get(place)
        if file is not None and not file.damaged and file.first_segment() == 0:
            for path in (self.root / file.directory).glob("*.snapshot*"):
                path.unlink()


class Checkpoints:
    """The checkpoints in a directory of partitions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log_starts = LogStarts.read(root)
        self.recovery_points = RecoveryPoints.read(root)
        self.cleaned_ends = CleanedEnds.read(root)


class ProducerState(NamedTuple):
    """All that a producer state knows and a replay has to find again."""

    producers: list[ActiveProducer]
    last_batches: list[tuple[int, int, int]]
    aborted: list[tuple[int, ...]]
    first_unstable_offset: int

    def without(self, producer_ids: Container[int]) -> "ProducerState":
        """The state of the other producers."""
        return self._replace(
            producers=[each for each in self.producers if each.producer_id not in producer_ids],
            last_batches=[each for each in self.last_batches if each[0] not in producer_ids],
        )


class SimLog(NativeLog):
    """One partition, open in one process."""

    def __init__(
        self,
        disk: Disk,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        checkpoints: Checkpoints,
        *,
        power_failed: bool = False,
    ) -> None:
        self._disk = disk
        self.place = topic, index
        self.topic_id = topic_id
        self.watcher: DiskWatcher | None = None
        self._is_diverged = False
        self._has_failed = False
        self._syncs: list[SyncMarks] = []
        """Those that may not have ended."""
        self._sync_ends: list[tuple[SyncMarks, int]] = []
        """Each of them, and the offset below which it leaves everything on the disk."""
        file = disk.files.get((topic, index))
        if file is not None and file.topic_id != topic_id:
            raise StorageError(f"{topic}-{index} is of another topic: {file.topic_id}")
        super().__init__(
            checkpoints.root,
            topic,
            index,
            topic_id=topic_id,
            settings={**DEFAULTS, **disk.settings},
            past={
                "power_failed": power_failed,
                "recovery_point": 0 if file is None else file.recovery_point,
                "log_start_offset": checkpoints.log_starts.of(topic, index),
                "cleaned_end": None if file is None else file.checkpointed_end,
            },
            log_starts=checkpoints.log_starts,
            recovery_points=checkpoints.recovery_points,
            cleaned_ends=checkpoints.cleaned_ends,
            syncs_before_close=True,
            lock_file=None,
        )
        self._synced_end = self.log.recovery_point
        self._unverified: set[int] = set()
        """Base offsets of batches that are read with their checksum when somebody wants them."""
        if file is not None:
            file.opened(self.log_end_offset)
            self._unverified = self._believed(file)

    @staticmethod
    def _believed(file: SimFile) -> set[int]:
        """Batches in the segments that were sealed below the recovery point."""
        found = file.found() if file.recovery_point else []
        ends = {each.name: file.ends[each.base_offset] for each in found}
        return {
            each.base_offset
            for each in found
            if ends[each.name] <= file.recovery_point and each.name != file.active_segment()
        }

    @property
    def has_failed(self) -> bool:
        """A sync failed; nothing is taken any more."""
        return self._has_failed

    @property
    def is_quiet(self) -> bool:
        """Producer state and file agree."""
        return not self._is_diverged

    def state(self) -> ProducerState:
        """The state of its producers.

        In a cleaned log a replay may not know of markers that ended nothing. It then lacks the time
        of a producer's newest batch, and its coordinator epoch. Nor does it know of batches in
        segments that were removed, or that were outdated when the cleaner passed.
        """
        producer_state, first_kept = self.producer_state, self.first_kept
        outdated = set() if self.file is None else self.file.outdated
        producers = sorted(producer_state.describe())
        if self.is_cleaned:
            producers = [
                each._replace(last_timestamp_ms=-1, coordinator_epoch=-1) for each in producers
            ]
        return ProducerState(
            producers,
            sorted(
                e
                for e in producer_state.last_batches()
                if not 0 <= e[2] < first_kept and e[2] not in outdated
            ),
            self.aborted(),
            producer_state.first_unstable_offset(),
        )

    def known_by_snapshot(self) -> set[int]:
        """The producers of which a replay may know less, and this log knows no more than was so.

        The cleaner keeps a producer's newest batches. A power failure may take those alone. The
        producer is then in a snapshot of before, and no stored batch tells of it.
        """
        file = self.file
        if file is None or not file.has_lost_since_cleaned:
            return set()
        newest: dict[int, tuple[int, int]] = {}
        for producer_id, producer_epoch, last_offset in self.producer_state.last_batches():
            known = newest.get(producer_id, (producer_epoch, -1))
            newest[producer_id] = max(known, (producer_epoch, last_offset))
        return {each for each, known in newest.items() if file.may_be_newest(each, *known)}

    def replayed(self) -> "SimLog":
        """The log opened again on its own files, when the run is over and nobody uses this one."""
        self._disk.watcher = None
        self._disk.forget_snapshots(self.place)
        checkpoints = Checkpoints(self._disk.root)
        return SimLog(self._disk, self.topic, self.index, self.topic_id, checkpoints)

    def aborted(self) -> list[tuple[int, ...]]:
        """The aborted transactions that its producer state knows, as far as a replay can tell.

        Of a log that was cleaned those are producer and marker: the first batch may be gone. Nor
        does a replay find a transaction of which a cleaning left only the marker. Its entry names
        nothing that a reader could meet, and goes with the next cleaning.
        """
        entries = self.producer_state.aborted_entries()
        if not self.is_cleaned:
            return list(entries)
        stored = self._aborted_with_batches()
        return [(e[0], e[2]) for e in entries if (e[0], e[2]) in stored]

    def _aborted_with_batches(self) -> set[tuple[int, int]]:
        """Producer and marker of the aborted transactions of which a batch is stored."""
        open_ids: set[int] = set()
        found = set()
        for batch in self.stored:
            if batch.kind is BatchKind.TRANSACTIONAL:
                open_ids.add(batch.producer_id)
            elif batch.kind >= BatchKind.ABORT_MARKER and batch.producer_id in open_ids:
                open_ids.remove(batch.producer_id)
                if batch.kind is BatchKind.ABORT_MARKER:
                    found.add((batch.producer_id, batch.base_offset))
        return found

    @property
    def is_cleaned(self) -> bool:
        """True if the cleaner has passed."""
        return self.file is not None and bool(self.file.cleanings)

    @property
    def file(self) -> SimFile | None:
        return self._disk.files.get(self.place)

    @property
    def stored(self) -> list[StoredBatch]:
        """The batches in its files."""
        return [] if self.file is None else self.file.batches()

    @property
    def written(self) -> list[StoredBatch]:
        """The batches of which its contents follow: those in its files, or before removal."""
        if self.file is None:
            return []
        return self.stored if self.is_cleaned else self.file.originals

    @property
    def first_kept(self) -> int:
        """Base offset of the first segment: nothing below is known."""
        return 0 if self.file is None else self.file.first_segment()

    # ------------------------------------------------------------ reading

    def end_of(self, batch: StoredBatch) -> int:
        """The offset behind a batch, even where a cleaning removed parts of it."""
        return 0 if self.file is None else self.file.ends[batch.base_offset]

    def read_batches(self, start: int, batches_max: int) -> Iterator[StoredBatch]:
        """Read some batches from the one that holds an offset, as a fetch does.

        Raises CorruptLogError.
        """
        file = self.file
        for _ in range(batches_max):
            try:
                data = self.log.read(start, 1)
                batch = decoded(data) if data else None
            except _core.CorruptLogError as error:
                raise self._damage(error) from error
            if batch is None or file is None:
                return
            self._unverified.discard(batch.base_offset)
            yield file.as_written(batch)
            start = self.end_of(batch)

    def batches(self, start: int = 0) -> Iterator[StoredBatch]:
        for batch in super().batches(start):
            self._unverified.discard(batch.base_offset)
            yield batch

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """The aborted transactions that a fetch names: producer id and first offset."""
        return self.log.aborted_in(start, end)

    def is_damaged(self, base_offset: int) -> bool:
        """True if a batch is damaged and this process has not had it in memory before."""
        file = self.file
        is_damaged = file is not None and base_offset in file.damaged
        return is_damaged and base_offset in self._unverified

    def _damage(self, error: _core.CorruptLogError) -> CorruptLogError:
        message, *place = error.args
        where = dict(zip(("path", "position"), place, strict=False))
        return CorruptLogError(f"{self.topic}-{self.index}: {message}", **where)

    # ------------------------------------------------------------ writing

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None = None,
    ) -> int:
        identity = producer or ProducerIdAndEpoch(-1, -1)
        kind = BatchKind.PLAIN if producer is None else BatchKind.TRANSACTIONAL

        append_to_log = super().append

        def append() -> tuple[int, int]:
            return ADMIT, append_to_log(records, timestamp_ms=timestamp_ms, producer=producer)

        self._write(identity, kind, records, timestamp_ms, append)
        return self.log_end_offset - len(records)

    def append_marker(self, marker: Marker) -> int:
        identity = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        kind = BatchKind.COMMIT_MARKER if marker.is_commit else BatchKind.ABORT_MARKER

        append_to_log = super().append_marker

        def append() -> tuple[int, int]:
            return ADMIT, append_to_log(marker)

        self._write(identity, kind, (), marker.timestamp_ms, append)
        return self.log_end_offset - 1

    def append_client_batch(
        self,
        origin: int,
        producer: ProducerIdAndEpoch,
        base_sequence: int,
        values: Sequence[bytes],
        timestamp_ms: int,
        *,
        transactional_id: str | None,
    ) -> Append:
        """Append a batch as a Produce does; raises StorageError if it cannot be written."""
        is_transactional = transactional_id is not None
        batch = _core.encode_batch(
            [(key_of(each), stored_value(each)) for each in values],
            timestamp_ms,
            producer.producer_id,
            producer.producer_epoch,
            base_sequence,
            is_transactional,
        )
        name_hash = None if transactional_id is None else java_hash(transactional_id)

        def append() -> Append:
            try:
                return self.log.append_of_client(batch, origin, name_hash)
            except (_core.LogRefusedError, OSError) as error:
                raise self._failure("append to", error) from error

        kind = BatchKind.TRANSACTIONAL if is_transactional else BatchKind.IDEMPOTENT
        records = [(key_of(each), each) for each in values]
        return self._write(producer, kind, records, timestamp_ms, append)

    def _write(
        self,
        producer: ProducerIdAndEpoch,
        kind: BatchKind,
        records: Sequence[tuple[bytes | None, bytes | None]],
        timestamp_ms: int,
        append: Callable[[], Append],
    ) -> Append:
        if self.watcher is not None:
            self.watcher.before_lock()
        if self._is_diverged:
            self.producers()  # the log would do so itself, but by the clock on the wall
        file = self._disk.files.get(self.place)
        if file is None:
            file = self._disk.files[self.place] = SimFile(self._disk, self.place, self.topic_id)
        base = self.log_end_offset
        count = max(len(records), 1)
        stored = tuple(
            Record(base + position, timestamp_ms, key, value)
            for position, (key, value) in enumerate(records)
        )
        file.ends[base] = base + count
        file.incoming = StoredBatch(
            base, producer.producer_id, producer.producer_epoch, kind, stored
        )
        try:
            verdict: Append = self._alive(append)
        except StorageError as error:
            self._is_diverged = isinstance(error.__cause__, OSError)
            raise
        finally:
            if self.watcher is None or not self.watcher.is_dead:
                incoming, file.incoming = file.incoming, None
        if verdict[0] == ADMIT:
            assert incoming is not None, "it was just set"
            file.originals.append(incoming)
            if self.watcher is not None:
                self.watcher.did("write", self)
        return verdict

    def _alive(self, call: Callable[[], Any]) -> Any:
        """Return a call's result; raise Crash if the process dies of it."""
        if self.watcher is not None and self.watcher.is_dead:
            raise Crash
        try:
            return call()
        finally:
            if self.watcher is not None and self.watcher.is_dead:
                raise Crash

    def producers(self) -> list[ActiveProducer]:
        found = self._alive(super().producers)
        self._is_diverged = False
        return list(found)

    def delete_records(self, offset: int) -> int:
        file = self.file
        is_new = self.log_start_offset < offset <= self.log_end_offset
        delete = partial(super().delete_records, offset)
        if self.watcher is not None and is_new:
            self.watcher.about_to("log start", self.place)
            for earlier in self._syncs:  # its own sync waits for these
                earlier.force()
        try:
            start = int(self._alive(delete))
        except StorageError:
            self._has_failed = self._has_failed or (file is not None and file.is_unsyncable)
            raise
        if self.watcher is not None and is_new:
            self.watcher.did("log start", self)
        return start

    def begin_cleaning(self, now_ms: int) -> SimCleaning | None:
        """Have the cleaner work; None if it does, has nothing to do, or the disk is not whole."""
        file = self.file
        if file is None or file.damaged or file.is_full or file.is_unsyncable or self.first_kept:
            return None
        if not self.is_quiet or self._has_failed or self._disk.cleaning is not None:
            return None
        return SimCleaning.begun(self._disk, self, file, now_ms)

    def sync(self) -> None:
        sync = super().sync
        with self._disk.machine.deferred() as marks:
            try:
                self._alive(sync)
            except StorageError:
                self._has_failed = True
                raise
        self._syncs = [each for each in self._syncs if not each.is_forced]
        for earlier in self._syncs:  # the log takes their records for synced already
            marks.cover(earlier)
        self._syncs.append(marks)
        self._sync_ends.append((marks, self.log.recovery_point))
        if self.watcher is None:
            marks.force()
        elif not self.watcher.end_later(self, marks):
            self.watcher.about_to("sync", self.place)
            marks.force()
            self.watcher.did("sync", self)

    @property
    def synced_end(self) -> int:
        """Everything below is on the disk. A sync counts once it has ended, later than in Rust."""
        ended = [end for marks, end in self._sync_ends if marks.is_forced]
        self._sync_ends = [each for each in self._sync_ends if not each[0].is_forced]
        self._synced_end = max(self._synced_end, *ended, 0)
        return self._synced_end

    def tick(self) -> None:
        """Sync sealed segments, and note in the checkpoint how far the log is on the disk."""
        if self.file is None or self._has_failed or not all(e.is_forced for e in self._syncs):
            return
        with self._disk.machine.deferred() as marks:
            _, changes = self._alive(lambda: _core.tick([self.log], ON_THIS_THREAD))
        reasons = [reason for _, reason in changes if reason is not None]
        self._has_failed = any(reason.startswith("a sync failed") for reason in reasons)
        marks.force()
        if not self._has_failed:
            self.file.recovery_point = max(self.file.recovery_point, self.log.recovery_point)

    def close(self) -> None:
        """A simulated process only dies."""


class SimStorage:
    """The partitions of one disk; a `txn.broker.shell.LogStorage`."""

    def __init__(self, disk: Disk, watcher: DiskWatcher, *, power_failed: bool) -> None:
        self._disk = disk
        self._watcher = watcher
        self._power_failed = power_failed
        self._checkpoints = Checkpoints(disk.root)
        self.logs: dict[Place, SimLog] = {}
        self.damage: CorruptLogError | None = None
        """Why a start refused a partition, if it did; the first it met."""
        self.expected: dict[Place, ProducerState] = {}
        """The producer states when the process before this one died."""
        self.diverged: list[tuple[Place, str]] = []
        """Where recovery came to something else."""

    def note_log_starts(self) -> None:
        """Have the checkpoint tell of every log that was written."""
        self._checkpoints.log_starts.write()

    def force_what_was_accepted(self) -> None:
        """Force all logs, as `txn.server.lifecycle.service` does behind an accepted loss.

        The aborts of that loss let readers pass records that nothing else has synced.
        """
        if self._disk.accepted:
            sync_in_turn(list(self.logs.values()))

    def open(self, topic: Topic, index: int) -> SimLog:
        log = self._recovered(topic, index)
        expected = self.expected.get(log.place)
        if expected is not None and expected != log.state():
            self.diverged.append((log.place, f"{expected} became {log.state()}"))
        log.watcher = self._watcher
        self.logs[log.place] = log
        return log

    def _recovered(self, topic: Topic, index: int) -> SimLog:
        self._disk.is_opening = True
        try:
            return SimLog(
                self._disk,
                topic.name,
                index,
                topic.topic_id,
                self._checkpoints,
                power_failed=self._power_failed,
            )
        finally:
            self._disk.is_opening = False
            if self._watcher.is_dead:
                raise Crash

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

    def sync_all(self, stores: Sequence[PartitionLog]) -> StorageError | None:
        return sync_in_turn(stores)

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

    def store_metadata_snapshot(self, log: PartitionLog, now_ms: int) -> None:
        """Nobody moves this directory to an Apache Kafka."""

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

    def publish_creation_rates(self, default: float | None, of_addresses: Any) -> None:
        """Nobody connects."""

    def forget_verdicts(self) -> None:
        """Nobody asked."""

    def publish_quotas(self, quotas: Any, *, samples: int, length_s: int) -> None:
        """Nobody is counted."""
