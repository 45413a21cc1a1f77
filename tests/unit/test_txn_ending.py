"""The end of a transaction as a generator: the order of its operations, and a second try."""

import uuid
from typing import Any

import pytest

from txn.coordinator.operations import Append, Committed, Remote, Reply, Synced
from txn.coordinator.transaction.decide import plan
from txn.coordinator.transaction.ending import Ending, Marked, finish
from txn.coordinator.transaction.records import TxnRecord
from txn.coordinator.transaction.states import (
    LastOffset,
    TopicPartition,
    Txn,
    TxnState,
    UnsyncedMarker,
)
from txn.errors import StorageError

P0, P1 = ("t", 0), ("t", 1)
PREPARE = Txn(
    producer_id=7,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TxnState.PREPARE_COMMIT,
    partitions=frozenset({P0, P1}),
    start_ms=200,
    updated_ms=300,
)
TOPIC_ID = uuid.UUID(int=1)
NAMED = (LastOffset(TOPIC_ID, 0, 0, 5), LastOffset(TOPIC_ID, 1, 0, 7))
UNSYNCED = (UnsyncedMarker(TOPIC_ID, 0, 6, 7, 5, is_commit=True),)
REFUSED = StorageError("the disk is full")


def ending() -> Ending:
    return Ending(plan(PREPARE))


def steps_of(request: Any) -> list[Any]:
    """The operations of a request, each done as soon as it is asked for."""
    done: list[Any] = []
    result = None
    while True:
        try:
            step = request.send(result)
        except StopIteration:
            return done
        except StorageError as error:
            return [*done, error]
        result = step.call() if isinstance(step, Remote) else None
        done.append(step)


def kinds(steps: list[Any]) -> list[type]:
    return [type(step) for step in steps]


def nothing_refused(at_ms: int) -> Any:
    return lambda end: Marked(at_ms, {})


def test_P3_markers_follow_a_durable_prepare_and_nothing_behind_them_waits() -> None:
    end = Ending(plan(PREPARE._replace(last_offsets=NAMED)))
    steps = steps_of(finish("pay", end, lambda _: Marked(400, {}, UNSYNCED), "done"))
    assert kinds(steps) == [Committed, Remote, Reply, Append]
    assert set(steps[0].partitions) == {P0, P1}
    completed = PREPARE._replace(
        state=TxnState.COMPLETE_COMMIT,
        partitions=frozenset(),
        updated_ms=400,
        unsynced_markers=UNSYNCED,
    )
    assert steps[3].records == [TxnRecord("pay", completed)]


def test_P3_complete_is_synced_if_prepare_cannot_tell_its_transaction_from_the_next_one() -> None:
    steps = steps_of(finish("pay", ending(), nothing_refused(400)))
    assert kinds(steps) == [Committed, Remote, Append, Committed]
    assert steps[0].partitions == frozenset()


def test_P5_markers_that_are_too_many_to_carry_are_synced_before_complete() -> None:
    end = Ending(plan(PREPARE._replace(last_offsets=NAMED)))
    marked = Marked(400, {}, to_sync=frozenset({P0}))
    steps = steps_of(finish("pay", end, lambda _: marked, "done"))
    assert kinds(steps) == [Committed, Remote, Reply, Synced, Append]
    assert steps[3].partitions == {P0}


def test_an_abort_waits_for_its_prepare_alone_and_syncs_its_partitions_behind_the_answer() -> None:
    abort = PREPARE._replace(state=TxnState.PREPARE_ABORT)
    steps = steps_of(finish("pay", Ending(plan(abort)), nothing_refused(400), "done"))
    assert kinds(steps) == [Committed, Remote, Reply, Synced, Append]
    assert steps[0].partitions == frozenset()
    assert steps[3].partitions == {P0, P1}


def test_an_end_that_nobody_waits_for_answers_nobody() -> None:
    assert Reply not in kinds(steps_of(finish("pay", ending(), nothing_refused(400))))


def test_P5_a_marker_that_a_disk_refuses_is_the_only_one_to_be_tried_again() -> None:
    asked: list[set[TopicPartition]] = []

    def refuse_one(end: Ending) -> Marked:
        asked.append(set(end.unmarked))
        return Marked(400, {P1: REFUSED} if len(asked) == 1 else {})

    end = ending()
    first = steps_of(finish("pay", end, refuse_one, "done"))
    assert kinds(first) == [Committed, Remote, Reply, StorageError]
    assert end.is_put_off
    again = steps_of(finish("pay", end, refuse_one))
    assert kinds(again) == [Remote, Append, Committed]
    assert asked == [{P0, P1}, {P1}]
    assert not end.is_put_off


def test_P3_no_marker_is_written_while_the_prepare_is_not_durable() -> None:
    request = finish("pay", ending(), nothing_refused(400), "done")
    next(request)
    with pytest.raises(StorageError):
        request.throw(REFUSED)
