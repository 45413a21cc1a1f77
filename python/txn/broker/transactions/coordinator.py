"""The transaction coordinator: the door through which every request for a transactional id comes.

Invariant: a request runs in the shard of its id, one at a time for each id, and only while the
shard is served. All that a request does is in `transactional_id`; the reading order of the modules
is in the package's docstring.

The state behind an answer to a two-phase producer (KIP-939) is on the disk before the answer
leaves, as all state is with `durability=always`. Any answer may be the last before another system
decides, and from then on only that decision may end the transaction. Producer ids and epochs are on
the disk before they are given out, lest a power failure lets them be given out twice (P7).
With `durability=process` nothing waits and each request is one step, but for many partitions.

Sources: KIP-98, KIP-664, KIP-890, KIP-939; the answers of Kafka's transaction coordinator.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from txn.broker.host import Durability, HangUpError, Host
from txn.broker.last_clients import LastClients
from txn.broker.marker_sender import MarkerSender
from txn.broker.producer_id_manager import ProducerIdManager
from txn.broker.runtime import Requests
from txn.broker.shard import Shard, ShardPhase
from txn.broker.transactions.markers import EndMarkers
from txn.broker.transactions.operator_markers import OperatorMarkers
from txn.broker.transactions.partitions import TransactionPartitions
from txn.broker.transactions.producer_ids import (
    InitProducerIdResult,
    Services,
    new_producer,
    refused,
)
from txn.broker.transactions.recovery import Recovery
from txn.broker.transactions.shards import TxnShards
from txn.broker.transactions.timers import Sweep, Timers
from txn.broker.transactions.transactional_id import (
    TransactionalId,
    code_for_a_batch,
    must_sync_before_answer,
)
from txn.coordinator.operations import Request, Until
from txn.coordinator.transaction.connections import CLOSE_MS, ConnectionUse, LatestConnections
from txn.coordinator.transaction.decide import TV1
from txn.coordinator.transaction.listing import Filter
from txn.coordinator.transaction.records import TRANSACTIONAL_ID_BYTES_MAX
from txn.coordinator.transaction.states import NO_TIMEOUT_MS, ONGOING, Txn, TxnResult
from txn.errors import StorageError
from txn.identifiers import ProducerIdAndEpoch, TopicPartition
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.security.sessions import Peer
from txn.storage.base import Marker, PartitionLog
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition


class TransactionCoordinator:
    """Every transactional id of this broker."""

    def __init__(self, host: Host, markers: MarkerSender) -> None:
        """Make a coordinator that is loading.

        Args:
            host: The broker.
            markers: Sends the markers of its transactions.
        """
        self.clients = LastClients(host.now_ms)
        self.has_partition, self.partition_count = host.has_partition, host.partition_count
        self._host = host
        self._connections = LatestConnections()
        self._requests = Requests(host)
        partitions = TransactionPartitions(host)
        timers = Timers(
            host, lambda shard, name: TransactionalId(self._services, shard, name).time_out()
        )
        self._services = Services(host, ProducerIdManager(host), partitions, timers)
        steps = EndMarkers(host, markers, partitions)
        self.transactions = TxnShards(host, timers, steps, self._forget)
        self._operator_markers = OperatorMarkers(
            self._services, self.transactions, markers, self._requests
        )
        self._recovery = Recovery(self._services, self.transactions, markers)
        self.transactions.on_loaded = self._recovery.resume
        self._sweep = Sweep(host, self.transactions.shards, partitions)

    def _forget(self, transactional_id: str) -> None:
        self.clients.forget(transactional_id)
        self._connections.forget(transactional_id)

    # ------------------------------------------------------------ the life of a transaction

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        is_two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> InitProducerIdResult:
        """Give a starting producer its id and epoch; fence the one before it.

        Args:
            transactional_id: None for a producer that is idempotent alone.
            timeout_ms: The time for which its transactions may stay open.
            expected: The identity that it holds and wants to go on from (KIP-360), or None.
            is_two_phase: Another system decides on its transactions, which never time out.
            keep_prepared: Leave a transaction that is open as it is (KIP-939).
        """
        if transactional_id is None:
            return await self._requests.run(None, new_producer(self._services), refused)
        if (refusal := self.refusal(transactional_id)) is not ErrorCode.NONE:
            return refused(refusal)
        if not 0 < len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
            return refused(ErrorCode.INVALID_REQUEST)
        if is_two_phase:
            if not self._host.setting("transaction.two.phase.commit.enable"):
                return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._host.setting("transaction.max.timeout.ms"):
            return refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if not self.transactions.shards:
            try:
                await self._host.create_coordinator_topic(TRANSACTIONS_TOPIC)
            except StorageError:
                return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.transactions.make()
        shard = self.transactions.with_id(transactional_id)
        one = TransactionalId(self._services, shard, transactional_id)
        if shard.refusal is not ErrorCode.NONE:
            return refused(shard.refusal)  # it was unloaded meanwhile
        request = one.initialize(timeout_ms, expected, keep_prepared)
        return await shard.run(transactional_id, request, refused)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        *,
        client_version: int = TV1,
    ) -> ErrorCode:
        """Join partitions, all of which exist, to a transaction."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        shard = self.transactions.serving(transactional_id)
        if not isinstance(shard, Shard):
            return shard
        request = TransactionalId(self._services, shard, transactional_id).add(
            producer, partitions, client_version
        )
        return await shard.run(transactional_id, request, lambda code: code)

    async def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return a code for each partition, NONE where it is in the transaction.

        All of them exist. Nothing changes.
        """
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        shard = self.transactions.serving(transactional_id)
        if not isinstance(shard, Shard):
            return dict.fromkeys(partitions, shard)
        return await shard.run(
            transactional_id,
            TransactionalId(self._services, shard, transactional_id).verify(producer, partitions),
            lambda code: dict.fromkeys(partitions, code),
        )

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        partitions: Sequence[TopicPartition],
    ) -> dict[TopicPartition, int]:
        """Ask whether a batch may open a transaction on its partition.

        Under transaction version 2 the partitions join the producer's transaction, which
        begins if none is open; under version 1 they must have been added before.

        Returns:
            Kafka's error code for each partition, 0 where the batch may be stored.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        shard = self.transactions.serving(transactional_id)
        if not isinstance(shard, Shard):
            return dict.fromkeys(partitions, code_for_a_batch(shard))
        return await shard.run(
            transactional_id,
            TransactionalId(self._services, shard, transactional_id).join(
                producer, transaction_version, partitions
            ),
            lambda code: dict.fromkeys(partitions, code_for_a_batch(code)),
        )

    def is_joined(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        """Return True if a batch may be appended to a partition in this very moment.

        For callers that had to wait for `join`: the transaction may have ended since.
        """
        shard = self.transactions.of(transactional_id)
        txn = None if shard is None else shard.state.transactions.get(transactional_id)
        return (
            shard is not None
            and txn is not None
            and txn.state is ONGOING
            and txn.is_of(producer)
            and not txn.is_prepared
            and partition in txn.partitions
            and not shard.is_held(transactional_id)
        )

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        outcome: TxnResult,
        *,
        bumps_epoch: bool,
    ) -> InitProducerIdResult:
        """End a transaction; return the identity that the producer has to use from now on.

        Args:
            transactional_id: The id of the transaction.
            producer: The identity in the request.
            outcome: Commit or abort.
            bumps_epoch: EndTxn v5 (TV2); else the producer keeps its epoch.
        """
        if not transactional_id:
            return refused(ErrorCode.INVALID_REQUEST)
        shard = self.transactions.serving(transactional_id)
        if not isinstance(shard, Shard):
            return refused(shard)
        request = TransactionalId(self._services, shard, transactional_id).end(
            producer, outcome, bumps_epoch
        )
        return await shard.run(transactional_id, request, refused)

    async def write_marker(
        self, partition: TopicPartition, marker: Marker, *, must_bump: bool
    ) -> ErrorCode:
        """End a producer's open transaction on a partition, as an operator asks for it.

        Args:
            partition: The partition, which exists.
            marker: The marker to write; its time is set here.
            must_bump: The transaction was of version 2, so its marker has a later epoch than
                its records.
        """
        return await self._operator_markers.write(partition, marker, must_bump=must_bump)

    # ------------------------------------------------------------ late requests

    async def hang_up_if_late(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client: Peer,
        use: ConnectionUse,
    ) -> None:
        """Give no answer to a request of a TV1 client that is late: the client has left.

        Called once for each such request, in the order they come. See
        `coordinator.transaction.connections`. Waits for `CLOSE_MS` where the close of the
        connection may be under way.

        Raises:
            HangUpError: it did.
        """
        txn = self.transactions.get(transactional_id)
        if txn is None or not txn.is_of(producer):
            return
        connections, connection = self._connections, client.connection
        if not connections.may_be_late(transactional_id, use, producer, connection):
            return
        if connections.is_doubtful(transactional_id, use, connection) and not client.has_left():
            await self._requests.run(None, self._pause(CLOSE_MS), lambda _: None)
        if client.has_left():
            raise HangUpError(
                f"the producer of {transactional_id} has closed this connection to {use.value}; "
                f"this request may belong to an earlier transaction"
            )
        connections.note(transactional_id, use, producer, connection)

    def announce_offsets(self, transactional_id: str) -> None:
        """Note that a TV1 client may send offsets from now on; see `hang_up_if_late`."""
        self._connections.announce_offsets(transactional_id)

    def _pause(self, pause_ms: int) -> Request[None]:
        due_ms = self._host.monotonic_ms() + pause_ms
        yield Until(lambda call: self._host.call_at(due_ms, lambda: call(None)))

    # ------------------------------------------------------------ facts for others

    def refusal(self, transactional_id: str) -> ErrorCode:
        """The reason why nothing of an id is served, or NONE: its shard loads or cannot be read."""
        return self.transactions.refusal(transactional_id)

    def must_sync_before_answer_of(self, transactional_id: str) -> bool:
        """Return True if answers to the client of an id wait until their state is on the disk.

        True where the shard is not served: its coordinator may have promised that.
        """
        shard = self.transactions.of(transactional_id)
        if shard is None:
            return False
        durability = self._host.durability
        if shard.phase is not ShardPhase.ACTIVE:
            return durability is not Durability.PROCESS
        txn = shard.state.transactions.get(transactional_id)
        return txn is not None and must_sync_before_answer(durability, txn)

    @property
    def open_count(self) -> int:
        """Number of open transactions."""
        return sum(txn.state is ONGOING for _, txn in self.transactions.decoded())

    @property
    def failed_count(self) -> int:
        """Number of partitions of the coordinator that could not be read."""
        return len(self.transactions.unread())

    def find(self, criteria: Filter) -> Iterator[tuple[str, Txn] | None]:
        """Every transactional id that passes a filter, and None for each that does not.

        A caller that searches very many can give way to others at each None.
        """
        now_ms = self._host.now_ms()
        for transactional_id, txn in self.transactions.items():
            passes = criteria.passes(transactional_id, txn, now_ms)
            yield (transactional_id, txn) if passes else None

    def partition(self, topic: str, index: int) -> PartitionLog | None:
        """The partition, or None when there is none. Raises StorageError."""
        return self._host.partition(topic, index)

    def has_topic(self, topic: str) -> bool:
        """Return True if a topic exists."""
        return self._host.topic_id(topic) is not None

    def is_untouched(self, topic: str, index: int) -> bool:
        """Return True if a partition holds nothing, so that there is no need to open it."""
        return self._host.is_untouched(topic, index)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that keeps a group."""
        count = len(self._host.coordinator_partitions(OFFSETS_TOPIC))
        return OFFSETS_TOPIC, coordinator_partition(group_id, count)

    # ------------------------------------------------------------ into and out of service

    def recover(
        self,
        *,
        power_failed: bool = False,
        has_losses: bool = False,
        stores: Iterable[PartitionLog] = (),
    ) -> None:
        """Replay `__transaction_state`, finish every Prepare, and go on.

        A partition of `__transaction_state` that cannot be read is out of service. Nothing is
        decided for its ids, nor for an unknown producer, which may be one of theirs.
        Without a power failure a partition that holds a transaction open which no record explains
        is damaged and is refused (`open_transactions`).

        Args:
            power_failed: The machine stopped without the broker closing its logs, and no start
                has come since of which `call_when_recovered` was heard.
            has_losses: An operator gave up the losses of some partitions. Every producer is fenced
                as after a power failure. Only there are unexplained open transactions aborted.
            stores: Every partition a transaction may have written to.

        Raises:
            LostCacheError: without a power failure, records prove a loss as after one. Nothing was
                written yet.
            StorageError: a disk refuses a record or a marker that has to be written.
        """
        self._recovery.recover(
            power_failed=power_failed, has_losses=has_losses, stores=tuple(stores)
        )
        self._sweep.schedule()

    @property
    def is_recovered(self) -> bool:
        """True once nothing is left of a power failure; else the next start has to look again."""
        return self._recovery.is_recovered

    def call_when_recovered(self, call: Callable[[], object]) -> None:
        """Make a call once nothing is left of a power failure: at once, if nothing is."""
        self._recovery.call_when_recovered(call)

    def resign(self, index: int) -> None:
        """Leave the ids of a partition to another broker.

        Requests that wait are answered with NOT_COORDINATOR. The state of connections and clients
        stays: it is this broker's own, and no log has it. So do the findings of the start after a
        power failure. A shard that failed stays as it is.
        """
        self.transactions.resign(index)

    async def elect(self, index: int) -> None:
        """Coordinate the ids of a partition again: replay its log, then finish every Prepare.

        Its records are synced first, as those of a start: requests may have been waiting for that.
        Until then a request is answered with COORDINATOR_LOAD_IN_PROGRESS. Ids that the start left
        are left here too. A shard that failed is left to the next start, which looks for losses.
        """
        await self.transactions.elect(index)
