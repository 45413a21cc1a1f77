"""The end of a transaction as a generator: the order of its operations, and a second try."""

import uuid
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pytest

from txn.coordinator.operations import COMMITTED, Committed, Reply, Request, Synced
from txn.coordinator.transaction.decide import plan
from txn.coordinator.transaction.ending import Block, Ending, Mark, Marked, finish
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState, UnsyncedMarker
from txn.errors import StorageError
from txn.identifiers import TopicPartition

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
TOPIC_ID = uuid.UUID(int=1).bytes
NAMED = (LastOffset(TOPIC_ID, 0, 0, 5), LastOffset(TOPIC_ID, 1, 0, 7))
UNSYNCED = (UnsyncedMarker(TOPIC_ID, 0, 6, 7, 5, is_commit=True),)
REFUSED = StorageError("the disk is full")


def nothing_refused(_: Ending) -> Marked:
    return Marked(400, {})


def ending() -> Ending:
    return Ending(plan(PREPARE))


class Wrote(NamedTuple):
    """A Complete was written."""

    txn: Txn


def nothing_late(_: Ending) -> tuple[()]:
    return ()


def steps_of(
    end: Ending,
    write_markers: Callable[[Ending], Marked] = nothing_refused,
    answer: object = None,
    block: Callable[[Ending], Collection[TopicPartition]] = nothing_late,
) -> list[Any]:
    """The steps of an end in their order, each done as soon as it is asked for."""
    done: list[Any] = []
    request: Request[None] = finish(end, lambda txn: done.append(Wrote(txn)), answer)
    result: object = None
    try:
        while True:
            step = request.send(result)
            result = None
            if isinstance(step, Block):
                result = block(step.ending)
            else:
                done.append(step)
                result = write_markers(step.ending) if isinstance(step, Mark) else None
    except StopIteration:
        pass
    except StorageError as error:
        done.append(error)
    return done


def kinds(steps: list[Any]) -> list[type]:
    return [type(step) for step in steps]


def test_P3_markers_follow_a_durable_prepare_and_nothing_behind_them_waits() -> None:
    end = Ending(plan(PREPARE._replace(last_offsets=NAMED)))
    steps = steps_of(end, lambda _: Marked(400, {}, UNSYNCED), "done")
    assert kinds(steps) == [Committed, Mark, Reply, Wrote]
    assert set(steps[0].partitions) == {P0, P1}
    completed = PREPARE._replace(
        state=TxnState.COMPLETE_COMMIT,
        partitions=frozenset(),
        updated_ms=400,
        unsynced_markers=UNSYNCED,
    )
    assert steps[3] == Wrote(completed)


def test_P3_complete_is_synced_if_prepare_cannot_tell_its_transaction_from_the_next_one() -> None:
    steps = steps_of(ending())
    assert kinds(steps) == [Committed, Mark, Wrote, Committed]
    assert steps[0].partitions == frozenset()


def test_P5_markers_that_are_too_many_to_carry_are_synced_before_complete() -> None:
    end = Ending(plan(PREPARE._replace(last_offsets=NAMED)))
    steps = steps_of(end, lambda _: Marked(400, {}, to_sync=frozenset({P0})), "done")
    assert kinds(steps) == [Committed, Mark, Reply, Synced, Wrote]
    assert steps[3].partitions == {P0}


def test_P2_an_abort_syncs_its_data_with_its_prepare_and_its_markers_behind_the_answer() -> None:
    abort = PREPARE._replace(state=TxnState.PREPARE_ABORT)
    steps = steps_of(Ending(plan(abort)), answer="done")
    assert kinds(steps) == [Committed, Mark, Reply, Synced, Wrote]
    assert steps[0].partitions == steps[3].partitions == {P0, P1}


def test_an_abort_goes_on_without_the_data_that_a_disk_refuses() -> None:
    end = Ending(plan(PREPARE._replace(state=TxnState.PREPARE_ABORT)))
    request: Request[None] = finish(end, print, "done")
    assert next(request).partitions == {P0, P1}  # type: ignore[union-attr]
    assert request.throw(REFUSED) == COMMITTED
    assert isinstance(next(request), Block)
    assert isinstance(request.send(()), Mark)
    assert isinstance(request.send(nothing_refused(end)), Reply)


def test_P3_late_batches_are_synced_before_the_marker() -> None:
    end = Ending(plan(PREPARE._replace(state=TxnState.PREPARE_ABORT)))
    steps = steps_of(end, answer="done", block=lambda _: [P0, P1])
    assert kinds(steps) == [Committed, Synced, Mark, Reply, Synced, Wrote]
    assert steps[1] == Synced([P0, P1])


def test_P3_a_partition_that_cannot_be_synced_is_held_back_for_this_try() -> None:
    end = Ending(plan(PREPARE._replace(state=TxnState.PREPARE_ABORT)))
    held: list[dict[TopicPartition, StorageError]] = []

    def mark(end: Ending) -> Marked:
        held.append(dict(end.held))
        return Marked(400, dict(end.held))

    request: Request[None] = finish(end, print, "done")
    assert isinstance(next(request), Committed)
    assert isinstance(next(request), Block)
    assert request.send([P0, P1]) == Synced([P0, P1])
    assert request.throw(REFUSED) == Synced((P0,))
    assert request.throw(REFUSED) == Synced((P1,))
    assert isinstance(next(request), Mark)
    assert isinstance(request.send(mark(end)), Reply)
    with pytest.raises(StorageError, match="the disk is full"):
        next(request)
    assert steps_of(end, mark, block=lambda _: []) != []
    assert held == [{P0: REFUSED}, {}]


def test_an_end_that_nobody_waits_for_answers_nobody() -> None:
    assert Reply not in kinds(steps_of(ending()))


def test_P5_a_marker_that_a_disk_refuses_is_the_only_one_to_be_tried_again() -> None:
    asked: list[set[TopicPartition]] = []

    def refuse_one(end: Ending) -> Marked:
        asked.append(set(end.unmarked))
        return Marked(400, {P1: REFUSED} if len(asked) == 1 else {})

    end = ending()
    first = steps_of(end, refuse_one, "done")
    assert kinds(first) == [Committed, Mark, Reply, StorageError]
    assert end.is_put_off
    again = steps_of(end, refuse_one)
    assert kinds(again) == [Mark, Wrote, Committed]
    assert asked == [{P0, P1}, {P1}]
    assert not end.is_put_off


def test_P3_no_marker_is_written_while_the_prepare_is_not_durable() -> None:
    request: Request[None] = finish(ending(), print, "done")
    assert isinstance(next(request), Committed)
    with pytest.raises(StorageError, match="the disk is full"):
        request.throw(REFUSED)
