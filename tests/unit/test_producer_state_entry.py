"""Sequences that wrap, and the window of the last five batches."""

from hypothesis import given
from hypothesis import strategies as st

from txn.partition.producer_state_entry import (
    SEQUENCE_COUNT,
    ProducerStateEntry,
    StoredBatch,
    base_sequence_of,
    is_later,
    last_sequence_of,
)

LARGEST_SEQUENCE = SEQUENCE_COUNT - 1

sequences = st.integers(0, LARGEST_SEQUENCE) | st.integers(LARGEST_SEQUENCE - 20, LARGEST_SEQUENCE)
counts = st.integers(1, 1 << 20) | st.integers(1, 30)


def stored(*, batches: int, epoch: int = 0) -> ProducerStateEntry:
    state = ProducerStateEntry()
    for n in range(batches):
        state.append(epoch, n, n, 100 + n, 100 + n, 7)
    return state


def batch(n: int) -> StoredBatch:
    return n, n, 100 + n, 100 + n


@given(sequences, counts)
def test_a_batch_covers_as_many_sequences_as_it_has_records(base: int, count: int) -> None:
    assert (last_sequence_of(base, count) - base) % SEQUENCE_COUNT == count - 1


@given(sequences, counts)
def test_the_base_sequence_is_found_again_from_the_last(base: int, count: int) -> None:
    assert base_sequence_of(last_sequence_of(base, count), count) == base


@given(sequences, counts)
def test_a_sequence_is_later_than_one_before_it_and_not_the_reverse(base: int, count: int) -> None:
    ahead = (base + count) % SEQUENCE_COUNT
    assert is_later(ahead, base)
    assert not is_later(base, ahead)


def test_a_batch_without_sequences_has_none_at_its_end_either() -> None:
    assert last_sequence_of(-1, 10) == -1
    assert base_sequence_of(-1, 10) == -1


def test_five_batches_are_kept() -> None:
    assert list(stored(batches=7).batches) == [batch(n) for n in (2, 3, 4, 5, 6)]


def test_a_batch_of_a_new_epoch_empties_the_window() -> None:
    state = stored(batches=3, epoch=0)
    state.append(1, 0, 0, 200, 200, 8)
    assert list(state.batches) == [(0, 0, 200, 200)]


def test_a_marker_of_a_new_epoch_empties_the_window_and_restarts_the_sequence() -> None:
    state = stored(batches=3, epoch=0)
    state.end_transaction(1, 9, 8)
    assert (list(state.batches), state.next_sequence, state.producer_epoch) == ([], 0, 1)


def test_P6_a_marker_of_the_same_epoch_keeps_the_window_and_the_sequence() -> None:
    state = stored(batches=3, epoch=0)
    state.end_transaction(0, 9, 8)
    assert (len(state.batches), state.next_sequence) == (3, 3)


def test_a_marker_ends_the_open_transaction_once() -> None:
    state = stored(batches=1)
    state.txn_first_offset = 100
    assert state.end_transaction(0, 9, 8) == 100
    assert state.end_transaction(0, 9, 9) == -1


def test_P6_recalled_batches_take_their_place_before_the_newest_in_any_order() -> None:
    state = ProducerStateEntry()
    state.append(0, 6, 6, 106, 106, 7)
    for n in (4, 2, 5, 1, 3, 4):
        state.recall(batch(n))
    assert list(state.batches) == [batch(n) for n in (2, 3, 4, 5, 6)]


def test_nothing_is_recalled_into_an_empty_window() -> None:
    state = ProducerStateEntry()
    state.recall(batch(4))
    assert (list(state.batches), state.next_sequence) == ([], 0)


def test_a_recalled_batch_never_becomes_the_newest() -> None:
    state = stored(batches=2)
    state.recall(batch(5))
    assert list(state.batches) == [batch(0), batch(1)]
