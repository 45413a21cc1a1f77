"""Kinds of files of a data directory. Source: Apache Kafka's log directory layout.

<data>/                       meta.properties, checkpoints, .lock, .kafka_cleanshutdown
  <topic>-<n>/                leader-epoch-checkpoint, partition.metadata, quorum-state;
                              txn's own txnindex-checkpoint
    <20 digits>.log           and .index, .timeindex, .txnindex, .snapshot
    <offset>-<epoch>.checkpoint  a snapshot of the metadata log
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final
from uuid import UUID

from txn.storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, OFFSET_MAX, RECOVERY_POINTS
from txn.storage.directory import CLEAN, LOCK, META

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)
"""The id Kafka reserves for it."""

LOCKS: Final = Path("/proc/locks")

CLEANED: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED)

LEFTOVER: Final = re.compile(r".*(\.deleted|\.cleaned|\.swap|\.tmp|\.checkpoint\.part)$")
"""Files on their way in or out; the next start deals with them."""
DOOMED: Final = re.compile(r".*-(delete|stray|future)$")
"""Directories on their way out or in."""


class FileKind(Enum):
    """The kind of a file."""

    LOG = auto()
    INDEX = auto()
    TIME_INDEX = auto()
    TXN_INDEX = auto()
    SNAPSHOT = auto()
    METADATA_SNAPSHOT = auto()
    CHECKPOINT = auto()
    LEADER_EPOCHS = auto()
    TXN_INDEX_SUMS = auto()
    PARTITION_METADATA = auto()
    META_PROPERTIES = auto()
    JSON = auto()
    LOCK = auto()


SEGMENT_FILES: Final = {
    ".log": FileKind.LOG,
    ".index": FileKind.INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".txnindex": FileKind.TXN_INDEX,
    ".snapshot": FileKind.SNAPSHOT,
}
TXN_INDEX_SUMS: Final = "txnindex-checkpoint"
"""txn's own: how many entries each `.txnindex` has, and their checksum."""

NAMED_FILES: Final = {
    **dict.fromkeys(CHECKPOINTS, FileKind.CHECKPOINT),
    "leader-epoch-checkpoint": FileKind.LEADER_EPOCHS,
    TXN_INDEX_SUMS: FileKind.TXN_INDEX_SUMS,
    "partition.metadata": FileKind.PARTITION_METADATA,
    META: FileKind.META_PROPERTIES,
    "quorum-state": FileKind.JSON,
    CLEAN: FileKind.JSON,
    LOCK: FileKind.LOCK,
}


class StopState(Enum):
    """The state in which a data directory was left."""

    CLEAN = "stopped cleanly"
    IN_USE = "in use by a broker"
    LEFT = "left without a clean stop"


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of one partition's directory, as listed at one moment.

    `segments` are the base offsets of its `.log` files, `snapshots` the offsets of its
    `.snapshot` files, both in order.
    """

    directory: Path
    topic: str
    index: int
    segments: tuple[int, ...]
    snapshots: tuple[int, ...]
    names: frozenset[str]

    def file(self, offset: int, suffix: str) -> Path:
        """The path of a file named by an offset."""
        return self.directory / f"{offset:020}{suffix}"


def kind_of(path: Path) -> FileKind | None:
    """Return the kind of a file by its name; None if it is nothing of Kafka's."""
    named = NAMED_FILES.get(path.name)
    if named is not None:
        return named
    if path.suffix == ".checkpoint":
        return FileKind.METADATA_SNAPSHOT
    return SEGMENT_FILES.get(path.suffix) if offset_of(path) is not None else None


def offset_of(path: Path) -> int | None:
    """The offset in a name of twenty digits, else None: also for a number that no offset is."""
    offset = int(path.stem) if re.fullmatch("[0-9]{20}", path.stem) else None
    return None if offset is None or offset > OFFSET_MAX else offset


def partition_of(directory: Path) -> tuple[str, int] | None:
    """(topic, partition number) of a directory's name, None if it is no partition's."""
    match = re.fullmatch(r"([a-zA-Z0-9._-]+)-([0-9]+)", directory.name)
    return (match[1], int(match[2])) if match else None


def is_partition(directory: Path) -> bool:
    """Return True if a directory is a partition's, by its name and contents."""
    return partition_of(directory) is not None and not (directory / META).exists()


def partitions_in(root: Path) -> list[Path]:
    """The partitions' directories of a data directory, by name."""
    return sorted(
        entry
        for entry in root.iterdir()
        if not DOOMED.match(entry.name) and partition_of(entry) and entry.is_dir()
    )


def list_partition(directory: Path) -> PartitionFiles:
    """List a partition's directory. Raises OSError."""
    names = frozenset(os.listdir(directory))
    topic, index = partition_of(directory) or (directory.name, 0)

    def offsets(suffix: str) -> tuple[int, ...]:
        paths = (directory / name for name in names if name.endswith(suffix))
        bases = (offset_of(path) for path in paths if path.suffix == suffix)
        return tuple(sorted(offset for offset in bases if offset is not None))

    return PartitionFiles(directory, topic, index, offsets(".log"), offsets(".snapshot"), names)


def files_in(directory: Path) -> Iterator[Path]:
    """The files of a directory that are Kafka's, by name."""
    for path in sorted(directory.iterdir()):
        if kind_of(path) not in (None, FileKind.LOCK):
            yield path


def state_of(root: Path) -> StopState:
    """Find out how a data directory was left, without touching its lock."""
    if (root / CLEAN).exists():
        return StopState.CLEAN
    return StopState.IN_USE if _is_locked(root / LOCK) else StopState.LEFT


def _is_locked(path: Path) -> bool:
    """Look the file up among the locks the system holds; any way of locking counts."""
    try:
        status = path.stat()
        held = LOCKS.read_text()
    except OSError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(device in line.split() for line in held.splitlines())
