"""The broker itself: topics, their partitions, the coordinators, and the rules between them.

Silent about I/O: logs come from a `LogStorage`, time and waiting from a `Scheduler`, the
sockets' view of topics is a `Catalog`. `txn.server` gives it real ones.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.host import CoordinatorPartitions, Durability, Timer
from txn.broker.partitions import TopicPartitions
from txn.broker.response_cache import ResponseCache
from txn.broker.shared_sync import Failures, SharedSync
from txn.broker.strays import require_no_strays
from txn.broker.txn_coordinator import TransactionCoordinator
from txn.config import SEGMENT_BYTES_MIN, BrokerSettings, topic_settings
from txn.errors import CorruptLogError, DirectoryError, StorageError
from txn.logs import log
from txn.metadata.image import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    PRODUCER_ID_BLOCK,
    TRANSACTIONS_TOPIC,
    Image,
    Topic,
    creation_records,
    partition_records,
)
from txn.metadata.records import (
    EVERY_BROKER,
    TOPIC_RESOURCE,
    AbortTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    encode,
)
from txn.metadata.replay import Replay
from txn.storage.base import Marker, PartitionLog, Space
from txn.storage.strays import Stray

Found = TypeVar("Found")

SEARCHES_MAX = 2
"""Number of searches through logs that run at a time."""

REMOVED_AT_ONCE = 8
"""Directories of partitions that are removed without a worker thread."""

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = uuid.UUID(int=1)
"""The id Kafka reserves for the metadata topic."""

METADATA_SETTINGS = {"cleanup.policy": ""}
"""Nothing of the metadata log may go by age or size."""

SEGMENT_BYTES_SETTING = {
    OFFSETS_TOPIC: "offsets.topic.segment.bytes",
    TRANSACTIONS_TOPIC: "transaction.state.log.segment.bytes",
}
PARTITION_COUNT_SETTING = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
}

FEATURES = {"metadata.version": 25, "transaction.version": 2}
"""Features that a new directory finalizes, and all that ApiVersions announces. The metadata version
is the lowest with this transaction version, so that Apache Kafka 4.0 and later take the
directory."""


Opened = PartitionLog | CorruptLogError | StorageError | None
"""The log of one partition, the error of its opening, or None: it was never written."""


class LogStorage(Protocol):
    """Where partitions are kept."""

    def open(self, topic: Topic, index: int) -> PartitionLog:
        """Open and recover a partition. Raises CorruptLogError, StorageError."""
        ...

    def close_all(self, stores: Sequence[PartitionLog]) -> list[StorageError]:
        """Close partitions; return the failures."""
        ...

    def open_all(self, wanted: Sequence[tuple[Topic, int]]) -> Sequence[Opened]:
        """Open partitions, in this order; one that fails keeps none from the others."""
        ...

    def advice_on(self, topic: str, index: int) -> str:
        """Return an operator's options for a damaged partition."""
        ...

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if an operator gave up, for this start, the lost part of a partition."""
        ...

    def note_contradiction(self, topic: str, index: int, reason: str) -> None:
        """Have a start after a power failure refuse a partition too, which could not judge it."""
        ...

    def strays(self, image: Image, deleted: Collection[uuid.UUID]) -> Sequence[Stray]:
        """List the directories of topics that the metadata log does not know.

        Raises StorageError.
        """
        ...

    def discard(self, deleted: Collection[uuid.UUID], known: Mapping[str, Topic]) -> None:
        """Remove the rest of topics whose deletion was cut short; keep known topics.

        Raises StorageError.
        """
        ...

    @property
    def given_up(self) -> Collection[tuple[str, int]]:
        """The partitions of which this start gives something up, because an operator said so."""
        ...

    def begin(self, topic: str) -> None:
        """Forget an earlier topic of the name of one that is about to be made.

        Raises StorageError.
        """
        ...

    def require_room(self, topic: str, indexes: range) -> None:
        """Raise StorageError if something is stored where these partitions are to be."""
        ...

    def metadata_snapshot(self, log: PartitionLog) -> tuple[int, list[bytes]]:
        """The newest snapshot of the metadata log: where the log goes on, and its records' values.

        Raises CorruptLogError.
        """
        ...

    def space(self) -> Space:
        """The directory, and the space of its disk. Raises StorageError."""
        ...


class Scheduler(Protocol):
    """Time, waiting and work beside the current request."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never steps."""
        ...

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
        """Make a call at a `monotonic_ms`."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work beside the current request."""
        ...

    async def in_worker(self, call: Callable[[], None]) -> None:
        """Run a blocking call on a worker thread."""
        ...

    def sync_each(self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]) -> None:
        """Begin to sync partitions, side by side; tell when all are synced or have failed."""
        ...


class Catalog(Protocol):
    """The sockets' view: the topics that Produce and Fetch find, and whose batches are forced."""

    def add_topic(self, topic: Topic, partitions: TopicPartitions) -> None:
        """Serve a topic's partitions, as many as there are now; replaces its former entry."""
        ...

    def remove_topic(self, name: str) -> None:
        """Serve a topic no longer."""
        ...

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Acknowledge a producer's transactional batches only once they are on the disk, or not."""
        ...


class Node:
    """One broker node; implements `txn.broker.host.Host` for its coordinators."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        storage: LogStorage,
        scheduler: Scheduler,
        catalog: Catalog,
        node_id: int,
        cluster_id: str,
        directory_id: uuid.UUID,
        power_failed: bool = False,
    ) -> None:
        self.settings = settings
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.durability = Durability(settings["durability"])
        self.image = Image()
        self.response_cache = ResponseCache(self.image)
        self.partitions: dict[str, TopicPartitions] = {}
        self.advertised = ("", 0)
        """The (host, port) that Metadata tells clients; the server sets it once it listens."""
        # An accepted loss is gone as after a power failure: open transactions may have lost
        # batches, and offsets must not be given out again in the same leader epoch.
        has_losses = bool(storage.given_up)
        self._begins_epochs = power_failed or has_losses
        self._storage = storage
        self._scheduler = scheduler
        self._catalog = catalog
        self._directory_id = directory_id
        self._shared_sync = SharedSync(scheduler.sync_each)
        self._searches = asyncio.Semaphore(SEARCHES_MAX)
        self._metadata = storage.open(
            Topic(METADATA_TOPIC, METADATA_TOPIC_ID, 1, METADATA_SETTINGS), 0
        )
        self._recover_metadata()
        self._abort_what_was_given_up()
        self.transactions = TransactionCoordinator(self)
        self.groups = GroupCoordinator(self, self.transactions)
        self.transactions.markers.listeners.append(self.groups.on_offsets_marker)
        self.groups.recover()
        self._forget_idle_producers()
        self.transactions.recover(
            power_failed=power_failed,
            has_losses=has_losses,
            stores=tuple(self._open_stores()),
        )

    # ------------------------------------------------------------ what coordinators ask of it

    def setting(self, name: str) -> Any:
        """The value of a broker property, parsed."""
        return self.settings[name]

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._scheduler.now_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never steps."""
        return self._scheduler.monotonic_ms()

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
        """Make a call at a `monotonic_ms`."""
        return self._scheduler.call_at(when_ms, call)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work beside the current request."""
        self._scheduler.spawn(work)

    def partition(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when the topic or the index is unknown.

        Raises StorageError: it cannot be opened now.
        """
        partitions = self.partitions.get(topic)
        return None if partitions is None else partitions.get(index)

    def has_partition(self, topic: str, index: int) -> bool:
        """Say whether there is such a partition; it is not opened."""
        partitions = self.partitions.get(topic)
        return partitions is not None and partitions.has(index)

    def is_untouched(self, topic: str, index: int) -> bool:
        """Say whether a partition is there and was not opened: it holds nothing."""
        partitions = self.partitions.get(topic)
        return partitions is not None and partitions.is_untouched(index)

    def refuse_partition(self, topic: str, index: int, reason: str) -> None:
        """Take a partition that is damaged out of service until the next start.

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
        self._catalog.add_topic(self.image.topics[topic], self.partitions[topic])
        if topic == OFFSETS_TOPIC:
            self.groups.forget_partition(index)

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if an operator gave up, for this start, the lost part of a partition."""
        return self._storage.accepts_loss(topic, index)

    def coordinator_partitions(self, topic: str) -> CoordinatorPartitions:
        """All partitions of a coordinator's topic, made if need be.

        The topic is on the disk before anything is written to it: without it a start finds nothing
        of its partitions' records (P2). Raises StorageError.
        """
        if topic not in self.partitions:
            count = self.settings[PARTITION_COUNT_SETTING[topic]]
            segment_bytes = self.settings[SEGMENT_BYTES_SETTING[topic]]
            is_small = segment_bytes < SEGMENT_BYTES_MIN
            size = "internal.segment.bytes" if is_small else "segment.bytes"
            settings = {"cleanup.policy": "compact", size: str(segment_bytes)}
            made = self._write_topic(topic, count, settings)
            self._force_metadata()  # else a commit could outlive the topic that holds its Prepare
            self._serve([made])
        return self.partitions[topic]

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic, None if unknown."""
        found = self.image.topics.get(topic)
        return None if found is None else found.topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic by its id, None if unknown."""
        return self.image.names.get(topic_id)

    def allocate_producer_ids(self) -> range:
        """A fresh, durable block of producer ids."""
        start = self.image.next_producer_id
        self._write_metadata([ProducerIdsRecord(self.node_id, start + PRODUCER_ID_BLOCK)])
        self._force_metadata()
        return range(start, start + PRODUCER_ID_BLOCK)

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Acknowledge a producer's transactional batches only once they are on the disk, or not."""
        self._catalog.sync_before_ack(producer_id, is_forced)

    def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        """Force partitions to the disk; callers that wait together share one pass."""
        return self._shared_sync.sync(stores)

    @property
    def has_damage(self) -> bool:
        """True if a partition is out of service for damage."""
        return any(each.has_failures(are_final=True) for each in self.partitions.values())

    @property
    def is_all_open(self) -> bool:
        """True if no disk keeps a partition from being opened."""
        return not any(each.has_failures(are_final=False) for each in self.partitions.values())

    @property
    def broker_epoch(self) -> int:
        """Broker epoch of the newest registration of an Apache Kafka broker with this directory, or
        -1.
        """
        return self.image.broker_epochs.get(self.node_id, -1)

    # ------------------------------------------------------------ topics

    def create_topic(self, name: str, partition_count: int, settings: dict[str, str]) -> Topic:
        """Make a topic; it is writable when this returns. The name must have been checked.

        Raises:
            StorageError: nothing was made. The topic could not be written, or the directory of a
                partition, left by another topic of the name, is in the way.
        """
        self._storage.require_room(name, range(partition_count))
        topic = self._write_topic(name, partition_count, settings)
        self._serve([topic])
        return topic

    def _write_topic(self, name: str, partition_count: int, settings: dict[str, str]) -> Topic:
        self._storage.begin(name)
        records = creation_records(
            name,
            uuid.uuid4(),
            partition_count,
            settings,
            node_id=self.node_id,
            directory_id=self._directory_id,
        )
        self._write_metadata(records)
        return self.image.topics[name]

    def add_partitions(self, topic: Topic, partition_count: int) -> None:
        """Grow a topic to `partition_count` partitions. Raises StorageError, as `create_topic`."""
        fresh = range(topic.partition_count, partition_count)
        self._storage.require_room(topic.name, fresh)
        self._write_metadata(
            partition_records(topic.topic_id, fresh, self.node_id, self._directory_id)
        )
        self.partitions[topic.name].grow()
        self._catalog.add_topic(topic, self.partitions[topic.name])

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, the offsets that groups have committed for it, and its records.

        Nobody finds the topic from the first step on. The directories of many partitions are
        removed on a worker thread; until that is done no topic of the name can be made.

        Raises:
            StorageError: the deletion could not be written; the topic is there as before.
        """
        topic = self.image.topics[name]
        self._write_metadata([RemoveTopicRecord(topic.topic_id)])
        self._catalog.remove_topic(name)
        stores = self.partitions.pop(name).close_for_good()
        self.groups.on_topic_deleted(name)
        if len(stores) <= REMOVED_AT_ONCE:
            _remove(stores)
        else:
            await self.in_worker(lambda: _remove(stores))

    async def delete_records(self, store: PartitionLog, offset: int) -> int:
        """Move a partition's log start up to an offset, durably; return the log start.

        Raises:
            StorageError: the offset is beyond the log end, or the disk failed.
        """
        starts: list[int] = []
        await self._scheduler.in_worker(lambda: starts.append(store.delete_records(offset)))
        return starts[0]

    async def search(self, look: Callable[[], Found]) -> Found:
        """Look for something in a log on a worker thread, and return the result.

        Few searches run at a time, in the order in which they were asked for, so that one client's
        leave a processor to everybody. Raises the exception of `look`.
        """
        async with self._searches:
            return await self.in_worker(look)

    async def in_worker(self, call: Callable[[], Found]) -> Found:
        """Make a call on a worker thread, and return its result. Raises its exception."""
        returned: list[Found] = []
        await self._scheduler.in_worker(lambda: returned.append(call()))
        return returned[0]

    def space(self) -> Space:
        """The data directory, and the space of its disk. Raises StorageError."""
        return self._storage.space()

    # ------------------------------------------------------------ settings

    def change_settings(self, kind: int, resource: str, changes: Mapping[str, str | None]) -> None:
        """Change a topic's or a broker's own settings; they count when this returns.

        Args:
            kind: `TOPIC_RESOURCE` or `BROKER_RESOURCE`.
            resource: The topic, or the broker's number, or `EVERY_BROKER`.
            changes: Setting → value, None takes it away. They must have been checked.

        Raises:
            StorageError: they could not be written; all is as before.
        """
        self._write_metadata(
            [ConfigRecord(resource, name, value, kind) for name, value in changes.items()]
        )
        if kind == TOPIC_RESOURCE:
            self._configure(self.image.topics[resource])
            return
        self._take_over_broker_settings()
        for topic in self.image.topics.values():
            self._configure(topic)

    async def sync_metadata(self) -> None:
        """Make changes of topics and settings durable, see `_force_metadata`."""
        await self.sync([self._metadata])

    def close(self) -> None:
        """Close every log.

        Raises:
            StorageError: the error of the first that failed; all are closed nevertheless.
        """
        withdrawn = [store for each in self.partitions.values() for store in each.withdrawn()]
        stores = [*self._open_stores(), *withdrawn, self._metadata]
        failures = self._storage.close_all(stores)
        for error in failures:
            log.error("partition.not_closed", reason=error.message)
        if failures:
            raise failures[0]

    # ------------------------------------------------------------ inside

    def _write_metadata(self, records: Sequence[MetadataRecord]) -> None:
        """Append records as one batch, then apply them: all of them or none."""
        self._metadata.append(
            [(None, encode(record)) for record in records], timestamp_ms=self.now_ms()
        )
        for record in records:
            self.image.apply(record)

    def _force_metadata(self) -> None:
        """Wait until the records of the metadata log are on the disk, under any `durability`.

        Lost records stay lost. But partitions of a topic that nobody knows would be in the way of
        the next one. Producer ids that were given out twice would take one producer's batches for
        retries of another's.
        """
        self._metadata.sync()

    def _recover_metadata(self) -> None:
        replay = Replay(self.image)
        start, values = self._storage.metadata_snapshot(self._metadata)
        for value in values:
            _read_metadata(replay, start, value)
        for batch in self._metadata.batches(start):
            for stored in batch.records:
                if stored.offset >= start:
                    _read_metadata(replay, stored.offset, stored.value or b"")
        require_no_strays(self._storage, self._metadata, self.image, replay.deleted)
        if replay.is_open:
            self._write_metadata([AbortTransactionRecord()])
        if replay.unenforced:
            log.warning(
                "metadata.not_enforced",
                records=",".join(sorted(replay.unenforced)),
                reason="this broker lets everyone in; listen on loopback or a trusted network",
            )
        self._require_all_is_here()
        self._storage.discard(replay.deleted, self.image.topics)
        self._take_over_broker_settings()
        if "metadata.version" not in self.image.features:
            self._write_metadata(
                [FeatureLevelRecord(name, level) for name, level in FEATURES.items()]
            )
        if self._begins_epochs:
            self._begin_leader_epochs()
        if OFFSETS_TOPIC in self.image.topics:
            self._force_metadata()  # a process that died may have left it in memory
        # Without that topic it is forced with it, which comes next.
        self._serve(list(self.image.topics.values()))

    def _abort_what_was_given_up(self) -> None:
        """End open transactions in a log with an accepted loss: their records may be gone.

        Raises StorageError: a log takes no marker.
        """
        for topic, index in self._storage.given_up:
            store = self.partition(topic, index)
            for active in () if store is None else store.producers():
                if store is not None and active.current_txn_start_offset >= 0:
                    marker = Marker(
                        active.producer_id,
                        active.producer_epoch,
                        max(active.coordinator_epoch, 0),
                        is_commit=False,
                        timestamp_ms=self.now_ms(),
                    )
                    store.append_marker(marker)
                    log.warning(
                        "txn.aborted_for_a_loss",
                        topic=topic,
                        partition=index,
                        producer_id=active.producer_id,
                        producer_epoch=active.producer_epoch,
                    )

    def _begin_leader_epochs(self) -> None:
        """Lead every partition in an epoch more, after a power failure.

        Offsets that were not on the disk are given out again. A reader that was beyond them would
        pass over the records stored there now; the epoch tells it that its log was cut (KIP-320).
        """
        changes = [
            PartitionChangeRecord(index, topic.topic_id, leader=self.node_id)
            for topic in self.image.topics.values()
            for index in topic.placements
        ]
        if changes:
            self._write_metadata(changes)

    def _require_all_is_here(self) -> None:
        """Refuse a directory of a cluster with more nodes, or of a node with more directories."""
        for topic in self.image.topics.values():
            for index, placement in topic.placements.items():
                fault = placement.fault(self.node_id, self._directory_id)
                if fault is not None:
                    raise DirectoryError(
                        f"partition {topic.name}-{index} cannot be served from this directory: "
                        f"{fault}. Give one of a node that is a cluster of its own, with one "
                        "directory; or, if its meta.properties was changed, put back a copy"
                    )

    def _take_over_broker_settings(self) -> None:
        altered = self.image.broker_settings
        self.settings.change(
            here=altered.get(str(self.node_id), {}), everywhere=altered.get(EVERY_BROKER, {})
        )

    def _configure(self, topic: Topic) -> None:
        settings = topic_settings(topic.settings, self.settings)
        for store in self.partitions[topic.name].opened():
            store.configure(settings)

    def _forget_idle_producers(self) -> None:
        """Let every partition forget producers that have been idle for long, now and then."""
        now_ms, idle_ms = self.monotonic_ms(), self.settings["producer.id.expiration.ms"]
        for store in self._open_stores():
            store.producer_state.expire(now_ms, idle_ms)
        again_ms = now_ms + self.settings["producer.id.expiration.check.interval.ms"]
        self.call_at(again_ms, self._forget_idle_producers)

    def _serve(self, topics: Sequence[Topic]) -> None:
        """Open the partitions that were written once, and let clients in.

        One that is damaged, cannot be read, or is of another topic keeps no other from being
        served.
        """
        for topic in topics:
            self.partitions[topic.name] = TopicPartitions(
                topic, self._storage.open, self.monotonic_ms
            )
        wanted = [(topic, index) for topic in topics for index in range(topic.partition_count)]
        for (topic, index), opened in zip(wanted, self._storage.open_all(wanted), strict=True):
            if isinstance(opened, CorruptLogError | StorageError):
                self.partitions[topic.name].note_failure(index, opened)
            elif opened is not None:
                self.partitions[topic.name].take_in(index, opened)
        for topic in topics:
            self._catalog.add_topic(topic, self.partitions[topic.name])

    def _open_stores(self) -> Iterator[PartitionLog]:
        return (store for each in self.partitions.values() for store in each.opened())


def _remove(stores: Iterable[PartitionLog]) -> None:
    for store in stores:
        try:
            store.delete()
        except StorageError as error:  # the next start tries again
            log.error("partition.not_removed", reason=error.message)


def _read_metadata(replay: Replay, offset: int, value: bytes) -> None:
    try:
        replay.read(value)
    except ValueError as error:
        raise CorruptLogError(
            f"{METADATA_TOPIC}-0 holds a record that cannot be read, at offset {offset} or in the "
            f"snapshot of what is below it: {error}",
            offset=offset,
        ) from error


def is_reserved(topic: str) -> bool:
    """Say whether only coordinators may write a topic."""
    return topic in INTERNAL_TOPICS or topic == METADATA_TOPIC
