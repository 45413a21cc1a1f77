"""The facts that a producer's state lacks once the producer expired and came back.

An idle producer is forgotten after `producer.id.expiration.ms`. No batch records that, so a replay
of the log knows more than the broker that forgot. A replay folds all batches of a producer; a live
state or a snapshot folds only the batches since it came back. Both obey the same rules (P8). A
producer with an open transaction is never forgotten, so the two differ only in these facts:

    coordinator epoch   unknown, if no marker was stored since
    newest batch        unknown, if nothing but markers was stored since
    the window          shorter; `ProducerStateEntry.offset_of_stored` does not look beyond a gap

Producer epoch, timestamp and open transaction follow from the newest batch or marker.

Pure. Sources: `producer.id.expiration.ms`; Kafka's producer state, which expires likewise.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from txn.partition.producer_state_entry import NO_COORDINATOR_EPOCH, NO_OFFSET, ProducerStateEntry
from txn.partition.producer_state_manager import TRANSACTIONAL, ReplayedBatch

COORDINATOR_EPOCH: Final = "coordinator epoch"
NEWEST_BATCH: Final = "newest batch"


class Returns:
    """Follows a replay, and returns which facts of a producer a snapshot may lack.

    Args:
        open_producer_ids: Producers with an open transaction where the replay begins.
    """

    def __init__(self, open_producer_ids: Iterable[int] = ()) -> None:
        self._open = set(open_producer_ids)
        self._newest_marker: dict[int, int] = {}
        self._newest_empty_marker: dict[int, int] = {}
        """Offset of the newest marker that ended no transaction."""

    def feed(self, batches: Sequence[ReplayedBatch]) -> None:
        """Read batches in the order of the log."""
        for batch in batches:
            offset, producer_id, kind = batch[0], batch[2], batch[6]
            if kind == TRANSACTIONAL:
                self._open.add(producer_id)
            elif kind > TRANSACTIONAL:
                self._newest_marker[producer_id] = offset
                if producer_id in self._open:
                    self._open.discard(producer_id)
                else:
                    self._newest_empty_marker[producer_id] = offset

    def lacking(
        self, producer_id: int, stored: ProducerStateEntry, replayed: ProducerStateEntry
    ) -> set[str]:
        """Name the facts that `stored` lacks, where expiry may be the reason.

        Args:
            producer_id: Of both states.
            stored: Of a snapshot.
            replayed: By the batches below the snapshot's offset.
        """
        newest = replayed.last_offset
        lacking = set()
        is_behind_markers = self._newest_marker.get(producer_id, NO_OFFSET) < newest
        if is_behind_markers and stored.coordinator_epoch == NO_COORDINATOR_EPOCH:
            lacking.add(COORDINATOR_EPOCH)
        if newest < self._newest_empty_marker.get(producer_id, NO_OFFSET) and not stored.batches:
            lacking.add(NEWEST_BATCH)
        return lacking
