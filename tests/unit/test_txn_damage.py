"""A start on a damaged shard, and open transactions that nothing explains."""

import asyncio
from unittest.mock import Mock, patch

from support.eager_calls import EagerCalls
from support.flights import TOPIC, coordinator_on, flights_host
from support.txn_bench import ABORT, COMMIT, P0, P1, TIMEOUT_MS, Bench, in_loop, let_run
from txn.broker.host import Durability
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.records import encode_key
from txn.coordinator.transaction.states import TxnState
from txn.identifiers import NO_PRODUCER, ProducerIdAndEpoch
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.partition import ADMIT
from txn.storage.base import Marker
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition


def damage(bench: Bench, transactional_id: str) -> int:
    """Leave a record of an id that cannot be read; return the number of its partition."""
    logs = bench.host.coordinator_partitions(TRANSACTIONS_TOPIC)
    index = coordinator_partition(transactional_id, len(logs))
    logs[index].append([(encode_key(transactional_id), b"\0\1nonsense")], timestamp_ms=0)
    return index


OTHER = "pax"
"""A transactional id of another partition than "pay"."""


def test_P9_a_damaged_record_is_told_by_partition_and_offset() -> None:
    bench = Bench()
    bench.init()
    index = damage(bench, "pay")
    restarted = Bench(bench.host.after_crash())
    assert list(restarted.host.refused) == [(TRANSACTIONS_TOPIC, index)]
    reason = restarted.host.refused[TRANSACTIONS_TOPIC, index]
    assert f"-{index} holds a damaged record at offset 1" in reason


def with_unread_pay() -> Bench:
    """A broker that cannot read the partition of "pay", which has a transaction open."""
    bench = Bench()
    bench.write(bench.init(), P0, 0, b"x")
    bench.init(OTHER)
    damage(bench, "pay")
    return Bench(bench.host.after_crash())


def test_P9_ids_of_a_damaged_partition_are_not_coordinated_here() -> None:
    bench = with_unread_pay()
    producer, code = ProducerIdAndEpoch(1_000, 0), ErrorCode.NOT_COORDINATOR
    coordinator = bench.coordinator
    assert coordinator.init_producer_id("pay", TIMEOUT_MS, None) == InitProducerIdResult(
        NO_PRODUCER, code
    )
    assert coordinator.add_partitions("pay", producer, [P0]) is code
    assert coordinator.verify_partitions("pay", producer, [P0]) == {P0: code}
    assert bench.end(producer, COMMIT) == InitProducerIdResult(NO_PRODUCER, code)
    retriable = int(ErrorCode.KAFKA_STORAGE_ERROR)
    assert coordinator.join("pay", 1_000, 0, TV2, [P0]) == {P0: retriable}


def test_P9_ids_of_other_partitions_go_on_beside_a_damaged_one() -> None:
    bench = with_unread_pay()
    producer = bench.init(OTHER)
    assert bench.coordinator.add_partitions(OTHER, producer, [P1]) is ErrorCode.NONE
    ended = bench.coordinator.end(OTHER, producer, COMMIT, bumps_epoch=True)
    assert isinstance(ended, InitProducerIdResult)
    assert ended.code is ErrorCode.NONE


def test_P3_what_the_ids_of_a_damaged_partition_hold_open_stays_open() -> None:
    """It may be decided. Neither a start nor an operator knows how."""
    bench = with_unread_pay()
    shard = bench.coordinator.transactions.of("pay")
    assert bench.host.refused.keys() == {(TRANSACTIONS_TOPIC, shard.index)}
    bench.host.advance(2 * TIMEOUT_MS)
    marker = Marker(1_000, 0, 0, is_commit=False, timestamp_ms=0)
    code = bench.coordinator.write_marker(P0, marker, must_bump=False)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.host.store(*P0).markers() == []


def test_P3_a_power_failure_ends_nothing_that_a_damaged_partition_may_have_decided() -> None:
    bench = Bench()
    bench.write(bench.init(), P0, 0, b"x")
    damage(bench, "pay")
    host = bench.host.after_power_failure(lambda synced, written: written)
    coordinator = EagerCalls(coordinator_on(host))
    recovered = Mock()
    with patch("txn.broker.hanging_transactions.log.error") as told:
        coordinator.recover(power_failed=True, stores=host.stores())
    coordinator.call_when_recovered(recovered)
    host.advance(2 * TIMEOUT_MS)
    assert host.store(*P0).markers() == []
    assert (coordinator.is_recovered, recovered.called) == (False, False)
    assert told.call_args.kwargs["waits_for"] == f"{TRANSACTIONS_TOPIC}-{PAY_SHARD}"
    assert told.call_args.kwargs["partition"] == "flights-0"


PAY_SHARD = coordinator_partition("pay", 2)


def test_P9_a_marker_that_is_gone_is_found_by_what_the_coordinator_completed() -> None:
    """An operator was told to abort a committed transaction, and the producer went on (P2)."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"x")
    bench.write(producer, P1, 0, b"y")
    bench.end(producer, COMMIT)
    host = bench.host.after_power_failure(lambda synced, written: written - (written == MARKED))
    coordinator = EagerCalls(coordinator_on(host))
    coordinator.recover(stores=host.stores())
    assert host.refused.keys() == {P0, P1}
    assert "producer 1000 with epoch 0 has a transaction open since offset 0" in host.refused[P0]
    assert (
        "transactional id 'pay' completed it as COMMIT at 1970-01-01 00:16:40" in (host.refused[P0])
    )


MARKED = 2
"""Batches of a partition that has one record and its marker; `__transaction_state` has more."""


def test_P9_an_open_transaction_that_nobody_knows_is_damage() -> None:
    bench = Bench()
    bench.write(bench.init(), P0, 0, b"x")
    host = bench.host.after_crash()
    host.create_topic(TRANSACTIONS_TOPIC, 2)
    EagerCalls(coordinator_on(host)).recover(stores=host.stores())
    assert host.refused.keys() == {P0}
    assert "no transactional id in __transaction_state has this producer id" in host.refused[P0]


def test_P9_a_partition_that_the_open_transaction_does_not_list_is_damage() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P1, 0, b"x")
    stray = bench.host.store(*P0)
    stray.producer_state.allow_txn(*producer, None)
    assert stray.client_append(producer, 0, b"y", TV2)[0] == ADMIT
    host = bench.host.after_crash()
    EagerCalls(coordinator_on(host)).recover(stores=host.stores())
    assert host.refused.keys() == {P0}
    assert "is in Ongoing" in host.refused[P0]
    assert "without this partition" in host.refused[P0]


def test_what_a_live_transaction_holds_open_is_explained() -> None:
    bench = Bench()
    bench.write(bench.init(), P0, 0, b"x")
    host = bench.host.after_crash()
    EagerCalls(coordinator_on(host)).recover(stores=host.stores())
    assert host.refused == {}


def test_a_marker_that_a_disk_refuses_at_the_start_is_explained_by_its_prepare() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"x")
    bench.host.store(*P0).is_read_only = True
    bench.end(producer, COMMIT)
    host = bench.host.after_crash()
    host.store(*P0).is_read_only = True
    EagerCalls(coordinator_on(host)).recover(stores=host.stores())
    assert host.refused == {}


@in_loop
async def test_P2_a_partition_that_lost_a_marker_gets_no_other_one_before_an_operator_decides() -> (
    None
):
    """Another id's Prepare names it, too. A marker there would take the lost one's offset."""
    host = flights_host(Durability.COMMIT)
    coordinator = coordinator_on(host)
    coordinator.recover(stores=host.stores())
    producers = {}
    for transactional_id in (OTHER, "pay"):
        begun = await coordinator.init_producer_id(transactional_id, TIMEOUT_MS, None)
        producer = producers[transactional_id] = begun.producer
        assert await coordinator.join(transactional_id, *producer, TV2, [P0]) == {P0: 0}
        for sequence in range(2):  # so that no other log has as many batches
            assert host.store(*P0).client_append(producer, sequence, b"x", TV2)[0] == ADMIT
    await coordinator.end("pay", producers["pay"], COMMIT, bumps_epoch=True)
    host.store(*P0).is_read_only = True
    ending = asyncio.ensure_future(
        coordinator.end(OTHER, producers[OTHER], ABORT, bumps_epoch=True)
    )
    await let_run()
    written = len(host.store(*P0).stored)
    without_marker = host.after_power_failure(lambda _, found: found - (found == written))
    ending.cancel()
    with patch("txn.broker.lost_cache.named_offsets", return_value={}):  # the cleaner took it
        coordinator_on(without_marker).recover(stores=without_marker.stores())
    assert without_marker.refused.keys() == {P0}
    assert without_marker.topics[TOPIC][0].markers() == []
    told = without_marker.after_power_failure(lambda _, found: found)
    coordinator_on(told).recover(power_failed=True, stores=told.stores())
    assert told.refused == {}
    assert [is_commit for _, _, is_commit in told.store(*P0).markers()] == [True, False]


def test_a_strangers_open_transaction_holds_back_no_commit_that_is_decided() -> None:
    """A directory of Apache Kafka may have one. Its partition is refused after the Prepares."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"x")
    bench.write(producer, P1, 0, b"y")
    stranger = ProducerIdAndEpoch(99, 0)
    bench.host.store(*P0).producer_state.allow_txn(*stranger, None)
    assert bench.host.store(*P0).client_append(stranger, 0, b"z", TV2)[0] == ADMIT
    bench.host.store(*P0).is_read_only = True
    bench.end(producer, COMMIT)
    restarted = Bench(bench.host.after_crash())
    assert restarted.host.refused.keys() == {P0}
    assert restarted.state() is TxnState.COMPLETE_COMMIT


def test_a_start_compares_no_partition_with_the_others() -> None:
    """Each was looked for in the list of all: 20,000 partitions took seconds of the start."""
    host = flights_host(partitions=50)
    store = type(host.store(*P0))
    with patch.object(store, "__eq__", autospec=True, side_effect=object.__eq__) as compared:
        EagerCalls(coordinator_on(host)).recover(stores=host.stores())
    compared.assert_not_called()
