"""The partitions that transactions write to, as the coordinator of this node sees them.

Invariant: a partition that holds nothing is not opened. It takes no batch before it is opened, and
then its producer state asks the coordinator for each transactional one.

Topics are named in records by their ids. A topic that was deleted has no name and no log.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from txn.broker.host import Host
from txn.coordinator.operations import Request, Synced, in_parts
from txn.coordinator.transaction.open_transactions import OpenTransaction
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState, UnsyncedMarker
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch, TopicPartition
from txn.storage.base import PartitionLog
from txn.wire.hashing import java_hash

LOOKED_AT_PER_TURN: Final = 2_000
"""Partitions of one turn that are looked at."""

ALLOWED_PER_TURN: Final = 200
"""Partitions of one turn that are opened, or whose expectation of a transaction changes."""

UNTOUCHED_MARKED_MAX: Final = 100
"""Partitions of a transaction that get their markers though nothing touched them, as in Kafka."""


class TransactionPartitions:
    """Finds the partitions of transactions, and opens and closes them for batches."""

    def __init__(self, host: Host) -> None:
        self._host = host

    # ------------------------------------------------------------ topics by id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic by the id in a record; None if it was deleted."""
        return self._host.topic_name(uuid.UUID(bytes=topic_id))

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, as records have it; None if there is no such topic."""
        topic_id = self._host.topic_id(topic)
        return None if topic_id is None else topic_id.bytes

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes | None]:
        """The ids of the partitions' topics by name; each is looked up once."""
        topic_ids: dict[str, bytes | None] = {}
        for topic, _ in partitions:
            if topic not in topic_ids:
                topic_ids[topic] = self.topic_id(topic)
        return topic_ids

    def log_of(self, place: UnsyncedMarker | LastOffset) -> PartitionLog | None:
        """The log of a partition by its topic's id; None if that is gone. Raises StorageError."""
        topic = self.topic_name(place.topic_id)
        return None if topic is None else self._host.partition(topic, place.partition)

    def is_synced(self, marker: UnsyncedMarker) -> bool:
        """Return True if no power failure can take a marker, or its topic was deleted."""
        try:
            store = self.log_of(marker)
        except StorageError:
            return False
        return store is None or marker.offset < store.synced_end

    def of_markers(self, markers: Iterable[UnsyncedMarker]) -> frozenset[TopicPartition]:
        """The partitions of markers, but for those of deleted topics."""
        named = ((self.topic_name(each.topic_id), each.partition) for each in markers)
        return frozenset((topic, index) for topic, index in named if topic is not None)

    # ------------------------------------------------------------ partitions of a transaction

    def opened(self, partitions: Iterable[TopicPartition]) -> list[PartitionLog]:
        """The logs of those partitions that can be opened and hold something."""
        opened = []
        touched = self._host.touched
        for topic, index in partitions:
            try:
                store = touched(topic, index)
            except StorageError:
                continue
            if store is not None:
                opened.append(store)
        return opened

    def sync_opened(self, partitions: Iterable[TopicPartition]) -> Synced:
        """A wait for those partitions that can be opened; one that cannot holds back no other."""
        return Synced([(store.topic, store.index) for store in self.opened(partitions)])

    def touched(self, partitions: Collection[TopicPartition]) -> Request[list[TopicPartition]]:
        """The partitions in order; of very many, without the untouched ones."""
        if len(partitions) <= UNTOUCHED_MARKED_MAX:
            return sorted(partitions)
        touched: list[TopicPartition] = []
        is_untouched = self._host.is_untouched

        def look_at(part: Sequence[TopicPartition]) -> None:
            touched.extend([each for each in part if not is_untouched(*each)])

        yield from in_parts(look_at, list(partitions), LOOKED_AT_PER_TURN)
        return sorted(touched)

    def require_open(self, partitions: Collection[TopicPartition]) -> Request[list[TopicPartition]]:
        """The partitions that may hold something. Raises StorageError: one cannot be opened now."""
        touched = self._host.touched

        def require(part: Sequence[TopicPartition]) -> None:
            for topic, index in part:
                touched(topic, index)

        held = yield from self.touched(partitions)
        yield from in_parts(require, held, ALLOWED_PER_TURN)
        return held

    def is_unwritten(self, partition: TopicPartition) -> bool:
        """Return True if a partition never got a record."""
        try:
            store = self._host.touched(*partition)
        except StorageError:
            return False
        return store is None or store.log_end_offset == 0

    def last_offsets(self, partitions: Iterable[TopicPartition]) -> tuple[LastOffset, ...]:
        """The last offset of each partition, as a Prepare names it. Raises StorageError."""
        last_offsets = []
        topic_ids = self.topic_ids(partitions)
        for topic, index in sorted(partitions):
            store, topic_id = self._host.touched(topic, index), topic_ids[topic]
            if store is not None and topic_id is not None:
                offset = store.log_end_offset - 1
                last_offsets.append(LastOffset(topic_id, index, store.epoch_of(offset), offset))
        return tuple(last_offsets)

    # ------------------------------------------------------------ admission of batches

    def allow_txn(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Let partitions admit the transaction's first batch without a question."""
        producer_id, producer_epoch = producer
        id_hash = java_hash(transactional_id)
        for store in self.opened(partitions):
            store.producer_state.allow_txn(producer_id, producer_epoch, id_hash)

    def admit_batches_of(self, transactional_id: str, txn: Txn) -> None:
        """Let partitions admit batches of an open transaction; none of a prepared one."""
        if txn.is_prepared:
            for store in self.opened(txn.partitions):
                store.producer_state.block_txn(txn.producer_id)
        elif txn.state is TxnState.ONGOING:
            self.allow_txn(transactional_id, txn.producer, txn.partitions)


def open_transactions_in(store: PartitionLog) -> list[OpenTransaction]:
    """The transactions that a partition holds open; none if a disk refuses to list them."""
    if store.producer_state.first_unstable_offset() < 0:
        return []
    try:
        known = store.producers()
    except StorageError:  # it refused a marker just now; the next start looks again
        return []
    return [
        OpenTransaction(
            (store.topic, store.index),
            ProducerIdAndEpoch(active.producer_id, active.producer_epoch),
            active.current_txn_start_offset,
        )
        for active in known
        if active.current_txn_start_offset >= 0
    ]
