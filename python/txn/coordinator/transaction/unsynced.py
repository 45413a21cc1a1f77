"""The traces by which a start undoes a power failure, so that a commit waits for the disk once.

A commit waits for its data and its Prepare together. Its markers and its Complete wait for nothing.
So a power failure may leave any of them, and the newest record of the id has to tell the rest:

    last_offsets        a Prepare whose records are not all there was never answered: it is an
                        abort. One whose partition has a later transaction open has its marker there
    unsynced_markers    a marker that is gone is written again

A log loses only its tail, and offsets behind it are given out again. So an offset counts with the
leader epoch it was written in, which a power failure ends, and with the id of its topic.

Pure. The proof is in `tests/model/commit_search.py`, the reasons in `docs/decisions/0007`.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from txn.coordinator.transaction.states import LastOffset, Txn, TxnState, UnsyncedMarker
from txn.identifiers import ProducerIdAndEpoch

LAST_OFFSETS_MAX: Final = 1_000
"""The partitions of a commit that a Prepare can name; one with more waits for its data first."""

UNSYNCED_MARKERS_MAX: Final = 64
"""Largest number of markers in a record; where there are more, their partitions are synced."""


class LogOffsets(Protocol):
    """A partition's log, as far as these rules look at it."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that is stored."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""
        ...

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was written."""
        ...


def is_there(last: LastOffset, log: LogOffsets) -> bool:
    """Say whether a log still has all that was in it when a commit was prepared.

    A record behind the loss may have been given the same offset; its leader epoch is a later one.
    """
    if last.offset >= log.log_end_offset:
        return False
    return last.offset < log.log_start_offset or log.epoch_of(last.offset) == last.leader_epoch


def is_to_decide(txn: Txn) -> bool:
    """Say whether a start after a power failure has to look for the records of a Prepare.

    Those of a two-phase commit were synced before it, and only another system decides on it.
    """
    is_commit = txn.state is TxnState.PREPARE_COMMIT
    return is_commit and bool(txn.last_offsets) and not txn.is_two_phase


def is_ended_by(marker: UnsyncedMarker, producer: ProducerIdAndEpoch, first_offset: int) -> bool:
    """Say whether an open transaction is the one that a marker ended, so that the marker is gone.

    One that begins behind it is a later one. A later epoch is that of a later client.
    """
    is_of_producer = producer.producer_id == marker.producer_id
    is_as_old = producer.producer_epoch <= marker.producer_epoch
    return is_of_producer and is_as_old and first_offset < marker.offset


def carried(
    known: Iterable[UnsyncedMarker],
    written: Collection[UnsyncedMarker],
    is_synced: Callable[[UnsyncedMarker], bool],
) -> tuple[UnsyncedMarker, ...]:
    """List the markers that may not be on the disk, oldest first.

    The newest stands for those of its producer and partition that say the same, with no other
    between them. A power failure that takes an earlier one takes the newest too.
    """
    newest: dict[tuple[object, ...], UnsyncedMarker] = {}
    others: list[UnsyncedMarker] = []
    for marker in (*known, *written):
        key = marker.topic_id, marker.partition, marker.producer_id
        before = newest.pop(key, None)
        if before is not None and before.is_commit is not marker.is_commit:
            others.append(before)
        newest[key] = marker
    left = (*others, *newest.values())
    fresh = set(written)  # there may be thousands
    # Asked last, and of few: mostly each known marker has a newer one in its partition.
    return tuple([each for each in left if each in fresh or not is_synced(each)])
