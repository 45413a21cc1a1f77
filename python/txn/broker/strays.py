"""Refuses a start if the data directory has stray partitions, see `txn.storage.strays`."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, Protocol
from uuid import UUID

from txn.errors import CorruptLogError
from txn.logs import log
from txn.metadata.image import Image
from txn.metadata.replay import MetadataReplay
from txn.storage.base import PartitionLog
from txn.storage.strays import REMEDY, Stray

NAMED_MAX: Final = 5
"""Number of directories that the refusal names."""


class Strays(Protocol):
    """Finds stray partitions."""

    def strays(self, image: Image, deleted: Collection[UUID]) -> Sequence[Stray]:
        """List the directories of topics that the metadata log does not know."""
        ...


def require_no_strays(
    storage: Strays, metadata: PartitionLog, image: Image, deleted: Collection[UUID]
) -> Collection[UUID]:
    """Refuse the start if the metadata log has lost topics with records.

    Args:
        storage: Lists the directories.
        metadata: The metadata log.
        image: All that it says.
        deleted: Topics that it says are gone, behind its newest snapshot.

    Returns:
        The topics that are gone, all those with a directory among them.

    Raises:
        CorruptLogError: a directory with records belongs to an unknown topic.
        StorageError: the directories cannot be listed.
    """
    strays = storage.strays(image, deleted)
    if strays:  # a snapshot does not name the topics that were deleted before it
        deleted = {*deleted, *_deleted_in(metadata)}
        strays = storage.strays(image, deleted)
    lost = [stray for stray in strays if stray.has_records]
    for stray in strays:
        if not stray.has_records:
            log.warning(
                "partition.stray",
                directory=str(stray.directory),
                topic_id=stray.topic_id,
                reason="its topic is unknown, and it holds no records",
            )
    if lost:
        raise CorruptLogError(
            f"{metadata.topic}-{metadata.index} has lost its end: it does not know the topics of "
            f"{_named(lost)}. {REMEDY}",
            path=str(lost[0].directory.parent / f"{metadata.topic}-{metadata.index}"),
            position=0,
        )
    return deleted


def _deleted_in(metadata: PartitionLog) -> set[UUID]:
    """The topics whose deletion the metadata log still holds."""
    replay = MetadataReplay(Image())
    for batch in metadata.batches():
        for stored in batch.records:
            with suppress(ValueError):  # it lies before the snapshot, and is not needed
                replay.read(stored.value or b"")
    return replay.deleted


def _named(strays: Sequence[Stray]) -> str:
    names = [stray.directory.name for stray in strays[:NAMED_MAX]]
    more = len(strays) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
