"""The logs of a data directory: `NativeStorage` opens and tracks them, each a `NativeLog`."""

import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar

from txn import _core
from txn.config import BrokerSettings, topic_settings
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import TopicPartition
from txn.logs import log
from txn.metadata.image import Image, Topic
from txn.storage.base import PartitionLog, Space
from txn.storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from txn.storage.in_place import DirectoryPlace
from txn.storage.log_offsets import METADATA, CleanedEnds, LogStart, LogStarts, RecoveryPoints
from txn.storage.losses import (
    ACCEPTED_LOSSES,
    Loss,
    LossPlan,
    LossStage,
    fingerprint,
    read_losses,
    write_losses,
)
from txn.storage.native_log import NativeLog, advice_on_damage, log_settings
from txn.storage.native_metadata import MetadataSnapshots
from txn.storage.refusals import REFUSED_PARTITIONS, Refusal, read_refusals, write_refusals
from txn.storage.strays import (
    DOOMED_SUFFIX,
    METADATA_FILE,
    Stray,
    strays_in,
    topic_id_of,
)
from txn.storage.workers import map_in_threads

T = TypeVar("T")

PROGRESS_S = 5
"""Interval of the progress reports of a long recovery."""

LISTED_FROM = 100
"""Number of partitions from which on the data directory is listed rather than asked for each."""

SYNCING_THREADS = 16
"""Number of logs synced or closed at once: each waits for the disk."""

Opened = NativeLog | CorruptLogError | StorageError | None
"""The log of one partition, the error of its opening, or None: it was never written."""


class Flags(NamedTuple):
    """The stop of the broker before."""

    was_clean: bool
    power_failed: bool
    was_left_by_kafka: bool


class StoredNotes(NamedTuple):
    """The small files of a data directory: checkpoints, accepted losses, refused partitions."""

    log_starts: LogStarts
    recovery_points: RecoveryPoints
    cleaned_ends: CleanedEnds
    losses: dict[TopicPartition, Loss]
    refusals: dict[TopicPartition, Refusal]

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read them; a missing one is empty."""
        return cls(
            LogStarts.read(root),
            RecoveryPoints.read(root),
            CleanedEnds.read(root),
            _standing_losses(root),
            read_refusals(root),
        )


def _standing_losses(root: Path) -> dict[TopicPartition, Loss]:
    """The losses that were accepted of files that are still as they were then."""
    losses = read_losses(root)
    for (topic, index), loss in list(losses.items()):
        is_as_it_was = loss.files == fingerprint(root / f"{topic}-{index}")
        if loss.progress is LossStage.ACCEPTED and not is_as_it_was:
            log.warning(
                "log.loss_not_accepted",
                topic=topic,
                partition=index,
                reason="its files have changed since; look again with txn log accept-loss",
            )
            del losses[topic, index]
    return losses


class NativeStorage:
    """Every partition of one data directory."""

    def __init__(
        self,
        root: Path,
        broker_settings: BrokerSettings,
        *,
        was_clean: bool,
        power_failed: bool,
        was_left_by_kafka: bool,
        durability: _core.Durability,
        notes: "StoredNotes",
    ) -> None:
        """Store the arguments of `load` and the notes it has read."""
        self.root = root
        self._durability = durability
        self.was_clean = was_clean
        self.power_failed = power_failed
        self._was_left_by_kafka = was_left_by_kafka
        self._broker_settings = broker_settings
        self._log_starts = notes.log_starts
        self._recovery_points = notes.recovery_points
        self.cleaned_ends = notes.cleaned_ends
        self._is_checkpoint_refused = False
        self._place = DirectoryPlace(root)
        self._losses = notes.losses
        self._losing = Lock()
        self._refusals = notes.refusals
        self._refused_before = dict(notes.refusals)
        self._refusing = Lock()
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
        notes = StoredNotes.read(root)
        if was_left_by_kafka and not was_clean:
            # Kafka writes where logs end now and then, also after a topic was deleted.
            notes.recovery_points.distrust_ends()
        for path in notes.recovery_points.unreadable() if was_clean else ():
            log.warning(
                "checkpoint.ignored",
                path=str(path),
                reason="it names no log, though the broker was stopped; what it would prove to be "
                "missing may go unnoticed",
            )
        return cls(
            root,
            broker_settings,
            was_clean=was_clean,
            power_failed=power_failed,
            was_left_by_kafka=was_left_by_kafka,
            durability=durability or _core.Durability(1),
            notes=notes,
        )

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

        self._forget_refusals([place for place in self._refusals if not is_known(place)])
        try:
            self._recovery_points.keep_only(is_known)
            self._log_starts.keep_only(is_known)
            self.cleaned_ends.leave_out(is_known)
        except OSError as error:
            raise StorageError(f"cannot write the checkpoints in {self.root}: {error}") from error

    def begin(self, topic: str) -> None:
        """Remove all notes about an earlier topic of this name, before the new one is made.

        A start would mistake the earlier topic's records for lost records of the new one.

        Raises:
            StorageError: a checkpoint cannot be written.
        """
        self._forget_refusals([place for place in self._refusals if place[0] == topic])
        entries = self._recovery_points, self._log_starts, self.cleaned_ends
        places = {place for each in entries for place in each.names_of(topic)}
        if not places and topic not in self._recovery_points.deleted:
            return
        for _, index in places:
            self._recovery_points.forget(topic, index)
            self._log_starts.forget(topic, index)
            self.cleaned_ends.forget(topic, index)
        try:
            self._recovery_points.write()
            self._log_starts.write()
            self.cleaned_ends.write()
        except OSError as error:
            raise StorageError(f"cannot write the checkpoints in {self.root}: {error}") from error
        self._recovery_points.deleted.discard(topic)

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
            if not is_there and (topic.name, index) not in self._losses:
                self._require_unwritten(topic.name, index)
            return self._open(topic, index)

        return self._open_unless_refused(topic.name, index, open_log)

    def _require_unwritten(self, topic: str, index: int) -> None:
        """Fail if something proves that a directory was there which is gone."""
        proofs = [(RECOVERY_POINTS, self._recovery_points.of(topic, index))]
        start = None
        flags = self._flags_of((topic, index))
        if not flags.power_failed:  # else they may be ahead of the disk
            proofs += [(HIGH_WATERMARKS, self._recovery_points.end_of(topic, index))]
            # Kafka may have noted one of a topic that was deleted since.
            is_proof = flags.was_clean or not flags.was_left_by_kafka
            start = self._log_starts.of(topic, index) if is_proof else None
        for name, offset in proofs:
            if offset > 0:
                raise self._damage(
                    topic, index, f"it is gone, but {name} says that its log had come to {offset}"
                )
        if start is not None:
            raise self._damage(
                topic, index, f"it is gone, but {LOG_STARTS} says that its log began at {start}"
            )
        if (topic, index) == METADATA:
            others = sorted(each.name for each in self.root.glob("*-*/*.log"))
            if others:
                raise self._damage(topic, index, f"it is gone, but {others[0]} is there")

    def _damage(self, topic: str, index: int, reason: str) -> CorruptLogError:
        directory = self.root / f"{topic}-{index}"
        return CorruptLogError(
            f"{directory} is damaged: {reason}. {self.advice_on(topic, index)}",
            path=str(directory),
            position=0,
        )

    def _open(self, topic: Topic, index: int) -> NativeLog:
        self._give_up(topic.name, index)
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
            past=self._history_of(topic.name, index),
            log_starts=self._log_starts,
            recovery_points=self._recovery_points,
            cleaned_ends=self.cleaned_ends,
            # Only the metadata log's syncs are relied on under any `durability`.
            syncs_before_close=self._broker_settings["durability"] != "process"
            or (topic.name, index) == METADATA,
            lock_file=self._place.lock_file,
        )

    def _flags_of(self, place: TopicPartition) -> Flags:
        """The stop of the broker before, as far as this partition goes."""
        refusal = self._refusals.get(place)
        if refusal is not None and refusal.files is not None:
            return Flags(refusal.was_clean, refusal.power_failed, refusal.was_left_by_kafka)
        return Flags(self.was_clean, self.power_failed, self._was_left_by_kafka)

    def _require_free_name(self, topic: str, index: int) -> None:
        """Raise StorageError if something else has the name of an unwritten partition's directory.

        Nothing is lost then; the partition can be opened once that is out of the way.
        """
        directory = self.root / f"{topic}-{index}"
        if directory.is_dir() or not os.path.lexists(directory):
            return
        past = self._history_of(topic, index)
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

    def _history_of(self, topic: str, index: int) -> dict[str, Any]:
        """The known past of a log, as `_core.PartitionLog` takes it."""
        flags = self._flags_of((topic, index))
        recovery_point = self._recovery_points.of(topic, index)
        high_watermark = self._recovery_points.end_of(topic, index)
        is_vouched_for = max(recovery_point, high_watermark) > 0
        return {
            # Parts that no checkpoint vouches for are read through.
            "was_clean": flags.was_clean and is_vouched_for and (topic, index) not in self._losses,
            "power_failed": flags.power_failed,
            "recovery_point": recovery_point,
            "high_watermark": high_watermark,
            "log_start_offset": self._log_starts.of(topic, index),
            "was_left_by_kafka": flags.was_left_by_kafka,
            "cleaned_end": self.cleaned_ends.of(topic, index),
        }

    # ------------------------------------------------------------ refusals

    def _note_refusal(
        self, topic: str, index: int, error: CorruptLogError, *, is_of_log: bool = True
    ) -> None:
        """Store a refusal for later starts, see `txn.storage.refusals`."""
        place: TopicPartition = (topic, index)
        flags = self._flags_of(place)
        known = vars(error)
        with self._refusing:
            self._refusals[place] = Refusal(
                error.message,
                known.get("path", str(self.root / f"{topic}-{index}")),
                known.get("position", 0),
                flags.was_clean,
                flags.power_failed,
                self._files_of(place) if is_of_log else None,
                flags.was_left_by_kafka,
            )
            self._write_refusals()

    def note_contradiction(self, topic: str, index: int, reason: str) -> None:
        """Note a refusal for the next start after a power failure, which cannot judge by itself.

        Its log is sound, and contradicts others; any other start finds that again.
        """
        self._note_refusal(topic, index, CorruptLogError(reason), is_of_log=False)

    def _open_unless_refused(self, topic: str, index: int, open_log: Callable[[], T]) -> T:
        """Open a log, unless it was refused and is as it was then; note it if it is refused now."""
        refused = self._refusal_in_force((topic, index))
        if refused is not None:
            raise refused
        try:
            opened = open_log()
        except CorruptLogError as error:
            self._note_refusal(topic, index, error)
            raise
        if (topic, index) in self._refusals:
            self._forget_refusals([(topic, index)])
        return opened

    def _refusal_in_force(self, place: TopicPartition) -> CorruptLogError | None:
        refusal = self._refusals.get(place)
        if refusal is None or place in self._losses:
            return None
        is_of_log = refusal.files is not None
        if refusal.files != self._files_of(place) if is_of_log else not self.power_failed:
            return None
        return CorruptLogError(refusal.reason, path=refusal.path, position=refusal.position)

    def restore_refusals(self) -> None:
        """Restore the refusals that were in force when this start began."""
        with self._refusing:
            if self._refusals != self._refused_before:
                self._refusals = dict(self._refused_before)
                self._write_refusals()

    def _forget_refusals(self, places: Sequence[TopicPartition]) -> None:
        with self._refusing:
            for place in places:
                self._refusals.pop(place, None)
            if places:
                self._write_refusals()

    def _write_refusals(self) -> None:
        try:
            write_refusals(self.root, self._refusals)
        except OSError as error:
            log.error("refusal.not_noted", path=REFUSED_PARTITIONS, reason=str(error))

    def _files_of(self, place: TopicPartition) -> str:
        try:
            return fingerprint(self.root / f"{place[0]}-{place[1]}")
        except OSError as error:
            return f"unreadable: {error}"

    # ------------------------------------------------------------ losses

    @property
    def given_up(self) -> Collection[TopicPartition]:
        """The partitions of which this start gives something up, because an operator said so."""
        return self._losses.keys()

    def damage_of(self, topic: Topic, index: int) -> CorruptLogError | None:
        """Return why a start would refuse a partition, None if it would not; changes nothing.

        Raises:
            StorageError: it cannot be read.
        """
        name = f"{topic.name}-{index}"
        refused = self._refusal_in_force((topic.name, index))
        if refused is not None:
            return refused
        try:
            if not os.path.lexists(self.root / name):
                self._require_unwritten(topic.name, index)
            else:
                settings = log_settings(topic_settings(topic.settings, self._broker_settings))
                past = self._history_of(topic.name, index)
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
            past = self._history_of(topic.name, index)
            past["high_watermark"] = max(past["high_watermark"], known_end)
            plan = _core.plan_loss(str(directory), settings, past, first_lost)
            return Loss(LossPlan.of(plan), fingerprint(directory))
        except OSError as error:
            raise StorageError(f"cannot read partition {directory.name}: {error}") from error

    def forget_losses(self) -> None:
        """Note that nothing is left to do of the losses that this start has carried out."""
        if not self._losses:
            return
        with self._losing:
            self._losses = {}
            try:
                write_losses(self.root, {})
            except OSError as error:  # the next start does it again, and finds nothing to do
                log.error("loss.not_forgotten", path=ACCEPTED_LOSSES, reason=str(error))

    def _give_up(self, topic: str, index: int) -> None:
        """Carry out the loss that an operator has accepted for a partition, if it has one.

        Raises:
            StorageError: a disk refuses it; the next attempt begins again.
        """
        loss = self._losses.get((topic, index))
        if loss is None or loss.progress is LossStage.CARRIED_OUT:
            return
        plan = loss.plan
        try:
            self._note_progress((topic, index), LossStage.BEGUN)
            first = _core.carry_out_loss(str(self.root / f"{topic}-{index}"), plan.as_tuple())
            # They may list more than the rest of the log.
            self._recovery_points.forget_earlier(topic, index)
            self._log_starts.move(topic, index, first, plan.next_offset)
            self._recovery_points.write()
            self._log_starts.write()
            self._note_progress((topic, index), LossStage.CARRIED_OUT)
            self._forget_refusals([(topic, index)])
        except OSError as error:
            raise StorageError(
                f"cannot give up what is lost of partition {topic}-{index}: {error}"
            ) from error
        log.warning(
            "log.loss_accepted",
            topic=topic,
            partition=index,
            kept_end=plan.kept_end,
            next_offset=plan.next_offset,
            bytes=sum(size for _, _, size in plan.given_up),
        )

    def _note_progress(self, place: TopicPartition, progress: LossStage) -> None:
        with self._losing:
            self._losses[place] = replace(self._losses[place], progress=progress)
            write_losses(self.root, self._losses)

    def advice_on(self, topic: str, index: int) -> str:
        """Return an operator's options for a damaged partition."""
        flags = self._flags_of((topic, index))
        is_after_kill = not (flags.was_clean or flags.power_failed)
        return advice_on_damage(self.root, topic, index, is_after_kill=is_after_kill)

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if an operator gave up, for this start, the lost part of a partition."""
        return (topic, index) in self._losses

    def open_all(self, wanted: Sequence[tuple[Topic, int]]) -> list[Opened]:
        """Open partitions, in this order; after a crash several at a time.

        Returns:
            A store for each; None where there is no directory: it was never written; the error
            of one that cannot be opened.
        """
        names = [f"{topic.name}-{index}" for topic, index in wanted]
        present = {*self._present(names), *(f"{topic}-{index}" for topic, index in self._losses)}
        found = [place for place, name in zip(wanted, names, strict=True) if name in present]

        def opened(place: tuple[Topic, int]) -> Opened:
            first = self._opened_or_error(*place)
            if isinstance(first, StorageError) and place[0].is_internal:
                # The disk's error may have passed. A coordinator asks no second time.
                return self._opened_or_error(*place)
            return first

        threads = self._broker_settings["num.recovery.threads.per.data.dir"]
        if self.was_clean or threads == 1 or len(found) < 2:
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
            self._require_unwritten(topic, index)

        try:
            self._open_unless_refused(topic, index, require)
        except CorruptLogError as error:
            return error
        # Entries that prove nothing now, after a power failure, must not do so after a kill.
        self._recovery_points.forget_earlier(topic, index)
        self._log_starts.forget(topic, index)
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

    def write_checkpoints(self) -> None:
        """Write the checkpoints for the logs as a power failure left them; blocks.

        Old entries may lie above the log ends, and would look like a loss after the next kill.
        Raises StorageError.
        """
        self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        try:
            self.write_log_starts()
            self.write_recovery_points()
        except OSError as error:
            raise StorageError(f"cannot write the checkpoints in {self.root}: {error}") from error

    def sync_all_and_write_checkpoints(self) -> None:
        """Sync all logs, and write checkpoints that cover them; blocks.

        For a broker that did not write them all under its own promise. Kafka's cleaner leaves gaps
        between segments. After a power failure, only the recovery point and its last cleaning tell
        them from losses. Its retention notes no log start before it removes segments; from here on
        an entry proves where a log begins. Raises StorageError.
        """
        logs = self._recovery_points.logs()
        if not logs.keys() - {METADATA}:
            return

        def sync(opened: _core.PartitionLog) -> None:
            with suppress(_core.LogRefusedError, OSError):  # `tick` reports it
                opened.sync()

        map_in_threads(SYNCING_THREADS, sync, list(logs.values()))
        self._write_checkpoints()

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

    def tick(self) -> None:
        """Sync sealed segments and bytes that have waited for `flush.ms`, and remove files whose
        delay is over. Report damage that readers met, and logs that a disk keeps from taking
        batches. Note logs that were written for the first time, and how much of the metadata log
        was synced. Close unused files.
        """
        logs = list(self._recovery_points.logs().values())
        damaged, troubles = _core.tick(logs, self._durability)
        for directory, trouble in troubles:
            if trouble is None:
                log.warning("log.takes_batches_again", directory=directory)
            else:
                log.error("log.refuses_batches", directory=directory, reason=trouble)
        for what, path, position in damaged:
            topic, _, index = Path(path).parent.name.rpartition("-")
            self.log_damage(topic, int(index), what, path, position)
        if self._recovery_points.are_behind():
            self._note_new_logs()
        _core.close_idle_files()

    def log_damage(self, topic: str, index: int, what: str, path: str, position: int) -> None:
        """Log damage that a reader found while the broker serves, as a start logs it."""
        reason = f"{what}. {self.advice_on(topic, index)}"
        log.error(
            "log.damaged", topic=topic, partition=index, path=path, position=position, reason=reason
        )

    def release(self) -> None:
        """Release the durability service; `tick` is called no more."""
        del self._durability

    def _note_new_logs(self) -> None:
        try:
            self.write_log_starts()  # first: `are_behind` asks the others, until they are written
            self.write_recovery_points()
        except OSError as error:
            if not self._is_checkpoint_refused:
                log.error("checkpoint.not_written", path=RECOVERY_POINTS, reason=str(error))
            self._is_checkpoint_refused = True
        else:
            self._is_checkpoint_refused = False

    def retain(self, now_ms: int) -> None:
        """Remove the segments that retention no longer keeps; a refused log keeps all of them.

        The new log starts of all logs are noted in one write, before any segment goes.
        """
        expired: dict[TopicPartition, LogStart] = {}
        for place, partition in self._recovery_points.logs().items():
            if place in self._refusals:
                continue  # its records may be needed to repair it
            with self._retaining(place):
                if found := partition.find_expired(now_ms):
                    expired[place] = LogStart(partition, *found)
        try:
            self._log_starts.note(expired)
        except OSError as error:
            log.error("checkpoint.not_written", path=LOG_STARTS, reason=str(error))
            return
        for place, start in expired.items():
            with self._retaining(place):
                self._remove_expired(place, start)

    def _remove_expired(self, place: TopicPartition, start: LogStart) -> None:
        def note(offset: int) -> None:
            self._log_starts.note({place: start._replace(offset=offset)})

        partition = start.log
        if removed := partition.remove_expired((start.offset, start.truncations), note):
            log.info(
                "log.segments_removed",
                topic=place[0],
                partition=place[1],
                segments=removed,
                log_start_offset=partition.log_start_offset,
            )

    @contextmanager
    def _retaining(self, place: TopicPartition) -> Iterator[None]:
        try:
            yield
        except _core.LogRefusedError:
            return  # it was closed or deleted meanwhile
        except (_core.CorruptLogError, OSError) as error:
            reason = str(error.args[0])
            log.error("log.retention_failed", topic=place[0], partition=place[1], reason=reason)

    def write_recovery_points(self) -> None:
        """Write the facts that the next start may believe. Raises OSError."""
        self._recovery_points.write()

    def write_log_starts(self) -> None:
        """Write the starts that were set for logs. Raises OSError."""
        self._log_starts.write()

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
