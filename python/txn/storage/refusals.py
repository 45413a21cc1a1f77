"""Partitions that a start refused as damaged: `refused-partitions.json` in the data directory.

The proof of a loss may be known to one start alone: a stop in order before it, or power that had
not failed. So a refusal stays in force for as long as the partition's files are as they were.
Once they have changed, as a copy was put back, they are judged by the facts of the start that
refused them. A loss that an operator accepts ends it (`losses`).

A partition whose log is sound and contradicts the coordinator's is judged anew by each start. A
start after a power failure takes it: the contradiction may be the failure's.
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
