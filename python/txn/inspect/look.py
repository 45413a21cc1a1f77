"""Verifies the directory of one partition: its segments and all other files."""

import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from txn.inspect import files, indexes, segments, texts
from txn.inspect.layout import (
    LEFTOVER,
    TXN_INDEX_SUMS,
    StopState,
    list_partition,
)
from txn.inspect.outcome import Outcome, Surroundings, read_bytes, read_text
from txn.inspect.replay import ProducerStateReplay
from txn.storage.checkpoints import OFFSET_MAX
from txn.storage.ids import encode_id
from txn.wire.checksums import crc32c

CHUNK_BYTES: Final = 1 << 23
"""Bytes read of a segment between two reports of progress."""

METADATA_PARTITION: Final = "__cluster_metadata-0"

SUSPECTS: Final = (".log", ".index", ".timeindex")
"""The files that the check of a segment finds fault with, by its numbers for them."""

Fault = tuple[int, int, int, bool, str]
"""Entry of `SUSPECTS`, position, end, True if it may be a torn write, and the fault."""


@dataclass(frozen=True, slots=True)
class EpochRun:
    """Batches in a row with the same leader epoch."""

    leader_epoch: int
    position: int
    first_offset: int
    last_offset: int


class PartitionLook:
    """One look at a partition's directory; done when it is made.

    Attributes:
        outcome: The findings.
        ends: Base offset of the first segment and log end offset, None without segments. An end
            that could not be read is beyond every offset: nothing contradicts it.
        metadata_snapshots: Names of its `.checkpoint` files, which are not looked at here.
    """

    def __init__(
        self, directory: Path, surroundings: Surroundings, progress: Callable[[int], None]
    ) -> None:
        self.outcome = Outcome(state=surroundings.state, partitions=1)
        self.ends: tuple[int, int] | None = None
        self.metadata_snapshots: list[str] = []
        self._around = surroundings
        self._progress = progress
        try:
            self._files = list_partition(directory)
            self._verify()
        except FileNotFoundError as error:
            path = Path(error.filename or directory)
            if surroundings.state is StopState.IN_USE:
                self.outcome.note(path, "it went away while it was looked at")
            else:
                self._not_read(path, error)
        except OSError as error:
            self._not_read(Path(error.filename or directory), error)

    def _not_read(self, path: Path, error: OSError) -> None:
        self.outcome.not_read(path, error)
        self.ends = (0, OFFSET_MAX)

    def _verify(self) -> None:
        listed = self._files
        self._verify_topic_id()
        self._note_other_files()
        if not listed.segments:
            return
        replay = ProducerStateReplay(listed, self._around, self.outcome)
        runs: list[tuple[Path, EpochRun]] = []
        next_offset, is_known = listed.segments[0], True
        for base_offset in listed.segments:
            path = listed.file(base_offset, ".log")
            if base_offset < next_offset:
                what = f"it begins at offset {base_offset}, {next_offset} is the next"
                self.outcome.find(path, None, what)
                replay.stop()
            elif is_known and self._around.has_lost(next_offset, base_offset):
                what = (
                    f"offsets {next_offset} to {base_offset - 1} are missing before it. The power "
                    f"failed, so the next start cuts the log at offset {next_offset}"
                )
                self.outcome.note(path, what)
                break
            elif (
                base_offset > next_offset
                and is_known
                and not self._around.may_be_missing(base_offset)
            ):
                what = f"offsets {next_offset} to {base_offset - 1} are missing before it"
                self.outcome.find(path, None, what)
            next_offset, is_known = base_offset, False
            try:
                files.require_plain(path)
                next_offset = self._verify_segment(base_offset, replay, runs)
                is_known = True
                continue
            except files.UnusableError as error:
                self.outcome.find(path, None, str(error))
            except OSError as error:
                if self._around.state is StopState.IN_USE and isinstance(error, FileNotFoundError):
                    raise
                self.outcome.not_read(Path(error.filename or path), error)
            replay.stop()
        self.ends = listed.segments[0], next_offset if is_known else OFFSET_MAX
        replay.finish(next_offset)
        self.outcome.held_open = replay.open_transactions()
        self._verify_leader_epochs(runs)
        self._verify_txn_index_sums()

    def _verify_topic_id(self) -> None:
        path = self._files.directory / "partition.metadata"
        if path.name not in self._files.names:
            return
        topic_id = read_text(path, texts.read_topic_id, self.outcome)
        expected = self._around.topic_id
        if None not in (topic_id, expected) and topic_id != expected:
            stored, known = (encode_id(each) for each in (topic_id, expected) if each)
            what = f"it has topic id {stored}, that of {self._files.topic} is {known}"
            self.outcome.find(path, None, what)

    def _note_other_files(self) -> None:
        known = self._files
        for name in sorted(known.names):
            path = known.directory / name
            if LEFTOVER.fullmatch(name):
                self.outcome.note(path, "it was on its way in or out; the next start deals with it")
            elif path.suffix in (".index", ".timeindex", ".txnindex"):
                if path.with_suffix(".log").name in known.names:
                    continue
                if self._around.state is StopState.LEFT:
                    # A swap or a removal was cut short between one file and the next.
                    what = "it belongs to no segment; the next start removes it"
                    self.outcome.note(path, what)
                else:
                    self.outcome.find(path, None, "it belongs to no segment")
            elif name == "quorum-state":
                read_text(path, texts.read_quorum_state, self.outcome)
            elif path.suffix == ".checkpoint":
                self.metadata_snapshots.append(name)

    # -------------------------------------------------------- segments

    def _verify_segment(
        self, base_offset: int, replay: ProducerStateReplay, runs: list[tuple[Path, EpochRun]]
    ) -> int:
        """Check a segment and feed its batches to the replay; return the next offset."""
        files, outcome = self._files, self.outcome
        path = files.file(base_offset, ".log")
        is_last = base_offset == files.segments[-1]
        check = segments.check(
            path,
            base_offset,
            self._index(base_offset, ".index", indexes.OFFSET_ENTRY),
            self._index(base_offset, ".timeindex", indexes.TIME_ENTRY),
            is_deep=self._around.is_deep,
        )
        is_done = False
        while not is_done:
            before = check.position
            replay.feed(check.advance(CHUNK_BYTES))
            self._progress(check.position - before)
            is_done = check.position == check.end
        faults = check.faults
        if is_last and self._around.state is not StopState.CLEAN and faults:
            faults = self._without_torn_tail(path, faults, check.end)
        for suspect, position, _, _, reason in faults:
            outcome.find(files.file(base_offset, SUSPECTS[suspect]), position, reason)
        if check.faults_left_out:
            outcome.find(path, None, f"{check.faults_left_out} more faults are in this segment")
        for position, expected, begin in check.gaps:
            if not self._around.may_be_missing(begin):
                what = f"offsets {expected} to {begin - 1} are missing before this batch"
                outcome.find(path, position, what)
        if check.is_damaged:
            replay.stop()
        runs += [(path, EpochRun(*run)) for run in check.leader_epochs]
        outcome.segments += 1
        outcome.batches += check.batches
        outcome.records += check.records
        outcome.bytes_read += check.end
        return check.next_offset

    def _index(self, base_offset: int, suffix: str, layout: struct.Struct) -> bytes:
        path = self._files.file(base_offset, suffix)
        is_there = path.name in self._files.names
        data = read_bytes(path, self.outcome) if is_there else b""
        if data is None:
            return b""
        # Kafka 4.4 leaves the room of its metadata log's indexes behind a stop in order, too.
        if self._around.state is not StopState.CLEAN or path.parent.name == METADATA_PARTITION:
            data = indexes.without_reserve(data, layout)
        if self._around.state is not StopState.CLEAN:
            return data
        if not is_there:
            self.outcome.note(path, "it is missing; the next start rebuilds it")
        return data

    def _without_torn_tail(self, path: Path, faults: list[Fault], end: int) -> list[Fault]:
        """Turn damage at the very end into a note: a batch that was being written."""
        tail = next((fault for fault in faults if fault[2] == end and fault[3]), None)
        if tail is None:
            return faults
        what = (
            "a batch is being written there"
            if self._around.state is StopState.IN_USE
            else f"the next start cuts it off: {tail[4]}"
        )
        self.outcome.note(path, f"it ends torn at byte {tail[1]}; {what}")
        return [fault for fault in faults if fault is not tail]

    # -------------------------------------------------------- leader epochs

    def _verify_leader_epochs(self, runs: list[tuple[Path, EpochRun]]) -> None:
        path = self._files.directory / "leader-epoch-checkpoint"
        for (_, before), (segment, run) in pairwise(runs):
            if run.leader_epoch < before.leader_epoch:
                what = f"leader epoch {run.leader_epoch} follows {before.leader_epoch}"
                self.outcome.find(segment, run.position, what)
        if path.name not in self._files.names:
            return
        epochs = read_text(path, texts.read_leader_epochs, self.outcome)
        if epochs is None:
            return
        log_end_offset = self.ends[1] if self.ends else 0
        for leader_epoch, start in epochs:
            if start > log_end_offset and self._around.state is StopState.CLEAN:
                what = (
                    f"it says that leader epoch {leader_epoch} begins at offset {start}, but the "
                    f"log ends at {log_end_offset}"
                )
                self.outcome.find_beyond(path, what, path.parent)
        for segment, run in runs:
            first_offset = max(run.first_offset, self._first_offset_with_epoch(epochs))
            if run.leader_epoch < 0 or first_offset > run.last_offset:
                continue
            known = _epochs_of(epochs, first_offset, run.last_offset)
            if known != [run.leader_epoch]:
                what = (
                    f"it has {known} as the leader epochs of offsets {first_offset} to "
                    f"{run.last_offset}, {segment.name} has {run.leader_epoch}"
                )
                self.outcome.find(path, None, what)

    def _verify_txn_index_sums(self) -> None:
        """Hold the indexes against the lines of a clean stop; a kill may leave a wrong one."""
        path = self._files.directory / TXN_INDEX_SUMS
        if path.name not in self._files.names:
            return
        sums = read_text(path, texts.read_txn_index_sums, self.outcome)
        if sums is None or self._around.state is not StopState.CLEAN:
            return
        for base_offset in self._files.segments:
            index = self._files.file(base_offset, ".txnindex")
            data = read_bytes(index, self.outcome) if index.name in self._files.names else b""
            if data is None:
                continue
            sum_now = (len(data) // indexes.ABORTED_ENTRY.size, crc32c(data)) if data else None
            is_reported = any(finding.path == index for finding in self.outcome.findings)
            if sums.get(base_offset) != sum_now and not is_reported:
                what = f"it does not agree with {index.name}, which the next start makes anew"
                self.outcome.find(path, None, what)

    def _first_offset_with_epoch(self, epochs: list[tuple[int, int]]) -> int:
        """First offset with leader epochs: those below the log start are forgotten."""
        if self._around.state is StopState.CLEAN:
            return self._around.log_start_offset
        return epochs[0][1] if epochs else 0


def _epochs_of(epochs: list[tuple[int, int]], first_offset: int, last_offset: int) -> list[int]:
    """The leader epochs of a range of offsets, both ends inclusive; -1 where there is none."""
    starts = [start for _, start in epochs]
    first, last = (bisect_right(starts, offset) - 1 for offset in (first_offset, last_offset))
    return [epochs[nth][0] if nth >= 0 else -1 for nth in range(first, last + 1)]
