"""The partitions of this node: opened, served to the sockets, taken out of service, removed.

Invariant: the sockets' catalog and the table of partitions say the same, and follow the published
metadata. A topic leaves the catalog before its logs are closed, and its files are removed only
after its deletion is durable.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from txn.broker.partitions import TopicPartitions
from txn.broker.shell import Catalog, LogStorage, Scheduler
from txn.config import BrokerSettings, topic_settings
from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.metadata.delta import Delta
from txn.metadata.image import Image, Topic
from txn.storage.base import Marker, PartitionLog

REMOVED_AT_ONCE: Final = 8
"""Directories of partitions that are removed without a worker thread."""

DELETED_KNOWN_MAX: Final = 10_000
"""Names of deleted topics that are remembered."""


class ReplicaManager:
    """Partitions by topic, each opened when it is first used.

    Args:
        settings: Of the broker.
        storage: Keeps the logs.
        scheduler: Gives time and worker threads.
        catalog: The sockets' view.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        storage: LogStorage,
        scheduler: Scheduler,
        catalog: Catalog,
    ) -> None:
        self.partitions: dict[str, TopicPartitions] = {}
        self._settings = settings
        self._storage = storage
        self._scheduler = scheduler
        self._catalog = catalog
        self._topics: dict[str, Topic] = {}
        self._deleted: dict[str, None] = {}
        """The names of topics that were deleted in this life of the broker, the newest last."""
        self._removals: dict[str, asyncio.Future[None]] = {}
        """Topic → its removal from the disk, while it is under way."""
        self._refusal_listener: Callable[[str, int], object] | None = None

    # ------------------------------------------------------------ look-ups

    def get(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when the topic or the index is unknown.

        Raises StorageError: it cannot be opened now.
        """
        partitions = self.partitions.get(topic)
        if partitions is None or index < 0:
            return None
        try:
            store = partitions.stores[index]  # without a call: a transaction asks nine times
        except IndexError:
            return None
        return partitions[index] if store is None else store

    def touched(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when it holds nothing: it is unknown, or untouched.

        Raises StorageError: it cannot be opened now.
        """
        partitions = self.partitions.get(topic)
        if partitions is None or index < 0:
            return None
        try:
            store = partitions.stores[index]
        except IndexError:
            return None
        if store is not None:
            return store
        return None if partitions.is_untouched(index) else partitions[index]

    def has(self, topic: str, index: int) -> bool:
        """Return True if there is such a partition; it is not opened."""
        partitions = self.partitions.get(topic)
        return partitions is not None and 0 <= index < len(partitions.stores)

    def count(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if it is unknown."""
        partitions = self.partitions.get(topic)
        return 0 if partitions is None else len(partitions.stores)

    def is_untouched(self, topic: str, index: int) -> bool:
        """Return True if a partition is there and was not opened: it holds nothing."""
        partitions = self.partitions.get(topic)
        return partitions is not None and partitions.is_untouched(index)

    def opened(self) -> Iterator[PartitionLog]:
        """The partitions that are in use."""
        return (store for each in self.partitions.values() for store in each.opened())

    @property
    def has_damage(self) -> bool:
        """True if a partition is out of service for damage."""
        return any(each.has_failures(are_final=True) for each in self.partitions.values())

    @property
    def is_all_open(self) -> bool:
        """True if no disk keeps a partition from being opened."""
        return not any(each.has_failures(are_final=False) for each in self.partitions.values())

    # ------------------------------------------------------------ changes

    def serve(self, topics: Sequence[Topic]) -> None:
        """Open the partitions that were written once, and let clients in.

        One that is damaged, cannot be read, or is of another topic keeps no other from being
        served.
        """
        now_ms = self._scheduler.monotonic_ms
        for topic in topics:
            self._topics[topic.name] = topic
            is_anew = topic.name in self._deleted
            open_log = self._open_recreated if is_anew else self._storage.open
            self.partitions[topic.name] = TopicPartitions(topic, open_log, now_ms)
        places = [(topic, index) for topic in topics for index in range(topic.partition_count)]
        for (topic, index), opened in zip(places, self._storage.open_all(places), strict=True):
            if isinstance(opened, CorruptLogError | StorageError):
                self.partitions[topic.name].note_failure(index, opened)
            elif opened is not None:
                self.partitions[topic.name].register(index, opened)
        for topic in topics:
            self._catalog.add_topic(topic, self.partitions[topic.name])

    def on_metadata(self, image: Image, delta: Delta) -> None:
        """Follow a change of topics and settings."""
        for name in delta.deleted:
            self._delete(name)
        if delta.created:
            self.serve([*delta.created.values()])
        for name, topic in delta.grown.items():
            self.partitions[name].grow()
            self._catalog.add_topic(topic, self.partitions[name])
        configured = image.topics if delta.has_broker_settings else delta.configured
        for topic in configured.values():
            self._configure(topic)

    def refuse(self, topic: str, index: int, reason: str) -> None:
        """Stop serving a damaged partition until the next start.

        From now on all that needs it is answered with KAFKA_STORAGE_ERROR, as if it could not be
        opened. Nothing of it is changed.

        Args:
            topic: Its topic, which must exist.
            index: Its number.
            reason: The damage, for the operator and for clients.
        """
        advised = f"{reason}. {self._storage.advice_on(topic, index)}"
        self.partitions[topic].withdraw(index, CorruptLogError(advised))
        self._storage.note_contradiction(topic, index, advised)
        # The sockets ask again for the log of each partition.
        self._catalog.add_topic(self._topics[topic], self.partitions[topic])
        if self._refusal_listener is not None:
            self._refusal_listener(topic, index)

    def on_refusal(self, call: Callable[[str, int], object]) -> None:
        """Set the function to call with each partition that is taken out of service."""
        self._refusal_listener = call

    async def removed(self, topic: str) -> None:
        """Return once the files of a deleted topic are removed, if they can be."""
        removal = self._removals.get(topic)
        if removal is not None:
            await asyncio.shield(removal)

    def abort_lost_transactions(self, places: Iterable[tuple[str, int]]) -> None:
        """End open transactions in logs with an accepted loss: their records may be gone.

        One that cannot be opened all the same keeps no other from being served.

        Raises StorageError: a log takes no marker.
        """
        for topic, index in places:
            try:
                store = self.get(topic, index)
            except StorageError:  # logged when it was opened
                continue
            if store is None:
                continue
            for active in store.producers():
                if active.current_txn_start_offset < 0:
                    continue
                marker = Marker(
                    active.producer_id,
                    active.producer_epoch,
                    max(active.coordinator_epoch, 0),
                    is_commit=False,
                    timestamp_ms=self._scheduler.now_ms(),
                )
                store.append_marker(marker)
                log.warning(
                    "txn.aborted_for_a_loss",
                    topic=topic,
                    partition=index,
                    producer_id=active.producer_id,
                    producer_epoch=active.producer_epoch,
                )

    def forget_idle_producers(self) -> None:
        """Remove producers that have been idle for long from every partition, now and then."""
        now_ms = self._scheduler.monotonic_ms()
        idle_ms = self._settings["producer.id.expiration.ms"]
        for store in self.opened():
            store.producer_state.expire(now_ms, idle_ms)
        again_ms = now_ms + self._settings["producer.id.expiration.check.interval.ms"]
        self._scheduler.call_at(again_ms, self.forget_idle_producers)

    def closable(self) -> list[PartitionLog]:
        """Every log that is open, in use or out of service."""
        withdrawn = [store for each in self.partitions.values() for store in each.withdrawn()]
        return [*self.opened(), *withdrawn]

    # ------------------------------------------------------------ inside

    def _open_recreated(self, topic: Topic, index: int) -> PartitionLog:
        """Open a partition of a topic whose name a deleted one had.

        Its producers may go on with the sequences that they had reached there.
        """
        log = self._storage.open(topic, index)
        log.producer_state.note_loss()
        return log

    def _delete(self, name: str) -> None:
        """Serve a topic no longer, and remove its files, those of many on a worker thread."""
        self._deleted[name] = None
        if len(self._deleted) > DELETED_KNOWN_MAX:
            del self._deleted[next(iter(self._deleted))]
        self._catalog.remove_topic(name)
        del self._topics[name]
        stores = self.partitions.pop(name).close_for_good()
        if len(stores) <= REMOVED_AT_ONCE:
            _remove(stores)
        else:
            self._removals[name] = asyncio.get_running_loop().create_future()
            self._scheduler.spawn(self._remove_aside(name, stores))

    async def _remove_aside(self, name: str, stores: Sequence[PartitionLog]) -> None:
        try:
            await self._scheduler.in_worker(lambda: _remove(stores))
        finally:
            self._removals.pop(name).set_result(None)

    def _configure(self, topic: Topic) -> None:
        settings = topic_settings(topic.settings, self._settings)
        for store in self.partitions[topic.name].opened():
            store.configure(settings)


def _remove(stores: Iterable[PartitionLog]) -> None:
    for store in stores:
        try:
            store.delete()
        except StorageError as error:  # the next start tries again
            log.error("partition.not_removed", reason=error.message)
