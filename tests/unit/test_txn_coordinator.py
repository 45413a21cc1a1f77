"""The coordinator's records, their order, and its answers meanwhile."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any
from unittest.mock import Mock, patch

import pytest

from support.eager_calls import EagerCalls
from support.flights import TOPIC, coordinator_on, flights_host
from txn.broker.host import RETRY_MS, Durability
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.transactions.state import RECORDS_PER_BATCH
from txn.broker.transactions.transactional_id import InitProducerIdResult, TransactionalId
from txn.coordinator.operations import Performed, Request
from txn.coordinator.transaction.decide import TV1, TV2
from txn.coordinator.transaction.listing import Filter
from txn.coordinator.transaction.records import decode_value, encode_key, encode_value
from txn.coordinator.transaction.states import Txn, TxnResult, TxnState
from txn.errors import StorageError
from txn.identifiers import NOBODY, ProducerIdAndEpoch
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.partition import ADMIT, ASK_TO_JOIN, REFUSE
from txn.storage.base import Marker
from txn.testing import FakeHost, MemoryLog
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition

P0, P1 = (TOPIC, 0), (TOPIC, 1)
OFFSETS = (OFFSETS_TOPIC, 1)
COMMIT, ABORT = TxnResult.COMMIT, TxnResult.ABORT
TIMEOUT_MS = 60_000
LAST_EPOCH = 32_766


class Bench:
    """A coordinator on its host, and a client that does everything right."""

    def __init__(self, host: FakeHost | None = None) -> None:
        self.host = host or flights_host()
        self.told: list[tuple[int, int, bool]] = []
        """Markers among committed offsets."""
        markers = LocalMarkerSender(
            self.host.partition, lambda *marker: self.told.append(marker), Mock()
        )
        self.coordinator = EagerCalls(TransactionCoordinator(self.host, markers))
        self.coordinator.recover(stores=self.host.stores())

    def init(
        self,
        transactional_id: str = "pay",
        shown: ProducerIdAndEpoch | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ProducerIdAndEpoch:
        identity = self.coordinator.init_producer_id(transactional_id, timeout_ms, shown)
        assert isinstance(identity, InitProducerIdResult)
        assert identity.code is ErrorCode.NONE
        return identity.producer

    def write(
        self, producer: ProducerIdAndEpoch, partition: tuple[str, int], sequence: int, value: bytes
    ) -> int:
        """Join and append; return the verdict's kind."""
        store = self.host.store(*partition)
        joined = self.coordinator.join(
            "pay", producer.producer_id, producer.producer_epoch, TV2, [partition]
        )
        assert joined == {partition: 0}
        return store.client_append(producer, sequence, value, TV2)[0]

    def end(
        self, producer: ProducerIdAndEpoch, outcome: TxnResult, *, bumps_epoch: bool = True
    ) -> Any:
        return self.coordinator.end("pay", producer, outcome, bumps_epoch=bumps_epoch)

    def states(self) -> list[TxnState]:
        """The states in `__transaction_state`, in the order they were written."""
        return [
            decode_value(record.value).state
            for store in self.host.coordinator_partitions(TRANSACTIONS_TOPIC)
            for batch in store.stored
            for record in batch.records
            if record.value is not None
        ]

    def state(self) -> TxnState:
        txn: Txn | None = self.coordinator.transactions.get("pay")
        assert txn is not None
        return txn.state


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own."""

    @wraps(test)
    def run(**arguments: object) -> None:
        asyncio.run(test(**arguments))

    return run


async def let_run() -> None:
    """Give every task that can go on the time to do so."""
    for _ in range(10):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- a transaction's life


@pytest.mark.parametrize("outcome", TxnResult)
@pytest.mark.parametrize("durability", Durability)
def test_an_end_waits_or_answers_at_most_three_times(
    durability: Durability, outcome: TxnResult
) -> None:
    """For the disk, for its answer, and once more for the disk."""
    left: list[object] = []
    end = TransactionalId.end

    def watched(*arguments: Any) -> Request[InitProducerIdResult]:
        request = end(*arguments)
        result: object = None
        try:
            while True:
                step = request.send(result)
                if not isinstance(step, Performed):
                    left.append(step)
                result = yield step
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def main() -> None:
        host = flights_host(durability)
        coordinator = TransactionCoordinator(
            host, LocalMarkerSender(host.partition, Mock(), Mock())
        )
        coordinator.recover(stores=host.stores())
        producer = (await coordinator.init_producer_id("pay", TIMEOUT_MS, None)).producer
        assert await coordinator.join("pay", *producer, TV2, [P0, P1]) == {P0: 0, P1: 0}
        ended = await coordinator.end("pay", producer, outcome, bumps_epoch=True)
        assert ended.code is ErrorCode.NONE
        await let_run()

    with patch.object(TransactionalId, "end", watched):
        asyncio.run(main())
    assert 0 < len(left) <= 3, left


def test_P3_a_commit_writes_its_decision_then_markers_then_completion() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.write(producer, P1, 0, b"b")
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    assert bench.end(producer, COMMIT) == InitProducerIdResult(following)
    assert bench.states() == [
        TxnState.EMPTY,
        TxnState.ONGOING,
        TxnState.ONGOING,
        TxnState.PREPARE_COMMIT,
        TxnState.COMPLETE_COMMIT,
    ]
    assert bench.host.store(*P0).committed() == [b"a"]
    assert bench.host.store(*P1).committed() == [b"b"]


def test_P4_an_abort_shows_nothing() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.end(producer, ABORT)
    assert bench.host.store(*P0).committed() == []
    assert bench.host.store(*P0).last_stable_offset == 2


def test_markers_carry_the_bumped_epoch_under_version_2_alone() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    following = bench.end(producer, COMMIT).producer
    bench.coordinator.add_partitions("pay", following, [P0])
    bench.end(following, ABORT, bumps_epoch=False)
    assert bench.host.store(*P0).markers() == [
        (producer.producer_id, following.producer_epoch, True),
        (producer.producer_id, following.producer_epoch, False),
    ]


def test_a_lost_answer_to_a_commit_is_given_again_without_writing() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    answer = bench.end(producer, COMMIT)
    written = len(bench.states())
    assert bench.end(producer, COMMIT) == answer
    assert len(bench.states()) == written


def test_P7_a_new_instance_aborts_what_the_old_one_left_and_gets_its_epoch_at_once() -> None:
    bench = Bench()
    old = bench.init()
    bench.write(old, P0, 0, b"a")
    new = bench.init()
    assert new == ProducerIdAndEpoch(old.producer_id, old.producer_epoch + 2)
    assert bench.end(old, COMMIT).code is ErrorCode.PRODUCER_FENCED
    assert bench.host.store(*P0).client_append(old, 1, b"b", TV2) == (3, 47)
    assert bench.host.store(*P0).committed() == []


def test_a_batch_may_open_a_transaction_only_once_it_joined() -> None:
    bench = Bench()
    producer = bench.init()
    assert bench.host.store(*P0).client_append(producer, 0, b"a", TV2)[0] == ASK_TO_JOIN
    assert bench.write(producer, P0, 0, b"a") == ADMIT


def test_version_1_joins_nothing_that_was_not_added() -> None:
    bench = Bench()
    producer = bench.init()
    bench.coordinator.add_partitions("pay", producer, [P0])
    joined = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, 1, [P0, P1, ("nowhere", 0)]
    )
    assert joined == {
        P0: 0,
        P1: ErrorCode.TRANSACTION_ABORTABLE,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_version_2_joins_what_exists() -> None:
    bench = Bench()
    producer = bench.init()
    joined = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, TV2, [P0, (TOPIC, 9)]
    )
    assert joined == {P0: 0, (TOPIC, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert bench.coordinator.is_joined("pay", producer, P0)
    assert not bench.coordinator.is_joined("pay", producer, (TOPIC, 9))


def test_P7_a_fenced_batch_is_told_so_in_the_words_of_produce() -> None:
    bench = Bench()
    old = bench.init()
    bench.init()
    joined = bench.coordinator.join("pay", old.producer_id, old.producer_epoch, TV2, [P0])
    assert joined == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}


def test_groups_are_told_of_markers_in_their_partitions() -> None:
    bench = Bench()
    producer = bench.init()
    bench.coordinator.add_partitions("pay", producer, [P0, OFFSETS])
    bench.end(producer, COMMIT)
    assert bench.told == [(1, producer.producer_id, True)]


def test_an_idempotent_producer_gets_an_id_of_its_own() -> None:
    bench = Bench()
    first = bench.coordinator.init_producer_id(None, 0, None)
    second = bench.coordinator.init_producer_id(None, 0, None)
    assert isinstance(first, InitProducerIdResult)
    assert isinstance(second, InitProducerIdResult)
    assert first.producer.producer_id != second.producer.producer_id
    assert len(bench.coordinator.transactions) == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_limit_is_refused(timeout_ms: int) -> None:
    identity = Bench().coordinator.init_producer_id("pay", timeout_ms, None)
    assert isinstance(identity, InitProducerIdResult)
    assert identity.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("transactional_id", ["", "x" * 32_768, "ü" * 16_384])
def test_an_id_that_no_record_can_hold_is_refused(transactional_id: str) -> None:
    identity = Bench().coordinator.init_producer_id(transactional_id, 1, None)
    assert isinstance(identity, InitProducerIdResult)
    assert identity.code is ErrorCode.INVALID_REQUEST


# ---------------------------------------------------------------- time


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


def test_P5_a_deleted_topic_holds_nothing_up() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.write(producer, OFFSETS, 0, b"b")
    bench.host.delete_topic(TOPIC)
    assert bench.end(producer, COMMIT).code is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_COMMIT
    assert bench.host.store(*OFFSETS).committed() == [b"b"]


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


# ---------------------------------------------------------------- a disk that refuses


def test_P3_a_decision_that_cannot_be_written_is_not_taken() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    for log in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
        log.is_read_only = True
    assert bench.end(producer, COMMIT).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state() is TxnState.ONGOING
    assert bench.host.store(*P0).markers() == []


def test_P3_a_marker_that_cannot_be_written_is_written_later() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.write(producer, P1, 0, b"b")
    bench.host.store(*P1).is_read_only = True
    following = bench.end(producer, COMMIT).producer
    assert bench.state() is TxnState.PREPARE_COMMIT
    joined = bench.coordinator.join(
        "pay", following.producer_id, following.producer_epoch, TV2, [P0]
    )
    assert joined == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
    bench.host.advance(3 * RETRY_MS)
    assert bench.state() is TxnState.PREPARE_COMMIT
    bench.host.store(*P1).is_read_only = False
    bench.host.advance(RETRY_MS)
    assert bench.state() is TxnState.COMPLETE_COMMIT
    assert bench.host.store(*P1).committed() == [b"b"]
    assert len(bench.host.store(*P0).markers()) == 1


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_P7_nothing_comes_in_before_the_marker_that_a_disk_refused(outcome: TxnResult) -> None:
    """A late batch came into a commit that was answered already, and was shown with it."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    store = bench.host.store(*P0)
    store.is_read_only = True
    bench.end(producer, outcome)
    store.is_read_only = False
    refused = (REFUSE, int(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert store.client_append(producer, 1, b"late", TV1)[:2] == refused
    bench.host.advance(RETRY_MS)
    assert store.committed() == ([b"a"] if outcome is COMMIT else [])
    assert store.last_stable_offset == store.log_end_offset


def test_P3_a_partition_that_cannot_be_opened_is_joined_and_gets_its_marker_later() -> None:
    bench = Bench()
    producer = bench.init()
    bench.host.unopenable.add(P1)
    joined = bench.coordinator.add_partitions("pay", producer, [P0, P1])
    assert joined is ErrorCode.NONE
    assert bench.host.store(*P0).client_append(producer, 0, b"a", 1)[0] == ADMIT
    bench.end(producer, ABORT)
    assert bench.state() is TxnState.PREPARE_ABORT
    bench.host.unopenable.clear()
    bench.host.advance(RETRY_MS)
    assert bench.state() is TxnState.COMPLETE_ABORT
    assert [len(bench.host.store(*partition).markers()) for partition in (P0, P1)] == [1, 1]


def test_P2_nothing_is_committed_with_a_partition_that_cannot_be_opened() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.coordinator.add_partitions("pay", producer, [P1])
    bench.host.unopenable.add(P1)
    assert bench.end(producer, COMMIT).code is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.state() is TxnState.PREPARE_ABORT
    assert bench.host.store(*P0).committed() == []


def test_an_operators_marker_for_a_partition_that_cannot_be_opened_is_refused() -> None:
    bench = Bench()
    bench.host.unopenable.add(P1)
    marker = Marker(5, 0, 0, False, 0)
    written = bench.coordinator.write_marker(P1, marker, must_bump=False)
    assert written is ErrorCode.KAFKA_STORAGE_ERROR


def test_P7_an_operator_is_not_told_of_an_abort_that_a_disk_refused() -> None:
    """The client could commit afterwards, although the operator believed it aborted."""
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    logs = bench.host.coordinator_partitions(TRANSACTIONS_TOPIC)
    for log in logs:
        log.is_read_only = True
    marker = Marker(producer.producer_id, producer.producer_epoch, 0, False, 0)
    refused = bench.coordinator.write_marker(P0, marker, must_bump=False)
    assert refused is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.state() is TxnState.ONGOING
    for log in logs:
        log.is_read_only = False
    assert bench.coordinator.write_marker(P0, marker, must_bump=False) is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_ABORT


def test_a_start_does_without_a_partition_that_cannot_be_opened() -> None:
    bench = Bench()
    producer = bench.init()
    bench.coordinator.add_partitions("pay", producer, [P0, P1])
    host = bench.host.after_crash()
    host.unopenable.add(P1)
    restarted = Bench(host)
    assert restarted.state() is TxnState.ONGOING
    assert host.store(*P0).client_append(producer, 0, b"a", 1)[0] == ADMIT


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


# ---------------------------------------------------------------- damage


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
        NOBODY, code
    )
    assert coordinator.add_partitions("pay", producer, [P0]) is code
    assert coordinator.verify_partitions("pay", producer, [P0]) == {P0: code}
    assert bench.end(producer, COMMIT) == InitProducerIdResult(NOBODY, code)
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


# ---------------------------------------------------------------- what partitions hold open


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


# ---------------------------------------------------------------- recovery


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


# ---------------------------------------------------------------- waiting for the disk


class WaitingBench(Bench):
    """A coordinator whose syncs are finished by the test."""

    def __init__(self, durability: Durability = Durability.COMMIT) -> None:
        super().__init__(flights_host(durability))

    async def start(self) -> ProducerIdAndEpoch:
        """A producer with one record in each of two partitions."""
        answer = self.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
        assert not isinstance(answer, InitProducerIdResult)
        producer: ProducerIdAndEpoch = (await answer).producer
        self.write(producer, P0, 0, b"a")
        self.write(producer, P1, 0, b"b")
        self.host.syncs.clear()
        self.host.unfinished_syncs = []
        return producer

    async def finish_sync(self) -> None:
        assert self.host.unfinished_syncs is not None
        self.host.unfinished_syncs.pop(0).set_result(None)
        await let_run()


def log_of(bench: Bench) -> tuple[str, int]:
    stores = bench.host.coordinator_partitions(TRANSACTIONS_TOPIC)
    return next((s.topic, s.index) for s in stores if s.stored)


@in_loop
async def test_P2_the_data_and_the_decision_are_synced_together_and_before_the_markers() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    answer = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    assert bench.host.syncs == [[P0, P1, log_of(bench)]]
    assert bench.state() is TxnState.PREPARE_COMMIT
    assert bench.host.store(*P0).markers() == []
    assert not answer.done()
    await bench.finish_sync()
    assert answer.done()
    assert bench.host.store(*P0).committed() == [b"a"]


@in_loop
async def test_P5_nothing_behind_the_answer_is_synced_and_complete_carries_the_markers() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.end(producer, COMMIT)
    await let_run()
    await bench.finish_sync()
    assert len(bench.host.syncs) == 1
    completed = bench.coordinator.transactions.get("pay")
    assert completed is not None
    assert completed.state is TxnState.COMPLETE_COMMIT
    assert completed.last_offsets == ()
    topic_id = bench.host.topic_ids[TOPIC].bytes
    assert [each[:3] for each in completed.unsynced_markers] == [
        (topic_id, index, bench.host.store(TOPIC, index).log_end_offset - 1) for index in (0, 1)
    ]


@in_loop
async def test_a_marker_that_a_later_commit_has_synced_is_carried_no_longer() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    following = (await bench.end(producer, COMMIT)).producer
    bench.write(following, P0, 0, b"next")
    await bench.end(following, COMMIT)
    completed = bench.coordinator.transactions.get("pay")
    assert completed is not None
    assert [each.partition for each in completed.unsynced_markers] == [1, 0]
    assert completed.unsynced_markers[1].offset == bench.host.store(*P0).log_end_offset - 1


async def commit_with_a_bug_in_syncing(is_begun: bool) -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bug = RuntimeError("a bug")
    begun = asyncio.get_running_loop().create_future()
    begun.set_exception(bug)
    broken = Mock(return_value=begun, side_effect=None if is_begun else bug)
    with patch.object(bench.host, "sync", broken):
        end = bench.end(producer, COMMIT)
    assert (await end).code is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.host.store(*P0).committed() == []

    opened = bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
    assert not isinstance(opened, InitProducerIdResult)
    following = (await opened).producer
    bench.write(following, P0, 0, b"next")
    assert (await bench.end(following, COMMIT)).code is ErrorCode.NONE
    assert bench.host.store(*P0).committed() == [b"next"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_bug_in_syncing_aborts_the_transaction_and_the_next_one_goes_on(is_begun: bool) -> None:
    """Its flow never went on, so the id was held for ever: every later request of it hung."""
    asyncio.run(asyncio.wait_for(commit_with_a_bug_in_syncing(is_begun), 10))


@in_loop
async def test_the_next_transaction_waits_in_line_and_is_not_sent_away() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    end = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    joining = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, TV2, [P0]
    )
    assert isinstance(joining, asyncio.Future)
    await bench.finish_sync()
    following = (await end).producer
    assert await joining == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}
    joined = bench.coordinator.join(
        "pay", following.producer_id, following.producer_epoch, TV2, [P0]
    )
    assert joined == {P0: 0}
    assert bench.coordinator.is_joined("pay", following, P0)


@in_loop
async def test_P7_a_late_batch_that_waited_in_line_finds_its_transaction_over() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.end(producer, COMMIT)
    joining = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, TV2, [OFFSETS]
    )
    assert not isinstance(joining, dict)
    await let_run()
    await bench.finish_sync()
    assert await joining == {OFFSETS: ErrorCode.INVALID_PRODUCER_EPOCH}


@in_loop
async def test_requests_in_line_are_served_in_their_order() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    answers = [
        bench.end(producer, COMMIT),
        bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None),
        bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None),
    ]
    epochs = [(await answer).producer.producer_epoch for answer in answers]
    assert epochs == [1, 2, 3]


@in_loop
async def test_a_timeout_that_comes_during_a_commit_changes_nothing() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    end = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    bench.host.advance(TIMEOUT_MS)
    await bench.finish_sync()
    assert (await end).code is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_COMMIT


@in_loop
async def test_P2_an_abort_has_no_marker_before_its_records_are_on_the_disk() -> None:
    """A reader passes the records with the marker, and its group commits an offset behind them."""
    bench = WaitingBench()
    producer = await bench.start()
    bench.end(producer, ABORT)
    await let_run()
    assert bench.host.syncs == [[P0, P1, log_of(bench)]]
    assert bench.host.store(*P0).last_stable_offset == 0


@in_loop
async def test_P2_records_that_cannot_be_synced_are_aborted() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.store(*P1).is_unsyncable = True
    assert (await bench.end(producer, COMMIT)).code is ErrorCode.TRANSACTION_ABORTABLE
    bench.host.store(*P1).is_unsyncable = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.state() is TxnState.COMPLETE_ABORT
    assert bench.host.store(*P0).committed() == []
    assert bench.host.store(*P1).committed() == []


@in_loop
async def test_P2_a_tv1_client_aborts_what_could_not_be_synced_and_goes_on() -> None:
    """The abort bumped the epoch: the client was fenced by it, and needed a new producer."""
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = True
    refused = await bench.end(producer, COMMIT, bumps_epoch=False)
    assert refused.code is ErrorCode.TRANSACTION_ABORTABLE
    again = bench.end(producer, COMMIT, bumps_epoch=False)
    assert again.code is ErrorCode.TRANSACTION_ABORTABLE
    for _ in range(2):
        assert bench.end(producer, ABORT, bumps_epoch=False) == InitProducerIdResult(producer)
    joined = bench.coordinator.add_partitions("pay", producer, [P0])
    assert joined is ErrorCode.CONCURRENT_TRANSACTIONS

    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.coordinator.add_partitions("pay", producer, [P0]) is ErrorCode.NONE
    assert bench.host.store(*P0).client_append(producer, 1, b"c", 1)[0] == ADMIT
    assert (await bench.end(producer, COMMIT, bumps_epoch=False)) == InitProducerIdResult(producer)
    assert bench.host.store(*P0).committed() == [b"c"]
    assert bench.host.store(*P1).committed() == []


@in_loop
async def test_P2_a_tv2_client_aborts_what_could_not_be_synced_and_goes_on() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = True
    assert (await bench.end(producer, COMMIT)).code is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.end(producer, COMMIT).code is ErrorCode.TRANSACTION_ABORTABLE
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    assert [bench.end(producer, ABORT) for _ in range(2)] == [InitProducerIdResult(following)] * 2

    bench.host.store(*P1).is_unsyncable = bench.host.store(*P1).is_read_only = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.write(following, P0, 0, b"c") == ADMIT
    assert bench.end(producer, COMMIT).code is ErrorCode.PRODUCER_FENCED
    assert (await bench.end(following, COMMIT)).code is ErrorCode.NONE
    assert bench.host.store(*P0).committed() == [b"c"]


@pytest.mark.parametrize("bumps_epoch", [False, True])
@pytest.mark.parametrize("outcome", TxnResult)
def test_P3_an_end_that_waits_for_a_marker_is_answered_again_as_it_was(
    outcome: TxnResult, bumps_epoch: bool
) -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    bench.host.store(*P0).is_read_only = True
    answers = [bench.end(producer, outcome, bumps_epoch=bumps_epoch) for _ in range(3)]
    assert answers[0].code is ErrorCode.NONE
    assert answers[1:] == answers[:1] * 2
    assert len(bench.states()) == 3
    other = next(each for each in TxnResult if each is not outcome)
    assert bench.end(producer, other, bumps_epoch=bumps_epoch).code is not ErrorCode.NONE


@in_loop
async def test_P2_a_decision_that_cannot_be_synced_reaches_no_partition() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    log = bench.host.store(*log_of(bench))
    log.is_unsyncable = True
    answer = await bench.end(producer, COMMIT)
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.host.store(*P0).markers() == []
    again = bench.end(producer, COMMIT)
    assert isinstance(again, InitProducerIdResult)
    assert again.code is ErrorCode.TRANSACTION_ABORTABLE
    log.is_unsyncable = False
    bench.host.advance(RETRY_MS)
    await let_run()
    assert bench.host.store(*P0).committed() == []
    assert bench.state() is TxnState.COMPLETE_ABORT


@in_loop
async def test_P7_an_epoch_is_synced_before_it_is_given_out() -> None:
    bench = WaitingBench()
    await bench.start()
    answer = bench.coordinator.init_producer_id("other", TIMEOUT_MS, None)
    assert not isinstance(answer, InitProducerIdResult)
    waiting = asyncio.ensure_future(answer)
    await let_run()
    assert not waiting.done()
    await bench.finish_sync()
    assert waiting.done()


@in_loop
async def test_with_durability_always_joining_is_synced_before_records_are() -> None:
    bench = WaitingBench(Durability.ALWAYS)
    answer = bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None)
    assert not isinstance(answer, InitProducerIdResult)
    producer = (await answer).producer
    bench.host.unfinished_syncs = []
    joining = bench.coordinator.join(
        "pay", producer.producer_id, producer.producer_epoch, TV2, [P0]
    )
    assert not isinstance(joining, dict)
    await let_run()
    assert bench.host.store(*P0).client_append(producer, 0, b"a", TV2)[0] == ASK_TO_JOIN
    await bench.finish_sync()
    assert await joining == {P0: 0}
    assert bench.host.store(*P0).client_append(producer, 0, b"a", TV2)[0] == ADMIT


@in_loop
async def test_an_end_goes_on_when_the_one_who_asked_is_gone() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    asked = asyncio.ensure_future(bench.end(producer, COMMIT))
    await let_run()
    asked.cancel()
    await bench.finish_sync()
    assert bench.state() is TxnState.COMPLETE_COMMIT


# ---------------------------------------------------------------- listing


def test_ids_are_found_by_what_is_asked_for() -> None:
    bench = Bench()
    producer = bench.init("pay")
    other = bench.init("stock")
    bench.write(producer, P0, 0, b"a")
    bench.host.advance(1_000)

    def found(wanted: Filter) -> list[str]:
        return [found[0] for found in bench.coordinator.find(wanted) if found is not None]

    assert found(Filter()) == ["pay", "stock"]
    assert found(Filter(states=frozenset({TxnState.ONGOING}))) == ["pay"]
    assert found(Filter(producer_ids=frozenset({other.producer_id}))) == ["stock"]
    ongoing = frozenset({TxnState.ONGOING})
    assert found(Filter(states=ongoing, longer_than_ms=999)) == ["pay"]
    assert found(Filter(states=ongoing, longer_than_ms=1_000)) == []


def test_P8_a_marker_that_a_partition_refused_is_told_to_nobody() -> None:
    """Pending offsets of a later epoch became committed without a marker in the log."""
    bench = Bench()
    producer = bench.init()
    later = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 5)
    bench.write(producer, OFFSETS, 0, b"offsets")
    store = bench.host.store(*OFFSETS)
    store.append_marker(Marker(later.producer_id, later.producer_epoch, 0, False, 0))

    bench.end(producer, COMMIT, bumps_epoch=False)

    assert bench.told == []


# ---------------------------------------------------------------- a time of day that is set


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


# ---------------------------------------------------------------- producer ids


def with_epochs_used_up() -> Bench:
    """A broker that has just started on an open transaction, and was given no producer ids yet."""
    host = flights_host()
    host.create_topic(TRANSACTIONS_TOPIC, 2)
    txn = Txn(
        producer_id=1_000,
        producer_epoch=LAST_EPOCH - 1,
        timeout_ms=TIMEOUT_MS,
        state=TxnState.EMPTY,
        partitions=frozenset(),
        start_ms=-1,
        updated_ms=host.now,
    )
    store = host.store(TRANSACTIONS_TOPIC, coordinator_partition("pay", 2))
    store.append([(encode_key("pay"), encode_value(txn))], timestamp_ms=host.now)
    bench = Bench(host)
    producer = bench.init()
    assert producer == ProducerIdAndEpoch(1_000, LAST_EPOCH)
    bench.write(producer, P0, 0, b"x")
    restarted = Bench(host.after_crash())
    restarted.host.unfinished_allocations = []
    return restarted


def give_block(bench: Bench, block: range | StorageError) -> None:
    """Let a block of producer ids arrive; one is on its way."""
    assert bench.host.unfinished_allocations is not None
    (arrive,) = bench.host.unfinished_allocations
    bench.host.unfinished_allocations.clear()
    arrive(block)


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records]


def test_P5_a_timed_out_transaction_waits_for_its_producer_id_and_for_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It looked again after a second, and told an operator of an error each time."""

    async def main() -> None:
        bench = with_epochs_used_up()
        caplog.clear()
        bench.host.advance(TIMEOUT_MS)
        await let_run()
        assert bench.state() is TxnState.ONGOING
        assert levels(caplog) == []
        give_block(bench, range(5_000, 5_010))
        await let_run()
        bench.host.advance(0)
        assert bench.state() is TxnState.COMPLETE_ABORT
        assert bench.init() == ProducerIdAndEpoch(5_000, 1)
        assert levels(caplog) == [logging.WARNING]  # txn.timed_out

    asyncio.run(main())


def test_P5_a_timed_out_transaction_asks_again_for_a_block_that_was_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        bench = with_epochs_used_up()
        caplog.clear()
        bench.host.advance(TIMEOUT_MS)
        await let_run()
        give_block(bench, StorageError("the disk refuses"))
        await let_run()
        assert levels(caplog) == [logging.ERROR]
        bench.host.advance(RETRY_MS)
        await let_run()
        give_block(bench, range(5_000, 5_010))
        await let_run()
        bench.host.advance(0)
        assert bench.state() is TxnState.COMPLETE_ABORT

    asyncio.run(main())


@in_loop
async def test_an_operators_abort_waits_for_the_producer_id_of_the_next_transaction() -> None:
    """It was refused, as if the disk were broken."""
    bench = with_epochs_used_up()
    marker = Marker(1_000, LAST_EPOCH, 0, is_commit=False, timestamp_ms=0)
    aborted = bench.coordinator.write_marker(P0, marker, must_bump=False)
    await let_run()
    assert not aborted.done()
    give_block(bench, range(5_000, 5_010))
    assert await aborted is ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_ABORT


@in_loop
async def test_a_request_that_waits_for_a_producer_id_keeps_its_place_in_line() -> None:
    bench = with_epochs_used_up()
    producer = ProducerIdAndEpoch(1_000, LAST_EPOCH)
    aborted = bench.coordinator.write_marker(P0, Marker(*producer, 0, False, 0), must_bump=False)
    await let_run()
    ended = bench.coordinator.end("pay", producer, COMMIT, bumps_epoch=False)
    await let_run()
    assert not ended.done()
    give_block(bench, range(5_000, 5_010))
    assert await aborted is ErrorCode.NONE
    assert (await ended).code is not ErrorCode.NONE
    assert bench.state() is TxnState.COMPLETE_ABORT


# ---------------------------------------------------------------- records that come late


def a_stranger(bench: Bench) -> tuple[ProducerIdAndEpoch, MemoryLog]:
    """A producer with an open transaction that no id explains, and the partition that holds it."""
    stranger, store = ProducerIdAndEpoch(77, 3), bench.host.store(*P0)
    store.producer_state.allow_txn(*stranger)
    assert store.client_append(stranger, 0, b"x", TV1)[0] == ADMIT
    return stranger, store


def fence(bench: WaitingBench) -> None:
    bench.coordinator.init_producer_id("pay", TIMEOUT_MS, None)


def let_time_out(bench: WaitingBench) -> None:
    bench.host.advance(TIMEOUT_MS + 1)


def end_by_an_operator(bench: WaitingBench) -> None:
    marker = Marker(1_000, 0, 0, is_commit=False, timestamp_ms=0)
    bench.coordinator.write_marker(P0, marker, must_bump=False)


@in_loop
@pytest.mark.parametrize("ends", [fence, let_time_out, end_by_an_operator])
async def test_P3_readers_pass_no_record_of_an_abort_that_a_power_failure_may_take(
    ends: Callable[[WaitingBench], None],
) -> None:
    """The producer does not know yet that it is fenced, and writes while the disk is at work."""
    bench = WaitingBench()
    producer = await bench.start()
    store = bench.host.store(*P0)
    ends(bench)
    await let_run()
    assert bench.state() is TxnState.PREPARE_ABORT
    assert store.client_append(producer, 1, b"late", TV2) == (ADMIT, 1)
    await bench.finish_sync()
    assert store.markers() == []
    assert store.client_append(producer, 2, b"later", TV2)[0] == REFUSE
    await bench.finish_sync()
    assert len(store.markers()) == 1
    assert store.synced_end >= 2


@in_loop
async def test_P3_records_that_nobody_explains_are_on_the_disk_before_their_marker() -> None:
    bench = WaitingBench()
    await bench.start()
    stranger, store = a_stranger(bench)
    marker = Marker(*stranger, 0, is_commit=False, timestamp_ms=0)
    written = bench.coordinator.write_marker(P0, marker, must_bump=False)
    await let_run()
    assert store.client_append(stranger, 1, b"late", TV1)[0] == REFUSE
    assert store.markers() == []
    await bench.finish_sync()
    assert store.markers() == [(77, 3, False)]
    assert not written.done()
    await bench.finish_sync()
    assert await written is ErrorCode.NONE


@in_loop
async def test_an_operator_who_is_refused_leaves_the_producer_as_it_was() -> None:
    bench = WaitingBench()
    await bench.start()
    stranger, store = a_stranger(bench)
    marker = Marker(*stranger, 0, is_commit=False, timestamp_ms=0)
    refused = bench.coordinator.write_marker(P0, marker, must_bump=True)
    await let_run()
    await bench.finish_sync()
    assert await refused is ErrorCode.INVALID_PRODUCER_EPOCH
    assert store.client_append(stranger, 1, b"y", TV2)[0] == ADMIT


def test_P3_an_operator_commits_nothing_that_no_id_explains() -> None:
    """No Prepare stands behind it, so a power failure could turn it into an abort."""
    bench = Bench()
    stranger, store = a_stranger(bench)
    store.sync()
    marker = Marker(*stranger, 0, is_commit=True, timestamp_ms=0)
    refused = bench.coordinator.write_marker(P0, marker, must_bump=False)
    assert refused is ErrorCode.INVALID_TXN_STATE
    assert store.committed() == []
    assert store.client_append(stranger, 1, b"y", TV1)[0] == ADMIT


@in_loop
@pytest.mark.parametrize("outcome", [ABORT, COMMIT])
async def test_P3_a_partition_that_cannot_be_opened_leaves_no_other_unsynced(
    outcome: TxnResult,
) -> None:
    """One partition was damaged, and the records of the others were not synced at all."""
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.unopenable.add(P1)
    bench.end(producer, outcome)
    await let_run()
    store = bench.host.store(*P0)
    assert len(store.markers()) == 1
    assert store.synced_end >= 1
    assert bench.state() is TxnState.PREPARE_ABORT


@in_loop
async def test_P3_late_batches_of_a_partition_opened_again_precede_its_marker() -> None:
    bench = WaitingBench()
    producer = await bench.start()
    bench.host.unfinished_syncs = None
    bench.host.unopenable.add(P1)
    bench.end(producer, ABORT)
    await let_run()
    bench.host.unopenable.clear()
    store = bench.host.store(*P1)
    assert store.client_append(producer, 1, b"late", TV2)[0] == ADMIT
    bench.host.unfinished_syncs = []
    bench.host.advance(RETRY_MS)
    await let_run()
    assert store.markers() == []
    await bench.finish_sync()
    assert len(store.markers()) == 1
    assert store.synced_end >= 2


# ---------------------------------------------------------------- loading


def test_ids_of_a_coordinator_that_is_loading_are_told_to_come_again() -> None:
    coordinator = EagerCalls(coordinator_on(flights_host()))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    producer = ProducerIdAndEpoch(1_000, 0)
    assert coordinator.init_producer_id("pay", TIMEOUT_MS, None) == InitProducerIdResult(
        NOBODY, loading
    )
    assert coordinator.add_partitions("pay", producer, [P0]) is loading
    assert coordinator.end("pay", producer, COMMIT, bumps_epoch=False) == InitProducerIdResult(
        NOBODY, loading
    )


def test_requests_for_an_unknown_id_make_no_log_for_it() -> None:
    bench = Bench()
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.coordinator.add_partitions("pay", ProducerIdAndEpoch(1_000, 0), [P0]) is unknown
    assert bench.end(ProducerIdAndEpoch(1_000, 0), COMMIT) == InitProducerIdResult(NOBODY, unknown)
    assert TRANSACTIONS_TOPIC not in bench.host.topics
