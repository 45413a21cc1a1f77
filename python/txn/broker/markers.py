"""Markers: how the end of a transaction gets into the partitions it wrote to."""

from collections.abc import Callable
from typing import Final

from txn.broker.host import Host
from txn.coordinator.transaction.states import Producer, TopicPartition
from txn.errors import StorageError
from txn.logs import log
from txn.metadata.image import OFFSETS_TOPIC
from txn.storage.base import Marker, PartitionLog
from txn.wire.error_codes import ErrorCode

INVALID_PRODUCER_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)

MarkerListener = Callable[[int, int, bool], object]
"""Told (partition of `__consumer_offsets`, producer id, is commit) when a marker is in it."""


class Markers:
    """Appends markers to partitions, and tells of those among committed offsets."""

    def __init__(self, host: Host) -> None:
        self.listeners: list[MarkerListener] = []
        self._host = host

    def make(self, producer: Producer, *, coordinator_epoch: int, is_commit: bool) -> Marker:
        """The marker that ends a producer's open transaction, as of now."""
        return Marker(*producer, coordinator_epoch, is_commit, self._host.now_ms())

    def append(self, partition: TopicPartition, marker: Marker) -> None:
        """Append a decided marker, where anything is left for it to end.

        Raises:
            StorageError: the partition cannot take it now.
        """
        store = self._host.partition(*partition)
        if store is None:  # the topic was deleted, and its readers with it
            return
        try:
            self.append_to(store, marker)
        except StorageError as error:
            if error.code != INVALID_PRODUCER_EPOCH:
                raise
            # The partition has seen a later epoch, so nothing of this one is open there.
            log.error(
                "txn.marker_fenced",
                partition=f"{store.topic}-{store.index}",
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
            )

    def append_to(self, store: PartitionLog, marker: Marker) -> None:
        """Append a marker and tell of it.

        Raises:
            StorageError: the partition refused it.
        """
        store.append_marker(marker)
        if store.topic == OFFSETS_TOPIC:
            for tell in self.listeners:
                tell(store.index, marker.producer_id, marker.is_commit)
