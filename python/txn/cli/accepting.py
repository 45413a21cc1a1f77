"""`txn log accept-loss`: accepts the loss of damaged parts, partition by partition."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from typing import Any

from txn.admin.cluster import no_partition
from txn.config import BrokerSettings
from txn.errors import DirectoryError, StorageError, TxnError
from txn.hints import did_you_mean
from txn.inspect.layout import METADATA_TOPIC, FileKind, kind_of, list_partition, offset_of
from txn.inspect.metadata_log import read_metadata
from txn.inspect.verify import contradiction_in, known_end_of, losses_in
from txn.metadata.image import Image, Topic
from txn.storage.directory import DataDirectory
from txn.storage.losses import Loss, read_losses, write_losses
from txn.storage.native import NativeStorage


class NothingDamagedError(TxnError):
    """There is nothing to give up."""


@dataclass(frozen=True, slots=True)
class AcceptedLoss:
    """The loss of one partition."""

    partition: str
    reason: str
    loss: Loss
    first_kept: int
    """First offset of the first segment that is there."""

    @property
    def kept(self) -> str:
        """The part that stays, in words."""
        plan = self.loss.plan
        if plan.last_kept is None or plan.kept_end <= self.first_kept:
            return "no record is kept"
        return f"kept are the records from offset {self.first_kept:,} to {plan.kept_end - 1:,}"

    def lines(self) -> Iterator[str]:
        """The loss as text."""
        yield f"{self.partition}: {self.reason}"
        yield f"    {self.kept}; the next record gets offset {self.next_offset:,}"
        for path, position, size in self.given_up:
            yield f"    given up: {size:,} bytes of {path} from byte {position:,} on"
        for path in self.in_the_way:
            yield f"    moved aside: {path}"

    @property
    def next_offset(self) -> int:
        """The offset the next record gets."""
        return self.loss.plan.next_offset

    @property
    def given_up(self) -> tuple[tuple[str, int, int], ...]:
        """(file, from where on, bytes)."""
        return self.loss.plan.given_up

    @property
    def in_the_way(self) -> tuple[str, ...]:
        """Paths that are no files and stand in the place of one."""
        return self.loss.plan.in_the_way

    def as_data(self) -> dict[str, Any]:
        """The loss as a JSON object."""
        plan = self.loss.plan
        return {
            "partition": self.partition,
            "reason": self.reason,
            "kept_start": None if plan.last_kept is None else self.first_kept,
            "kept_end": None if plan.last_kept is None else plan.kept_end,
            "next_offset": plan.next_offset,
            "given_up": [
                {"file": path, "position": position, "bytes": size}
                for path, position, size in plan.given_up
            ],
            "moved_aside": list(plan.in_the_way),
        }


def accept(root: Path, partitions: Sequence[str], *, is_dry_run: bool) -> list[AcceptedLoss]:
    """Write down that the damage of these partitions is to be given up by the next start.

    Args:
        root: The data directory of a stopped broker.
        partitions: Names such as `orders-0`.
        is_dry_run: Look, and write nothing.

    Raises:
        DirectoryError: the directory is in use, or is none; a partition is unknown.
        NothingDamagedError: one of the partitions is sound. Nothing was accepted then.
        StorageError, OSError: something cannot be read or written.
    """
    directory = DataDirectory.open(root.absolute(), takes_over=False)
    try:
        storage = NativeStorage.load(
            directory.path,
            BrokerSettings({}),
            was_clean=directory.was_clean,
            power_failed=directory.power_failed,
            was_left_by_kafka=directory.was_left_by_kafka,
        )
        image = read_metadata(directory.path / f"{METADATA_TOPIC}-0")
        examined = [_examine(storage, image, name) for name in dict.fromkeys(partitions)]
        if not is_dry_run:
            losses = read_losses(directory.path)
            losses |= {place: accepted.loss for place, accepted in examined}
            write_losses(directory.path, losses)
    finally:
        directory.release()
    return [accepted for _, accepted in examined]


def _examine(
    storage: NativeStorage, image: Image, name: str
) -> tuple[tuple[str, int], AcceptedLoss]:
    topic, index = _partition(image, name)
    damage = storage.damage_of(topic, index)
    # A log may be sound to the last byte and have lost a marker: then that transaction is given up.
    reason = contradiction_in(storage.root, name) if damage is None else damage.message
    if reason is not None:
        loss = storage.plan_loss(topic, index, known_end=_known_end(storage, name))
    else:
        reason, loss = _examine_closely(storage, topic, index)
    directory = storage.root / name
    segments = list_partition(directory).segments if directory.is_dir() else ()
    return (topic.name, index), AcceptedLoss(name, reason, loss, min(segments, default=0))


def _examine_closely(storage: NativeStorage, topic: Topic, index: int) -> tuple[str, Loss]:
    """Find damage in data that a start believes, since they were closed in order or synced."""
    name = f"{topic.name}-{index}"
    found = losses_in(storage.root, name)
    if not found:
        raise NothingDamagedError(f"nothing is damaged in {name}, so there is nothing to give up")
    place = "" if found[0].position is None else f" at byte {found[0].position}"
    reason = f"{found[0].path}{place}: {found[0].what}"
    loss = storage.plan_loss(topic, index, known_end=_known_end(storage, name))
    if loss.plan.changes_nothing:
        # Each batch is sound by itself: the first that cannot be read, or contradicts others, goes.
        of_log = [each for each in found if kind_of(each.path) is FileKind.LOG]
        places = [(offset_of(each.path) or 0, each.position or 0) for each in of_log]
        loss = storage.plan_loss(topic, index, min(places, default=None))
    return reason, loss


def _known_end(storage: NativeStorage, name: str) -> int:
    return 0 if lexists(storage.root / name) else known_end_of(storage.root, name)


def _partition(image: Image, name: str) -> tuple[Topic, int]:
    match = re.fullmatch(r"(.+)-([0-9]+)", name)
    if match is None:
        raise DirectoryError(f"{name!r} names no partition. Give topic and number: orders-0")
    if match[1] == METADATA_TOPIC:
        raise StorageError(
            f"no part of {METADATA_TOPIC}-0 can be given up: it names the topics. "
            "Put back a copy of it"
        )
    topic = image.topics.get(match[1])
    if topic is None:
        known = ", ".join(sorted(image.topics)) or "none"
        hint = did_you_mean(match[1], image.topics) or f"; the topics here are: {known}"
        raise DirectoryError(f"there is no partition {name}{hint}")
    if int(match[2]) >= topic.partition_count:
        raise DirectoryError(no_partition(topic.name, int(match[2]), topic.partition_count))
    return topic, int(match[2])
