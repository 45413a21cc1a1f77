"""The node: metadata, partitions, coordinators, and the work of handlers.

`Node.start` builds each part from the ones before: the metadata log and its image, the publisher,
the partitions, the controller, the coordinators. A part that is built has its state. No constructor
reads or writes a log.

The node does no I/O itself. It gets logs from a `LogStorage`, time and waiting from a `Scheduler`,
and publishes topics to the sockets through a `Catalog`. `txn.server` gives it real ones.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from txn.broker.client_quotas import ClientQuotas
from txn.broker.controller import Controller, LocalController
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.group_shards import GroupShards
from txn.broker.host import Durability
from txn.broker.local_host import LocalHost
from txn.broker.lost_logs import report_lost_logs
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.metadata_log import (
    MetadataLog,
    NodeIdentity,
    apply_broker_settings,
    recover_metadata,
    store_snapshot,
)
from txn.broker.metadata_publisher import MetadataPublisher, Subscriber
from txn.broker.partitions import TopicPartitions
from txn.broker.replica_manager import ReplicaManager
from txn.broker.response_cache import ResponseCache
from txn.broker.shell import Catalog, LogStorage, Scheduler
from txn.broker.syncs import synced
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.txn_verifier import TransactionVerifier
from txn.config import BrokerSettings
from txn.coordinator.lost_logs import ends_in_offsets
from txn.errors import StorageError
from txn.logs import log
from txn.metadata.delta import Delta
from txn.metadata.image import Image
from txn.metadata.quotas import creation_rates, names_without_address
from txn.storage.base import PartitionLog, Space

if TYPE_CHECKING:
    from txn.security.acls import Authorizer

Found = TypeVar("Found")

SEARCHES_MAX = 2
"""Number of searches through logs that run at a time."""

NAMES_TOLD_MAX = 10
"""Names that one log line has."""


class ListenerCertificates(Protocol):
    """The certificates of the listeners, which AlterConfigs may change."""

    def require(self, own: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
        """Refuse changes of the broker's own settings that leave a listener without a certificate.

        Raises ConfigError.
        """

    def check(self) -> None:
        """Read again the files that have changed."""


class Node:
    """One broker node. `start` makes it; the handlers of `txn.broker.apis` use its parts."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        identity: NodeIdentity,
        storage: LogStorage,
        scheduler: Scheduler,
        metadata: MetadataLog,
        publisher: MetadataPublisher,
        controller: Controller,
        replicas: ReplicaManager,
        host: LocalHost,
        transactions: TransactionCoordinator,
        groups: GroupCoordinator,
        authorizer: "Authorizer | None",
        quotas: ClientQuotas,
    ) -> None:
        self.settings = settings
        self.node_id, self.cluster_id, _ = identity
        self.image = publisher.image
        self.controller = controller
        self.replicas = replicas
        self.host = host
        self.transactions = transactions
        self.verifier: TransactionVerifier = transactions
        self.groups = groups
        self.authorizer = authorizer
        """Decides on every request; None: no request is refused."""
        self.quotas = quotas
        self.response_cache = ResponseCache(self.image)
        self._storage = storage
        self._scheduler = scheduler
        self.metadata = metadata
        self._searches = asyncio.Semaphore(SEARCHES_MAX)
        self.certificates: ListenerCertificates | None = None
        """None: there are no listeners, as in tests."""

    @classmethod
    def start(
        cls,
        *,
        settings: BrokerSettings,
        storage: LogStorage,
        scheduler: Scheduler,
        catalog: Catalog,
        identity: NodeIdentity,
        power_failed: bool = False,
    ) -> Self:
        """Recover everything that is stored, and return a node that can serve.

        Raises:
            CorruptLogError: the metadata log is damaged.
            DirectoryError: the directory is of a larger cluster.
            LostCacheError: the storage lost its cache. Start again on a fresh storage, with
                `power_failed`: nothing of this start is left, neither timers nor decisions.
            StorageError: the metadata log cannot be read or written.
        """
        # An accepted loss counts as a power failure. Open transactions may have lost batches, and
        # offsets must not be given out again in the same leader epoch.
        has_losses = bool(storage.given_up)
        metadata, image = recover_metadata(
            storage,
            settings,
            identity,
            now_ms=scheduler.now_ms,
            begins_epochs=power_failed or has_losses,
        )
        publisher = MetadataPublisher(image)
        publisher.subscribe(_follower_of_settings(settings, identity.node_id))
        replicas = ReplicaManager(settings, storage, scheduler, catalog)
        replicas.serve(list(image.topics.values()))
        publisher.subscribe(replicas.on_metadata)
        replicas.abort_lost_transactions(storage.given_up)
        sync = partial(synced, scheduler.sync_each)
        controller = LocalController(metadata, publisher, storage, settings, identity, sync)
        host = LocalHost(
            settings, storage, scheduler, catalog, publisher, controller, replicas, sync
        )
        group_shards = GroupShards.load(host)
        replicas.on_refusal(group_shards.on_refusal)
        if not power_failed:  # else a deletion of offsets may be lost, too
            known = ends_in_offsets(group_shards.committed(), host.topic_id)
            report_lost_logs(host, known, storage.advice_on)
        markers = LocalMarkerSender(
            replicas.get, group_shards.on_offsets_marker, group_shards.on_offsets_refusal
        )
        transactions = TransactionCoordinator(host, markers)
        transactions.recover(
            power_failed=power_failed, has_losses=has_losses, stores=tuple(replicas.opened())
        )
        replicas.forget_idle_producers()
        groups = GroupCoordinator(host, group_shards, transactions, verifier=transactions)
        publisher.subscribe(transactions.transactions.on_metadata)
        publisher.subscribe(group_shards.on_metadata)
        publisher.subscribe(_follower_of_creation_rates(catalog))
        if image.client_quotas:
            catalog.publish_creation_rates(*creation_rates(image.client_quotas))
            _warn_of_names_without_address(image)
        authorizer = _authorizer(settings, image)
        if authorizer is not None:
            publisher.subscribe(_follower_of_acls(authorizer, catalog))
        quotas = ClientQuotas(settings, scheduler.monotonic_ms, catalog)
        quotas.publish(image.client_quotas)
        publisher.subscribe(_follower_of_quotas(quotas))
        return cls(
            settings=settings,
            identity=identity,
            storage=storage,
            scheduler=scheduler,
            metadata=metadata,
            publisher=publisher,
            controller=controller,
            replicas=replicas,
            host=host,
            transactions=transactions,
            groups=groups,
            authorizer=authorizer,
            quotas=quotas,
        )

    @property
    def durability(self) -> Durability:
        """The durability that a commit promises."""
        return self.host.durability

    @property
    def partitions(self) -> dict[str, TopicPartitions]:
        """The partitions of each topic."""
        return self.replicas.partitions

    @property
    def broker_epoch(self) -> int:
        """Broker epoch of the newest registration of an Apache Kafka broker with this directory, or
        -1.
        """
        return self.image.broker_epochs.get(self.node_id, -1)

    async def delete_records(self, store: PartitionLog, offset: int) -> int:
        """Move a partition's log start up to an offset, durably; return the log start.

        Raises:
            StorageError: the offset is beyond the log end, or the disk failed.
        """
        return await self.in_worker(lambda: store.delete_records(offset))

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

    def close(self) -> None:
        """Close every log.

        Raises:
            StorageError: the error of the first that failed; all are closed nevertheless.
        """
        store_snapshot(self._storage, self.metadata, self._scheduler.now_ms())
        failures = self._storage.close_all([*self.replicas.closable(), self.metadata.partition])
        for error in failures:
            log.error("partition.not_closed", reason=error.message)
        if failures:
            raise failures[0]

    def discard(self) -> None:
        """Close every log with a directory that is removed next: nothing is forced to the disk."""
        for store in [*self.replicas.closable(), self.metadata.partition]:
            with suppress(StorageError):  # the directory goes with all that is left
                store.delete()


def _authorizer(settings: BrokerSettings, image: Image) -> "Authorizer | None":
    """The authorizer with the entries of the image, None where none is set."""
    if not settings["authorizer.class.name"]:
        return None
    from txn.security.acls import Authorizer, split_super_users

    authorizer = Authorizer(
        split_super_users(settings["super.users"]),
        allows_if_no_acl=settings["allow.everyone.if.no.acl.found"],
    )
    authorizer.load(image.acls.values())
    return authorizer


def _follower_of_acls(authorizer: "Authorizer", catalog: Catalog) -> Subscriber:
    """Return a subscriber that applies changed entries, also to open connections."""

    def follow(image: Image, delta: Delta) -> None:
        if delta.acls_before or delta.acls_after:
            authorizer.change(delta.acls_after.values(), delta.acls_before.values())
            catalog.forget_verdicts()

    return follow


def _follower_of_creation_rates(catalog: Catalog) -> Subscriber:
    """Return a subscriber that applies the rates of addresses to the next connection."""

    def follow(image: Image, delta: Delta) -> None:
        if delta.has_client_quotas:
            catalog.publish_creation_rates(*creation_rates(image.client_quotas))

    return follow


def _warn_of_names_without_address(image: Image) -> None:
    """Warn of rates that count for nothing. A directory alone brings them: new ones are refused."""
    names = names_without_address(image.client_quotas)
    if names:
        log.warning(
            "quota.not_enforced",
            ip=", ".join(names[:NAMES_TOLD_MAX]),
            names=len(names),
            reason="an entity ip is named by an address. Remove the quota, and set it for one",
        )


def _follower_of_quotas(quotas: ClientQuotas) -> Subscriber:
    """Return a subscriber that applies changed quotas."""

    def follow(image: Image, delta: Delta) -> None:
        if delta.has_client_quotas:
            quotas.publish(image.client_quotas)

    return follow


def _follower_of_settings(settings: BrokerSettings, node_id: int) -> Subscriber:
    """Return a subscriber that applies altered settings of the broker."""

    def follow(image: Image, delta: Delta) -> None:
        if delta.has_broker_settings:
            apply_broker_settings(settings, image, node_id)

    return follow
