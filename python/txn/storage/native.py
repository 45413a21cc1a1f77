"""The logs of a data directory: `NativeStorage` opens and closes them, each a `NativeLog`.

A log is opened only in a directory of its own: one that carries the topic's id, and that no other
partition reaches by a link. `Past` has the notes of earlier runs, `LogUpkeep` the periodic work.
"""

import os
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from txn import _core
from txn.config import BrokerSettings, topic_settings
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import TopicPartition
from txn.logs import log
from txn.metadata.image import Image, Topic
from txn.storage.base import PartitionLog, Space
from txn.storage.in_place import DirectoryPlace
from txn.storage.log_offsets import METADATA
from txn.storage.log_upkeep import SYNCING_THREADS, LogUpkeep
from txn.storage.losses import Loss, LossPlan, fingerprint
from txn.storage.native_log import NativeLog, log_settings
from txn.storage.native_metadata import MetadataSnapshots
from txn.storage.past import Past
from txn.storage.strays import DOOMED_SUFFIX, METADATA_FILE, Stray, strays_in, topic_id_of
from txn.storage.workers import map_in_threads

T = TypeVar("T")

PROGRESS_S = 5
"""Interval of the progress reports of a long recovery."""

LISTED_FROM = 100
"""Number of partitions from which on the data directory is listed rather than asked for each."""

Opened = NativeLog | CorruptLogError | StorageError | None
"""The log of one partition, the error of its opening, or None: it was never written."""


class NativeStorage:
    """Every partition of one data directory."""

    def __init__(
        self, root: Path, broker_settings: BrokerSettings, past: Past, durability: _core.Durability
    ) -> None:
        """Store the arguments of `load` and the notes it has read."""
        self.root = root
        self.past = past
        self.upkeep = LogUpkeep(root, past, durability)
        self._broker_settings = broker_settings
        self._place = DirectoryPlace(root)
        self._linked: dict[Path, str] = {}
        """Places outside of the directory to which partitions' directories are links."""

    @classmethod
    def load(
        cls,
        root: Path,
        broker_settings: BrokerSettings,
        *,
        was_clean: bool,
        power_failed: bool = False,
        was_left_by_kafka: bool = False,
        durability: _core.Durability | None = None,
    ) -> Self:
        """Read the notes that an earlier run left in a data directory; no partition is opened.

        Args:
            root: The directory.
            broker_settings: The broker's.
            was_clean: The broker before was stopped.
            power_failed: It was not, and the machine went down.
            was_left_by_kafka: It was an Apache Kafka.
            durability: The service that `tick` syncs logs with; its own by default.
        """
        past = Past(
            root,
            was_clean=was_clean,
            power_failed=power_failed,
            was_left_by_kafka=was_left_by_kafka,
        )
        return cls(root, broker_settings, past, durability or _core.Durability(1))

    def is_in_place(self) -> bool:
        """Return False if the data directory was moved away, removed or replaced."""
        return self._place.is_kept()

    def strays(self, image: Image, deleted: Collection[uuid.UUID]) -> list[Stray]:
        """List the directories of topics that the metadata log does not know.

        Raises:
            StorageError: the data directory cannot be read.
        """
        try:
            return strays_in(self.root, image, deleted)
        except OSError as error:
            raise StorageError(f"cannot read the partitions in {self.root}: {error}") from error

    def discard(self, deleted: Collection[uuid.UUID], known: Mapping[str, Topic]) -> None:
        """Remove the rest of topics whose deletion was cut short.

        Args:
            deleted: The ids of topics that are gone.
            known: The topics that are there; the checkpoints list no others from now on.

        Raises:
            StorageError: something cannot be removed.
        """
        for name in os.listdir(self.root):
            is_doomed = name.endswith(DOOMED_SUFFIX)
            if is_doomed or (deleted and topic_id_of(self.root / name) in deleted):
                log.info("partition.discarded", directory=name)
                from txn.storage.removal import remove_partition  # most starts have none

                try:
                    remove_partition(self.root / name, is_doomed=is_doomed)
                except OSError as error:
                    raise StorageError(
                        f"cannot remove {self.root / name}, of a deleted topic: {error}. "
                        "Remove it by hand"
                    ) from error

        def is_known(place: TopicPartition) -> bool:
            topic = known.get(place[0])
            return place == METADATA or (topic is not None and place[1] < topic.partition_count)

        self.past.keep_only(is_known)

    def begin(self, topic: str) -> None:
        """Remove all notes about an earlier topic of this name, before the new one is made.

        A start would mistake the earlier topic's records for lost records of the new one.

        Raises:
            StorageError: a checkpoint cannot be written.
        """
        self.past.forget_topic(topic)

    def require_room(self, topic: str, indexes: range) -> None:
        """Raise StorageError if something is stored where these partitions are to be."""
        names = [f"{topic}-{index}" for index in indexes]
        present = self._present(names)
        for name, index in zip(names, indexes, strict=True):
            if name in present:
                raise StorageError(
                    f"{self.root / name} is in the way: it was left by another topic of the name. "
                    "Restart the broker, which removes what is left of deleted topics, or move "
                    "the directory away",
                    topic=topic,
                    partition=index,
                )

    def open(self, topic: Topic, index: int) -> NativeLog:
        """Open and recover one partition.

        Raises:
            CorruptLogError: stored batches are damaged, or missing.
            StorageError: the directory cannot be read, or holds another topic's partition.
        """

        def open_log() -> NativeLog:
            is_there = os.path.lexists(self.root / f"{topic.name}-{index}")
            if not is_there and (topic.name, index) not in self.past.losses:
                self.past.require_unwritten(topic.name, index)
            return self._open(topic, index)

        return self._open_unless_refused(topic.name, index, open_log)

    def _open(self, topic: Topic, index: int) -> NativeLog:
        self.past.carry_out_loss(topic.name, index)
        directory = self.root / f"{topic.name}-{index}"
        self._require_free_name(topic.name, index)
        self._require_own_directory(topic.name, index)
        stored_id = topic_id_of(directory)
        if stored_id not in (None, topic.topic_id):
            raise StorageError(
                f"{directory} holds a partition of another topic: {directory / METADATA_FILE} "
                f"names {stored_id}, {topic.name} is {topic.topic_id}. Move the directory away; "
                "or, if only that file is damaged, remove it"
            )
        return NativeLog(
            self.root,
            topic.name,
            index,
            topic_id=topic.topic_id,
            settings=topic_settings(topic.settings, self._broker_settings),
            past=self.past.history_of(topic.name, index),
            log_starts=self.past.log_starts,
            recovery_points=self.past.recovery_points,
            cleaned_ends=self.past.cleaned_ends,
            # Only the metadata log's syncs are relied on under any `durability`.
            syncs_before_close=self._broker_settings["durability"] != "process"
            or (topic.name, index) == METADATA,
            lock_file=self._place.lock_file,
        )

    def _require_free_name(self, topic: str, index: int) -> None:
        """Raise StorageError if something else has the name of an unwritten partition's directory.

        Nothing is lost then; the partition can be opened once that is out of the way.
        """
        directory = self.root / f"{topic}-{index}"
        if directory.is_dir() or not os.path.lexists(directory):
            return
        past = self.past.history_of(topic, index)
        if not (past["recovery_point"] or past["high_watermark"] or past["log_start_offset"]):
            raise StorageError(
                f"{directory} is in the way: it is no directory. Move it away",
                topic=topic,
                partition=index,
            )

    def _require_own_directory(self, topic: str, index: int) -> None:
        """Raise StorageError if a partition's directory is another one's, by a symbolic link.

        Two logs that write to the same files damage each other. A link out of the data directory is
        fine, as long as it is the only one to that place.
        """
        directory = self.root / f"{topic}-{index}"
        if not directory.is_symlink() or not directory.exists():  # a link to nothing is a loss
            return
        real = Path(os.path.realpath(directory))
        is_inside = real.parent == Path(os.path.realpath(self.root))
        owner = real.name if is_inside else self._linked.setdefault(real, directory.name)
        if is_inside or owner != directory.name:
            raise StorageError(
                f"{directory} is a symbolic link to {real}, the directory of {owner}: two logs "
                "would write to the same files. Remove the link",
                topic=topic,
                partition=index,
            )

    def note_contradiction(self, topic: str, index: int, reason: str) -> None:
        """Note a refusal for the next start after a power failure, which cannot judge by itself.

        Its log is sound, and contradicts others; any other start finds that again.
        """
        self.past.note_refusal(topic, index, CorruptLogError(reason), is_of_log=False)

    def _open_unless_refused(self, topic: str, index: int, open_log: Callable[[], T]) -> T:
        """Open a log, unless it was refused and is as it was then; note it if it is refused now."""
        refused = self.past.refusal_in_force((topic, index))
        if refused is not None:
            raise refused
        try:
            opened = open_log()
        except CorruptLogError as error:
            self.past.note_refusal(topic, index, error)
            raise
        if (topic, index) in self.past.refusals:
            self.past.forget_refusals([(topic, index)])
        return opened

    @property
    def given_up(self) -> Collection[TopicPartition]:
        """The partitions of which this start gives something up, because an operator said so."""
        return self.past.losses.keys()

    def damage_of(self, topic: Topic, index: int) -> CorruptLogError | None:
        """Return why a start would refuse a partition, None if it would not; changes nothing.

        Raises:
            StorageError: it cannot be read.
        """
        name = f"{topic.name}-{index}"
        refused = self.past.refusal_in_force((topic.name, index))
        if refused is not None:
            return refused
        try:
            if not os.path.lexists(self.root / name):
                self.past.require_unwritten(topic.name, index)
            else:
                settings = log_settings(topic_settings(topic.settings, self._broker_settings))
                past = self.past.history_of(topic.name, index)
                if _core.examine_log(str(self.root / name), settings, past) is None:
                    raise StorageError(
                        f"a cleaning of {name} was cut short, and the next start finishes it. "
                        "Start the broker once; then look again"
                    )
        except CorruptLogError as error:
            return error
        except _core.CorruptLogError as error:
            message, path, position = error.args
            return CorruptLogError(message, path=path, position=position)
        except OSError as error:
            raise StorageError(f"cannot read partition {name}: {error}") from error
        return None

    def plan_loss(
        self,
        topic: Topic,
        index: int,
        first_lost: tuple[int, int] | None = None,
        *,
        known_end: int = 0,
    ) -> Loss:
        """Return the part of a damaged partition that can be kept; changes nothing.

        Args:
            topic: Its topic.
            index: Its number.
            first_lost: A batch that is not kept: base offset of its segment, and a position in it.
            known_end: An end that its log had come to, beside those of the checkpoints.

        Raises:
            StorageError: it cannot be read.
        """
        directory = self.root / f"{topic.name}-{index}"
        settings = log_settings(topic_settings(topic.settings, self._broker_settings))
        try:
            past = self.past.history_of(topic.name, index)
            past["high_watermark"] = max(past["high_watermark"], known_end)
            plan = _core.plan_loss(str(directory), settings, past, first_lost)
            return Loss(LossPlan.of(plan), fingerprint(directory))
        except OSError as error:
            raise StorageError(f"cannot read partition {directory.name}: {error}") from error

    def advice_on(self, topic: str, index: int) -> str:
        """Return an operator's options for a damaged partition."""
        return self.past.advice_on(topic, index)

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if an operator gave up, for this start, the lost part of a partition."""
        return (topic, index) in self.past.losses

    def open_all(self, wanted: Sequence[tuple[Topic, int]]) -> list[Opened]:
        """Open partitions, in this order; after a crash several at a time.

        Returns:
            A store for each; None where there is no directory: it was never written; the error
            of one that cannot be opened.
        """
        names = [f"{topic.name}-{index}" for topic, index in wanted]
        present = {
            *self._present(names),
            *(f"{topic}-{index}" for topic, index in self.past.losses),
        }
        found = [place for place, name in zip(wanted, names, strict=True) if name in present]

        def opened(place: tuple[Topic, int]) -> Opened:
            first = self._opened_or_error(*place)
            if isinstance(first, StorageError) and place[0].is_internal:
                # The disk's error may have passed. A coordinator asks no second time.
                return self._opened_or_error(*place)
            return first

        threads = self._broker_settings["num.recovery.threads.per.data.dir"]
        if self.past.was_clean or threads == 1 or len(found) < 2:
            stores = [opened(place) for place in found]
        else:
            stores = self._recovered(threads, opened, found)
        remaining = iter(stores)
        return [
            next(remaining) if name in present else self._unwritten(topic.name, index)
            for (topic, index), name in zip(wanted, names, strict=True)
        ]

    def _opened_or_error(
        self, topic: Topic, index: int
    ) -> NativeLog | CorruptLogError | StorageError:
        try:
            return self._open_unless_refused(topic.name, index, lambda: self._open(topic, index))
        except (CorruptLogError, StorageError) as error:
            return error

    def _unwritten(self, topic: str, index: int) -> CorruptLogError | None:
        def require() -> None:
            self.past.require_unwritten(topic, index)

        try:
            self._open_unless_refused(topic, index, require)
        except CorruptLogError as error:
            return error
        # Entries that prove nothing now, after a power failure, must not do so after a kill.
        self.past.recovery_points.forget_earlier(topic, index)
        self.past.log_starts.forget(topic, index)
        return None

    def _present(self, names: Sequence[str]) -> Collection[str]:
        """Those of the partitions' directories that are there."""
        if len(names) < LISTED_FROM:
            return {name for name in names if os.path.lexists(os.path.join(self.root, name))}
        return {entry.name for entry in os.scandir(self.root)}

    def _recovered(
        self,
        threads: int,
        opened: Callable[[tuple[Topic, int]], Opened],
        found: Sequence[tuple[Topic, int]],
    ) -> list[Opened]:
        def report(done: int) -> None:
            log.info("logs.recovering", done=done, of=len(found))

        return map_in_threads(threads, opened, found, report=report, report_s=PROGRESS_S)

    def close_all(self, stores: Sequence[PartitionLog]) -> list[StorageError]:
        """Close partitions, many at a time where there are many: each waits for the disk.

        Returns:
            The failures; the others are closed nevertheless.
        """
        written = sum(store.log_end_offset > 0 for store in stores)
        return _failures(lambda store: store.close(), stores, waiting=written)

    def sync_all(self, stores: Sequence[PartitionLog]) -> StorageError | None:
        """Sync partitions, many at a time where there are many; blocks.

        Returns:
            A failure; the others are synced nevertheless.
        """
        failures = _failures(lambda store: store.sync(), stores, waiting=len(stores))
        return failures[0] if failures else None

    def metadata_snapshot(self, log: PartitionLog) -> tuple[int, list[bytes]]:
        """The newest snapshot of the metadata log, see `MetadataSnapshots.newest`."""
        return self._metadata_snapshots(log).newest(log)

    def store_metadata_snapshot(self, log: PartitionLog, now_ms: int) -> None:
        """Write a snapshot of the metadata log, see `MetadataSnapshots.store`."""
        assert isinstance(log, NativeLog), "the log is of this storage"
        self._metadata_snapshots(log).store(log, log.log, now_ms)

    def _metadata_snapshots(self, log: PartitionLog) -> MetadataSnapshots:
        return MetadataSnapshots(self.root / f"{log.topic}-{log.index}")

    def space(self) -> Space:
        """The data directory, and the space of its disk. Raises StorageError."""
        try:
            disk = os.statvfs(self.root)
        except OSError as error:
            raise StorageError(f"cannot read the space of {self.root}: {error}") from error
        return Space(str(self.root), disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)


def _failures(
    call: Callable[[PartitionLog], None], stores: Sequence[PartitionLog], *, waiting: int
) -> list[StorageError]:
    """Make a call with each partition, side by side if many of them wait for the disk."""

    def failure(store: PartitionLog) -> StorageError | None:
        try:
            call(store)
        except StorageError as error:
            return error
        return None

    if waiting <= SYNCING_THREADS:
        ended = [failure(store) for store in stores]
    else:
        ended = map_in_threads(SYNCING_THREADS, failure, stores)
    return [error for error in ended if error is not None]
