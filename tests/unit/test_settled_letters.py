"""The offset and metadata of redriven letters say which are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.errors import RejectedError
from txn.processor.settled import Settled, settled_after, settled_of


def test_without_a_choice_the_offset_says_it_all() -> None:
    after = settled_after(Settled(0), [(0, True), (2, True), (4, True)])
    assert (after.offset, after.metadata) == (5, "")


def test_kept_letters_are_named_in_the_metadata() -> None:
    seen = [(3, False), (7, False), (9, True), (15, False), (19, True)]
    after = settled_after(Settled(0), seen)
    assert (after.offset, after.metadata) == (3, "1;20;3-7,15-15")
    assert settled_of(3, after.metadata) == after
    assert [offset for offset, _ in seen if after.has(offset)] == [9, 19]


@pytest.mark.parametrize("metadata", ["", None, "of another program", "1;x;", "1;5;3-4;"])
def test_metadata_that_cannot_be_read_counts_as_none(metadata: str | None) -> None:
    assert settled_of(7, metadata) == Settled(7)


def test_a_choice_that_does_not_fit_is_refused() -> None:
    seen = [(offset, bool(offset % 2)) for offset in range(2_000)]
    with pytest.raises(RejectedError, match="Redrive without a filter"):
        _ = settled_after(Settled(0), seen).metadata


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4))
def test_any_choices_one_after_the_other_leave_exactly_the_others(rounds: list[list[bool]]) -> None:
    offsets = [3 * number for number in range(12)]
    redriven: set[int] = set()
    state = Settled(0)
    for chosen in rounds:
        redriven |= {offset for offset, is_chosen in zip(offsets, chosen, strict=True) if is_chosen}
        last = max(
            (at for at, is_chosen in zip(offsets, chosen, strict=True) if is_chosen), default=-1
        )
        seen = [(at, at in redriven) for at in offsets if state.offset <= at <= last]
        state = settled_after(state, seen)
        assert settled_of(state.offset, state.metadata) == state
        assert {offset for offset in offsets if state.has(offset)} == redriven
