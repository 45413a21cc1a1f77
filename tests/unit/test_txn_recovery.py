"""A start: decisions are finished, open transactions go on, and orphans are ended."""

import pytest

from support.eager_calls import EagerCalls
from support.flights import coordinator_on
from support.txn_bench import ABORT, COMMIT, P0, P1, Bench
from txn.broker.host import RETRY_MS
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.states import TxnResult, TxnState
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.partition import ADMIT, REFUSE
from txn.wire.error_codes import ErrorCode


@pytest.mark.parametrize(
    ("outcome", "values", "state"),
    [
        (COMMIT, [b"a"], TxnState.COMPLETE_COMMIT),
        (ABORT, [], TxnState.COMPLETE_ABORT),
    ],
)
def test_P3_recovery_finishes_a_decision_as_it_was_taken(
    outcome: TxnResult, values: list[bytes], state: TxnState
) -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.host.store(*P0).is_read_only = True
    bench.end(producer, outcome)
    restarted = Bench(bench.host.after_crash())
    assert restarted.state() is state
    assert restarted.host.store(*P0).committed() == values


def test_an_open_transaction_goes_on_after_a_crash() -> None:
    bench = Bench()
    producer = bench.init()
    bench.coordinator.add_partitions("pay", producer, [P0])
    restarted = Bench(bench.host.after_crash())
    assert restarted.host.store(*P0).client_append(producer, 0, b"a", 1)[0] == ADMIT
    restarted.end(producer, COMMIT, bumps_epoch=False)
    assert restarted.host.store(*P0).committed() == [b"a"]


def test_a_start_does_without_a_partition_that_cannot_be_opened() -> None:
    bench = Bench()
    producer = bench.init()
    bench.coordinator.add_partitions("pay", producer, [P0, P1])
    host = bench.host.after_crash()
    host.unopenable.add(P1)
    restarted = Bench(host)
    assert restarted.state() is TxnState.ONGOING
    assert host.store(*P0).client_append(producer, 0, b"a", 1)[0] == ADMIT


def test_a_fresh_directory_has_no_state_topic_until_it_is_used() -> None:
    assert TRANSACTIONS_TOPIC not in Bench().host.topics


def test_P5_a_power_failure_leaves_no_partition_with_an_open_transaction() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.write(producer, P1, 0, b"b")
    for log in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
        log.stored = log.stored[:1]  # transactions in memory are lost, written ones are not
    host = bench.host.after_crash()
    coordinator = EagerCalls(coordinator_on(host))
    coordinator.recover(power_failed=True, stores=host.stores())
    assert [store.last_stable_offset for store in host.stores()] == [
        store.log_end_offset for store in host.stores()
    ]
    assert coordinator.end("pay", producer, COMMIT, bumps_epoch=True) == InitProducerIdResult(
        ProducerIdAndEpoch(-1, -1), ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )


def test_P3_an_orphan_on_a_full_disk_is_ended_when_there_is_room_and_takes_nothing_meanwhile() -> (
    None
):
    """The start failed, for the one partition that could not take its marker."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    for log in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
        log.stored = log.stored[:1]
    host = bench.host.after_crash()
    store = host.store(*P0)
    store.is_read_only = True
    coordinator = EagerCalls(coordinator_on(host))
    coordinator.recover(power_failed=True, stores=host.stores())
    assert store.last_stable_offset == 0
    store.is_read_only = False
    refused = (REFUSE, int(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert store.client_append(producer, 1, b"late", 1)[:2] == refused
    host.advance(RETRY_MS)
    assert store.last_stable_offset == store.log_end_offset
    assert store.committed() == []


def test_P5_an_orphan_that_a_full_disk_kept_is_ended_by_the_start_after_the_next_crash() -> None:
    """No start looked for it any more, since no power failure came before that one."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    for log in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
        log.stored = log.stored[:1]
    host = bench.host.after_crash()
    host.store(*P0).is_read_only = True
    heard: list[str] = []
    coordinator = EagerCalls(coordinator_on(host))
    coordinator.recover(power_failed=True, stores=host.stores())
    coordinator.call_when_recovered(lambda: heard.append("never"))
    assert not coordinator.is_recovered
    host = host.after_crash()
    coordinator = EagerCalls(coordinator_on(host))
    coordinator.recover(power_failed=True, stores=host.stores())
    coordinator.call_when_recovered(lambda: heard.append("later"))
    host.store(*P0).is_read_only = False
    host.advance(RETRY_MS)
    assert heard == ["later"]
    assert coordinator.is_recovered
    store = host.store(*P0)
    assert store.last_stable_offset == store.log_end_offset
    assert store.committed() == []


def test_what_is_open_when_a_process_dies_is_no_orphan() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    host = bench.host.after_crash()
    coordinator = EagerCalls(coordinator_on(host))
    coordinator.recover(stores=host.stores())
    assert host.store(*P0).last_stable_offset == 0
    assert host.store(*P0).client_append(producer, 1, b"b", TV2)[0] == ADMIT
    coordinator.end("pay", producer, COMMIT, bumps_epoch=True)
    assert host.store(*P0).committed() == [b"a", b"b"]
