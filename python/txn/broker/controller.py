"""The port to the controller: changes of topics, partitions and settings, and producer ids.

Invariant: a change is decided on every earlier change, durable or not, and is published only once
it is on the disk. `Controller.image` has both kinds; the published image, which everybody else
reads, has only durable changes. So no batch is stored in a topic that a power failure can undo.
No file of a topic is removed before its deletion is certain.

The local controller is the only writer of the metadata log. The changes of many requests share one
pass of fdatasync. A change whose pass fails may count later: its record is in the log.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from txn.broker.metadata_log import (
    PARTITION_COUNT_SETTING,
    MetadataLog,
    NodeIdentity,
    coordinator_topic_settings,
)
from txn.broker.metadata_publisher import MetadataPublisher
from txn.broker.shell import LogStorage
from txn.broker.turns import Turns
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.metadata.image import PRODUCER_ID_BLOCK, Image, Topic, creation_records, partition_records
from txn.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from txn.storage.base import PartitionLog

if TYPE_CHECKING:
    from txn.security.acls import Acl

T = TypeVar("T")

PUBLISHED_ITEMS: Final = 20
RECORDS_PER_ITEM: Final = 20
"""A change and its records, in the things of a turn (`Turns`)."""


class Controller(Protocol):
    """Changes the metadata of the cluster.

    A change is made in the order of the calls. Its awaitable returns once the change is durable and
    published, and raises StorageError if it cannot be written or made durable.
    """

    @property
    def image(self) -> Image:
        """The metadata with every change made so far, durable or not: the base of the next one."""
        ...

    def create_topic(
        self, name: str, partition_count: int, settings: dict[str, str]
    ) -> Awaitable[uuid.UUID]:
        """Make a topic, and return its id. Name and settings must have been checked.

        It fails too if the directory of a partition, left by another topic of the name, is in the
        way.
        """
        ...

    def create_partitions(self, topic: Topic, partition_count: int) -> Awaitable[None]:
        """Grow a topic to `partition_count` partitions; fails as `create_topic`."""
        ...

    def delete_topic(self, name: str) -> Awaitable[None]:
        """Delete an existing topic."""
        ...

    def alter_configs(
        self, kind: int, resource: str, changes: Mapping[str, str | None]
    ) -> Awaitable[None]:
        """Change the own settings of a topic, a broker, a group or a subscription to metrics.

        Args:
            kind: `TOPIC_RESOURCE`, `BROKER_RESOURCE`, `GROUP_RESOURCE` or
                `CLIENT_METRICS_RESOURCE`.
            resource: The topic, group or subscription, or the broker's number, or `EVERY_BROKER`.
            changes: Setting → value, None takes it away. They must have been checked.
        """
        ...

    def alter_scram_credentials(
        self, changes: Sequence[UserScramCredentialRecord | RemoveUserScramCredentialRecord]
    ) -> Awaitable[None]:
        """Change users' credentials, all of them or none. They must have been checked."""
        ...

    def create_acls(self, acls: "Mapping[uuid.UUID, Acl]") -> Awaitable[None]:
        """Add access control entries under new ids. They must have been checked."""
        ...

    def delete_acls(self, acls: Iterable[uuid.UUID]) -> Awaitable[None]:
        """Remove access control entries by their ids."""
        ...

    def alter_client_quotas(self, changes: Sequence[ClientQuotaRecord]) -> Awaitable[None]:
        """Change quotas, all of them or none. They must have been checked."""
        ...

    def update_features(self, levels: Mapping[str, int]) -> Awaitable[None]:
        """Finalize features at other levels, all of them or none. They must have been checked."""
        ...

    def caught_up(self) -> Awaitable[None]:
        """Return once every change made so far is published."""
        ...

    def alter_scram_credentials_now(
        self, changes: Sequence[UserScramCredentialRecord | RemoveUserScramCredentialRecord]
    ) -> None:
        """Do as `alter_scram_credentials` and block, for a start. Raises StorageError."""
        ...

    def create_coordinator_topic(self, name: str) -> Awaitable[None]:
        """Make `__transaction_state` or `__consumer_offsets`, unless it is there."""
        ...

    def allocate_producer_ids(self) -> Awaitable[range]:
        """Allocate a block of producer ids, which is never allocated again."""
        ...

    def allocate_producer_ids_now(self) -> range:
        """Block until a block of producer ids is durable; for a start. Raises StorageError."""
        ...


@dataclass(slots=True)
class _Change:
    """Records in the log that are not published yet."""

    number: int
    records: Sequence[MetadataRecord]
    result: Any
    done: "asyncio.Future[Any] | None"


class LocalController:
    """A `Controller` that writes this node's metadata log.

    Args:
        metadata: The log; it has no other writer.
        publisher: Publishes changes that are durable.
        storage: Tells if partitions have room, and forgets earlier topics of a name.
        settings: Of the broker.
        identity: Of the node, which keeps every partition.
        sync: Forces logs to the disk, sharing the syncs with others.
    """

    def __init__(
        self,
        metadata: MetadataLog,
        publisher: MetadataPublisher,
        storage: LogStorage,
        settings: BrokerSettings,
        identity: NodeIdentity,
        sync: Callable[[Iterable[PartitionLog]], "asyncio.Future[None]"],
    ) -> None:
        self._metadata = metadata
        self._publisher = publisher
        self._storage = storage
        self._settings = settings
        self._identity = identity
        self._sync = sync
        self._changes: deque[_Change] = deque()
        self._count = 0
        self._durable = 0
        """Changes up to this number are on the disk."""
        self._ahead: Image | None = None
        """The published image with the changes that are not; None: there are none."""
        self._is_publishing = False

    @property
    def image(self) -> Image:
        """The metadata with every change made so far, durable or not."""
        return self._publisher.image if self._ahead is None else self._ahead

    def create_topic(
        self, name: str, partition_count: int, settings: dict[str, str]
    ) -> Awaitable[uuid.UUID]:
        """See `Controller`."""
        topic_id = uuid.uuid4()

        def records() -> list[MetadataRecord]:
            self._storage.require_room(name, range(partition_count))
            return self._creation(name, topic_id, partition_count, settings)

        return self._change(records, topic_id)

    def create_partitions(self, topic: Topic, partition_count: int) -> Awaitable[None]:
        """See `Controller`."""

        def records() -> list[MetadataRecord]:
            fresh = range(topic.partition_count, partition_count)
            self._storage.require_room(topic.name, fresh)
            node_id, _, directory_id = self._identity
            return partition_records(topic.topic_id, fresh, node_id, directory_id)

        return self._change(records, None)

    def delete_topic(self, name: str) -> Awaitable[None]:
        """See `Controller`."""
        topic_id = self.image.topics[name].topic_id
        return self._change(lambda: [RemoveTopicRecord(topic_id)], None)

    def alter_configs(
        self, kind: int, resource: str, changes: Mapping[str, str | None]
    ) -> Awaitable[None]:
        """See `Controller`."""
        return self._change(
            lambda: [ConfigRecord(resource, name, value, kind) for name, value in changes.items()],
            None,
        )

    def alter_scram_credentials(
        self, changes: Sequence[UserScramCredentialRecord | RemoveUserScramCredentialRecord]
    ) -> Awaitable[None]:
        """See `Controller`."""
        return self._change(lambda: changes, None)

    def alter_scram_credentials_now(
        self, changes: Sequence[UserScramCredentialRecord | RemoveUserScramCredentialRecord]
    ) -> None:
        """Change users' credentials before anything is served; blocks. Raises StorageError."""
        self._append(changes)
        self._publish_all()

    def create_acls(self, acls: "Mapping[uuid.UUID, Acl]") -> Awaitable[None]:
        """See `Controller`."""
        return self._change(
            lambda: [AccessControlEntryRecord(key, acl) for key, acl in acls.items()], None
        )

    def delete_acls(self, acls: Iterable[uuid.UUID]) -> Awaitable[None]:
        """See `Controller`."""
        return self._change(lambda: [RemoveAccessControlEntryRecord(key) for key in acls], None)

    def alter_client_quotas(self, changes: Sequence[ClientQuotaRecord]) -> Awaitable[None]:
        """See `Controller`."""
        return self._change(lambda: changes, None)

    def update_features(self, levels: Mapping[str, int]) -> Awaitable[None]:
        """See `Controller`."""
        return self._change(
            lambda: [FeatureLevelRecord(name, level) for name, level in levels.items()], None
        )

    def caught_up(self) -> Awaitable[None]:
        """See `Controller`."""
        return self._change(list, None)

    def create_coordinator_topic(self, name: str) -> Awaitable[None]:
        """See `Controller`."""
        if name in self.image.topics:  # another request made it; it may be on its way to the disk
            return self.caught_up()

        def records() -> list[MetadataRecord]:
            return self._creation(
                name,
                uuid.uuid4(),
                self._settings[PARTITION_COUNT_SETTING[name]],
                coordinator_topic_settings(name, self._settings),
            )

        return self._change(records, None)

    def allocate_producer_ids(self) -> Awaitable[range]:
        """See `Controller`."""
        block = self._next_producer_ids()
        return self._change(lambda: [self._allocation(block)], block)

    def allocate_producer_ids_now(self) -> range:
        """See `Controller`."""
        block = self._next_producer_ids()
        self._append([self._allocation(block)])
        self._publish_all()
        return block

    # ------------------------------------------------------------ inside

    def _next_producer_ids(self) -> range:
        """The ids behind those of every allocation in the log, durable or not."""
        start = self.image.next_producer_id
        return range(start, start + PRODUCER_ID_BLOCK)

    def _allocation(self, block: range) -> MetadataRecord:
        return ProducerIdsRecord(self._identity.node_id, block.stop)

    def _creation(
        self, name: str, topic_id: uuid.UUID, partition_count: int, settings: dict[str, str]
    ) -> list[MetadataRecord]:
        self._storage.begin(name)
        return creation_records(
            name,
            topic_id,
            partition_count,
            settings,
            node_id=self._identity.node_id,
            directory_id=self._identity.directory_id,
        )

    def _change(self, make: Callable[[], Sequence[MetadataRecord]], result: T) -> Awaitable[T]:
        """Append the records of a change; the future is done when they are published."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            change = self._append(make())
        except StorageError as error:
            done.set_exception(error)
            return done
        change.result, change.done = result, done
        synced = self._sync([self._metadata.partition])
        synced.add_done_callback(partial(self._on_synced, change))
        return done

    def _append(self, records: Sequence[MetadataRecord]) -> _Change:
        """Append records, and have the next change decided on them."""
        if records:
            self._metadata.append(records)
            if self._ahead is None:
                self._ahead = self._publisher.image.fork()
            for record in records:
                self._ahead.apply(record)
        self._count += 1
        change = _Change(self._count, records, None, None)
        self._changes.append(change)
        return change

    def _on_synced(self, change: _Change, synced: "asyncio.Future[None]") -> None:
        done = change.done
        assert done is not None, "somebody waits for it"
        error = None if synced.cancelled() else synced.exception()
        if synced.cancelled():
            done.cancel()
        elif error is None:
            self._durable = max(self._durable, change.number)
            self._publish_soon()
        elif not done.done():
            done.set_exception(error)

    def _publish_soon(self) -> None:
        """Publish in a turn of its own: one pass makes the changes of many requests durable."""
        if not self._is_publishing:
            self._is_publishing = True
            asyncio.get_running_loop().call_soon(self._publish_durable)

    def _publish_durable(self) -> None:
        """Publish the changes that are on the disk, and give way to others after some of them."""
        turns = Turns()
        self._is_publishing = False
        while self._changes and self._changes[0].number <= self._durable:
            self._publish_next()
            if self._changes and turns.are_over(_items(self._changes[0])):
                self._publish_soon()
                return

    def _publish_all(self) -> None:
        """Force every change on this thread, and publish it. Raises StorageError."""
        self._metadata.sync()
        self._durable = self._count
        while self._changes:
            self._publish_next()

    def _publish_next(self) -> None:
        change = self._changes.popleft()
        if not self._changes:
            self._ahead = None
        if change.records:
            self._publisher.publish(change.records)
        if change.done is not None and not change.done.done():
            change.done.set_result(change.result)


def _items(change: _Change) -> int:
    """The things of a turn that the publication of a change counts for."""
    return PUBLISHED_ITEMS + len(change.records) // RECORDS_PER_ITEM
