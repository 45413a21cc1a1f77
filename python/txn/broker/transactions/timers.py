"""The timers of transactional ids, and the sweep that forgets unused ids.

Invariant: an open transaction with a deadline has a timer that rings no later than the deadline
(P5). A timer decides nothing: it starts a request in the id's line, which looks at the state then.

An id is forgotten only at rest, without a request under way, and once no power failure can take a
marker of it.
"""

from collections.abc import Callable
from typing import Final

from txn.broker.host import RETRY_MS, Durability, Host
from txn.broker.transactions.partitions import TransactionPartitions
from txn.broker.transactions.state import TxnShard, Volatile, append_in_batches, until_synced
from txn.coordinator.operations import Request
from txn.coordinator.transaction import timeouts
from txn.coordinator.transaction.states import AT_REST, Txn
from txn.errors import StorageError
from txn.logs import log

EXPIRY_INTERVAL: Final = "transaction.remove.expired.transaction.cleanup.interval.ms"


class Timers:
    """Timers of ids. Each starts a request for its id."""

    def __init__(self, host: Host, time_out: Callable[[TxnShard, str], Request[None]]) -> None:
        """Make timers that abort open transactions by a request `time_out`."""
        self._host = host
        self._time_out = time_out

    def watch(self, shard: TxnShard, transactional_id: str, txn: Txn, volatile: Volatile) -> None:
        """Set the timer of an open transaction to its deadline.

        The timer stays when the transaction ends: the next one of this id is due later and needs
        none.
        """
        if not timeouts.has_deadline(txn):
            return
        due_ms = timeouts.deadline_ms(txn, volatile.begun_ms)
        if volatile.timer is None or due_ms < volatile.due_ms:
            self.watch_from(shard, transactional_id, volatile, due_ms)

    def watch_from(
        self, shard: TxnShard, transactional_id: str, volatile: Volatile, due_ms: int
    ) -> None:
        """Look at an id that is not at rest at a time of the monotonic clock."""
        if volatile.timer is not None:
            volatile.timer.cancel()
        volatile.due_ms = due_ms
        volatile.timer = self._host.call_at(
            due_ms, lambda: self._on_deadline(shard, transactional_id)
        )

    def watch_again(self, shard: TxnShard, transactional_id: str, volatile: Volatile) -> None:
        """Look at an id again after the pause of a retry."""
        due_ms = self._host.monotonic_ms() + RETRY_MS
        self.watch_from(shard, transactional_id, volatile, due_ms)

    def _on_deadline(self, shard: TxnShard, transactional_id: str) -> None:
        volatile = shard.state.volatile.get(transactional_id)
        if volatile is None:  # the id has expired
            return
        volatile.timer = None
        txn = shard.state.transactions.get(transactional_id)
        if txn is not None and txn.state in AT_REST and volatile.is_unused:
            del shard.state.volatile[transactional_id]
            return
        shard.start(transactional_id, self._time_out(shard, transactional_id))


class Sweep:
    """Forgets expired ids and packs those at rest, once every `EXPIRY_INTERVAL`."""

    def __init__(
        self, host: Host, shards: list[TxnShard], partitions: TransactionPartitions
    ) -> None:
        self._host = host
        self._shards = shards
        self._partitions = partitions

    def schedule(self) -> None:
        """Sweep after the interval, and then again and again."""
        interval_ms = self._host.setting(EXPIRY_INTERVAL)
        self._host.call_at(self._host.monotonic_ms() + interval_ms, self._sweep)

    def _sweep(self) -> None:
        interval_ms = self._host.setting(EXPIRY_INTERVAL)
        for shard in self._shards:
            shard.state.transactions.compact_idle(self._host.now_ms() - interval_ms)
        try:
            self._forget_expired()
        except StorageError as error:
            log.error("txn.expiry_failed", reason=error.message)
        self.schedule()

    def _forget_expired(self) -> None:
        expiration_ms = self._host.setting("transactional.id.expiration.ms")
        now_ms = self._host.now_ms()
        for shard in self._shards:
            state = shard.state
            expired: list[str] = []
            unsynced: list[str] = []
            for name in state.transactions.expired(now_ms, expiration_ms):
                if not shard.is_held(name) and name not in state.findings.withheld:
                    (unsynced if self._has_unsynced(shard, name) else expired).append(name)
            if expired:
                append_in_batches(shard, [(name, None) for name in expired])
                log.info("txn.expired", count=len(expired))
            for name in unsynced:
                shard.start(name, self._sync_markers(shard, name))

    def _has_unsynced(self, shard: TxnShard, transactional_id: str) -> bool:
        """Return True if a power failure may take a marker of an id."""
        txn = shard.state.transactions.get(transactional_id)
        if txn is None or self._host.durability is Durability.PROCESS:
            return False
        return not all(map(self._partitions.is_synced, txn.unsynced_markers))

    def _sync_markers(self, shard: TxnShard, transactional_id: str) -> Request[None]:
        """Sync the markers of an id, which is forgotten once they are on the disk."""
        txn = shard.state.transactions.get(transactional_id)
        if txn is not None:
            places = self._partitions.of_markers(txn.unsynced_markers)
            yield from until_synced(self._partitions.sync_opened(places))
