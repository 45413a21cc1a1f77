"""The start of the coordinator, and the election to a shard: logs are read, and every id goes on.

Invariant: nothing is served before every Prepare that can be decided is decided, and every record
and marker that an answer may rest on is on the disk. Undecided ids are kept as
`Findings`, which the requests ask.

    read the logs ──► prove losses ──► decide Prepares ──► lost markers ──► finish Prepares
                  ──► fence, end hanging transactions ──► open transactions go on

A partition that lost a marker without proof is refused before any Prepare is finished. A marker
there would take the offset of the lost one, and the record that carries the lost one would forget
it as if it were on the disk. An operator who tells of a lost cache afterwards needs both.

Open transactions wait for their client or their timeout. After a power failure they are aborted and
every producer is fenced, see `decide_after_power_failure`. A transaction that another system
decides on keeps waiting for it, unless with `durability=process`.
"""

from collections.abc import Callable, Iterable, Sequence

from txn.broker.hanging_transactions import HangingTransactions, log_left_open
from txn.broker.lost_cache import require_cache
from txn.broker.lost_logs import refuse_lost_logs
from txn.broker.marker_sender import MarkerSender
from txn.broker.shard import ShardPhase
from txn.broker.transactions.partitions import open_transactions_in
from txn.broker.transactions.power_failure import PowerFailure
from txn.broker.transactions.prepared import PreparedTransactions
from txn.broker.transactions.producer_ids import Services
from txn.broker.transactions.shards import TxnShards
from txn.broker.transactions.state import TxnShard, until_synced
from txn.broker.transactions.transactional_id import TransactionalId
from txn.broker.unfinished import Unfinished
from txn.coordinator.lost_logs import CompletedCommits
from txn.coordinator.operations import COMMITTED
from txn.coordinator.transaction import timeouts
from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    Owner,
    fault_of,
    lost_marker_of,
    owners_of,
    unexplained,
)
from txn.coordinator.transaction.states import TxnState
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.storage.base import PartitionLog


class Recovery:
    """Brings the shards into service."""

    def __init__(self, services: Services, shards: TxnShards, sender: MarkerSender) -> None:
        self._services = services
        self._host = services.host
        self._shards = shards
        self._unfinished = Unfinished()
        self._hanging = HangingTransactions(services.host, sender, self._unfinished)
        self._power_failure = PowerFailure(services, shards, sender, self._unfinished)
        self._prepared = PreparedTransactions(services, shards, self._power_failure)
        self._is_behind = False
        """True after a power failure while an unreadable partition may hold more state."""

    # ------------------------------------------------------------ a start

    def recover(
        self, *, power_failed: bool, has_losses: bool, stores: Sequence[PartitionLog]
    ) -> None:
        """Bring every shard into service; see `TransactionCoordinator.recover`."""
        completed = self._read_all()
        if not power_failed:
            self._require_no_loss(completed, stores)
        self._prepared.decide(power_failed=power_failed)
        if power_failed or has_losses:
            self._power_failure.write_lost_markers()
        if not power_failed:
            stores = self._refuse_unexplained(stores, lost_markers_alone=True)
        for shard in self._shards.shards:
            for transactional_id in self._prepared.plan_ends(shard, power_failed=power_failed):
                one = TransactionalId(self._services, shard, transactional_id)
                shard.run_blocking(one.finish())
        if power_failed:
            self._end_after_power_failure(stores)
        else:
            self._refuse_unexplained(stores)
            if has_losses:
                self._power_failure.fence_all_ids()
        for shard in self._shards.shards:
            self._continue_open(shard)
            for _, txn in shard.state.transactions.decoded():
                if txn.is_two_phase:  # a process before this one may have promised less
                    wait = self._services.partitions.sync_opened(txn.partitions)
                    shard.run_blocking(until_synced(wait))
            if shard.phase is ShardPhase.ACTIVE:
                shard.run_blocking(until_synced(COMMITTED, is_due=True))

    def _read_all(self) -> CompletedCommits:
        """Load every shard that there is; return the commits that were read."""
        completed = self._shards.completed = CompletedCommits()
        if self._host.has_partition(TRANSACTIONS_TOPIC, 0):
            self._shards.make()
            for shard in self._shards.shards:
                if self._shards.load_shard(shard):
                    shard.activate()
        self._shards.is_loading, self._shards.completed = False, None
        return completed

    def _require_no_loss(self, completed: CompletedCommits, stores: Iterable[PartitionLog]) -> None:
        """Refuse logs that are gone. Raises LostCacheError: records prove a loss of the cache."""
        refuse_lost_logs(self._host, completed.known_ends(self._host.topic_name))
        held = [each for store in stores for each in open_transactions_in(store)]
        shards = self._shards
        require_cache(
            self._host, shards.decoded(), shards.items, held, lambda name: shards.with_id(name).log
        )

    def _end_after_power_failure(self, stores: Iterable[PartitionLog]) -> None:
        """Fence every client, and end the transactions that only a partition knows."""
        unread = self._shards.unread()
        self._is_behind = bool(unread) or any(
            shard.state.findings.are_incomplete for shard in self._shards.shards
        )
        self._power_failure.fence_all_ids()
        known = [self._prepared.without_later(txn) for _, txn in self._shards.items()]
        self._hanging.end(stores, known, unread=unread)
        self._power_failure.sync_markers(self._hanging.marked)

    def _refuse_unexplained(
        self, stores: Sequence[PartitionLog], *, lost_markers_alone: bool = False
    ) -> Sequence[PartitionLog]:
        """Refuse the partitions that hold a transaction open which no record explains.

        Args:
            stores: The partitions to look at.
            lost_markers_alone: True: only those where a carried marker ended the transaction.

        Returns the partitions that are not refused.
        """
        found = self._unexplained(stores)
        if not found:
            return stores
        refused = set()
        unread = self._shards.unread()
        topic_id_of = self._services.partitions.topic_id
        for each, owner in found:
            if lost_markers_alone and lost_marker_of(each, owner, topic_id_of) is None:
                continue
            if self._is_given_up(each, owner):
                self._hanging.abort(each)
            elif owner is None and unread:
                log_left_open(each, unread)
            else:
                self._host.refuse_partition(*each.partition, fault_of(each, owner, topic_id_of))
                refused.add(each.partition)
        return [each for each in stores if (each.topic, each.index) not in refused]

    def _unexplained(
        self, stores: Iterable[PartitionLog]
    ) -> list[tuple[OpenTransaction, Owner | None]]:
        """The open transactions that no record explains, each with the owner of its producer."""
        found = [each for store in stores for each in open_transactions_in(store)]
        topic_id_of = self._services.partitions.topic_id
        if not unexplained(found, owners_of(self._shards.decoded()), topic_id_of):
            return []
        return unexplained(found, owners_of(self._shards.items()), topic_id_of)

    def _is_given_up(self, held: OpenTransaction, owner: Owner | None) -> bool:
        """True if an operator gave up a transaction's end, or its coordinator's records."""
        if self._host.accepts_loss(*held.partition):
            return True
        if owner is None:
            indexes = [shard.index for shard in self._shards.shards]
        else:
            indexes = [self._shards.with_id(owner.transactional_id).index]
        return any(self._host.accepts_loss(TRANSACTIONS_TOPIC, index) for index in indexes)

    def _continue_open(self, shard: TxnShard) -> None:
        """Resume the open transactions of a shard, each until its timeout."""
        known = shard.state
        for transactional_id, txn in known.transactions.decoded():
            if transactional_id in known.findings.withheld:
                continue
            if txn.state is TxnState.ONGOING:
                age_ms = timeouts.age_at_start(txn, self._host.now_ms())
                volatile = known.volatile[transactional_id]
                volatile.begun_ms = self._host.monotonic_ms() - age_ms
                self._services.timers.watch(shard, transactional_id, txn, volatile)
            self._shards.sync_before_ack(None, txn)
            self._services.partitions.admit_batches_of(transactional_id, txn)

    # ------------------------------------------------------------ after a power failure

    @property
    def is_recovered(self) -> bool:
        """True once nothing is left of a power failure; else the next start has to look again."""
        return self._unfinished.is_empty and not self._is_behind

    def call_when_recovered(self, call: Callable[[], object]) -> None:
        """Make a call once nothing is left of a power failure: at once, if nothing is."""
        if not self._is_behind:
            self._unfinished.call_when_empty(call)

    # ------------------------------------------------------------ elections

    def resume(self, shard: TxnShard) -> None:
        """Finish every Prepare of a shard that is elected, and let its open transactions go on."""
        prepared = self._prepared.plan_ends(shard, power_failed=False)
        self._power_failure.fence_again(shard)
        for transactional_id in prepared:
            one = TransactionalId(self._services, shard, transactional_id)
            shard.start(transactional_id, one.finish())
        self._prepared.decide_again(shard)
        self._continue_open(shard)
