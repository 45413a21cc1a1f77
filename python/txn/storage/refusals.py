"""Partitions that a start refused as damaged: `refused-partitions.json` in the data directory.

Only one start may have the proof of a loss: the stop before it was in order, or no power failed. So
a refusal stays in force while the partition's files are unchanged. If they change, for example from
a backup, they are judged by the facts of the start that refused them. An operator who accepts the
loss ends the refusal (`losses`).

Each start judges again a partition whose log is sound and contradicts the coordinator's. A start
after a power failure accepts it, because the failure may be the cause of the contradiction.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from txn.identifiers import TopicPartition
from txn.storage.partition_list import read_partition_list, write_partition_list

REFUSED_PARTITIONS: Final = "refused-partitions.json"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a partition was refused.

    Attributes:
        reason: The damage, and an operator's options.
        path: The damaged file or directory.
        position: Where in it.
        was_clean: The broker before had stopped in order.
        power_failed: The power had failed before.
        files: The fingerprint of its files, see `losses.fingerprint`; None if its log is sound.
        was_left_by_kafka: The broker before was an Apache Kafka.
    """

    reason: str
    path: str
    position: int
    was_clean: bool
    power_failed: bool
    files: str | None
    was_left_by_kafka: bool = False


def read_refusals(root: Path) -> dict[TopicPartition, Refusal]:
    """Read which partitions of a data directory were refused.

    Raises:
        StorageError: the file is there, and cannot be read.
    """
    return read_partition_list(
        root / REFUSED_PARTITIONS,
        "refused",
        lambda entry: Refusal(**entry["refusal"]),
        remedy="Put back a copy of it; or remove it, and run `txn log verify` before the next "
        "start: damage that it names may go unnoticed then",
    )


def forget_refusals_of_kills(root: Path) -> int:
    """Drop the refusals of starts after a kill, so that they are judged anew; return their number.

    For a storage that had lost its cache: such a start assumed that unsynced data was there.
    Raises StorageError, OSError.
    """
    known = read_refusals(root)
    kept = {
        place: refusal
        for place, refusal in known.items()
        if refusal.was_clean or refusal.power_failed
    }
    if kept != known:
        write_refusals(root, kept)
    return len(known) - len(kept)


def write_refusals(root: Path, refusals: Mapping[TopicPartition, Refusal]) -> None:
    """Replace the refusals durably. Raises OSError."""
    entries = {place: {"refusal": asdict(refusal)} for place, refusal in refusals.items()}
    write_partition_list(root / REFUSED_PARTITIONS, "refused", entries)
