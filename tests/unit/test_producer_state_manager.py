"""The producer state of one partition: decisions and their effects."""

import pytest

from txn.partition import ADMIT, ASK_TO_JOIN, DUPLICATE, REFUSE, AdmitResult, ProducerStateManager
from txn.testing.memory_log import MemoryLog

COORDINATOR, CLIENT_V1, CLIENT_V2 = 0, 1, 2
DAY_MS = 86_400_000


class FakeLog:
    """A partition with the log end that its log would have."""

    def __init__(self) -> None:
        self.producer_state = ProducerStateManager()
        self.end = 0

    def produce(
        self,
        producer_id: int = 7,
        *,
        epoch: int = 0,
        sequence: int = 0,
        count: int = 1,
        transactional: bool = False,
        origin: int = CLIENT_V1,
        id_hash: int | None = None,
    ) -> AdmitResult:
        verdict = self.producer_state.admit(
            origin, self.end, producer_id, epoch, sequence, count, 1, transactional, id_hash
        )
        self.end += count if verdict[0] == ADMIT else 0
        return verdict

    def transact(self, producer_id: int, *, epoch: int = 0, sequence: int = 0) -> AdmitResult:
        self.producer_state.allow_txn(producer_id, epoch)
        return self.produce(producer_id, epoch=epoch, sequence=sequence, transactional=True)

    def mark(
        self,
        producer_id: int = 7,
        *,
        epoch: int = 0,
        commit: bool = True,
        coordinator_epoch: int = 0,
    ) -> AdmitResult:
        verdict = self.producer_state.admit_marker(
            self.end, producer_id, epoch, coordinator_epoch, commit, 1
        )
        self.end += 1 if verdict[0] == ADMIT else 0
        return verdict


# ---------------------------------------------------------------- storing once


def test_P6_a_retried_batch_is_stored_once() -> None:
    log = FakeLog()
    log.produce(sequence=0, count=5)
    assert log.produce(sequence=0, count=5) == (DUPLICATE, 0, None)
    assert log.produce(sequence=5) == (ADMIT, -1, None)


def test_P6_a_refused_batch_changes_nothing() -> None:
    log = FakeLog()
    log.produce(sequence=0)
    before = log.producer_state.snapshot()
    assert log.produce(sequence=9) == (REFUSE, 45, None)
    assert log.producer_state.snapshot() == before


def test_P6_a_batch_that_overtakes_the_first_one_of_a_log_does_not_take_its_place() -> None:
    """The first batch was refused for the moment, the second one stored, and a repetition of the
    first was out of order for ever.
    """
    log = FakeLog()
    assert log.produce(sequence=5) == (REFUSE, 45, None)
    assert log.transact(8, sequence=5) == (REFUSE, 45, None)
    assert log.produce(sequence=0, count=5) == (ADMIT, -1, None)
    assert log.produce(sequence=5) == (ADMIT, -1, None)


def test_an_unknown_producer_may_begin_anywhere_in_a_log_that_held_records() -> None:
    log = FakeLog()
    log.produce(7)
    assert log.produce(8, sequence=5) == (ADMIT, -1, None)


def test_a_producer_that_expired_may_go_on_where_it_was() -> None:
    log = FakeLog()
    log.produce(sequence=0)
    forget_everybody(log)
    assert log.produce(sequence=1) == (ADMIT, -1, None)


def test_an_unknown_producer_may_begin_anywhere_in_an_empty_log_that_may_lack_records() -> None:
    """A power failure took the records; the producer has gone on, and its next ones are due."""
    log = MemoryLog("orders", 0)
    log.lead(1)
    assert log.producer_state.admit(CLIENT_V1, 0, 7, 0, 5, 1, 1, False)[0] == ADMIT


def test_P6_a_late_retry_does_not_resurrect_a_finished_transaction() -> None:
    log = FakeLog()
    log.transact(7)
    log.mark(7)
    assert log.produce(7, sequence=0, transactional=True) == (DUPLICATE, 0, None)
    log.producer_state.allow_txn(7, 0)
    assert log.produce(7, sequence=0, transactional=True) == (REFUSE, 45, None)
    assert log.producer_state.first_unstable_offset() == -1


# ---------------------------------------------------------------- joining


def test_the_first_batch_of_a_declared_transaction_shows_its_transactional_id() -> None:
    """One under another id was stored, which Kafka refuses: it asks the coordinator of that id."""
    log = FakeLog()
    log.producer_state.allow_txn(7, 0, 1234)
    assert log.produce(7, transactional=True, id_hash=99)[0] == ASK_TO_JOIN
    assert log.producer_state.first_unstable_offset() == -1
    assert log.produce(7, transactional=True, id_hash=1234) == (ADMIT, 0, None)


def test_nobody_asks_whose_an_open_transaction_is() -> None:
    log = FakeLog()
    log.producer_state.allow_txn(7, 0, 1234)
    log.produce(7, transactional=True, id_hash=1234)
    assert log.produce(7, sequence=1, transactional=True, id_hash=99) == (ADMIT, 0, None)


def test_P7_a_transactional_batch_has_to_join_first() -> None:
    assert FakeLog().produce(transactional=True) == (ASK_TO_JOIN, 0, None)


def test_a_batch_that_had_to_join_is_admitted_once_it_is_expected() -> None:
    log = FakeLog()
    log.produce(transactional=True)
    assert log.transact(7) == (ADMIT, 0, None)


def test_P7_a_late_batch_of_a_finished_transaction_has_to_join_again() -> None:
    log = FakeLog()
    log.transact(7)
    log.mark(7)
    assert log.produce(sequence=1, transactional=True) == (ASK_TO_JOIN, 0, None)


def test_P7_a_late_batch_is_fenced_when_the_marker_bumped_the_epoch() -> None:
    log = FakeLog()
    log.transact(7, epoch=0)
    log.mark(7, epoch=1)
    late = log.produce(epoch=0, sequence=1, transactional=True, origin=CLIENT_V2)
    assert late == (REFUSE, 47, None)


def test_a_withdrawn_expectation_has_to_be_asked_for_again() -> None:
    log = FakeLog()
    log.producer_state.allow_txn(7, 0)
    log.producer_state.forget(7)
    assert log.produce(transactional=True) == (ASK_TO_JOIN, 0, None)


def test_withdrawing_what_was_never_expected_is_fine() -> None:
    FakeLog().producer_state.forget(7)


def test_after_an_epoch_bump_by_a_marker_the_next_sequence_is_zero() -> None:
    log = FakeLog()
    log.transact(7, epoch=0)
    log.mark(7, epoch=1)
    assert log.transact(7, epoch=1, sequence=1) == (REFUSE, 45, None)
    assert log.transact(7, epoch=1, sequence=0) == (ADMIT, 2, None)


def test_the_first_batch_of_an_epoch_overtakes_nobody() -> None:
    """A batch at the last sequence before the wrap was turned away, and 0 seemed to come after."""
    log = FakeLog()
    log.produce(sequence=2**31 - 1, transactional=True)
    log.producer_state.allow_txn(7, 0)
    assert log.produce(sequence=0, transactional=True, origin=CLIENT_V2) == (ADMIT, 0, None)


def test_a_batch_cannot_overtake_one_that_was_turned_away_while_joining() -> None:
    """The first batch of a new producer meets a coordinator that is loading.

    Its second one, sent ahead, finds the coordinator ready. Stored first, it would leave the
    first one out of order for ever (KAFKA-14561).
    """
    log = FakeLog()
    log.produce(sequence=0, transactional=True)
    log.produce(sequence=1, transactional=True)
    assert log.transact(7, sequence=1) == (REFUSE, 45, None)
    assert log.transact(7, sequence=0) == (ADMIT, 0, None)
    assert log.transact(7, sequence=1) == (ADMIT, 0, None)


# ---------------------------------------------------------------- markers and the stable offset


def test_P4_an_abort_names_the_transaction_it_ends() -> None:
    log = FakeLog()
    log.transact(7)
    assert log.mark(7, commit=False) == (ADMIT, -1, (7, 0, 1, 2))


def test_P4_a_commit_names_nothing() -> None:
    log = FakeLog()
    log.transact(7)
    assert log.mark(7) == (ADMIT, -1, None)


def test_P4_an_abort_without_open_transaction_names_nothing() -> None:
    log = FakeLog()
    assert log.mark(7, commit=False) == (ADMIT, -1, None)
    assert log.producer_state.aborted_entries() == []


def test_P5_an_abort_carries_the_stable_offset_of_the_next_oldest_transaction() -> None:
    log = FakeLog()
    log.transact(7)
    log.transact(8)
    assert log.mark(7, commit=False) == (ADMIT, 1, (7, 0, 2, 1))


def test_P5_a_plain_batch_behind_an_open_transaction_leaves_the_stable_offset() -> None:
    log = FakeLog()
    log.transact(7)
    assert log.produce(8) == (ADMIT, 0, None)


def test_P7_a_marker_of_an_older_coordinator_ends_nothing() -> None:
    log = FakeLog()
    log.mark(7, coordinator_epoch=3)
    log.transact(7)
    assert log.mark(7, coordinator_epoch=2) == (REFUSE, 52, None)
    assert log.producer_state.first_unstable_offset() == 1


def test_P7_a_fencing_marker_ends_the_transaction_of_the_older_epoch() -> None:
    log = FakeLog()
    log.transact(7, epoch=0)
    assert log.mark(7, epoch=1, commit=False) == (ADMIT, -1, (7, 0, 1, 2))


def test_a_coordinators_batch_opens_a_transaction_without_being_expected() -> None:
    log = FakeLog()
    opened = log.produce(sequence=-1, transactional=True, origin=COORDINATOR)
    assert opened == (ADMIT, 0, None)


def test_P4_aborted_transactions_are_found_by_range() -> None:
    log = FakeLog()
    log.transact(7)
    log.mark(7, commit=False)
    assert log.producer_state.aborted_in(1, 2) == [(7, 0)]
    assert log.producer_state.aborted_in(2, 3) == []


# ---------------------------------------------------------------- recovery


def test_P8_a_snapshot_restores_the_open_transaction() -> None:
    log = FakeLog()
    log.transact(7)
    restored = ProducerStateManager()
    restored.restore(log.producer_state.snapshot(), [])
    assert restored.first_unstable_offset() == 0
    assert restored.describe() == log.producer_state.describe()


def test_P8_restoring_forgets_everything_that_the_log_tells_first() -> None:
    log = FakeLog()
    log.transact(7)
    log.mark(7, commit=False)
    log.producer_state.restore(None, [])
    assert (log.producer_state.describe(), log.producer_state.aborted_entries()) == ([], [])
    assert log.produce(transactional=True) == (ASK_TO_JOIN, 0, None)


def test_P3_what_is_expected_stays_so_when_the_rules_are_brought_to_the_log_again() -> None:
    """Else a sequence that an abort left would be a retry again once a disk refused its batch."""
    log = FakeLog()
    log.transact(7)
    log.mark(7, commit=False)
    log.producer_state.allow_txn(7, 0)
    log.producer_state.restore(None, [])
    log.producer_state.replay([(0, 0, 7, 0, 0, 1, 1, -1), (1, 1, 7, 0, -1, 1, 2, 0)])
    assert log.produce(transactional=True) == (REFUSE, 45, None)
    assert log.produce(sequence=1, transactional=True) == (ADMIT, 2, None)


def test_P9_a_damaged_snapshot_changes_nothing() -> None:
    log = FakeLog()
    log.produce()
    before = log.producer_state.describe()
    with pytest.raises(ValueError, match="damaged"):
        log.producer_state.restore(log.producer_state.snapshot()[:-1], [])
    assert log.producer_state.describe() == before


def test_P8_replay_returns_the_aborts_that_the_index_lacks() -> None:
    partition = ProducerStateManager()
    partition.restore(None, [(7, 0, 1, 2)])
    completed = partition.replay(
        [
            (0, 0, 7, 0, 0, 1, 1, -1),
            (1, 1, 7, 0, -1, 1, 2, 0),
            (2, 2, 7, 0, 1, 1, 1, -1),
            (3, 3, 7, 0, -1, 1, 2, 0),
        ]
    )
    assert completed == [(7, 2, 3, 4)]


def test_P6_backfill_recalls_what_the_snapshot_left_out() -> None:
    log = FakeLog()
    log.produce(sequence=0)
    log.produce(sequence=1)
    log.producer_state.restore(log.producer_state.snapshot(), [])
    log.producer_state.backfill([(0, 0, 7, 0, 0, 1, 0, -1)])
    assert log.produce(sequence=0) == (DUPLICATE, 0, None)
    assert log.produce(sequence=2) == (ADMIT, -1, None)


def test_P6_backfill_does_not_mix_an_older_epoch_into_the_window() -> None:
    log = FakeLog()
    log.produce(epoch=0, sequence=0)
    log.produce(epoch=1, sequence=0)
    log.producer_state.restore(log.producer_state.snapshot(), [])
    log.producer_state.backfill([(0, 0, 7, 0, 0, 1, 0, -1)])
    assert log.produce(epoch=1, sequence=0) == (DUPLICATE, 1, None)


def test_backfill_passes_over_markers_and_unknown_producers() -> None:
    log = FakeLog()
    log.mark(epoch=1)
    log.produce(epoch=1)
    before = log.producer_state.describe()
    log.producer_state.restore(log.producer_state.snapshot(), [])
    log.producer_state.backfill([(0, 0, 7, 1, -1, 1, 3, 0), (0, 0, 99, 1, 0, 1, 0, -1)])
    assert log.producer_state.describe() == before
    assert log.produce(epoch=1, sequence=1) == (ADMIT, -1, None)


# ---------------------------------------------------------------- idle producers


def sweep(log: FakeLog, now_ms: int) -> None:
    log.producer_state.expire(now_ms)
    log.producer_state.snapshot()


def known(log: FakeLog) -> list[int]:
    return [producer.producer_id for producer in log.producer_state.describe()]


def test_a_producer_idle_for_a_day_is_dropped() -> None:
    log = FakeLog()
    log.produce()
    sweep(log, 0)
    sweep(log, DAY_MS - 1)
    assert known(log) == [7]
    sweep(log, DAY_MS)
    assert known(log) == []


def test_how_long_a_producer_may_be_idle_is_said_with_each_sweep() -> None:
    log = FakeLog()
    log.produce()
    sweep(log, 0)
    log.producer_state.expire(5, idle_ms=5)
    log.producer_state.snapshot()
    assert known(log) == []


def test_P6_a_producer_of_old_records_is_not_idle() -> None:
    """Kafka's rule compares the clock with the newest record's timestamp.

    A job that loads records of years ago lost its producer state at the first sweep, and the
    batch it retried was stored twice. The records here are of 1970.
    """
    log = FakeLog()
    log.produce(sequence=0)
    sweep(log, 50 * 365 * DAY_MS)
    assert log.produce(sequence=0) == (DUPLICATE, 0, None)


def test_a_producer_that_wrote_between_two_sweeps_is_not_idle() -> None:
    log = FakeLog()
    log.produce(sequence=0)
    sweep(log, 0)
    log.produce(sequence=1)
    sweep(log, DAY_MS)
    assert known(log) == [7]


def test_P5_a_producer_with_an_open_transaction_is_never_dropped() -> None:
    log = FakeLog()
    log.transact(7)
    sweep(log, 0)
    sweep(log, 2 * DAY_MS)
    assert known(log) == [7]


def test_a_sweep_waits_for_the_next_call_under_the_lock() -> None:
    log = FakeLog()
    log.produce()
    sweep(log, 0)
    log.producer_state.expire(DAY_MS)
    assert known(log) == [7]
    log.produce(8)
    assert known(log) == [8]


def forget_everybody(log: FakeLog) -> None:
    sweep(log, 0)
    sweep(log, DAY_MS)
    assert known(log) == []


def test_P6_a_retry_finds_the_batch_of_after_the_expiry_also_when_replayed() -> None:
    """A sequence that an expired producer used again was found at its first, older offset."""
    log = FakeLog()
    log.produce(sequence=0, count=3)
    log.produce(sequence=3)
    forget_everybody(log)
    log.produce(sequence=3)
    again = ProducerStateManager()
    again.replay([(0, 2, 7, 0, 0, 1, 0, -1), (3, 3, 7, 0, 3, 1, 0, -1)])
    again.replay([(4, 4, 7, 0, 3, 1, 0, -1)])
    for producer_state in (log.producer_state, again):
        assert producer_state.admit(CLIENT_V1, 5, 7, 0, 3, 1, 1, False) == (DUPLICATE, 4, None)
        assert producer_state.admit(CLIENT_V1, 5, 7, 0, 2, 1, 1, False) == (REFUSE, 45, None)


# ---------------------------------------------------------------- describing


def test_a_described_producer_shows_its_newest_batch_and_open_transaction() -> None:
    log = FakeLog()
    log.mark(7, epoch=3, coordinator_epoch=5)
    log.transact(7, epoch=3)
    assert log.producer_state.describe() == [(7, 3, 0, 1, 5, 1)]


def test_P7_what_is_sealed_stays_so_when_the_rules_are_brought_to_the_log_again() -> None:
    """A disk that refused a batch opened a prepared transaction to the client that had left it."""
    partition = ProducerStateManager()
    partition.allow_txn(7, 0)
    admitted = partition.admit(1, 0, 7, 0, 0, 1, 0, True)
    assert admitted[0] == ADMIT
    partition.block_txn(7)
    snapshot = partition.snapshot()
    partition.restore(snapshot, ())
    partition.replay([])
    assert partition.admit(1, 1, 7, 0, 1, 1, 0, True)[0] == REFUSE


def test_a_block_is_taken_back_by_its_holder_alone() -> None:
    mine, anothers = object(), object()
    log = FakeLog()
    log.transact(7)
    log.producer_state.block_txn(7, mine)
    log.producer_state.block_txn(7, anothers)
    log.producer_state.unblock_txn(7, anothers)
    assert log.produce(sequence=1, transactional=True) == (REFUSE, 47, None)
    log.producer_state.unblock_txn(7, mine)
    assert log.produce(sequence=1, transactional=True)[0] == ADMIT
    log.producer_state.block_txn(7, mine)
    log.producer_state.block_txn(7)  # decided meanwhile: until the marker
    log.producer_state.unblock_txn(7, mine)
    assert log.produce(sequence=2, transactional=True) == (REFUSE, 47, None)
    log.mark(7)
    log.transact(7, sequence=2)


def test_P7_the_marker_of_an_earlier_transaction_breaks_no_seal_either() -> None:
    log = FakeLog()
    log.transact(7)
    log.mark(7)
    log.transact(7, sequence=1)
    log.producer_state.block_txn(7)
    log.producer_state.restore(None, [])
    first, marker, second = (
        (0, 0, 7, 0, 0, 1, 1, -1),
        (1, 1, 7, 0, -1, 1, 3, 0),
        (2, 2, 7, 0, 1, 1, 1, -1),
    )
    log.producer_state.replay([first, marker, second])
    assert log.produce(sequence=2, transactional=True) == (REFUSE, 47, None)
