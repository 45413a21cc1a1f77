"""Markers that an operator asks for (WriteTxnMarkers).

Invariant: no transaction is torn (P3). Where this differs from Kafka: an operator's marker in the
midst of a transaction that is open here aborts all of it. Once the transaction is decided, the
marker is refused. Kafka writes the one marker.

A transaction of a partition that no id explains gets its marker at once, if no unread shard may
explain it. A group may commit an offset behind records and marker, so both are synced, the records
before readers can pass them.
"""

from txn.broker.host import Durability
from txn.broker.marker_sender import MarkerSender
from txn.broker.runtime import Requests
from txn.broker.shard import ShardPhase
from txn.broker.transactions.producer_ids import Services
from txn.broker.transactions.shards import TxnShards
from txn.broker.transactions.transactional_id import TransactionalId
from txn.coordinator.operations import Request, Synced
from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.storage.base import Marker, PartitionLog
from txn.wire.error_codes import ErrorCode


class OperatorMarkers:
    """Ends open transactions of partitions by hand."""

    def __init__(
        self, services: Services, shards: TxnShards, sender: MarkerSender, requests: Requests
    ) -> None:
        self._services = services
        self._requests = requests
        self._host = services.host
        self._shards = shards
        self._sender = sender

    async def write(
        self, partition: TopicPartition, marker: Marker, *, must_bump: bool
    ) -> ErrorCode:
        """End a producer's open transaction on a partition.

        See `TransactionCoordinator.write_marker`.
        """
        owner = self._owner_of(partition, marker.producer_id)
        if owner is None:
            request = self._end_unowned(partition, marker, must_bump=must_bump)
            code = await self._requests.run(None, request, lambda code: code)
            owner = self._owner_of(partition, marker.producer_id) if code is None else None
            if owner is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code is None else code
        shard = self._shards.with_id(owner)
        one = TransactionalId(self._services, shard, owner)
        request_of_id = one.abort_for_operator(partition, marker)
        return await shard.run(owner, request_of_id, lambda code: code)

    def _owner_of(self, partition: TopicPartition, producer_id: int) -> str | None:
        """The id whose transaction is open on a partition, as far as it is known here."""
        for shard in self._shards.shards:
            owner = shard.state.transactions.owner_of(partition, producer_id)
            if owner is not None:
                return owner
        return None

    def _end_unowned(
        self, partition: TopicPartition, marker: Marker, *, must_bump: bool
    ) -> Request[ErrorCode | None]:
        """End a transaction that no id explains.

        Returns:
            None if an id explains it by now, or the topic is gone.
        """
        producer_id, holder = marker.producer_id, object()
        store = None
        try:
            store = self._host.partition(*partition)
            if store is None:
                return None
            if self._host.durability is not Durability.PROCESS:
                if store.block_txn(producer_id, holder) > store.synced_end:
                    yield Synced([partition])
                if self._owner_of(partition, producer_id) is not None:
                    return None
            refusal = self._refusal_of_unowned(store, marker, must_bump=must_bump)
            if refusal is not ErrorCode.NONE:
                return refusal
            marker = marker._replace(timestamp_ms=self._host.now_ms())
            sent = self._sender.send([partition], marker)
            if partition in sent.refused:
                return _code_of(sent.refused[partition])
            if partition not in sent.offsets:
                return None
            yield Synced([partition])
        except StorageError as error:
            return _code_of(error)
        finally:
            if store is not None:
                store.producer_state.unblock_txn(producer_id, holder)
        return ErrorCode.NONE

    def _refusal_of_unowned(
        self, store: PartitionLog, marker: Marker, *, must_bump: bool
    ) -> ErrorCode:
        """The reason why an operator may not end a transaction that no id explains.

        Raises StorageError.
        """
        is_unsure = any(
            shard.phase is not ShardPhase.ACTIVE or shard.state.findings.withheld
            for shard in self._shards.shards
        )
        if is_unsure and _is_open_at(store, marker.producer_id, 0):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # it may be another's, and decided
        if must_bump and _is_open_at(store, marker.producer_id, marker.producer_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        # No Prepare stands behind it: a power failure could make it an abort after readers saw it.
        if marker.is_commit and _is_open_at(store, marker.producer_id, 0):
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE


def _is_open_at(store: PartitionLog, producer_id: int, producer_epoch: int) -> bool:
    """True if a partition holds a transaction of this producer open, at this epoch or later."""
    return any(
        active.producer_id == producer_id
        and active.producer_epoch >= producer_epoch
        and active.current_txn_start_offset >= 0
        for active in store.producers()
    )


def _code_of(error: StorageError) -> ErrorCode:
    """The error code of a partition that takes no marker."""
    return ErrorCode(error.code) if error.code else ErrorCode.KAFKA_STORAGE_ERROR
