"""The rules of proof that the storage lost its cache: which records disprove a kill."""

import uuid
from collections.abc import Iterable

import pytest

from txn.coordinator.transaction.lost_cache import (
    EndOf,
    LostOffset,
    NamedOffsets,
    find_lost_offset,
    named_offsets,
)
from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    Owner,
    fault_of,
    is_explained,
)
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState, UnsyncedMarker
from txn.identifiers import ProducerIdAndEpoch

TOPIC_ID = uuid.UUID(int=1).bytes
PLACE = ("orders", 0)
HELD = OpenTransaction(PLACE, ProducerIdAndEpoch(7, 0), 3)


def txn_in(state: TxnState, *named: int, marker: int | None = None) -> Txn:
    """The state of an id that names offsets of a partition, and may carry a marker of it."""
    return Txn(
        producer_id=7,
        producer_epoch=0,
        timeout_ms=1_000,
        state=state,
        partitions=frozenset({PLACE}),
        start_ms=0,
        updated_ms=0,
        last_offsets=tuple(LastOffset(TOPIC_ID, 0, 0, each) for each in named),
        unsynced_markers=()
        if marker is None
        else (UnsyncedMarker(TOPIC_ID, 0, marker, 7, 0, is_commit=True),),
    )


def topic_id_of(topic: str) -> bytes | None:
    return TOPIC_ID if topic == "orders" else None


def ends_at(end: int | None) -> EndOf:
    return lambda topic_id, partition: end


def found(
    txn: Txn,
    end: int | None,
    *,
    prepared: Iterable[int] = (),
    held: Iterable[OpenTransaction] = (HELD,),
) -> LostOffset | None:
    """The proof by one id, whose stored Prepares have named offsets."""
    named: NamedOffsets = named_offsets(
        ("pay", txn_in(TxnState.PREPARE_COMMIT, each)) for each in prepared
    )
    is_at_rest = txn.state in (TxnState.EMPTY, TxnState.COMPLETE_COMMIT)
    return find_lost_offset(
        [] if is_at_rest else [("pay", txn)],
        lambda: [("pay", txn)],
        held,
        named_by=lambda transactional_id: named,
        end_of=ends_at(end),
        topic_id_of=topic_id_of,
    )


@pytest.mark.parametrize(("end", "is_proof"), [(6, False), (5, True), (0, True), (None, False)])
def test_P3_a_named_offset_at_or_beyond_the_log_end_is_proof(
    end: int | None, is_proof: bool
) -> None:
    expected = None if end is None else LostOffset("pay", TOPIC_ID, 0, 5, end)
    assert found(txn_in(TxnState.PREPARE_COMMIT, 5), end) == (expected if is_proof else None)


def test_an_abort_names_nothing_that_has_to_be_there() -> None:
    assert found(txn_in(TxnState.PREPARE_ABORT, 5), 0) is None


def test_an_empty_log_had_nothing_to_lose() -> None:
    assert found(txn_in(TxnState.PREPARE_COMMIT, -1), 0) is None


@pytest.mark.parametrize("state", [TxnState.COMPLETE_COMMIT, TxnState.ONGOING])
@pytest.mark.parametrize(("end", "is_proof"), [(7, False), (6, True), (5, True), (4, False)])
def test_P9_a_lost_marker_is_proof_only_where_the_records_before_it_are_there(
    state: TxnState, end: int, is_proof: bool
) -> None:
    assert (found(txn_in(state, marker=6), end, prepared=[4]) is not None) is is_proof


def test_a_lost_marker_whose_prepare_nobody_knows_is_no_proof() -> None:
    assert found(txn_in(TxnState.COMPLETE_COMMIT, marker=6), 6) is None


def test_the_prepare_of_a_later_transaction_tells_nothing_of_a_marker_before_it() -> None:
    carrying = txn_in(TxnState.ONGOING, marker=6)
    assert found(carrying, 6, prepared=[4, 9]) is not None
    assert found(carrying, 6, prepared=[9]) is None


def test_ids_at_rest_are_looked_at_only_if_something_open_is_unexplained() -> None:
    assert found(txn_in(TxnState.COMPLETE_COMMIT, marker=6), 6, prepared=[4], held=()) is None


# -------------------------------------------------------------------- what an open transaction is


def is_explained_by(txn: Txn, first_offset: int) -> bool:
    held = HELD._replace(first_offset=first_offset)
    return is_explained(held, Owner("pay", txn), topic_id_of)


@pytest.mark.parametrize("first_offset", [3, 6, 7])
def test_P2_no_transaction_before_a_carried_marker_is_taken_for_the_one_that_is_open(
    first_offset: int,
) -> None:
    """Both have the same producer epoch under transaction version 1."""
    carrying = txn_in(TxnState.ONGOING, marker=6)
    assert is_explained_by(carrying, first_offset) is (first_offset > 5)


def test_the_fault_of_a_lost_marker_names_it() -> None:
    owner = Owner("pay", txn_in(TxnState.ONGOING, marker=6))
    fault = fault_of(HELD, owner, topic_id_of)
    assert "'pay' ended it by the COMMIT marker at offset 6" in fault


def test_a_marker_of_another_topic_or_an_earlier_epoch_ended_no_transaction_here() -> None:
    marker = UnsyncedMarker(uuid.UUID(int=2).bytes, 0, 6, 7, 0, is_commit=True)
    assert is_explained_by(txn_in(TxnState.ONGOING)._replace(unsynced_markers=(marker,)), 3)
    later = txn_in(TxnState.ONGOING, marker=6)._replace(producer_epoch=1)
    held = HELD._replace(producer=ProducerIdAndEpoch(7, 1))
    assert is_explained(held, Owner("pay", later), topic_id_of)


@pytest.mark.parametrize(("first_offset", "is_its_own"), [(3, True), (5, True), (6, False)])
def test_a_prepare_explains_nothing_that_begins_behind_the_offset_it_names(
    first_offset: int, is_its_own: bool
) -> None:
    prepare = txn_in(TxnState.PREPARE_COMMIT, 5)
    assert is_explained_by(prepare, first_offset) is is_its_own
