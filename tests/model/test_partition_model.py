"""Any history of batches, retries, markers and restarts, against rules that know only the log.

`NaiveLog` is the oracle. It keeps the admitted batches in a list and computes every answer
from the whole list, each time: no window, no open transactions, no index. The machine asks
both the same question and holds the promises after every step.

No batch tells that a producer expired. So the oracle remembers up to which offset each was
forgotten (`NaiveLog.forgotten`), and which producers a restart from a snapshot finds again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from txn.partition import (
    ADMIT,
    PRODUCER_ID_EXPIRATION_MS,
    AbortedTxn,
    ActiveProducer,
    AdmitResult,
    ProducerStateManager,
    ReplayedBatch,
)
from txn.partition.expiry import COORDINATOR_EPOCH, NEWEST_BATCH, Returns
from txn.partition.snapshot import decode_snapshot

COORDINATOR, CLIENT_V1, CLIENT_V2 = 0, 1, 2
SEQUENCE_COUNT = 2**31
JOIN: AdmitResult = (2, 0, None)
OUT_OF_ORDER_SEQUENCE: AdmitResult = (3, 45, None)
INVALID_PRODUCER_EPOCH: AdmitResult = (3, 47, None)
INVALID_TXN_STATE: AdmitResult = (3, 48, None)
COORDINATOR_FENCED: AdmitResult = (3, 52, None)

PRODUCER_IDS = (7, 8, 9)


@dataclass(frozen=True)
class ModelBatch:
    """A data batch as a producer or coordinator sends it."""

    origin: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    is_transactional: bool
    timestamp_ms: int

    @property
    def last_sequence(self) -> int:
        """Counted on from the base; -1 without sequences."""
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.record_count - 1) % SEQUENCE_COUNT


@dataclass(frozen=True)
class Marker:
    """The end of a transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    timestamp_ms: int


@dataclass(frozen=True)
class ModelEntry:
    """An entry of the log: a batch or marker, and its offsets."""

    base_offset: int
    last_offset: int
    what: ModelBatch | Marker

    @property
    def replayed(self) -> ReplayedBatch:
        """The batch in the form that the log hands to `replay`."""
        what = self.what
        common = (self.base_offset, self.last_offset, what.producer_id, what.producer_epoch)
        if isinstance(what, Marker):
            kind = 3 if what.is_commit else 2
            return (*common, -1, what.timestamp_ms, kind, what.coordinator_epoch)
        return (*common, what.base_sequence, what.timestamp_ms, int(what.is_transactional), -1)


class NaiveLog:
    """The rules, computed from the list of admitted batches."""

    def __init__(self) -> None:
        self.stored: list[ModelEntry] = []
        self.expected: dict[int, int] = {}
        self.asked: list[ModelBatch] = []  # unknown producers' batches that were asked to join
        self.forgotten: dict[int, int] = {}  # below this offset of a producer nothing is known
        self.first_known: set[int] = set()  # offsets of batches before which no other was known
        self.is_compacted = False
        self.may_lack_records = False
        self.recalled: dict[int, int] = {}  # but from this offset on batches, for its retries

    @property
    def end(self) -> int:
        return self.stored[-1].last_offset + 1 if self.stored else 0

    def all_of(self, producer_id: int) -> list[ModelEntry]:
        return [s for s in self.stored if s.what.producer_id == producer_id]

    def of(self, producer_id: int) -> list[ModelEntry]:
        """The known state of a producer."""
        start = self.forgotten.get(producer_id, 0)
        return [s for s in self.all_of(producer_id) if s.base_offset >= start]

    def forget(self, producer_id: int) -> None:
        self.forgotten[producer_id] = self.recalled[producer_id] = self.end

    def epoch_of(self, producer_id: int) -> int:
        own = self.of(producer_id)
        return own[-1].what.producer_epoch if own else -1

    def newest_epoch_of(self, producer_id: int) -> int:
        """The newest epoch of all stored batches: a producer does not forget it."""
        own = self.all_of(producer_id)
        return own[-1].what.producer_epoch if own else -1

    def window(self, producer_id: int) -> list[ModelEntry]:
        """The last five data batches of the producer's newest epoch, one after the other."""
        if not any(s for s in self.of(producer_id) if self._is_of_newest_epoch(s)):
            return []
        start = self.recalled.get(producer_id, 0)
        own = [s for s in self.all_of(producer_id) if s.base_offset >= start]
        return consecutive([s for s in own if self._is_of_newest_epoch(s)][-5:])

    def _is_of_newest_epoch(self, stored: ModelEntry) -> bool:
        epoch = self.epoch_of(stored.what.producer_id)
        return isinstance(stored.what, ModelBatch) and stored.what.producer_epoch == epoch

    def open_since(self, producer_id: int, below: int | None = None) -> int:
        """First offset of the producer's open transaction (as of an offset), or -1."""
        first = -1
        for s in self.all_of(producer_id):
            if below is not None and s.base_offset >= below:
                break
            if isinstance(s.what, Marker):
                first = -1
            elif s.what.is_transactional and first < 0:
                first = s.base_offset
        return first

    def first_unstable(self, below: int | None = None) -> int:
        opened = [self.open_since(p, below) for p in PRODUCER_IDS]
        return min((first for first in opened if first >= 0), default=-1)

    def aborted(self) -> list[AbortedTxn]:
        entries = []
        for s in self.stored:
            if isinstance(s.what, Marker) and not s.what.is_commit:
                first = self.open_since(s.what.producer_id, below=s.base_offset)
                if first >= 0:
                    unstable = self.first_unstable(below=s.base_offset + 1)
                    stable = unstable if unstable >= 0 else s.base_offset + 1
                    aborted = AbortedTxn(s.what.producer_id, first, s.base_offset, stable)
                    entries.append(aborted)
        return entries

    def describe(self) -> list[ActiveProducer]:
        """Every producer in the log, as DescribeProducers shows it."""
        described = []
        for producer_id in PRODUCER_IDS:
            own = self.of(producer_id)
            if own:
                window = self.window(producer_id)
                markers = [s.what for s in own if isinstance(s.what, Marker)]
                newest = window[-1].what if window else None
                described.append(
                    ActiveProducer(
                        producer_id,
                        self.epoch_of(producer_id),
                        newest.last_sequence if isinstance(newest, ModelBatch) else -1,
                        own[-1].what.timestamp_ms,
                        markers[-1].coordinator_epoch if markers else -1,
                        self.open_since(producer_id),
                    )
                )
        return described

    def judge(self, batch: ModelBatch) -> AdmitResult:
        """The required answer, by the rules in the order in which they are written down."""
        p, known_epoch = batch.producer_id, self.epoch_of(batch.producer_id)
        is_known = bool(self.of(p))
        is_client = batch.origin != COORDINATOR
        first = self.open_since(p)
        is_continued = first >= 0 and known_epoch == batch.producer_epoch
        is_expected = self.expected.get(p) == batch.producer_epoch
        if is_client:
            for s in self.window(p):
                assert isinstance(s.what, ModelBatch)
                theirs = (s.what.producer_epoch, s.what.base_sequence, s.what.last_sequence)
                has_next = s.base_offset < first if first >= 0 else is_expected
                if theirs == (
                    batch.producer_epoch,
                    batch.base_sequence,
                    batch.last_sequence,
                ) and not (batch.is_transactional and has_next):
                    return 1, s.base_offset, None
        if batch.producer_epoch < known_epoch:
            return INVALID_PRODUCER_EPOCH
        if is_client and batch.is_transactional and not is_continued and not is_expected:
            return JOIN
        if is_client and not self._is_next(batch, is_known, known_epoch):
            return OUT_OF_ORDER_SEQUENCE
        if first >= 0 and not (is_continued and batch.is_transactional):
            return INVALID_TXN_STATE
        unstable = self.first_unstable()
        if unstable < 0 and batch.is_transactional:
            unstable = self.end
        return ADMIT, unstable, None

    def _is_next(self, batch: ModelBatch, is_known: bool, known_epoch: int) -> bool:
        if not is_known:
            must_be_zero = batch.is_transactional and batch.origin == CLIENT_V2
            must_be_zero |= self.end == 0 and not self.may_lack_records
            return batch.base_sequence == 0 if must_be_zero else not self.is_overtaking(batch)
        window = self.window(batch.producer_id)
        if batch.producer_epoch != known_epoch or not window:
            return batch.base_sequence == 0
        newest = window[-1].what
        assert isinstance(newest, ModelBatch)
        return batch.base_sequence == (newest.last_sequence + 1) % SEQUENCE_COUNT

    def is_overtaking(self, batch: ModelBatch) -> bool:
        """An unknown producer's batch may not pass one of its own that was asked to join."""
        same = [a for a in self.asked if a.producer_id == batch.producer_id]
        epochs = [a.producer_epoch for a in same]
        if not same or epochs[-1] != batch.producer_epoch:
            return False
        lowest = same[-1].base_sequence
        return 0 < (batch.base_sequence - lowest) % SEQUENCE_COUNT < SEQUENCE_COUNT // 2

    def judge_marker(self, marker: Marker) -> AdmitResult:
        own = self.of(marker.producer_id)
        markers = [s.what for s in own if isinstance(s.what, Marker)]
        if own and marker.producer_epoch < own[-1].what.producer_epoch:
            return INVALID_PRODUCER_EPOCH
        if markers and marker.coordinator_epoch < markers[-1].coordinator_epoch:
            return COORDINATOR_FENCED
        after = NaiveLog()
        after.stored = [*self.stored, ModelEntry(self.end, self.end, marker)]
        new = [entry for entry in after.aborted() if entry.last_offset == self.end]
        return ADMIT, after.first_unstable(), new[0] if new else None


def consecutive(batches: list[ModelEntry]) -> list[ModelEntry]:
    """Those batches behind the last gap in their sequences."""
    first = len(batches) - 1
    while first > 0 and follows(batches[first].what, batches[first - 1].what):
        first -= 1
    return batches[max(first, 0) :]


def follows(what: ModelBatch | Marker, before: ModelBatch | Marker) -> bool:
    assert isinstance(what, ModelBatch)
    assert isinstance(before, ModelBatch)
    return before.last_sequence >= 0 and (
        what.base_sequence == (before.last_sequence + 1) % SEQUENCE_COUNT
    )


Snapshot = tuple[int, bytes | None, dict[int, int]]
"""Offset, bytes, and up to where each producer was forgotten then."""

EMPTY: Snapshot = (0, None, {})


class PartitionMachine(RuleBasedStateMachine):
    """Appends, retries, markers, expiry, compaction and restarts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.producer_state = ProducerStateManager()
        self.log = NaiveLog()
        self.sent: list[ModelBatch] = []
        self.snapshots: list[Snapshot] = []
        self.stable_before = 0
        self.today_ms = 0

    @initialize(
        start=st.sampled_from([0, 0, SEQUENCE_COUNT - 6]),
        is_internal=st.sampled_from([False, False, False, True]),
        may_lack_records=st.booleans(),
    )
    def begin(self, start: int, is_internal: bool, may_lack_records: bool) -> None:
        """Clients write from a sequence near 0 or near the wrap; or a coordinator writes alone."""
        self.start = start
        self.is_internal = is_internal
        if may_lack_records:
            self.producer_state.note_loss()
        self.log.may_lack_records = may_lack_records

    def _send(self, batch: ModelBatch) -> AdmitResult:
        """Send a batch to both, and store it if it is admitted."""
        wanted = self.log.judge(batch)
        is_known = bool(self.log.of(batch.producer_id))
        if wanted == JOIN and not is_known and not self.log.is_overtaking(batch):
            self.log.asked.append(batch)
        verdict = self.producer_state.admit(
            batch.origin,
            self.log.end,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.record_count,
            batch.timestamp_ms,
            batch.is_transactional,
        )
        assert verdict == wanted, batch
        if verdict[0] == ADMIT:
            end = self.log.end
            if not self.log.window(batch.producer_id):
                self.log.first_known.add(end)
            self.log.stored.append(ModelEntry(end, end + batch.record_count - 1, batch))
        self.sent.append(batch)
        return verdict

    def _epoch_near(self, producer_id: int, step: int) -> int:
        """An epoch near the newest; not below it if that was forgotten, as nobody fences it."""
        newest = self.log.newest_epoch_of(producer_id)
        is_known = self.log.epoch_of(producer_id) == newest
        return max(newest + (step if is_known else abs(step)), 0)

    def _next_sequence(self, producer_id: int, producer_epoch: int) -> int:
        window = self.log.window(producer_id)
        if not self.log.of(producer_id):
            return self.start
        if not window or window[-1].what.producer_epoch != producer_epoch:
            return 0
        newest = window[-1].what
        assert isinstance(newest, ModelBatch)
        return (newest.last_sequence + 1) % SEQUENCE_COUNT

    # ------------------------------------------------------------ what a client does

    @precondition(lambda self: not self.is_internal)
    @rule(
        producer_id=st.sampled_from(PRODUCER_IDS),
        record_count=st.integers(1, 4),
        is_transactional=st.booleans(),
        origin=st.sampled_from([CLIENT_V1, CLIENT_V2]),
        timestamp_ms=st.integers(0, 9),
    )
    def produce(
        self,
        producer_id: int,
        record_count: int,
        is_transactional: bool,
        origin: int,
        timestamp_ms: int,
    ) -> None:
        """The next batch of a producer; the coordinator expects it, if it is transactional."""
        epoch = max(self.log.newest_epoch_of(producer_id), 0)
        is_transactional = is_transactional or self.log.open_since(producer_id) >= 0
        if is_transactional:
            self.allow_txn(producer_id, epoch)
        sequence = self._next_sequence(producer_id, epoch)
        self._send(
            ModelBatch(
                origin, producer_id, epoch, sequence, record_count, is_transactional, timestamp_ms
            )
        )

    @precondition(lambda self: not self.is_internal)
    @rule(
        producer_id=st.sampled_from(PRODUCER_IDS),
        epoch_step=st.sampled_from([0, 0, 1, -1]),
        sequence_step=st.sampled_from([0, 0, 1, -1, 7]),
        record_count=st.integers(1, 4),
        is_transactional=st.booleans(),
        origin=st.sampled_from([CLIENT_V1, CLIENT_V2]),
        is_expected=st.booleans(),
    )
    def produce_oddly(
        self,
        producer_id: int,
        epoch_step: int,
        sequence_step: int,
        record_count: int,
        is_transactional: bool,
        origin: int,
        is_expected: bool,
    ) -> None:
        """A batch that may be out of sequence, of another epoch, or not expected."""
        epoch = self._epoch_near(producer_id, epoch_step)
        sequence = (self._next_sequence(producer_id, epoch) + sequence_step) % SEQUENCE_COUNT
        if is_expected:
            self.allow_txn(producer_id, epoch)
        self._send(
            ModelBatch(origin, producer_id, epoch, sequence, record_count, is_transactional, 4)
        )

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        again = data.draw(st.sampled_from(self.sent[-8:]))
        if again.producer_epoch >= self.log.newest_epoch_of(again.producer_id):
            self._send(again)  # an older epoch is fenced only while its producer is known

    @precondition(lambda self: self.log.stored)
    @rule(data=st.data())
    def P6_a_retry_of_the_last_five_is_never_stored_again(self, data: st.DataObject) -> None:
        stored = [s for p in PRODUCER_IDS for s in self.log.window(p)]
        batches = [
            s for s in stored if isinstance(s.what, ModelBatch) and s.what.base_sequence >= 0
        ]
        if not batches:
            return
        again = data.draw(st.sampled_from(batches))
        assert isinstance(again.what, ModelBatch)
        duplicate = (1, again.base_offset, None)
        assert self._send(again.what) in (duplicate, OUT_OF_ORDER_SEQUENCE)

    @precondition(lambda self: self.log.stored and not self.is_internal)
    @rule(producer_id=st.sampled_from(PRODUCER_IDS), is_transactional=st.booleans())
    def P7_an_older_epoch_is_never_admitted(self, producer_id: int, is_transactional: bool) -> None:
        older = self.log.epoch_of(producer_id) - 1
        if older < 0:
            return
        self.allow_txn(producer_id, older)
        sequence = self._next_sequence(producer_id, older + 1)
        verdict = self._send(
            ModelBatch(CLIENT_V1, producer_id, older, sequence, 1, is_transactional, 0)
        )
        assert verdict == INVALID_PRODUCER_EPOCH

    # ------------------------------------------------------------ what coordinators do

    @rule(producer_id=st.sampled_from(PRODUCER_IDS), epoch=st.integers(0, 3))
    def allow_txn(self, producer_id: int, epoch: int) -> None:
        self.producer_state.allow_txn(producer_id, epoch)
        self.log.expected[producer_id] = epoch

    @rule(producer_id=st.sampled_from(PRODUCER_IDS))
    def forget(self, producer_id: int) -> None:
        self.producer_state.forget(producer_id)
        self.log.expected.pop(producer_id, None)

    @precondition(lambda self: self.is_internal)
    @rule(
        producer_id=st.sampled_from(PRODUCER_IDS),
        epoch_step=st.sampled_from([0, 0, 1, -1]),
        record_count=st.integers(1, 3),
    )
    def commit_offsets(self, producer_id: int, epoch_step: int, record_count: int) -> None:
        epoch = self._epoch_near(producer_id, epoch_step)
        self._send(ModelBatch(COORDINATOR, producer_id, epoch, -1, record_count, True, 3))

    @precondition(lambda self: self.log.first_unstable() >= 0)
    @rule(data=st.data(), bumps_epoch=st.booleans(), is_commit=st.booleans())
    def end_transaction(self, data: st.DataObject, bumps_epoch: bool, is_commit: bool) -> None:
        """The marker of an open transaction, as version 1 or, with a bump, version 2 writes it."""
        opened = [p for p in PRODUCER_IDS if self.log.open_since(p) >= 0]
        producer_id = data.draw(st.sampled_from(opened))
        epoch = self.log.epoch_of(producer_id) + int(bumps_epoch)
        self._mark(Marker(producer_id, epoch, 2, is_commit, 5))

    @rule(
        producer_id=st.sampled_from(PRODUCER_IDS),
        epoch_step=st.sampled_from([0, 1, -1]),
        coordinator_epoch=st.integers(0, 3),
        is_commit=st.booleans(),
        timestamp_ms=st.integers(0, 9),
    )
    def mark_oddly(
        self,
        producer_id: int,
        epoch_step: int,
        coordinator_epoch: int,
        is_commit: bool,
        timestamp_ms: int,
    ) -> None:
        """A marker that may be of a fenced producer or coordinator, or end nothing."""
        epoch = self._epoch_near(producer_id, epoch_step)
        self._mark(Marker(producer_id, epoch, coordinator_epoch, is_commit, timestamp_ms))

    def _mark(self, marker: Marker) -> None:
        wanted = self.log.judge_marker(marker)
        end = self.log.end
        verdict = self.producer_state.admit_marker(
            end,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.is_commit,
            marker.timestamp_ms,
        )
        assert verdict == wanted, marker
        if verdict[0] == ADMIT:
            self.log.stored.append(ModelEntry(end, end, marker))
            self.log.expected.pop(marker.producer_id, None)
            self.log.asked = [a for a in self.log.asked if a.producer_id != marker.producer_id]

    # ------------------------------------------------------------ what the log does

    @rule()
    def snapshot(self) -> None:
        taken = self.producer_state.snapshot()
        self.snapshots.append((self.log.end, taken, self.log.forgotten.copy()))
        self._P8_what_it_lacks_expiry_explains(taken)

    def _P8_what_it_lacks_expiry_explains(self, snapshot: bytes) -> None:
        """The state that `txn log verify` compares a snapshot with: a replay of the whole log, but
        for expiry.
        """
        whole, returns = ProducerStateManager(), Returns()
        replayed = [s.replayed for s in self.log.stored]
        whole.replay(replayed)
        returns.feed(replayed)
        by_log = decode_snapshot(whole.snapshot())
        for producer_id, stored in decode_snapshot(snapshot).items():
            logged = by_log[producer_id]
            lacking = returns.lacking(producer_id, stored, logged)
            assert stored.producer_epoch == logged.producer_epoch
            assert stored.last_timestamp_ms == logged.last_timestamp_ms
            assert stored.txn_first_offset == logged.txn_first_offset
            is_same_epoch = stored.coordinator_epoch == logged.coordinator_epoch
            assert is_same_epoch or COORDINATOR_EPOCH in lacking
            is_same_batch = list(stored.batches)[-1:] == list(logged.batches)[-1:]
            assert is_same_batch or NEWEST_BATCH in lacking

    @rule(data=st.data(), backfills_first=st.booleans())
    def restart(self, data: st.DataObject, backfills_first: bool) -> None:
        self._restart(data.draw(st.sampled_from([EMPTY, *self.snapshots])), backfills_first)

    def _restart(self, taken: Snapshot, backfills_first: bool) -> None:
        offset, snapshot, forgotten = taken
        older = [s.replayed for s in self.log.stored if s.base_offset < offset]
        newer = [s.replayed for s in self.log.stored if s.base_offset >= offset]
        before = self.log.aborted()
        restarted = ProducerStateManager()
        if self.log.may_lack_records:
            restarted.note_loss()
        restarted.restore(snapshot, [entry for entry in before if entry[2] < offset])
        if backfills_first:
            restarted.backfill(older)
        completed = restarted.replay(newer)
        if not backfills_first:
            restarted.backfill(older)
        assert completed == [entry for entry in before if entry[2] >= offset]
        self.producer_state = restarted
        self.log.expected.clear()
        self.log.asked.clear()
        self.log.forgotten = dict(forgotten)
        backfilled = offset if backfills_first else self.log.end
        self.log.recalled = {
            p: backfilled
            for p in PRODUCER_IDS
            if not any(s for s in self.log.of(p) if s.base_offset < backfilled)
        }

    @precondition(lambda self: self.log.stored)
    @rule()
    def compact(self) -> None:
        """Remove batches that a replay does without: all but those the producer state wants kept.

        Markers stay, and open transactions, and the last batch. Beside aborted transactions, whose
        entries name the stable offset of then, every transaction stays.
        """
        kept = {last_offset for _, _, last_offset in self.producer_state.last_batches()}
        unstable = self.log.first_unstable()
        stable = self.log.end - 1 if unstable < 0 else unstable
        has_aborted = bool(self.log.aborted())
        remaining = [
            s
            for s in self.log.stored
            if isinstance(s.what, Marker)
            or s.last_offset in kept
            or s.last_offset >= stable
            or (s.what.is_transactional and has_aborted)
        ]
        self.log.stored, self.log.is_compacted = remaining, True
        self.snapshots.clear()  # they know more than the rest of the log

    @precondition(lambda self: self.log.stored)
    @rule()
    def expire(self) -> None:
        """Two sweeps with nothing stored between them: every producer without an open transaction
        is forgotten.
        """
        for _ in range(2):
            self.producer_state.expire(self.today_ms)
            self.producer_state.snapshot()
            self.today_ms += 2 * PRODUCER_ID_EXPIRATION_MS
        for producer_id in PRODUCER_IDS:
            if self.log.open_since(producer_id) < 0:
                self.log.forget(producer_id)
        self.log.asked.clear()

    @rule(later_ms=st.integers(0, 1000))
    def sweep_too_early(self, later_ms: int) -> None:
        self.producer_state.expire(self.today_ms + later_ms)
        self.producer_state.snapshot()
        self.log.asked.clear()

    def _windows(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """The batches of each producer whose retries are known."""
        return {
            p: [
                batch
                for batch in state.batches
                if state.offset_of_stored(batch[0], batch[1]) == batch[2]
            ]
            for p, state in self.producer_state._producers.items()
        }

    # ------------------------------------------------------------ what always holds

    @invariant()
    def P5_the_stable_offset_never_moves_back(self) -> None:
        unstable = self.producer_state.first_unstable_offset()
        stable = self.log.end if unstable < 0 else unstable
        assert unstable == self.log.first_unstable()
        assert self.stable_before <= stable <= self.log.end
        self.stable_before = stable

    @invariant()
    def P8_the_state_is_what_the_log_says(self) -> None:
        assert sorted(self.producer_state.describe()) == self.log.describe()
        assert self.producer_state.aborted_entries() == self.log.aborted()
        for producer_id, window in self._windows().items():
            theirs = [
                (s.what.base_sequence, s.what.last_sequence, s.base_offset, s.last_offset)
                for s in self.log.window(producer_id)
                if isinstance(s.what, ModelBatch)
            ]
            assert window == theirs

    @invariant()
    def P6_sequences_in_the_log_are_consecutive(self) -> None:
        if self.log.is_compacted:
            return
        next_sequences: dict[tuple[int, int], int] = {}
        for s in self.log.stored:
            if isinstance(s.what, ModelBatch) and s.what.base_sequence >= 0:
                key = (s.what.producer_id, s.what.producer_epoch)
                wanted = next_sequences.get(key, s.what.base_sequence)
                is_first_known = s.base_offset in self.log.first_known
                assert s.what.base_sequence == wanted or is_first_known
                next_sequences[key] = (s.what.last_sequence + 1) % SEQUENCE_COUNT

    @invariant()
    def P7_epochs_in_the_log_never_fall(self) -> None:
        newest: dict[int, int] = {}
        for s in self.log.stored:
            assert s.what.producer_epoch >= newest.get(s.what.producer_id, 0)
            newest[s.what.producer_id] = s.what.producer_epoch

    def teardown(self) -> None:
        """P4: every range names the aborted transactions that it overlaps."""
        aborted = self.log.aborted()
        for start in range(self.log.end + 1):
            for stop in range(start + 1, self.log.end + 2):
                hit = sorted((f, p) for p, f, last, _ in aborted if f < stop and last >= start)
                assert self.producer_state.aborted_in(start, stop) == [(p, f) for f, p in hit]


PartitionMachine.TestCase.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None
)
test_P4_P5_P6_P7_P8_hold_over_any_history = PartitionMachine.TestCase


@pytest.mark.parametrize("backfills_first", [False, True])
@pytest.mark.parametrize("returns_first", [False, True])
def test_a_restart_recalls_no_batch_of_before_an_expiry(
    backfills_first: bool, returns_first: bool
) -> None:
    """The oracle had a restart recall the batches of a producer that neither the snapshot nor a
    batch behind it knew. A producer that returns later has only its batches since then.
    """
    machine = PartitionMachine()
    machine.begin(start=0, is_internal=False, may_lack_records=False)
    machine.produce(9, 1, False, CLIENT_V1, 0)
    machine.expire()
    machine.snapshot()
    steps: list[Callable[[], object]] = [
        lambda: machine.produce_oddly(9, 0, 1, 1, False, CLIENT_V1, False),
        lambda: machine._restart(machine.snapshots[-1], backfills_first),
    ]
    for step in steps if returns_first else reversed(steps):
        step()
    machine.P8_the_state_is_what_the_log_says()
