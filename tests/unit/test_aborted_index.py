"""Which aborted transactions a fetch has to name."""

from txn.partition import AbortedTxn
from txn.partition.aborted_index import AbortedIndex

# Producer 7 aborts [10, 30]; producer 8's [20, 40] and 9's [5, 50] were open then.
OVERLAPPING = [(7, 10, 30, 5), (8, 20, 40, 5), (9, 5, 50, 51)]
# One after another, with nothing open between them.
SERIAL = [(7, 0, 9, 10), (7, 20, 29, 30), (7, 40, 49, 50)]


def test_P4_an_empty_index_names_nothing() -> None:
    assert AbortedIndex().aborted_in(0, 100) == []


def test_P4_what_is_forgotten_below_an_offset_changes_no_answer_above_it() -> None:
    index = AbortedIndex(OVERLAPPING)
    index.forget_below(40)
    assert index.entries() == OVERLAPPING[1:]
    assert index.aborted_in(40, 60) == AbortedIndex(OVERLAPPING).aborted_in(40, 60)


def test_P4_overlapping_transactions_are_named_by_first_offset() -> None:
    assert AbortedIndex(OVERLAPPING).aborted_in(25, 26) == [(9, 5), (7, 10), (8, 20)]


def test_P4_a_range_from_a_marker_on_names_its_transaction() -> None:
    assert AbortedIndex(SERIAL).aborted_in(29, 40) == [(7, 20)]


def test_P4_a_range_after_a_marker_does_not_name_its_transaction() -> None:
    assert AbortedIndex(SERIAL).aborted_in(30, 40) == []


def test_P4_the_end_of_a_range_is_exclusive() -> None:
    assert AbortedIndex(SERIAL).aborted_in(10, 21) == [(7, 20)]
    assert AbortedIndex(SERIAL).aborted_in(10, 20) == []


def test_P4_a_transaction_that_ended_later_but_began_earlier_is_found() -> None:
    assert AbortedIndex(OVERLAPPING).aborted_in(6, 8) == [(9, 5)]


def test_P4_a_long_range_names_every_transaction_in_it() -> None:
    assert AbortedIndex(SERIAL).aborted_in(0, 60) == [(7, 0), (7, 20), (7, 40)]


def test_the_search_ends_at_an_entry_whose_stable_offset_reaches_the_end() -> None:
    impossible = (8, 0, 39, 40)  # it would have been open when the first one ended
    assert AbortedIndex([(7, 0, 9, 10), impossible]).aborted_in(0, 10) == [(7, 0)]


def test_an_entry_known_from_the_stored_index_is_not_new_and_the_computed_one_stays() -> None:
    index = AbortedIndex(SERIAL)
    assert not index.add(AbortedTxn(7, 21, 29, 30))
    assert index.entries() == [(7, 0, 9, 10), (7, 21, 29, 30), (7, 40, 49, 50)]


def test_an_entry_that_the_stored_index_lacks_takes_its_place() -> None:
    index = AbortedIndex([SERIAL[0], SERIAL[2]])
    assert index.add(AbortedTxn(*SERIAL[1]))
    assert index.entries() == SERIAL
