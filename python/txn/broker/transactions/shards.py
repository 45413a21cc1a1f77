"""The shards of `__transaction_state`: its records are encoded, replayed and read here.

Invariant: a record is appended only if it is a legal move of its id, and every effect beside the
fold follows from a record that was appended: timers, acknowledgements that wait for the disk, and
the state of an id in memory. So a request writes its record and has nothing more to keep in step.
"""

from collections.abc import Callable, Iterator

from typing_extensions import override

from txn.broker.host import Host
from txn.broker.members import COMMIT, NONE
from txn.broker.shards import Shards
from txn.broker.transactions.markers import EndMarkers
from txn.broker.transactions.state import TxnShard, TxnShardState, Volatile
from txn.broker.transactions.timers import Timers
from txn.coordinator.lost_logs import CompletedCommits
from txn.coordinator.operations import Performed, Request
from txn.coordinator.transaction.records import (
    TxnRecord,
    decode_record,
    encode_key,
    encode_value,
)
from txn.coordinator.transaction.states import AT_REST, EMPTY, NO_TIMEOUT_MS, ONGOING, Txn, is_move
from txn.errors import CorruptLogError
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.storage.base import StoredBatch
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition


class TxnShards(Shards[TxnShardState, TxnRecord]):
    """Every partition of `__transaction_state`, 0 first; none until the topic is made.

    Attributes:
        is_loading: True until the start has replayed all of them.
        completed: Notes the commits that are read, during the start.
    """

    topic = TRANSACTIONS_TOPIC
    not_served = "txn.ids_not_served"

    def __init__(
        self, host: Host, timers: Timers, markers: EndMarkers, forget: Callable[[str], object]
    ) -> None:
        """Make no shard yet; `forget` is called with each id that expires."""
        super().__init__(host)
        self.is_loading = True
        self.completed: CompletedCommits | None = None
        self._timers = timers
        self._markers = markers
        self._forget = forget

    # ------------------------------------------------------------ ids

    def get(self, transactional_id: str) -> Txn | None:
        """The state of an id; None if it is unknown."""
        shard = self.of(transactional_id)
        return None if shard is None else shard.state.transactions.get(transactional_id)

    def decoded(self) -> list[tuple[str, Txn]]:
        """The ids in use lately, every open transaction among them."""
        return [each for shard in self.shards for each in shard.state.transactions.decoded()]

    def items(self) -> Iterator[tuple[str, Txn]]:
        """All ids. Cost: those at rest for long are decoded."""
        for shard in self.shards:
            yield from shard.state.transactions.items()

    def __len__(self) -> int:
        return sum(len(shard.state.transactions) for shard in self.shards)

    # ------------------------------------------------------------ shards

    def of(self, transactional_id: str) -> TxnShard | None:
        """The shard that keeps an id; None while there is no `__transaction_state`."""
        shards = self.shards
        if not shards:
            if self.is_loading or not self._host.has_partition(TRANSACTIONS_TOPIC, 0):
                return None
            self.make()
        return shards[coordinator_partition(transactional_id, len(shards))]

    def with_id(self, transactional_id: str) -> TxnShard:
        """The shard of an id that is known."""
        shard = self.of(transactional_id)
        assert shard is not None, f"{transactional_id} is not known"
        return shard

    @override
    def make(self) -> None:
        if not self.shards:
            super().make()
            if not self.is_loading:  # nothing was written to it yet
                for shard in self.shards:
                    shard.activate()

    def refusal(self, transactional_id: str) -> ErrorCode:
        """The reason why nothing of an id is served, or NONE: its shard loads or cannot be read."""
        if self.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard = self.of(transactional_id)
        if shard is None:
            return ErrorCode.NONE
        if shard.refusal is ErrorCode.NONE and transactional_id in shard.state.findings.withheld:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return shard.refusal

    def serving(self, transactional_id: str) -> TxnShard | ErrorCode:
        """The shard that serves an id, or the reason why nothing of the id is served."""
        shard = None if self.is_loading else self.of(transactional_id)
        if shard is not None and shard.refusal is NONE and not shard.state.findings.withheld:
            return shard
        if (refusal := self.refusal(transactional_id)) is not ErrorCode.NONE:
            return refusal
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if shard is None else shard

    @override
    def load_shard(self, shard: TxnShard) -> bool:
        is_loaded = super().load_shard(shard)
        for transactional_id, txn in shard.state.transactions.decoded():
            if txn.state not in AT_REST:
                shard.state.volatile[transactional_id] = Volatile()
        return is_loaded

    @override
    def on_unloaded(self, shard: TxnShard) -> None:
        for volatile in shard.state.volatile.values():
            if volatile.timer is not None:
                volatile.timer.cancel()

    # ------------------------------------------------------------ records

    @override
    def empty(self, former: TxnShardState | None = None) -> TxnShardState:
        """The fold of no record. It keeps the findings of the start, which no log has."""
        return TxnShardState() if former is None else TxnShardState(former.findings)

    @override
    def perform(self, shard: TxnShard, operation: Performed) -> Request[object]:
        return self._markers.perform(shard, operation)

    @override
    def encode(self, shard: TxnShard, record: TxnRecord) -> tuple[bytes, bytes | None]:
        """The key and value of a record; anything but a legal move is a bug."""
        transactional_id, txn = record
        if txn is None:
            return encode_key(transactional_id), None
        assert not isinstance(txn, bytes), f"{transactional_id} was read, not decided on"
        before = shard.state.transactions.get(transactional_id)
        assert is_move(before, txn), f"{transactional_id}: {before} cannot become {txn}"
        return encode_key(transactional_id), encode_value(txn)

    @override
    def replay(self, shard: TxnShard, record: TxnRecord, offset: int) -> None:
        """Fold in a record that was appended; start or end its timer and its acknowledgements."""
        transactional_id, txn = record
        known = shard.state
        if txn is None:
            known.transactions.replay(record)
            known.volatile.pop(transactional_id, None)
            self._forget(transactional_id)
            return
        assert not isinstance(txn, bytes), f"{transactional_id} was read, not decided on"
        before = known.transactions.get(transactional_id)
        known.transactions.replay(record)
        if self._host.durability is COMMIT and (  # few are two-phase, and each record asks
            txn.timeout_ms == NO_TIMEOUT_MS
            or (before is not None and before.timeout_ms == NO_TIMEOUT_MS)
        ):
            self.sync_before_ack(before, txn)
        volatile = known.volatile.get(transactional_id)
        state = txn.state
        if state in AT_REST:
            if volatile is not None:
                volatile.ending = volatile.following_timeout_ms = None
                if state is EMPTY:
                    volatile.given_up = None
                if volatile.is_unused:
                    del known.volatile[transactional_id]
            return
        if volatile is None:
            volatile = known.volatile[transactional_id] = Volatile()
        if state is ONGOING:
            volatile.given_up = None
            if before is None or before.state is not ONGOING:
                volatile.begun_ms = self._host.monotonic_ms()
            elif volatile.timer is not None:
                return
            self._timers.watch(shard, transactional_id, txn, volatile)

    @override
    def read(self, shard: TxnShard, batch: StoredBatch) -> None:
        for stored in batch.records:
            try:
                record = decode_record(stored.key or b"", stored.value)
            except ValueError as error:
                raise CorruptLogError(
                    f"{TRANSACTIONS_TOPIC}-{shard.index} holds a damaged record at offset "
                    f"{stored.offset}: {error}",
                    offset=stored.offset,
                ) from error
            if record is not None:
                shard.state.transactions.replay(record)
                if self.completed is not None:
                    self.completed.read(record)

    def sync_before_ack(self, before: Txn | None, txn: Txn) -> None:
        """Make answers to Produce wait for the disk while a two-phase transaction is open.

        A no-op but for `durability=commit`: else all of them wait, or none.
        """
        if self._host.durability is not COMMIT:
            return
        if txn.state not in AT_REST:
            if txn.is_two_phase:
                self._host.sync_before_ack(txn.producer_id, is_forced=True)
        elif before is not None and before.is_two_phase:
            self._host.sync_before_ack(before.producer_id, is_forced=False)
