"""The producer state of one partition: every batch with a producer id passes through here.

`ProducerStateManager` composes the pure rules of this package. `PartitionLog` calls it through the
protocol `ProducerStateManager` of `txn/_core.pyi`:

    admit         = decide (`admission.refusal`)           → apply (`_apply_data`)
    admit_marker  = decide (`admission.refusal_of_marker`) → apply (`_apply_marker`)
    replay        =                                          apply

Live appends and recovery change the state in the same two functions, so the state after a
restart is the state before it (P8). Only expiry changes it besides, and no batch records that. So
after a restart more is known of a producer that expired and came back (`expiry`). The state changes
as soon as a batch is admitted, before the bytes are written. If that write fails, the log restores
and replays the state before it accepts another batch.

Threads. The log calls the producer state's methods under the partition's lock, one at a time. The
control loop calls `allow_txn`, `forget`, `block_txn`, `unblock_txn` and `expire` beside them and
without the lock:

* `allow_txn`, `forget`, `block_txn` and `unblock_txn` set or delete one key that `admit` looks for
  once. An expectation only spares asking the coordinator again, so a stale *no* costs a question. A
  stale *yes* cannot outlive its transaction: markers are written by the same loop that
  expects, and deletes the expectation under the partition's lock.
  A batch may be admitted beside `block_txn`. `PartitionLog.block_txn` waits until it is stored.
* `expire` leaves the time in one attribute; the sweep is done by the next call that holds
  the lock. Sweeping beside `admit` could drop a state that is just being appended to.
* `describe` and `aborted_entries` copy in one step. Fields of one producer may be a batch apart.

Idle producers (where Kafka differs). Kafka compares the clock with the newest *record* timestamp,
which a client may set to any past time. Its state then expires at once, and a retried batch is
stored twice. Here a producer is idle from the first sweep that finds no new batch. So it lives for
`producer.id.expiration.ms` and up to one sweep more.

Sources: KIP-98, KIP-360, KIP-664 (describe), KIP-890, KIP-939 (sealed transactions);
`producer.id.expiration.ms`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from txn.partition.aborted_index import AbortedIndex
from txn.partition.active_producer import ActiveProducer
from txn.partition.admission import (
    ADMIT,
    INVALID_PRODUCER_EPOCH,
    JOIN,
    OUT_OF_ORDER_SEQUENCE,
    AbortedTxn,
    AdmitResult,
    begins_at_zero,
    is_out_of_turn,
    refusal,
    refusal_of_marker,
)
from txn.partition.producer_state_entry import ProducerStateEntry, last_sequence_of
from txn.partition.snapshot import decode_snapshot, encode_snapshot
from txn.partition.stable_offset import OpenTransactions

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000

ReplayedBatch = tuple[int, int, int, int, int, int, int, int]
"""(base_offset, last_offset, producer_id, producer_epoch, base_sequence, max_timestamp_ms,
kind, coordinator_epoch); see `ProducerStateManager`."""

AllowedTxn = tuple[int | None, int | None]
"""(producer_epoch, hash of the transactional id) of an ongoing transaction."""

WAITING_MAX: Final = 10_000
"""Unknown producers whose asked batches are remembered; a client may invent any number of ids."""

NOT_ALLOWED: Final[AllowedTxn] = (None, None)

# Kinds of a replayed batch: 0 idempotent data, then
TRANSACTIONAL: Final = 1
COMMIT_MARKER: Final = 3


class ProducerStateManager:
    """The producers, open transactions and aborted transactions of one partition."""

    __slots__ = (
        "_aborted",
        "_admitted",
        "_expected",
        "_may_lack_records",
        "_open",
        "_producers",
        "_sealed",
        "_sweep",
        "_waiting",
    )

    def __init__(self) -> None:
        self._sweep: tuple[int, int] | None = None
        self._may_lack_records = False
        self._sealed: dict[int, object] = {}
        self._expected: dict[int, AllowedTxn] = {}
        self.restore(None, ())

    # -------------------------------------------------------- the producer state: live appends

    def admit(
        self,
        origin: int,
        next_offset: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
        max_timestamp_ms: int,
        is_transactional: bool,
        transactional_id_hash: int | None = None,
    ) -> AdmitResult:
        """Decide on a data batch with a producer id, and apply it if it is admitted.

        Args:
            origin: 0 a coordinator, 1 a client under transaction version 1, 2 under 2.
            next_offset: The offset its first record would get.
            producer_id: At least 0.
            producer_epoch: Of the batch.
            base_sequence: Of its first record; -1 from a coordinator.
            record_count: At least 1.
            max_timestamp_ms: As it will be stored: the append time, where the log sets it.
            is_transactional: Whether it belongs to a transaction.
            transactional_id_hash: Of the id that the request shows; None if it is not checked.

        Returns:
            A verdict, see `ProducerStateManager`. A refused batch leaves the state as it is.
        """
        if self._sweep is not None:
            self._drop_idle()
        state = self._producers.get(producer_id)
        last_sequence = last_sequence_of(base_sequence, record_count)
        expected_epoch, expected_hash = self._expected.get(producer_id, NOT_ALLOWED)
        if transactional_id_hash is not None and transactional_id_hash != expected_hash:
            expected_epoch = None  # whose it is says the coordinator
        is_unwritten = next_offset == 0 and not self._may_lack_records
        refused = refusal(
            state,
            origin,
            producer_epoch,
            base_sequence,
            last_sequence,
            is_transactional,
            expected_epoch,
            is_unwritten,
        )
        if self._sealed and producer_id in self._sealed and refused is not JOIN:
            return INVALID_PRODUCER_EPOCH
        if state is None and base_sequence >= 0:
            begins = begins_at_zero(origin, is_transactional, is_unwritten)
            refused = self._in_turn(refused, producer_id, producer_epoch, base_sequence, begins)
        if refused is not None:
            return refused
        self._apply_data(
            producer_id,
            producer_epoch,
            base_sequence,
            last_sequence,
            next_offset,
            next_offset + record_count - 1,
            max_timestamp_ms,
            is_transactional,
        )
        return self._admitted

    def admit_marker(
        self,
        next_offset: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        timestamp_ms: int,
    ) -> AdmitResult:
        """Decide on a marker, and apply it if it is admitted.

        Returns:
            A verdict, see `ProducerStateManager`: on an abort that ended a transaction, with its
            entry.
        """
        if self._sweep is not None:
            self._drop_idle()
        refused = refusal_of_marker(
            self._producers.get(producer_id), producer_epoch, coordinator_epoch
        )
        if refused is not None:
            return refused
        self._expected.pop(producer_id, None)
        self._sealed.pop(producer_id, None)
        aborted = self._apply_marker(
            producer_id, producer_epoch, coordinator_epoch, is_commit, timestamp_ms, next_offset
        )
        if aborted is None:
            return self._admitted
        self._aborted.add(aborted)
        return ADMIT, self._open.first_offset, aborted

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """List the aborted transactions that overlap `[start, end)`.

        Returns:
            (producer_id, first_offset) of each, by first offset.
        """
        return self._aborted.aborted_in(start, end)

    def forget_below(self, log_start_offset: int) -> None:
        """Forget the aborted transactions that ended below an offset: their records are gone."""
        self._aborted.forget_below(log_start_offset)

    def first_unstable_offset(self) -> int:
        """First offset of the oldest open transaction, or -1."""
        return self._open.first_offset

    def forget_aborted(self, last_offsets: Sequence[int]) -> None:
        """Forget the aborted transactions with these markers, since nothing is left of them.

        A reader that gets an aborted transaction skips its producer's records up to the
        marker. If compaction has dropped that marker, the reader would skip committed records
        behind it (P4).
        """
        self._aborted.forget(frozenset(last_offsets))

    def last_batches(self) -> list[tuple[int, int, int]]:
        """List the stored batches without which a replay would know less than this gate.

        Returns:
            (producer_id, producer_epoch, last_offset) of every batch whose retry is known; of a
            producer without one with last_offset -1, for its newest marker.
        """
        return [
            (producer_id, state.producer_epoch, last_offset)
            for producer_id, state in self._producers.items()
            for last_offset in state.kept_offsets()
        ]

    # -------------------------------------------------------- the producer state: snapshots and
    # recovery

    def snapshot(self) -> bytes:
        """Encode the producers' state as the bytes of Kafka's `.snapshot` file."""
        if self._sweep is not None:
            self._drop_idle()
        return encode_snapshot(self._producers)

    def restore(self, snapshot: bytes | None, aborted: Sequence[tuple[int, int, int, int]]) -> None:
        """Begin recovery: forget the log's state, and load the given one.

        Allowed and blocked transactions stay so until the marker that ends them is admitted. The
        log holds no record of them, and a disk may refuse a batch meanwhile.

        Args:
            snapshot: Bytes of a `.snapshot` file; None to begin empty.
            aborted: Entries of the transaction indexes whose markers lie below the offset
                at which `replay` will begin.

        Raises:
            ValueError: The snapshot is damaged. Nothing has changed then.
        """
        producers = {} if snapshot is None else decode_snapshot(snapshot)
        first_offsets = {
            producer_id: state.txn_first_offset
            for producer_id, state in producers.items()
            if state.txn_first_offset >= 0
        }
        self._producers: dict[int, ProducerStateEntry] = producers
        self._open = OpenTransactions(first_offsets)
        self._aborted = AbortedIndex(aborted)
        self._waiting: dict[int, tuple[int, int]] = {}
        self._admitted: AdmitResult = (ADMIT, self._open.first_offset, None)

    def replay(self, batches: Sequence[ReplayedBatch]) -> list[AbortedTxn]:
        """Fold stored batches in, in the order of the log, asking nothing: they were admitted.

        Returns:
            The aborted transactions that end here and were not among those of `restore`.
        """
        completed = []
        for (
            base_offset,
            last_offset,
            producer_id,
            producer_epoch,
            base_sequence,
            timestamp_ms,
            kind,
            coordinator_epoch,
        ) in batches:
            if kind <= TRANSACTIONAL:
                self._apply_data(
                    producer_id,
                    producer_epoch,
                    base_sequence,
                    last_sequence_of(base_sequence, last_offset - base_offset + 1),
                    base_offset,
                    last_offset,
                    timestamp_ms,
                    kind == TRANSACTIONAL,
                )
                continue
            aborted = self._apply_marker(
                producer_id,
                producer_epoch,
                coordinator_epoch,
                kind == COMMIT_MARKER,
                timestamp_ms,
                base_offset,
            )
            if aborted is not None and self._aborted.add(aborted):
                completed.append(aborted)
        return completed

    def backfill(self, batches: Sequence[ReplayedBatch]) -> None:
        """Recall batches older than the snapshot, so that producers get their last five back.

        A snapshot holds one batch per producer. Without this a retry of the second newest would be
        refused as out of order after a restart. Any order, before or after `replay`, a piece at a
        time; batches of another epoch than the producer's are passed over.
        """
        for base_offset, last_offset, producer_id, epoch, base_sequence, _, kind, _ in batches:
            state = self._producers.get(producer_id)
            if state is None or kind > TRANSACTIONAL or epoch != state.producer_epoch:
                continue
            last_sequence = last_sequence_of(base_sequence, last_offset - base_offset + 1)
            state.recall((base_sequence, last_sequence, base_offset, last_offset))

    # -------------------------------------------------------- the control loop

    def allow_txn(
        self, producer_id: int, producer_epoch: int, transactional_id_hash: int | None = None
    ) -> None:
        """Note that this partition belongs to the producer's ongoing transaction.

        To be called once the coordinator's record of it is written. Holds until the marker.
        Batches that show another transactional id have to ask, while nothing is open here.
        """
        self._expected[producer_id] = producer_epoch, transactional_id_hash

    def forget(self, producer_id: int) -> None:
        """Withdraw an expectation; batches that came in under it stay, and need a marker."""
        self._expected.pop(producer_id, None)

    def block_txn(self, producer_id: int, holder: object = None) -> None:
        """Close a producer's open transaction to further batches, until the marker.

        Its client has prepared it and left, and another client now decides its end. Later batches
        of the first client must not be decided with it (P7). Or it is decided, and its records
        have to be on the disk before the marker.

        Args:
            producer_id: The producer.
            holder: May take the block back by `unblock_txn`. Holds nothing that another blocks.
        """
        self.forget(producer_id)
        if holder is None:
            self._sealed[producer_id] = None
        else:
            self._sealed.setdefault(producer_id, holder)

    def unblock_txn(self, producer_id: int, holder: object = None) -> None:
        """Remove a block: no marker will come. That of another holder stays."""
        if producer_id in self._sealed and self._sealed[producer_id] is holder:
            del self._sealed[producer_id]

    def note_loss(self) -> None:
        """Assume that records may be gone: an empty log is not known to have held none."""
        self._may_lack_records = True

    def end_of(self, producer_id: int) -> int:
        """The offset behind the newest batch of a producer; 0 if none is known."""
        state = self._producers.get(producer_id)
        return 0 if state is None else state.last_offset + 1

    def expire(self, now_ms: int, idle_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
        """Ask that producers idle for `idle_ms` be dropped.

        Done by the next append or snapshot. A producer with an open transaction stays.

        Args:
            now_ms: The time, by a clock that never steps.
            idle_ms: How long a producer may be idle.
        """
        self._sweep = (now_ms, idle_ms)

    def describe(self) -> list[ActiveProducer]:
        """List the producers this partition knows, for DescribeProducers."""
        return [
            ActiveProducer.of(producer_id, state)
            for producer_id, state in self._producers.copy().items()
        ]

    def aborted_entries(self) -> list[AbortedTxn]:
        """List every aborted transaction, by its marker's offset; for verification tools."""
        return self._aborted.entries()

    # -------------------------------------------------------- apply

    def _apply_data(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        is_transactional: bool,
    ) -> None:
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerStateEntry()
        state.append(
            producer_epoch, base_sequence, last_sequence, base_offset, last_offset, timestamp_ms
        )
        if is_transactional and state.txn_first_offset < 0:
            state.txn_first_offset = base_offset
            self._open.begin(producer_id, base_offset)
            self._admitted = (ADMIT, self._open.first_offset, None)

    def _apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        timestamp_ms: int,
        offset: int,
    ) -> AbortedTxn | None:
        """Fold in a marker; return the transaction it aborted, if it did."""
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerStateEntry()
        first_offset = state.end_transaction(producer_epoch, coordinator_epoch, timestamp_ms)
        self._waiting.pop(producer_id, None)
        if first_offset < 0:
            return None
        self._open.end(producer_id)
        unstable = self._open.first_offset
        self._admitted = (ADMIT, unstable, None)
        if is_commit:
            return None
        last_stable_offset = unstable if unstable >= 0 else offset + 1
        return AbortedTxn(producer_id, first_offset, offset, last_stable_offset)

    # -------------------------------------------------------- beside the log

    def _in_turn(
        self,
        refused: AdmitResult | None,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        begins: bool,
    ) -> AdmitResult | None:
        """Keep an unknown producer's batches in order while some of them are asked to join.

        One that has sequence 0 if it is admitted (`begins`) has no predecessor.
        """
        is_early = is_out_of_turn(self._waiting.get(producer_id), producer_epoch, base_sequence)
        if refused is JOIN and not is_early:
            if len(self._waiting) >= WAITING_MAX:
                del self._waiting[next(iter(self._waiting))]
            self._waiting[producer_id] = (producer_epoch, base_sequence)
        elif refused is None and is_early and not begins:
            return OUT_OF_ORDER_SEQUENCE
        elif refused is None:
            self._waiting.pop(producer_id, None)
        return refused

    def _drop_idle(self) -> None:
        """Drop the producers that have been idle for long enough."""
        sweep, self._sweep = self._sweep, None
        assert sweep is not None, "a sweep was asked for"
        now_ms, idle_ms = sweep
        idle_before_ms = now_ms - idle_ms
        for producer_id, state in list(self._producers.items()):
            if state.txn_first_offset >= 0:
                continue
            if state.idle_since_ms < 0:
                state.idle_since_ms = now_ms
            elif state.idle_since_ms <= idle_before_ms:
                del self._producers[producer_id]
        self._waiting.clear()


if TYPE_CHECKING:  # the type checker holds this class against the protocol
    from txn._core import ProducerStateManager as NativeRules

    _RULES: NativeRules = ProducerStateManager()
