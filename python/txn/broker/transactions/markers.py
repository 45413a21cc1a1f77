"""The steps of an end that touch logs: the transaction is closed, and each partition gets a marker.

Invariant: once an end is decided and may be answered, no batch of the producer gets in front of
the marker, and none into a partition that refused its marker. A commit's markers that a power
failure may take are carried by Complete, or their partitions are synced.

Between many partitions an end gives way to other requests. A transaction over very many writes no
marker to those that nothing ever touched. A late batch there makes the log, finds no expectation
and has to ask.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from txn.broker.host import Host
from txn.broker.marker_sender import MarkerSender, to_be_retried
from txn.broker.members import PROCESS
from txn.broker.transactions.partitions import ALLOWED_PER_TURN, TransactionPartitions
from txn.broker.transactions.state import TxnShard
from txn.coordinator.operations import GIVE_WAY, Performed, Request, in_parts
from txn.coordinator.transaction.ending import Block, Ending, Mark, Marked
from txn.coordinator.transaction.states import UnsyncedMarker
from txn.coordinator.transaction.unsynced import UNSYNCED_MARKERS_MAX, carried
from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.storage.base import Marker

MARKERS_PER_TURN: Final = 8
"""Markers of one turn. One that is the first record of its log has a turn of its own if they are
many: it makes files, which takes milliseconds."""


class EndMarkers:
    """Closes transactions that are decided, and writes their markers."""

    def __init__(self, host: Host, sender: MarkerSender, partitions: TransactionPartitions) -> None:
        self._host = host
        self._sender = sender
        self._partitions = partitions

    def perform(self, shard: TxnShard, operation: Performed) -> Request[Any]:
        """Carry out an operation of an end. Raises StorageError: `shard` cannot be opened."""
        if isinstance(operation, Mark):
            return self.write(shard.log.leader_epoch, operation.ending)
        assert isinstance(operation, Block), f"{operation} is no step of an end"
        return self.block(operation.ending)

    def block(self, ending: Ending) -> Request[list[TopicPartition]]:
        """Close the transaction for batches; return its unsynced partitions."""
        unsynced: list[TopicPartition] = []
        block = partial(self._block_part, ending, unsynced)
        touched = yield from self._partitions.touched(ending.unmarked)
        yield from in_parts(block, touched, ALLOWED_PER_TURN)
        return unsynced

    def _block_part(
        self, ending: Ending, unsynced: list[TopicPartition], part: Sequence[TopicPartition]
    ) -> None:
        producer_id = ending.plan.prepare.producer_id
        for partition in part:
            try:
                store = self._host.touched(*partition)
                if store is not None and store.block_txn(producer_id) > store.synced_end:
                    unsynced.append(partition)
            except StorageError as error:
                ending.held[partition] = error

    def write(self, coordinator_epoch: int, ending: Ending) -> Request[Marked]:
        """Write the markers that an end lacks, each to the log of its partition."""
        prepare = ending.plan.prepare
        is_commit = ending.is_commit
        marker = Marker(
            prepare.producer_id,
            prepare.producer_epoch,
            coordinator_epoch,
            is_commit,
            self._host.now_ms(),
        )
        offsets: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, StorageError] = {}

        def send(part: Sequence[TopicPartition]) -> None:
            sent = self._sender.send(part, marker, ending.held)
            offsets.update(sent.offsets)
            refused.update(sent.refused)

        partitions = self._partitions
        left = yield from partitions.touched(ending.unmarked)
        first = [] if len(left) <= MARKERS_PER_TURN else list(filter(partitions.is_unwritten, left))
        if first:
            yield from in_parts(send, first, 1)
            yield GIVE_WAY
            left = sorted(set(left).difference(first))
        yield from in_parts(send, left, MARKERS_PER_TURN)
        if refused:
            refused = to_be_retried(refused, marker)
            # It is decided and may be answered: no batch is admitted before the marker follows.
            block = partial(self._block_part, ending, [])
            yield from in_parts(block, sorted(refused), ALLOWED_PER_TURN)
        if is_commit and self._host.durability is not PROCESS:
            ending.written += self._unsynced(offsets, marker)
        unsynced = ending.plan.complete.unsynced_markers
        if not unsynced and not ending.written:
            return Marked(marker.timestamp_ms, refused)
        unsynced = carried(unsynced, ending.written, partitions.is_synced)
        if len(unsynced) <= UNSYNCED_MARKERS_MAX:
            return Marked(marker.timestamp_ms, refused, unsynced)
        return Marked(marker.timestamp_ms, refused, to_sync=partitions.of_markers(unsynced))

    def _unsynced(
        self, offsets: Mapping[TopicPartition, int], marker: Marker
    ) -> list[UnsyncedMarker]:
        """The markers that were just appended at these offsets, as a record carries them."""
        producer_id, producer_epoch, _, is_commit, _ = marker
        written = []
        topic_ids = self._partitions.topic_ids(offsets)
        for (topic, index), offset in offsets.items():
            topic_id = topic_ids[topic]
            assert topic_id is not None, f"{topic} took a marker"
            written.append(
                UnsyncedMarker(topic_id, index, offset, producer_id, producer_epoch, is_commit)
            )
        return written
