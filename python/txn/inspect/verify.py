"""Verification of a whole data directory.

The comparisons are:

    .log             checksums and headers of every batch; offsets from batch to batch, from
                     segment to segment, and where each segment begins
    .index           every entry points at a batch and names its last offset
    .timeindex       every entry names a batch that is younger than all before it
    .txnindex        the aborted transactions that a replay of the batches finds
    .snapshot        the producers that `ProducerStateManager.replay` finds in the batches
    leader-epoch-checkpoint   the leader epochs in the batches
    partition.metadata        the topic's id in `__cluster_metadata`, which has to know it
    meta.properties           the node and the directory that `__cluster_metadata` names
    checkpoints      the first and the last offset of each log
    open transactions         the records of `__transaction_state` (a stopped directory's)

For a stopped directory, `_core.examine_log` also gives the reasons for which the next start would
refuse it. So both say the same.

Some faults cannot be found. A checkpoint has no checksum. A recovery point or a high watermark that
is too low only means more work at the next start. A log start offset inside the log is taken as it
is. Records that were lost in a kill before any checkpoint was written may leave no trace. Where a
log was compacted, or its beginning deleted, a replay lacks batches, so only the rest is compared.
Without a clean stop the end of a log may be torn. The part that the next start cuts off is a note,
not a finding.

A broker may be at work. Then sizes and checkpoints are taken before the logs are read, and a
finding in a partition counts only if a second look repeats it.

Nothing is written, locked or synced.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from os.path import lexists  # a link that leads nowhere is there, and cannot be read
from pathlib import Path
from typing import Any

from txn.coordinator.lost_logs import KnownEnd
from txn.errors import DirectoryError, StorageError
from txn.identifiers import TopicPartition
from txn.inspect import segments, texts
from txn.inspect.layout import (
    CHECKPOINTS,
    CLEANED,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    FileKind,
    StopState,
    is_partition,
    kind_of,
    list_partition,
    partition_of,
    partitions_in,
    state_of,
)
from txn.inspect.look import PartitionLook
from txn.inspect.lost_logs import lost_logs
from txn.inspect.metadata_log import read_metadata, replayed, verify_metadata_snapshot
from txn.inspect.open_transactions import (
    verify_open_transactions,
    was_left_by_kafka,
    was_left_in_another_boot,
)
from txn.inspect.outcome import Finding, Outcome, Surroundings, read_text
from txn.inspect.partitions import Ends, Report, verify_partitions
from txn.storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from txn.storage.directory import CLEAN, META
from txn.storage.losses import fingerprint
from txn.storage.refusals import REFUSED_PARTITIONS, read_refusals
from txn.storage.strays import REMEDY, strays_in


def verify(
    path: Path, *, is_deep: bool = False, report: Report = lambda _done, _total: None
) -> Outcome:
    """Verify a data directory, a partition's directory, or one file.

    Args:
        path: What to look at.
        is_deep: Open every batch as well, and read its records.
        report: Told of the progress.

    Raises:
        DirectoryError: there is nothing of Kafka's.
        OSError: the directory itself is unreadable; faults of its files are in the outcome.
    """
    path = path.absolute()
    if not path.exists():
        raise DirectoryError(f"{path} is not there", path=str(path))
    if path.is_dir():
        return _verify_directory(path, is_deep, report)
    kind = kind_of(path)
    if kind is None:
        raise DirectoryError(f"{path} is no file of a log, by its name", path=str(path))
    if kind is FileKind.METADATA_SNAPSHOT:
        outcome = Outcome()
        verify_metadata_snapshot(path, outcome)
        return outcome
    # Each file stands beside the sources that it has to agree with.
    outcome = _verify_directory(path.parent, is_deep, report)
    outcome.findings = [finding for finding in outcome.findings if finding.path == path]
    outcome.notes = [note for note in outcome.notes if note.path == path]
    outcome.unread = [unread for unread in outcome.unread if unread.path == path]
    return outcome


def contradiction_in(root: Path, name: str) -> str | None:
    """Return the contradiction to an open transaction of a partition, None if there is none.

    Args:
        root: A data directory that no broker uses.
        name: The partition's directory in it.
    """
    outcome = DirectoryLook(root, is_deep=False, report=_ignore_progress).open_in(name)
    findings = [(each.path, each.what) for each in outcome.findings]
    findings += [(each.path, each.what) for each in outcome.notes]
    return next((what for path, what in findings if path.parent.name == name), None)


def losses_in(root: Path, name: str) -> list[Finding]:
    """List the findings of a verification that say that a partition has lost something.

    Batches are opened, and their records read, only if all is sound without that.

    Args:
        root: A data directory that no broker uses; its lock may be held.
        name: The partition's directory in it.
    """
    found = DirectoryLook(root, is_deep=False, report=_ignore_progress, is_stopped=True).losses_in(
        name
    )
    if found:
        return found
    return DirectoryLook(root, is_deep=True, report=_ignore_progress, is_stopped=True).losses_in(
        name
    )


def known_end_of(root: Path, name: str) -> int:
    """The end of a log that is gone, by the coordinators' records; 0 if none knows of it.

    Args:
        root: A data directory that no broker uses; its lock may be held.
        name: The partition's directory, which is not there.
    """
    return DirectoryLook(
        root, is_deep=False, report=_ignore_progress, is_stopped=True
    ).known_end_of(name)


def _ignore_progress(_done: int, _total: int) -> None:
    """Report of a look that is over soon."""


def _verify_directory(directory: Path, is_deep: bool, report: Report) -> Outcome:
    if not is_partition(directory):
        return DirectoryLook(directory, is_deep, report).whole()
    if (directory.parent / META).exists():
        return DirectoryLook(directory.parent, is_deep, report).only([directory])
    alone = Surroundings(StopState.LEFT, is_deep, is_compacted=True)
    outcome, _ = verify_partitions([(directory, alone)], StopState.LEFT, report)
    outcome.sort_findings()
    return outcome


# ---------------------------------------------------------------- a data directory


class DirectoryLook:
    """One look at a data directory. Checkpoints and metadata are read when it is made.

    Raises:
        DirectoryError: it holds no log.
    """

    def __init__(
        self, root: Path, is_deep: bool, report: Report, *, is_stopped: bool = False
    ) -> None:
        self._root = root
        self._is_deep = is_deep
        self._report = report
        self._partitions = partitions_in(root)
        if not lexists(root / META) and not any(map(_has_segments, self._partitions)):
            raise DirectoryError(
                f"{root} holds no log. Give a data directory, a partition's directory or a file",
                path=str(root),
            )
        state = state_of(root)
        if is_stopped and state is StopState.IN_USE:
            state = StopState.LEFT
        self._outcome = Outcome(state=state)
        self._was_left_by_kafka = was_left_by_kafka(root)
        self._was_left_in_another_boot = was_left_in_another_boot(root)
        self._checkpoints = {name: self._checkpoint(root / name) for name in CHECKPOINTS}
        self._image = read_metadata(root / f"{METADATA_TOPIC}-0")

    def only(self, directories: Collection[Path]) -> Outcome:
        """Verify some of the partitions, and nothing of the files beside them."""
        plans = [(directory, self._surroundings(directory)) for directory in directories]
        outcome = verify_partitions(plans, self._outcome.state, self._report)[0]
        self._verify_as_a_start(directories, outcome)
        outcome.sort_findings()
        return outcome

    def losses_in(self, name: str) -> list[Finding]:
        """Find the losses of one partition, by its own files and by the checkpoints."""
        directory, outcome = self._root / name, self._outcome
        plans = [(each, self._surroundings(each)) for each in self._partitions if each == directory]
        found, ends = verify_partitions(plans, outcome.state, self._report)
        outcome.add_all(found)
        self._verify_as_a_start([each for each, _ in plans], outcome)
        self._verify_all_are_there(outcome)
        place = partition_of(directory)
        for file, offsets in self._checkpoints.items():
            its_own = {each: offset for each, offset in offsets.items() if each == place}
            self._verify_checkpoint(self._root / file, its_own, ends)
        outcome.sort_findings()
        return [finding for finding in outcome.findings if finding.lost_from == directory]

    def open_in(self, name: str) -> Outcome:
        """Compare only the open transactions of one partition with the coordinator's records."""
        directory = self._root / name
        surroundings = replace(self._surroundings(directory), state=StopState.LEFT)
        outcome = Outcome(state=StopState.LEFT)
        outcome.held_open = PartitionLook(
            directory, surroundings, lambda _b: None
        ).outcome.held_open
        verify_open_transactions(self._root, self._partitions, self._image, outcome, {})
        return outcome

    def whole(self) -> Outcome:
        """Verify everything."""
        outcome = self._outcome
        self._verify_identity()
        if lexists(self._root / CLEAN):
            read_text(self._root / CLEAN, texts.read_clean_mark, outcome)
        plans = [(directory, self._surroundings(directory)) for directory in self._partitions]
        partitions, ends = verify_partitions(plans, outcome.state, self._report)
        outcome.add_all(partitions)
        self._verify_as_a_start(self._partitions, outcome)
        self._verify_all_are_there(outcome)
        self._verify_all_are_known(outcome)
        self._verify_refusals(outcome)
        verify_open_transactions(self._root, self._partitions, self._image, outcome, ends)
        for name, offsets in self._checkpoints.items():
            self._verify_checkpoint(self._root / name, offsets, ends)
        for entry in sorted(self._root.iterdir()):
            if not entry.is_dir() and partition_of(entry) and kind_of(entry) is None:
                outcome.find(entry, None, "it has the name of a partition's directory and is none")
            elif entry.is_dir() and entry not in self._partitions:
                outcome.note(entry, "a directory on its way in or out, or nothing of Kafka's")
            elif kind_of(entry) is FileKind.METADATA_SNAPSHOT:
                verify_metadata_snapshot(entry, outcome)
        outcome.sort_findings()
        return outcome

    def _verify_as_a_start(self, directories: Collection[Path], outcome: Outcome) -> None:
        """Find the reason for which the next start would refuse a partition, if it has no findings
        yet.
        """
        if outcome.state is StopState.IN_USE:
            return
        for directory in directories:
            place = partition_of(directory)
            topic = self._image.topics.get(place[0]) if place else None
            settings = (
                {"cleanup.policy": topic.settings.get("cleanup.policy", "delete")} if topic else {}
            )
            try:
                refusal = segments.refusal_of(directory, settings, self._history_of(directory))
            except OSError as error:
                if not any(each.path.is_relative_to(directory) for each in outcome.findings):
                    outcome.not_read(directory, error)  # else a finding says why
                continue
            if refusal is None:
                continue
            reason, path, position = refusal
            outcome.notes = [note for note in outcome.notes if note.path != path]
            if not any(finding.path == path for finding in outcome.findings):
                outcome.find(path, position, reason)

    def _history_of(self, directory: Path) -> dict[str, Any]:
        """Facts that a start would have about a log's earlier life."""
        place = partition_of(directory) or (directory.name, 0)
        state = self._outcome.state
        recovery_point = self._checkpoints[RECOVERY_POINTS].get(place, 0)
        # Kafka writes where logs end now and then, also after a topic was deleted.
        is_proof = state is StopState.CLEAN or not self._was_left_by_kafka
        high_watermark = self._checkpoints[HIGH_WATERMARKS].get(place, 0) if is_proof else 0
        return {
            "was_clean": state is StopState.CLEAN and max(recovery_point, high_watermark) > 0,
            "power_failed": self._power_failed(),
            "recovery_point": recovery_point,
            "high_watermark": high_watermark,
            "log_start_offset": self._checkpoints[LOG_STARTS].get(place),
            "was_left_by_kafka": self._was_left_by_kafka,
            "cleaned_end": self._checkpoints[CLEANED].get(place),
        }

    def _power_failed(self) -> bool:
        return self._outcome.state is StopState.LEFT and self._was_left_in_another_boot

    def _verify_all_are_there(self, outcome: Outcome) -> None:
        """Find the directories that checkpoints name and that are gone."""
        if outcome.state is StopState.IN_USE:
            return
        # After a power failure only a recovery point proves which bytes were on the disk.
        names = [RECOVERY_POINTS]
        if not self._was_left_in_another_boot:
            names.append(HIGH_WATERMARKS)
            if outcome.state is StopState.CLEAN or not self._was_left_by_kafka:
                names.append(LOG_STARTS)
        for name in names:
            says = "began at" if name == LOG_STARTS else "had come to"
            for (topic, index), offset in sorted(self._checkpoints[name].items()):
                directory = self._root / f"{topic}-{index}"
                is_found = any(finding.path == directory for finding in outcome.findings)
                is_gone = not lexists(directory) and self._is_known(topic, index)
                is_proof = offset > 0 or name == LOG_STARTS
                if is_proof and is_gone and not is_found:
                    what = f"it is gone, but {name} says that its log {says} {offset}"
                    outcome.find(directory, None, what)
        for (topic, index), known in sorted(self._lost_logs().items()):
            directory = self._root / f"{topic}-{index}"
            if not any(finding.path == directory for finding in outcome.findings):
                outcome.find(directory, None, known.finding)

    def _lost_logs(self) -> dict[TopicPartition, KnownEnd]:
        """The logs that are gone by the coordinators' records; these may be ahead of the disk."""
        if self._was_left_in_another_boot and self._outcome.state is not StopState.CLEAN:
            return {}
        return lost_logs(self._root, self._partitions, self._image)

    def known_end_of(self, name: str) -> int:
        """The end of a log that is gone, by the coordinators' records; 0 if none knows of it."""
        place = partition_of(self._root / name)
        known = self._lost_logs().get(place) if place else None
        return 0 if known is None else known.end

    def _verify_all_are_known(self, outcome: Outcome) -> None:
        """Find the directories of topics that the kept part of the metadata log does not know."""
        if outcome.state is StopState.IN_USE:
            return
        replay = replayed(self._root / f"{METADATA_TOPIC}-0", to_damage=True)
        for stray in strays_in(self._root, replay.image, replay.deleted):
            what = f"{METADATA_TOPIC}-0 does not know its topic, {stray.topic_id}"
            if stray.has_records:
                outcome.find(stray.directory, None, what, REMEDY)
            else:
                outcome.note(stray.directory, f"{what}; it holds no records")

    def _verify_refusals(self, outcome: Outcome) -> None:
        """Find the partitions that stay refused because their files are as a start refused them."""
        if outcome.state is StopState.IN_USE:
            return
        try:
            refusals = read_refusals(self._root)
        except StorageError as error:
            outcome.find(self._root / REFUSED_PARTITIONS, None, error.message)
            return
        for (topic, index), refusal in sorted(refusals.items()):
            directory = self._root / f"{topic}-{index}"
            is_found = any(
                directory in (finding.path, finding.path.parent) for finding in outcome.findings
            )
            if not is_found and refusal.files == fingerprint(directory):
                outcome.find(Path(refusal.path), refusal.position, refusal.reason)

    def _checkpoint(self, path: Path) -> dict[TopicPartition, int]:
        if not lexists(path):
            return {}
        return read_text(path, texts.read_checkpoint, self._outcome) or {}

    def _surroundings(self, directory: Path) -> Surroundings:
        partition = partition_of(directory)
        assert partition is not None, f"{directory} is no partition's"
        topic = self._image.topics.get(partition[0])
        topic_id = topic.topic_id if topic else None
        is_compacted = topic is not None and "compact" in topic.settings.get("cleanup.policy", "")
        cleaned_to = self._checkpoints[CLEANED].get(partition)
        sealed_end = _sealed_end(directory) if is_compacted else None
        if sealed_end is not None:
            # A cleaning that was broken off leaves clean segments beyond its checkpoint.
            cleaned_to = max(cleaned_to or 0, sealed_end)
        return Surroundings(
            self._outcome.state,
            self._is_deep,
            METADATA_TOPIC_ID if partition[0] == METADATA_TOPIC else topic_id,
            is_compacted,
            cleaned_to,
            self._checkpoints[LOG_STARTS].get(partition, 0),
            self._power_failed(),
            self._checkpoints[RECOVERY_POINTS].get(partition, 0),
            self._checkpoints[CLEANED].get(partition),
            self._was_left_by_kafka,
        )

    def _verify_identity(self) -> None:
        path = self._root / META
        if not lexists(path):
            self._outcome.find(path, None, "it is missing")
            return
        identity = read_text(path, texts.read_identity, self._outcome)
        if identity is None:
            return
        _, node_id, directory_id = identity
        for topic in self._image.topics.values():
            faults = (each.fault(node_id, directory_id) for each in topic.placements.values())
            for fault in sorted({fault for fault in faults if fault}):
                what = f"the metadata log says of {topic.name}: {fault}"
                self._outcome.find(path, None, what)

    def _verify_checkpoint(
        self, path: Path, offsets: dict[TopicPartition, int], ends: Ends
    ) -> None:
        state = self._outcome.state
        for (topic, index), offset in offsets.items():
            name = f"{topic}-{index}"
            end = ends.get((topic, index), (0, 0))[1]
            # After a crash a high watermark may lie beyond the rest of the log, and partitions may
            # be gone that a checkpoint still names.
            is_excused = state is not StopState.CLEAN and (
                path.name == HIGH_WATERMARKS or (topic, index) not in ends
            )
            if offset > end and not is_excused:
                what = f"it has offset {offset} of {name}, whose log ends at {end}"
                self._outcome.find_beyond(path, what, self._root / name)
            elif state is StopState.CLEAN and not (
                self._is_known(topic, index)
                # Only logs that were written have a start.
                and (path.name != LOG_STARTS or (topic, index) in ends)
            ):
                self._outcome.find(path, None, f"it names {name}, which is not there")

    def _is_known(self, topic: str, index: int) -> bool:
        known = self._image.topics.get(topic)
        if known is not None:
            return index < known.partition_count
        return self._root / f"{topic}-{index}" in self._partitions


def _sealed_end(directory: Path) -> int | None:
    """Where a log's sealed segments end; None if it has none."""
    base_offsets = sorted(int(path.stem) for path in directory.glob("*.log") if path.stem.isdigit())
    return base_offsets[-1] if len(base_offsets) > 1 else None


def _has_segments(directory: Path) -> bool:
    with suppress(OSError):  # its verification reports it
        return bool(list_partition(directory).segments)
    return True
