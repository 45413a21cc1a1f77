"""The requests of one transactional id: a transaction begins, takes partitions in, and ends."""

import asyncio
from typing import Any
from unittest.mock import Mock, patch

import pytest

from support.eager_calls import EagerCalls
from support.flights import TOPIC, coordinator_on, flights_host
from support.txn_bench import (
    ABORT,
    COMMIT,
    P0,
    P1,
    TIMEOUT_MS,
    Bench,
    let_run,
)
from txn.broker.host import Durability
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.broker.transactions.producer_ids import InitProducerIdResult
from txn.broker.transactions.transactional_id import TransactionalId
from txn.coordinator.operations import Performed, Request
from txn.coordinator.transaction.decide import TV2
from txn.coordinator.transaction.listing import Filter
from txn.coordinator.transaction.states import TxnResult, TxnState
from txn.identifiers import NO_PRODUCER, ProducerIdAndEpoch
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.partition import ADMIT, ASK_TO_JOIN
from txn.wire.error_codes import ErrorCode


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


def test_P3_a_decision_that_cannot_be_written_is_not_taken() -> None:
    bench = Bench()
    producer = bench.init()
    bench.write(producer, P0, 0, b"a")
    for log in bench.host.coordinator_partitions(TRANSACTIONS_TOPIC):
        log.is_read_only = True
    assert bench.end(producer, COMMIT).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state() is TxnState.ONGOING
    assert bench.host.store(*P0).markers() == []


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


def test_ids_of_a_coordinator_that_is_loading_are_told_to_come_again() -> None:
    coordinator = EagerCalls(coordinator_on(flights_host()))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    producer = ProducerIdAndEpoch(1_000, 0)
    assert coordinator.init_producer_id("pay", TIMEOUT_MS, None) == InitProducerIdResult(
        NO_PRODUCER, loading
    )
    assert coordinator.add_partitions("pay", producer, [P0]) is loading
    assert coordinator.end("pay", producer, COMMIT, bumps_epoch=False) == InitProducerIdResult(
        NO_PRODUCER, loading
    )


def test_requests_for_an_unknown_id_make_no_log_for_it() -> None:
    bench = Bench()
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.coordinator.add_partitions("pay", ProducerIdAndEpoch(1_000, 0), [P0]) is unknown
    assert bench.end(ProducerIdAndEpoch(1_000, 0), COMMIT) == InitProducerIdResult(
        NO_PRODUCER, unknown
    )
    assert TRANSACTIONS_TOPIC not in bench.host.topics
