"""The prepared transactions that a start or an election finds: each is decided, then finished.

Invariant: a Prepare whose named records are all there is the decision, and it is finished. One
that has lost records is aborted, before any marker is written: a marker would take the offset of a
lost record. Where a partition cannot be read the id is *undecided*. It waits for the partition, and
nothing is ended meanwhile.

A partition that has a later transaction of the producer open has its marker of this one. Another
marker would end the later transaction.
"""

from txn.broker.host import RETRY_MS
from txn.broker.transactions.partitions import open_transactions_in
from txn.broker.transactions.power_failure import PowerFailure
from txn.broker.transactions.producer_ids import Services
from txn.broker.transactions.shards import TxnShards
from txn.broker.transactions.state import TxnShard, append_in_batches, until_synced
from txn.broker.transactions.transactional_id import TransactionalId
from txn.coordinator.operations import COMMITTED, Request
from txn.coordinator.transaction.decide import plan
from txn.coordinator.transaction.ending import Ending
from txn.coordinator.transaction.records import TxnRecord
from txn.coordinator.transaction.recovery_decisions import decide_undo
from txn.coordinator.transaction.states import PREPARED, Txn
from txn.coordinator.transaction.unsynced import is_in_log, is_to_decide
from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.logs import log


class PreparedTransactions:
    """Decides on prepared transactions, and plans their ends."""

    def __init__(self, services: Services, shards: TxnShards, power_failure: PowerFailure) -> None:
        self._services = services
        self._host = services.host
        self._partitions = services.partitions
        self._shards = shards
        self._power_failure = power_failure

    # ------------------------------------------------------------ the decision

    def decide(self, *, power_failed: bool) -> None:
        """Abort every commit that is prepared and has lost records, before any marker is written.

        All of it is on the disk before the first marker. Where a partition cannot be read the
        commit waits for it, after a kill too: the storage may have lost its cache.
        Raises StorageError: a disk refuses.
        """
        for shard in self._shards.shards:
            undecided = shard.state.findings.undecided
            undone: list[TxnRecord] = []
            for transactional_id, txn in shard.state.transactions.decoded():
                has_lost = self._has_lost_records(txn) if is_to_decide(txn) else False
                if has_lost is None:
                    undecided.add(transactional_id)
                elif has_lost and power_failed:
                    prepare = decide_undo(txn, now_ms=self._host.now_ms())
                    undone.append((transactional_id, prepare))
                    log.warning("txn.unanswered_commit_aborted", transactional_id=transactional_id)
            if undone:
                append_in_batches(shard, undone)
                shard.run_blocking(until_synced(COMMITTED, is_due=True))
            for transactional_id in undecided:
                log.error("txn.left_prepared", transactional_id=transactional_id)
                self._decide_later(shard, transactional_id)

    def _has_lost_records(self, prepare: Txn) -> bool | None:
        """True if a partition lacks records that a Prepare names; None: one cannot be read."""
        is_unknown = False
        for last in prepare.last_offsets:
            try:
                store = self._partitions.log_of(last)
            except StorageError:
                is_unknown = True
                continue
            if store is None or self._host.accepts_loss(store.topic, store.index):
                continue
            if not is_in_log(last, store):
                return True
        return None if is_unknown else False

    def decide_again(self, shard: TxnShard) -> None:
        """Wait further for the undecided ids of a shard that is elected."""
        undecided = shard.state.findings.undecided
        for transactional_id in sorted(undecided):
            txn = shard.state.transactions.get(transactional_id)
            if txn is not None and is_to_decide(txn):
                self._decide_later(shard, transactional_id)
            else:  # another broker has finished it
                undecided.discard(transactional_id)

    def _decide_later(self, shard: TxnShard, transactional_id: str) -> None:
        volatile = shard.state.volatile[transactional_id]
        volatile.timer = self._host.call_at(
            self._host.monotonic_ms() + RETRY_MS,
            lambda: shard.start(transactional_id, self._decide_and_finish(shard, transactional_id)),
        )

    def _decide_and_finish(self, shard: TxnShard, transactional_id: str) -> Request[None]:
        """Decide on a Prepare whose records could not be read at the start."""
        known = shard.state
        findings = known.findings
        if transactional_id not in findings.undecided or transactional_id in findings.withheld:
            return
        known.volatile[transactional_id].timer = None
        txn = known.transactions.get(transactional_id)
        assert txn is not None, f"{transactional_id} is prepared"
        one = TransactionalId(self._services, shard, transactional_id)
        has_lost = self._has_lost_records(txn)
        if has_lost is None:
            self._decide_later(shard, transactional_id)
            return
        if has_lost:
            txn = decide_undo(txn, now_ms=self._host.now_ms())
            try:
                one.write(txn)
            except StorageError:
                self._decide_later(shard, transactional_id)
                return
        findings.undecided.discard(transactional_id)
        ending = self._plan_end(shard, transactional_id, txn, power_failed=True)
        self._power_failure.fence_with(transactional_id, ending)
        yield from one.finish()

    # ------------------------------------------------------------ the end

    def plan_ends(self, shard: TxnShard, *, power_failed: bool) -> list[str]:
        """Plan the end of each prepared transaction of a shard; return their ids."""
        prepared = [
            (transactional_id, txn)
            for transactional_id, txn in shard.state.transactions.decoded()
            if txn.state in PREPARED and not shard.state.findings.ends_nothing(transactional_id)
        ]
        for transactional_id, txn in prepared:
            self._plan_end(shard, transactional_id, txn, power_failed=power_failed)
        return [transactional_id for transactional_id, _ in prepared]

    def _plan_end(
        self, shard: TxnShard, transactional_id: str, txn: Txn, *, power_failed: bool
    ) -> Ending:
        """Plan the end of a transaction whose Prepare a start finds.

        Data that a power failure left is on the disk; data that cannot be read is not waited for.
        """
        end = plan(txn)
        written = shard.state.findings.written_again.pop(transactional_id, None)
        if written is not None:
            end = end._replace(complete=end.complete._replace(unsynced_markers=written))
        ending = shard.state.volatile[transactional_id].ending = Ending(end)
        unsynced = () if power_failed else self._partitions.opened(ending.data)
        ending.data = frozenset((store.topic, store.index) for store in unsynced)
        if txn.last_offsets:
            ending.unmarked -= self._with_later_transaction(txn)
        return ending

    def _with_later_transaction(self, prepare: Txn) -> set[TopicPartition]:
        """The partitions of a Prepare where a transaction that is open began behind it."""
        named: dict[tuple[bytes | None, int], int] = {
            (each.topic_id, each.partition): each.offset for each in prepare.last_offsets
        }
        later = set()
        for store in self._partitions.opened(prepare.partitions):
            topic_id = self._partitions.topic_id(store.topic)
            last_offset = named.get((topic_id, store.index), -1)
            if any(
                found.producer.producer_id == prepare.producer_id
                and found.first_offset > last_offset
                for found in open_transactions_in(store)
            ):
                later.add((store.topic, store.index))
        return later

    def without_later(self, txn: Txn) -> Txn:
        """A transaction without the partitions whose open records are of a later one.

        A Prepare whose Complete a disk refuses has such partitions. The later transaction's own
        record is lost, so the Prepare must not be taken for it.
        """
        if txn.state not in PREPARED or not txn.last_offsets:
            return txn
        return txn._replace(partitions=txn.partitions - self._with_later_transaction(txn))
