"""The state that earlier runs left for each partition, by which a start judges its log.

`Past` holds how the last broker stopped, the checkpoints, the losses that operators accepted and
the partitions that a start refused. `history_of` gives the recovery of a log all of it.

A refused partition is judged by the stop before the start that refused it, because a later start
has lost that proof. The progress of a loss is on the disk before the first change of its files.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from txn import _core
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import TopicPartition
from txn.logs import log
from txn.storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from txn.storage.log_offsets import METADATA, CleanedEnds, LogStarts, RecoveryPoints
from txn.storage.losses import (
    ACCEPTED_LOSSES,
    Loss,
    LossStage,
    fingerprint,
    read_losses,
    write_losses,
)
from txn.storage.native_log import advice_on_damage
from txn.storage.refusals import REFUSED_PARTITIONS, Refusal, read_refusals, write_refusals


class Flags(NamedTuple):
    """The stop of the broker before."""

    was_clean: bool
    power_failed: bool
    was_left_by_kafka: bool


class Past:
    """The notes of earlier runs about a data directory; a start reads and changes them."""

    def __init__(
        self, root: Path, *, was_clean: bool, power_failed: bool, was_left_by_kafka: bool
    ) -> None:
        """Read the notes; a missing one is empty. `NativeStorage.load` has the arguments."""
        self._root = root
        self.was_clean = was_clean
        self.power_failed = power_failed
        self._was_left_by_kafka = was_left_by_kafka
        self.log_starts = LogStarts.read(root)
        self.recovery_points = RecoveryPoints.read(root)
        self.cleaned_ends = CleanedEnds.read(root)
        self.losses = _standing_losses(root)
        self._losing = Lock()
        self.refusals = read_refusals(root)
        self._refused_before = dict(self.refusals)
        self._refusing = Lock()
        if was_left_by_kafka and not was_clean:
            # Kafka writes where logs end now and then, also after a topic was deleted.
            self.recovery_points.distrust_ends()
        for path in self.recovery_points.unreadable() if was_clean else ():
            log.warning(
                "checkpoint.ignored",
                path=str(path),
                reason="it names no log, though the broker was stopped; what it would prove to be "
                "missing may go unnoticed",
            )

    def keep_only(self, is_known: Callable[[TopicPartition], bool]) -> None:
        """Drop the notes about partitions that are not known. Raises StorageError."""
        self.forget_refusals([place for place in self.refusals if not is_known(place)])
        try:
            self.recovery_points.keep_only(is_known)
            self.log_starts.keep_only(is_known)
            self.cleaned_ends.leave_out(is_known)
        except OSError as error:
            raise self._not_written(error) from error

    def forget_topic(self, topic: str) -> None:
        """Drop the notes about a topic that is gone. Raises StorageError."""
        self.forget_refusals([place for place in self.refusals if place[0] == topic])
        entries = self.recovery_points, self.log_starts, self.cleaned_ends
        places = {place for each in entries for place in each.names_of(topic)}
        if not places and topic not in self.recovery_points.deleted:
            return
        for _, index in places:
            self.recovery_points.forget(topic, index)
            self.log_starts.forget(topic, index)
            self.cleaned_ends.forget(topic, index)
        try:
            self.recovery_points.write()
            self.log_starts.write()
            self.cleaned_ends.write()
        except OSError as error:
            raise self._not_written(error) from error
        self.recovery_points.deleted.discard(topic)

    def _not_written(self, error: OSError) -> StorageError:
        return StorageError(f"cannot write the checkpoints in {self._root}: {error}")

    def advice_on(self, topic: str, index: int) -> str:
        """Return an operator's options for a damaged partition."""
        flags = self._flags_of((topic, index))
        is_after_kill = not (flags.was_clean or flags.power_failed)
        return advice_on_damage(self._root, topic, index, is_after_kill=is_after_kill)

    def history_of(self, topic: str, index: int) -> dict[str, Any]:
        """The known past of a log, as `_core.PartitionLog` takes it."""
        flags = self._flags_of((topic, index))
        recovery_point = self.recovery_points.of(topic, index)
        high_watermark = self.recovery_points.end_of(topic, index)
        is_vouched_for = max(recovery_point, high_watermark) > 0
        return {
            # Parts that no checkpoint vouches for are read through.
            "was_clean": flags.was_clean and is_vouched_for and (topic, index) not in self.losses,
            "power_failed": flags.power_failed,
            "recovery_point": recovery_point,
            "high_watermark": high_watermark,
            "log_start_offset": self.log_starts.of(topic, index),
            "was_left_by_kafka": flags.was_left_by_kafka,
            "cleaned_end": self.cleaned_ends.of(topic, index),
        }

    def _flags_of(self, place: TopicPartition) -> Flags:
        """The stop of the broker before, as far as this partition goes."""
        refusal = self.refusals.get(place)
        if refusal is not None and refusal.files is not None:
            return Flags(refusal.was_clean, refusal.power_failed, refusal.was_left_by_kafka)
        return Flags(self.was_clean, self.power_failed, self._was_left_by_kafka)

    def require_unwritten(self, topic: str, index: int) -> None:
        """Raise CorruptLogError if a note proves that a partition's directory was there."""
        proofs = [(RECOVERY_POINTS, self.recovery_points.of(topic, index))]
        start = None
        flags = self._flags_of((topic, index))
        if not flags.power_failed:  # else they may be ahead of the disk
            proofs += [(HIGH_WATERMARKS, self.recovery_points.end_of(topic, index))]
            # Kafka may have noted one of a topic that was deleted since.
            is_proof = flags.was_clean or not flags.was_left_by_kafka
            start = self.log_starts.of(topic, index) if is_proof else None
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
            others = sorted(each.name for each in self._root.glob("*-*/*.log"))
            if others:
                raise self._damage(topic, index, f"it is gone, but {others[0]} is there")

    def _damage(self, topic: str, index: int, reason: str) -> CorruptLogError:
        directory = self._root / f"{topic}-{index}"
        return CorruptLogError(
            f"{directory} is damaged: {reason}. {self.advice_on(topic, index)}",
            path=str(directory),
            position=0,
        )

    def note_refusal(
        self, topic: str, index: int, error: CorruptLogError, *, is_of_log: bool = True
    ) -> None:
        """Store a refusal for later starts, see `txn.storage.refusals`."""
        place: TopicPartition = (topic, index)
        flags = self._flags_of(place)
        known = vars(error)
        with self._refusing:
            self.refusals[place] = Refusal(
                error.message,
                known.get("path", str(self._root / f"{topic}-{index}")),
                known.get("position", 0),
                flags.was_clean,
                flags.power_failed,
                self._files_of(place) if is_of_log else None,
                flags.was_left_by_kafka,
            )
            self._write_refusals()

    def refusal_in_force(self, place: TopicPartition) -> CorruptLogError | None:
        """The error of an earlier start that refused a partition; None if it is judged anew."""
        refusal = self.refusals.get(place)
        if refusal is None or place in self.losses:
            return None
        is_of_log = refusal.files is not None
        if refusal.files != self._files_of(place) if is_of_log else not self.power_failed:
            return None
        return CorruptLogError(refusal.reason, path=refusal.path, position=refusal.position)

    def restore_refusals(self) -> None:
        """Restore the refusals that were in force when this start began."""
        with self._refusing:
            if self.refusals != self._refused_before:
                self.refusals = dict(self._refused_before)
                self._write_refusals()

    def forget_refusals(self, places: Sequence[TopicPartition]) -> None:
        """Remove the refusals of partitions, also from the disk."""
        with self._refusing:
            for place in places:
                self.refusals.pop(place, None)
            if places:
                self._write_refusals()

    def _write_refusals(self) -> None:
        try:
            write_refusals(self._root, self.refusals)
        except OSError as error:
            log.error("refusal.not_noted", path=REFUSED_PARTITIONS, reason=str(error))

    def _files_of(self, place: TopicPartition) -> str:
        try:
            return fingerprint(self._root / f"{place[0]}-{place[1]}")
        except OSError as error:
            return f"unreadable: {error}"

    def carry_out_loss(self, topic: str, index: int) -> None:
        """Carry out the loss that an operator has accepted for a partition, if it has one.

        Raises:
            StorageError: a disk refuses it; the next attempt begins again.
        """
        loss = self.losses.get((topic, index))
        if loss is None or loss.progress is LossStage.CARRIED_OUT:
            return
        plan = loss.plan
        try:
            self._note_progress((topic, index), LossStage.BEGUN)
            first = _core.carry_out_loss(str(self._root / f"{topic}-{index}"), plan.as_tuple())
            # They may list more than the rest of the log.
            self.recovery_points.forget_earlier(topic, index)
            self.log_starts.move(topic, index, first, plan.next_offset)
            self.recovery_points.write()
            self.log_starts.write()
            self._note_progress((topic, index), LossStage.CARRIED_OUT)
            self.forget_refusals([(topic, index)])
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
            self.losses[place] = replace(self.losses[place], progress=progress)
            write_losses(self._root, self.losses)

    def forget_losses(self) -> None:
        """Note that nothing is left to do of the losses that this start has carried out."""
        if not self.losses:
            return
        with self._losing:
            self.losses = {}
            try:
                write_losses(self._root, {})
            except OSError as error:  # the next start does it again, and finds nothing to do
                log.error("loss.not_forgotten", path=ACCEPTED_LOSSES, reason=str(error))


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
