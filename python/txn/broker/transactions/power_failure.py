"""Repairs after a power failure: the start writes lost markers again and fences clients.

Invariant: a marker that was lost is written before any later one, and it is on the disk before
anything is served. Every client that may mean a state that is gone is fenced (P7), but for one of
a two-phase transaction, which has lost nothing that was acknowledged. Where a disk refuses the
markers of an end, the end's Complete has to fence the client. Until that Complete is in the log,
the start counts as not recovered, so that the next start fences the client anew.
"""

from collections.abc import Iterable
from typing import NamedTuple

from txn.broker.host import Durability
from txn.broker.marker_sender import MarkerSender, to_be_retried
from txn.broker.shard import ShardPhase
from txn.broker.transactions.partitions import open_transactions_in
from txn.broker.transactions.producer_ids import Services
from txn.broker.transactions.shards import TxnShards
from txn.broker.transactions.state import TxnShard, append_in_batches, until_synced
from txn.broker.transactions.transactional_id import TransactionalId
from txn.broker.unfinished import Unfinished
from txn.coordinator.transaction.decide import plan
from txn.coordinator.transaction.ending import Ending
from txn.coordinator.transaction.open_transactions import OpenTransaction
from txn.coordinator.transaction.records import TxnRecord
from txn.coordinator.transaction.recovery_decisions import decide_after_power_failure
from txn.coordinator.transaction.states import PREPARED, Txn, UnsyncedMarker
from txn.coordinator.transaction.unsynced import is_ended_by
from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.logs import log
from txn.storage.base import Marker


class _Found(NamedTuple):
    """The state of a partition at a start, before the start wrote a marker to it."""

    log_end_offset: int
    open_transactions: list[OpenTransaction]


class PowerFailure:
    """Repairs the transactions of all shards."""

    def __init__(
        self,
        services: Services,
        shards: TxnShards,
        sender: MarkerSender,
        unfinished: Unfinished,
    ) -> None:
        self._services = services
        self._host = services.host
        self._shards = shards
        self._sender = sender
        self._unfinished = unfinished
        """Has the transactional ids whose Complete is to fence the client and is not in the log."""

    # ------------------------------------------------------------ lost markers

    def write_lost_markers(self) -> None:
        """Write the markers again that the power failure took, each before any later one.

        A new record of the id carries them until they are on the disk. Where a partition cannot be
        opened nothing of the id is served, lest something enters a transaction that is decided.

        Raises StorageError: a disk refuses one. Nothing may be served before it is written.
        """
        found: dict[TopicPartition, _Found] = {}
        for shard in self._shards.shards:
            renewed: list[TxnRecord] = []
            for transactional_id, txn in shard.state.transactions.items():
                if not txn.unsynced_markers:
                    continue
                written = self._rewrite_markers(shard, transactional_id, txn, found)
                if txn.state in PREPARED:
                    shard.state.findings.written_again[transactional_id] = written
                else:
                    following = txn._replace(unsynced_markers=written)
                    renewed.append((transactional_id, following))
            append_in_batches(shard, renewed)

    def _rewrite_markers(
        self, shard: TxnShard, transactional_id: str, txn: Txn, found: dict[TopicPartition, _Found]
    ) -> tuple[UnsyncedMarker, ...]:
        """Write the markers of an id that are gone; return those to carry from now on."""
        to_carry = []
        for each in txn.unsynced_markers:
            topic = self._services.partitions.topic_name(each.topic_id)
            if topic is None or not self._host.has_partition(topic, each.partition):
                continue
            place = topic, each.partition
            try:
                store = self._host.partition(*place)
            except StorageError as error:
                log.error(
                    "txn.id_not_served", transactional_id=transactional_id, reason=error.message
                )
                shard.state.findings.withheld.add(transactional_id)
                to_carry.append(each)
                continue
            assert store is not None, f"{place} is there"
            if place not in found:
                found[place] = _Found(store.log_end_offset, open_transactions_in(store))
            log_end_offset, open_transactions = found[place]
            ended = [
                opened
                for opened in open_transactions
                if is_ended_by(each, opened.producer, opened.first_offset)
            ]
            if not ended and each.offset < log_end_offset:  # it is there
                to_carry.append(each)
                continue
            marker = Marker(
                each.producer_id,
                each.producer_epoch,
                shard.log.leader_epoch,
                each.is_commit,
                self._host.now_ms(),
            )
            sent = self._sender.send([place], marker)
            for refusal in to_be_retried(sent.refused, marker).values():
                raise refusal
            if place in sent.offsets:
                to_carry.append(each._replace(offset=sent.offsets[place]))
            for opened in ended:
                open_transactions.remove(opened)
            log.info(
                "txn.marker_written_again",
                partition=f"{topic}-{each.partition}",
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
        return tuple(to_carry)

    def sync_markers(self, others: Iterable[TopicPartition]) -> None:
        """Sync the partitions of all markers that this start wrote, before anything is served."""
        places = set(others)
        for _, txn in self._shards.decoded():
            places |= self._services.partitions.of_markers(txn.unsynced_markers)
        for shard in self._shards.shards:
            if shard.phase is ShardPhase.ACTIVE:
                shard.run_blocking(until_synced(self._services.partitions.sync_opened(places)))
                return

    # ------------------------------------------------------------ fences

    def fence_all_ids(self) -> None:
        """Fence the client of every id that was served before."""
        for shard in self._shards.shards:
            findings = shard.state.findings
            fenced = [
                (transactional_id, following)
                for transactional_id, txn in shard.state.transactions.items()
                if transactional_id not in findings.withheld
                and (following := self._fenced(txn)) is not None
            ]
            append_in_batches(shard, fenced)
            for transactional_id, txn in shard.state.transactions.decoded():
                volatile = shard.state.volatile.get(transactional_id)
                is_ending = txn.state in PREPARED and not findings.ends_nothing(transactional_id)
                if not is_ending or volatile is None:
                    continue
                if volatile.ending is None:
                    volatile.ending = Ending(plan(txn))
                    one = TransactionalId(self._services, shard, transactional_id)
                    shard.run_blocking(one.finish())
                else:  # a disk refuses its markers
                    self.fence_with(transactional_id, volatile.ending)

    def fence_again(self, shard: TxnShard) -> None:
        """Let the ends of a shard that is elected fence the clients that are not fenced yet."""
        for transactional_id, volatile in shard.state.volatile.items():
            if transactional_id in self._unfinished and volatile.ending is not None:
                self.fence_with(transactional_id, volatile.ending)

    def fence_with(self, transactional_id: str, ending: Ending) -> None:
        """Change the plan of an end: its Complete fences the client, as if power failed behind."""
        self._unfinished.add(transactional_id)
        ending.when_complete = lambda: self._unfinished.discard(transactional_id)
        complete = ending.plan.complete
        fenced = self._fenced(complete)
        if fenced is not None:
            ending.plan = ending.plan._replace(complete=fenced._replace(state=complete.state))
        ending.is_fenced = True

    def _fenced(self, txn: Txn) -> Txn | None:
        """The next state of an id after a power failure; None: it stays as it is."""
        is_behind = self._host.durability is Durability.PROCESS
        if txn.state in PREPARED:  # a disk refuses its markers; it is retried
            return None
        if txn.is_two_phase and not is_behind:
            return None
        return decide_after_power_failure(
            txn,
            is_behind=is_behind,
            now_ms=self._host.now_ms(),
            new_producer_id=self._services.producer_ids.generate_blocking,
        )
