"""Losses that an operator has accepted: `accepted-losses.json` in the data directory.

`txn log accept-loss` records the partitions that are to lose their damaged part, and the state of
their files. The next start removes exactly that part. A loss goes through these states, each
durable before the next:

    accepted     the files are untouched; they must still be those that the operator saw
    begun        files are being changed; after any interruption it is begun again
    carried out  the log is sound; the transactions that were open in it are not ended yet

An entry leaves the file once nothing of the loss is left to do.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from txn.identifiers import TopicPartition
from txn.storage.partition_list import read_partition_list, write_partition_list

if TYPE_CHECKING:
    from txn._core import LossPlanTuple

ACCEPTED_LOSSES: Final = "accepted-losses.json"


class LossStage(Enum):
    """Stages of a loss."""

    ACCEPTED = "accepted"
    BEGUN = "begun"
    CARRIED_OUT = "carried out"


@dataclass(frozen=True, slots=True)
class LossPlan:
    """The kept part of a log, and the offset where it goes on; see `_core.LossPlanTuple`.

    Attributes:
        last_kept: Base offset of the last segment that is kept, None if none is.
        position: Where that segment ends then.
        kept_end: The offset after the last batch that is kept.
        next_offset: The offset the next record gets.
        leader_epoch: Of the last batch that is kept.
        in_the_way: Paths that are no files and stand in the place of one.
        given_up: (file, from where on, bytes).
    """

    last_kept: int | None
    position: int
    kept_end: int
    next_offset: int
    leader_epoch: int
    in_the_way: tuple[str, ...]
    given_up: tuple[tuple[str, int, int], ...]

    @property
    def changes_nothing(self) -> bool:
        """True if the whole log is kept, and goes on at its end."""
        is_whole = self.last_kept is not None and self.next_offset == self.kept_end
        return is_whole and not (self.in_the_way or self.given_up)

    @classmethod
    def of(cls, plan: "LossPlanTuple") -> "LossPlan":
        """The plan that the extension has made."""
        last_kept, position, kept_end, next_offset, leader_epoch, in_the_way, given_up = plan
        return cls(
            last_kept,
            position,
            kept_end,
            next_offset,
            leader_epoch,
            tuple(str(path) for path in in_the_way),
            tuple((str(path), start, size) for path, start, size in given_up),
        )

    def as_tuple(self) -> "LossPlanTuple":
        """The tuple that the extension takes."""
        return (
            self.last_kept,
            self.position,
            self.kept_end,
            self.next_offset,
            self.leader_epoch,
            list(self.in_the_way),
            list(self.given_up),
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """An operator's accepted loss of one partition; `files` is the fingerprint of its files."""

    plan: LossPlan
    files: str
    progress: LossStage = LossStage.ACCEPTED


def fingerprint(directory: Path) -> str:
    """Return a fingerprint of the files of a directory: names, sizes and times of the last change.

    Raises:
        OSError: it cannot be read.
    """
    if not directory.is_dir():
        return "gone" if not os.path.lexists(directory) else "no directory"
    import hashlib  # OpenSSL; few starts accept a loss

    entries = []
    for entry in os.scandir(directory):
        status = entry.stat(follow_symlinks=False)
        entries.append((entry.name, status.st_mode, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(entries)).encode()).hexdigest()


def read_losses(root: Path) -> dict[TopicPartition, Loss]:
    """Read the accepted losses of a data directory.

    Raises:
        StorageError: the file is there, and cannot be read.
    """
    return read_partition_list(
        root / ACCEPTED_LOSSES,
        "losses",
        _loss,
        remedy="Remove it, and accept the losses again with `txn log accept-loss`",
    )


def write_losses(root: Path, losses: Mapping[TopicPartition, Loss]) -> None:
    """Replace the accepted losses durably. Raises OSError."""
    entries = {
        place: {"progress": loss.progress.value, "files": loss.files, "plan": asdict(loss.plan)}
        for place, loss in losses.items()
    }
    write_partition_list(root / ACCEPTED_LOSSES, "losses", entries)


def _loss(stored: Mapping[str, Any]) -> Loss:
    plan = dict(stored["plan"])
    plan["in_the_way"] = tuple(plan["in_the_way"])
    plan["given_up"] = tuple((path, position, size) for path, position, size in plan["given_up"])
    return Loss(LossPlan(**plan), stored["files"], LossStage(stored["progress"]))
