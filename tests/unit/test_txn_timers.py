"""Time-outs, on a clock that may be set, and ids that are forgotten."""

import pytest

from support.flights import flights_host
from support.txn_bench import COMMIT, P0, P1, TIMEOUT_MS, Bench
from txn.broker.host import RETRY_MS
from txn.broker.transactions.state import RECORDS_PER_BATCH
from txn.coordinator.transaction.states import TxnState
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.wire.error_codes import ErrorCode


def test_P5_an_abandoned_transaction_is_aborted_when_its_time_is_up() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.host.advance(TIMEOUT_MS - 1)
    assert bench.host.store(*P0).last_stable_offset == 0
    bench.host.advance(1)
    assert bench.host.store(*P0).last_stable_offset == 2
    assert bench.state() is TxnState.COMPLETE_ABORT
    assert bench.end(producer, COMMIT).code is ErrorCode.PRODUCER_FENCED


def test_P5_writing_on_does_not_prolong_a_transaction() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.host.advance(TIMEOUT_MS - 1)
    bench.write(producer, P1, 0, b"b")
    bench.host.advance(1)
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_a_transaction_that_ended_in_time_is_left_alone() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    following = bench.end(producer, COMMIT).producer
    bench.host.advance(TIMEOUT_MS - 1)
    bench.write(following, P0, 0, b"b")
    bench.host.advance(1)
    assert bench.state() is TxnState.ONGOING
    bench.host.advance(TIMEOUT_MS - 2)
    assert bench.state() is TxnState.ONGOING
    bench.host.advance(1)
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_P5_the_next_client_may_have_less_time() -> None:
    bench = Bench()
    patient = bench.init()
    bench.write(patient, P0, 0, b"a")
    bench.end(patient, COMMIT)
    hasty = bench.init(timeout_ms=TIMEOUT_MS // 10)
    bench.write(hasty, P0, 0, b"b")
    bench.host.advance(TIMEOUT_MS // 10 - 1)
    assert bench.state() is TxnState.ONGOING
    bench.host.advance(1)
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_P5_a_timeout_counts_over_a_restart() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.host.advance(TIMEOUT_MS - 1)
    restarted = Bench(bench.host.after_crash())
    restarted.host.advance(1)
    assert restarted.state() is TxnState.COMPLETE_ABORT


def test_P5_an_abort_that_cannot_be_written_is_tried_again() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    logs = bench.host.coordinator_partitions(TRANSACTIONS_TOPIC)
    for log in logs:
        log.is_read_only = True
    bench.host.advance(TIMEOUT_MS)
    assert bench.state() is TxnState.ONGOING
    for log in logs:
        log.is_read_only = False
    bench.host.advance(RETRY_MS)
    assert bench.state() is TxnState.COMPLETE_ABORT


HOUR_MS = 3_600_000


def test_P5_a_clock_set_back_does_not_prolong_an_abandoned_transaction() -> None:
    """Readers waited for the timeout and an hour: the deadline was a time of day."""
    bench = Bench()
    bench.write(bench.init(), P0, 0, b"x")
    bench.host.clock_step_ms = -HOUR_MS
    bench.host.advance(TIMEOUT_MS - 1)
    assert bench.state() is TxnState.ONGOING
    bench.host.advance(1)
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_a_clock_set_forward_aborts_nothing_early() -> None:
    bench = Bench()
    bench.write(bench.init(), P0, 0, b"x")
    bench.host.clock_step_ms = HOUR_MS
    bench.host.advance(TIMEOUT_MS - 1)
    assert bench.state() is TxnState.ONGOING
    bench.host.advance(1)
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_P5_a_second_transaction_has_its_own_time_though_the_clock_is_set() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"x")
    bench.host.advance(TIMEOUT_MS // 2)
    producer = bench.end(producer, COMMIT).producer
    bench.host.clock_step_ms = -HOUR_MS
    bench.write(producer, P0, 0, b"y")
    bench.host.advance(TIMEOUT_MS - 1)
    assert bench.state() is TxnState.ONGOING
    bench.host.advance(1)
    assert bench.state() is TxnState.COMPLETE_ABORT


@pytest.mark.parametrize(
    ("step_ms", "left_ms"),
    [(0, TIMEOUT_MS - 1_000), (-HOUR_MS, TIMEOUT_MS), (HOUR_MS, 0), (-500, TIMEOUT_MS - 500)],
)
def test_P5_after_a_restart_the_stored_start_counts_up_to_the_timeout(
    step_ms: int, left_ms: int
) -> None:
    """A start that lies in the future prolonged the transaction by as much."""
    bench = Bench()
    bench.write(bench.init(), P0, 0, b"x")
    bench.host.advance(1_000)
    bench.host.clock_step_ms = step_ms
    restarted = Bench(bench.host.after_crash())
    restarted.host.advance(max(left_ms - 1, 0))
    expected = TxnState.ONGOING if left_ms else TxnState.COMPLETE_ABORT
    assert restarted.state() is expected
    restarted.host.advance(1)
    assert restarted.state() is TxnState.COMPLETE_ABORT


SWEEP = "transaction.remove.expired.transaction.cleanup.interval.ms"


def forgetful() -> Bench:
    host = flights_host()
    host.settings |= {"transactional.id.expiration.ms": 5_000, SWEEP: 1_000}
    return Bench(host)


def test_an_id_that_nobody_used_for_long_is_forgotten() -> None:
    bench = forgetful()
    bench.init()
    bench.host.advance(4_999)
    assert len(bench.coordinator.transactions) == 1
    bench.host.advance(1)
    assert len(bench.coordinator.transactions) == 0
    assert len(Bench(bench.host.after_crash()).coordinator.transactions) == 0


def test_ids_that_expire_together_are_forgotten_with_few_appends() -> None:
    bench = forgetful()
    for index in range(2 * RECORDS_PER_BATCH + 2):
        bench.init(f"pay-{index}")
    logs = bench.host.coordinator_partitions(TRANSACTIONS_TOPIC)
    before = sum(len(store.stored) for store in logs)
    bench.host.advance(5_000)
    assert len(bench.coordinator.transactions) == 0
    assert sum(len(store.stored) for store in logs) - before <= 4
    assert len(Bench(bench.host.after_crash()).coordinator.transactions) == 0


def test_expired_ids_that_cannot_be_forgotten_are_tried_again() -> None:
    bench = forgetful()
    bench.init()
    for store in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
        store.is_read_only = True
    bench.host.advance(5_000)
    assert len(bench.coordinator.transactions) == 1
    for store in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
        store.is_read_only = False
    bench.host.advance(1_000)
    assert len(bench.coordinator.transactions) == 0


def test_an_open_transaction_is_not_forgotten() -> None:
    bench = forgetful()
    bench.write(bench.init(), P0, 0, b"a")
    bench.host.advance(10_000)
    assert bench.state() is TxnState.ONGOING
