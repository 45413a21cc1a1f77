"""Hanging transactions: a power failure left them open on a partition, and
`__transaction_state` does not know them.

The log of the coordinator may have lost more than the partition did. No client and no timeout
would ever end such a transaction (P5), so the start does. But while a partition of
`__transaction_state` cannot be read, an unknown producer may belong to it, and its transaction may
be decided. Such a transaction stays open, and a log line names the partition that it waits for.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from txn.broker.host import RETRY_MS, Host
from txn.broker.marker_sender import MarkerSender, to_be_retried
from txn.broker.unfinished import Unfinished
from txn.coordinator.transaction.open_transactions import OpenTransaction
from txn.coordinator.transaction.recovery_decisions import result_of_hanging
from txn.coordinator.transaction.states import Txn, TxnResult
from txn.identifiers import ProducerIdAndEpoch, TopicPartition
from txn.logs import log
from txn.storage.base import Marker, PartitionLog


def log_left_open(held: OpenTransaction, unread: Sequence[str]) -> None:
    """Log a transaction that nothing ends, since its owner may be unread."""
    log.error(
        "txn.left_open",
        partition=f"{held.partition[0]}-{held.partition[1]}",
        producer_id=held.producer.producer_id,
        producer_epoch=held.producer.producer_epoch,
        first_offset=held.first_offset,
        waits_for=",".join(unread),
    )


class HangingTransactions:
    """Ends hanging transactions; those that a disk refuses to end are `unfinished`."""

    def __init__(self, host: Host, markers: MarkerSender, unfinished: Unfinished) -> None:
        self._host = host
        self._markers = markers
        self.marked: set[TopicPartition] = set()
        """The partitions that took a marker."""
        self._unfinished = unfinished

    def end(
        self,
        stores: Iterable[PartitionLog],
        known: Iterable[Txn],
        *,
        unread: Sequence[str] = (),
    ) -> None:
        """End open transactions of partitions that no known transaction explains.

        Args:
            stores: Every partition a transaction may have written to.
            known: The transactions of every id that could be read.
            unread: The partitions of `__transaction_state` that could not be.
        """
        owners = {
            producer_id: txn
            for txn in known
            for producer_id in (txn.producer_id, txn.previous_producer_id)
        }
        for store in stores:
            partition = (store.topic, store.index)
            for active in store.producers():
                owner = owners.get(active.producer_id)
                is_known = owner is not None and partition in owner.partitions
                if active.current_txn_start_offset < 0 or is_known:
                    continue
                producer = ProducerIdAndEpoch(active.producer_id, active.producer_epoch)
                if owner is None and unread:
                    held = OpenTransaction(partition, producer, active.current_txn_start_offset)
                    log_left_open(held, unread)
                    self._unfinished.add((partition, producer))
                    continue
                epoch = max(active.coordinator_epoch, 0)
                self._end_one(store, producer, result_of_hanging(owner, producer), epoch)

    def abort(self, held: OpenTransaction) -> None:
        """Abort a transaction whose partition's loss an operator accepted."""
        store = self._host.partition(*held.partition)
        assert store is not None, f"{held.partition} is open"
        self._end_one(store, held.producer, TxnResult.ABORT, 0)

    def _end_one(
        self,
        store: PartitionLog,
        producer: ProducerIdAndEpoch,
        outcome: TxnResult,
        coordinator_epoch: int,
    ) -> None:
        """Write a marker that is decided; nothing enters its transaction while a disk refuses."""
        facts: dict[str, Any] = {
            "partition": f"{store.topic}-{store.index}",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "outcome": outcome.value,
        }
        marker = Marker(
            *producer, coordinator_epoch, outcome is TxnResult.COMMIT, self._host.now_ms()
        )
        hanging = (store.topic, store.index), producer
        refused = to_be_retried(self._markers.send([hanging[0]], marker).refused, marker)
        if refused:
            error = refused[hanging[0]]
            log.error("txn.orphan_end_delayed", reason=error.message, **facts)
            self._unfinished.add(hanging)
            store.producer_state.block_txn(producer.producer_id)
            self._host.call_at(
                self._host.monotonic_ms() + RETRY_MS,
                lambda: self._end_one(store, producer, outcome, coordinator_epoch),
            )
            return
        log.warning("txn.orphan_ended", **facts)
        self.marked.add(hanging[0])
        self._unfinished.discard(hanging)
