"""The traces by which a start undoes a power failure, so that a commit waits for the disk once.

A commit waits for its data and its Prepare together. Its markers and its Complete wait for nothing.
So a power failure may leave any of them, and the newest record of the id has to tell the rest:

    last_offsets        a Prepare whose records are not all there was never answered: it is an
                        abort. One whose partition has a later transaction open has its marker there
    unsynced_markers    a marker that is gone is written again

A log loses only its tail, and offsets behind it are given out again. So an offset counts with the
leader epoch it was written in, which a power failure ends, and with the id of its topic.

Pure. The proof is in `tests/model/commit_search.py`, the reasons in `docs/decisions/0007`. The
simulation of whole brokers found these cases besides:

- The cleaner may replace all records of a transaction by later ones. Its marker ends no open
  transaction then, and is written again because the log ends below it (seed 1002102).
- The data of a two-phase commit is synced before its Prepare. Another system may have decided to
  commit, and the start must not abort that (P2).
- The marker of an abort is synced before its Complete. Readers pass the aborted records, and a
  group may commit an offset behind them. A power failure would give these offsets to other records,
  which the group would miss (seed 30004952, `make_passing_abort_plan`). Many records need a long
  sync, so they are synced with Prepare. A disk that refuses them does not keep the transaction
  open: Prepare alone decides an abort. A record outside transactions has no such promise.
- An operator's marker (WriteTxnMarkers) may end a transaction that no coordinator knows. Its
  partition is blocked and synced before that marker, and again before the answer (seed 4079188).
  It may only abort: no Prepare stands behind it, so a power failure could turn a commit into an
  abort after readers saw it. While an id is not served, such a marker does not end its
  transactions, and the id does not expire.
- A start on a full disk cannot write the marker of a decided transaction, so it cannot fence the
  id at once. Its Complete does. Until then no EndTxn is answered as done: under version 1 it may
  be of a later transaction that power took (seed 10188251).
- A start that cannot write a lost marker again, its disk being full, serves nothing. A start that
  cannot open the partition serves nothing of that id.
- A start that promises more durability than the broker that was killed before it syncs all logs.
  Otherwise readers would pass records that no commit has synced. The lock file names the promise.
- A start does not sync the records that it finds after a power failure, because it read them from
  the disk. Otherwise one disk that refuses would hold back the markers of a commit everywhere.
- Where a disk refuses the data, Prepare is written already. A Prepare to abort follows it, and the
  client learns of the abort once that is on the disk.
- After a kill, too, a Prepare waits while a partition that it names cannot be read. An operator may
  report a lost cache later, and the Prepare is then aborted in its other partitions
  (`make_lost_cache_plan`, `lost_cache`).
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


def is_in_log(last: LastOffset, log: LogOffsets) -> bool:
    """Return True if a log still has all that was in it when a commit was prepared.

    A record behind the loss may have been given the same offset; its leader epoch is a later one.
    """
    if last.offset >= log.log_end_offset:
        return False
    return last.offset < log.log_start_offset or log.epoch_of(last.offset) == last.leader_epoch


def is_to_decide(txn: Txn) -> bool:
    """Return True if a start after a power failure has to look for the records of a Prepare.

    Those of a two-phase commit were synced before it, and only another system decides on it.
    """
    is_commit = txn.state is TxnState.PREPARE_COMMIT
    return is_commit and bool(txn.last_offsets) and not txn.is_two_phase


def is_ended_by(marker: UnsyncedMarker, producer: ProducerIdAndEpoch, first_offset: int) -> bool:
    """Return True if an open transaction is the one that a marker ended, so that the marker is
    gone.

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
