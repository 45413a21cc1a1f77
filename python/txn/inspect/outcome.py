"""The result of a verification: findings, notes, and the amount of data read."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os.path import lexists
from pathlib import Path
from shlex import quote
from typing import Final, TypeVar
from uuid import UUID

from txn.coordinator.transaction.open_transactions import OpenTransaction
from txn.inspect import files
from txn.inspect.layout import FileKind, StopState, kind_of, partition_of
from txn.storage.directory import META
from txn.storage.log_offsets import METADATA

T = TypeVar("T")

FROM_THE_LOG: Final = (
    "it is made from the log: stop the broker, delete it and .kafka_cleanshutdown, start again"
)


LOG_FIRST: Final = "deal with the findings in the logs of its partition, then verify again"

ADVICE: Final = {
    FileKind.INDEX: FROM_THE_LOG,
    FileKind.TIME_INDEX: FROM_THE_LOG,
    FileKind.TXN_INDEX: FROM_THE_LOG.replace("delete it", "delete it, the .index of that name"),
    FileKind.SNAPSHOT: FROM_THE_LOG,
    FileKind.METADATA_SNAPSHOT: "restore it from a copy, or delete it if the log begins before it",
    FileKind.CHECKPOINT: (
        "deal with the other findings first, since it shows where logs ended; then stop the broker "
        "and delete it; every log is read from its start then"
    ),
    FileKind.LEADER_EPOCHS: "stop the broker and restore it from a copy",
    FileKind.TXN_INDEX_SUMS: "stop the broker and delete it: the next start makes it anew",
    FileKind.PARTITION_METADATA: "write the topic's id into it, or move the directory away",
    FileKind.META_PROPERTIES: "restore it from a copy: it says whose directory this is",
    FileKind.JSON: "restore it from a copy",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault: its place, its nature, and what to do about it.

    `lost_from` is the directory of the partition that has lost something by it.
    """

    path: Path
    position: int | None
    what: str
    advice: str
    lost_from: Path | None = None


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """A note: worth knowing, and no fault."""

    path: Path
    what: str


@dataclass(frozen=True, slots=True, order=True)
class Unread:
    """A file or directory that could not be read, and why: nothing is known of it."""

    path: Path
    reason: str


def mend_the_log(directory: Path) -> str:
    """Return the advice for a partition whose log is damaged, with commands that can be run."""
    restore = "restore the partition from a copy"
    root = directory.parent
    is_given_up = partition_of(directory) != METADATA and lexists(root / META)
    if not is_given_up:
        return restore
    data, name = quote(str(root)), quote(directory.name)
    return (
        f"{restore}; or, if the storage lost its cache and the machine went on, say so: "
        f"txn log lost-cache {data}; or give up what is lost: txn log accept-loss {data} {name}"
    )


def _partition_at(path: Path) -> Path:
    return path if kind_of(path) is None and partition_of(path) else path.parent


def _place_in_line(finding: Finding) -> tuple[bool, Path, bool, Path, int]:
    directory = finding.lost_from or _partition_at(finding.path)
    is_of_log = kind_of(finding.path) in (None, FileKind.LOG)
    return (
        partition_of(directory) is None,
        directory,
        not is_of_log,
        finding.path,
        finding.position or 0,
    )


@dataclass(slots=True)
class Outcome:
    """Findings, and the amount of data read."""

    state: StopState = StopState.CLEAN
    findings: list[Finding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes_read: int = 0
    held_open: list[OpenTransaction] = field(default_factory=list)
    """Open transactions of the partitions whose log could be followed to its end."""

    def find(self, path: Path, position: int | None, what: str, advice: str | None = None) -> None:
        """Add a finding; without advice of its own, with that for the kind of file."""
        kind = kind_of(path) or FileKind.LOG
        if advice is None and kind is FileKind.LOG:
            directory = _partition_at(path)
            found = Finding(path, position, what, mend_the_log(directory), directory)
        else:
            found = Finding(path, position, what, ADVICE[kind] if advice is None else advice)
        self.findings.append(found)

    def find_beyond(self, path: Path, what: str, directory: Path) -> None:
        """Add a finding of a file that knows of more records than the log of a partition has.

        Without the file the loss would be silent.
        """
        advice = f"leave it, it shows that the log lost its end; {mend_the_log(directory)}"
        self.findings.append(Finding(path, None, what, advice, directory))

    def note(self, path: Path, what: str) -> None:
        """Add a note."""
        self.notes.append(Note(path, what))

    def not_read(self, path: Path, error: OSError) -> None:
        """Note that something could not be read."""
        self.unread.append(Unread(path, error.strerror or str(error)))

    def sort_findings(self) -> None:
        """Bring the findings in the order in which they are dealt with: by partition, its logs
        first. Leave no advice to delete files of a partition whose log has a finding.
        """
        damaged = {
            finding.path.parent
            for finding in self.findings
            if kind_of(finding.path) is FileKind.LOG
        }
        self.findings = [
            replace(finding, advice=LOG_FIRST)
            if finding.path.parent in damaged and "delete it" in finding.advice
            else finding
            for finding in self.findings
        ]
        self.findings.sort(key=_place_in_line)

    def add_all(self, other: "Outcome") -> None:
        """Add the findings of a part."""
        self.findings += other.findings
        self.notes += other.notes
        self.unread += other.unread
        self.partitions += other.partitions
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.bytes_read += other.bytes_read
        self.held_open += other.held_open


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about a partition from outside its directory.

    `cleaned_to` is the offset below which compaction has been; None if it never was there.
    `log_start_offset` is that of the checkpoint, 0 without one. `power_failed`, `recovery_point`,
    `cleaned_end`, the checkpoint of the cleaner, and `was_left_by_kafka` are facts that a start has
    too.
    """

    state: StopState
    is_deep: bool
    topic_id: UUID | None = None
    is_compacted: bool = False
    cleaned_to: int | None = None
    log_start_offset: int = 0
    power_failed: bool = False
    recovery_point: int = 0
    cleaned_end: int | None = None
    was_left_by_kafka: bool = False

    def has_lost(self, end: int, next_offset: int) -> bool:
        """Return True if a start counts the offsets between two segments as lost by a power
        failure.

        As `Past::has_lost` in `rust/txn-log/src/log.rs`.
        """
        is_below_cleaned_end = self.cleaned_end is not None and end < self.cleaned_end
        is_of_cleaner = self.was_left_by_kafka or is_below_cleaned_end
        is_beyond = next_offset > max(end, self.recovery_point)
        return self.power_failed and is_beyond and not is_of_cleaner

    def may_be_missing(self, offset: int) -> bool:
        """Return True if compaction may have removed the records right before an offset."""
        if self.is_compacted and self.state is not StopState.CLEAN:
            return True  # it may have been there since the checkpoint was written
        return self.cleaned_to is not None and offset <= self.cleaned_to


def read_text(path: Path, read: Callable[[str], T], outcome: Outcome) -> T | None:
    """Read a text file; a fault in it becomes a finding, and the result is None."""
    data = read_bytes(path, outcome)
    if data is None:
        return None
    try:
        return read(data.decode())
    except ValueError as error:
        outcome.find(path, None, str(error))
        return None


def read_bytes(path: Path, outcome: Outcome) -> bytes | None:
    """Read a file; None where the outcome has the reason why it could not be read.

    Raises:
        FileNotFoundError: beside a broker at work: it went away while it was looked at.
    """
    try:
        return files.read_bytes(path)
    except files.UnusableError as error:
        outcome.find(path, None, str(error))
    except OSError as error:
        if outcome.state is StopState.IN_USE and isinstance(error, FileNotFoundError):
            raise
        outcome.not_read(path, error)
    return None
