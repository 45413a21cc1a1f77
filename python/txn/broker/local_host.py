"""`LocalHost`: the `Host` of this node's coordinators, made of the node's parts.

Invariant: it shows only published metadata of topics, so a coordinator's decision rests on nothing
that a power failure can undo.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from txn.broker.controller import Controller
from txn.broker.host import CoordinatorPartitions, Durability, Timer
from txn.broker.metadata_publisher import MetadataPublisher
from txn.broker.replica_manager import ReplicaManager
from txn.broker.shell import Catalog, LogStorage, Scheduler
from txn.broker.syncs import not_synced
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.metadata.group_configs import group_setting
from txn.storage.base import PartitionLog


class LocalHost:
    """See `txn.broker.host.Host`."""

    def __init__(
        self,
        settings: BrokerSettings,
        storage: LogStorage,
        scheduler: Scheduler,
        catalog: Catalog,
        publisher: MetadataPublisher,
        controller: Controller,
        replicas: ReplicaManager,
        sync: Callable[[Iterable[PartitionLog]], "asyncio.Future[None]"],
    ) -> None:
        self.durability = Durability(settings["durability"])
        self._settings = settings
        self._storage = storage
        self._scheduler = scheduler
        # Bound, not wrapped: a small transaction asks for the time and for partitions often.
        self.now_ms, self.monotonic_ms = scheduler.now_ms, scheduler.monotonic_ms
        self.partition, self.has_partition = replicas.get, replicas.has
        self.touched = replicas.touched
        self.partition_count = replicas.count
        self._catalog = catalog
        self._publisher = publisher
        self._controller = controller
        self._replicas = replicas
        self._sync = sync

    def setting(self, name: str) -> Any:
        """The value of a broker property, parsed."""
        return self._settings[name]

    def group_setting(self, group_id: str, name: str) -> Any:
        """The value of a group's setting that is in force, parsed."""
        own = self._publisher.image.group_settings.get(group_id, {})
        return group_setting(name, own, self._settings)

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
        """Make a call at a `monotonic_ms`."""
        return self._scheduler.call_at(when_ms, call)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work beside the current request."""
        self._scheduler.spawn(work)

    def is_untouched(self, topic: str, index: int) -> bool:
        """Return True if a partition is there and was not opened: it holds nothing."""
        return self._replicas.is_untouched(topic, index)

    def refuse_partition(self, topic: str, index: int, reason: str) -> None:
        """Stop serving a damaged partition until the next start."""
        self._replicas.refuse(topic, index, reason)

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if an operator gave up, for this start, the lost part of a partition."""
        return self._storage.accepts_loss(topic, index)

    def coordinator_partitions(self, topic: str) -> CoordinatorPartitions:
        """All partitions of a coordinator's topic."""
        return self._replicas.partitions[topic]

    def create_coordinator_topic(self, topic: str) -> Awaitable[None]:
        """Make a coordinator's topic, unless it is there."""
        return self._controller.create_coordinator_topic(topic)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic, None if unknown."""
        known = self._publisher.image.topics.get(topic)
        return None if known is None else known.topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic by its id, None if unknown."""
        return self._publisher.image.names.get(topic_id)

    def topic_names(self) -> Iterable[str]:
        """The names of all topics."""
        return self._publisher.image.topics

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it is not finalized."""
        return self._publisher.image.features.get(name, 0)

    async def in_side_thread(self, owner: str, call: Callable[[Callable[[], bool]], None]) -> None:
        """Run a call on a thread for which a stop does not wait."""
        await self._scheduler.in_side_thread(owner, call)

    def allocate_producer_ids(self, done: Callable[[range | StorageError], object]) -> None:
        """Begin to allocate producer ids; give `done` the block once it is durable."""
        allocation = asyncio.ensure_future(self._controller.allocate_producer_ids())
        allocation.add_done_callback(partial(_deliver_block, done))

    def allocate_producer_ids_now(self) -> range:
        """Allocate a block of producer ids on this thread."""
        return self._controller.allocate_producer_ids_now()

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Acknowledge a producer's transactional batches only once they are on the disk, or not."""
        self._catalog.sync_before_ack(producer_id, is_forced)

    def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        """Force partitions to the disk; callers that wait together share their syncs."""
        return self._sync(stores)

    def sync_now(self, stores: Iterable[PartitionLog]) -> StorageError | None:
        """Force partitions to the disk; blocks, for a start. Return a failure."""
        return self._storage.sync_all([*stores])


def _deliver_block(
    done: Callable[[range | StorageError], object], allocation: "asyncio.Future[range]"
) -> None:
    """Pass on a block of producer ids, or the reason why there is none."""
    if allocation.cancelled():  # the broker stops
        return
    error = allocation.exception()
    if error is None:
        done(allocation.result())
    else:
        done(error if isinstance(error, StorageError) else not_synced(error))
