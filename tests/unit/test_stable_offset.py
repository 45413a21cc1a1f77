"""The oldest open transaction holds the last stable offset."""

from txn.partition.stable_offset import OpenTransactions


def test_without_open_transaction_there_is_no_unstable_offset() -> None:
    assert OpenTransactions().first_offset == -1


def test_P5_the_oldest_open_transaction_holds_the_offset() -> None:
    transactions = OpenTransactions()
    transactions.begin(7, 10)
    transactions.begin(8, 20)
    assert transactions.first_offset == 10


def test_P5_ending_a_later_transaction_moves_nothing() -> None:
    transactions = OpenTransactions()
    transactions.begin(7, 10)
    transactions.begin(8, 20)
    transactions.end(8)
    assert transactions.first_offset == 10


def test_P5_ending_the_oldest_moves_to_the_next_oldest() -> None:
    transactions = OpenTransactions()
    transactions.begin(7, 10)
    transactions.begin(8, 20)
    transactions.begin(9, 30)
    transactions.end(8)
    transactions.end(7)
    assert transactions.first_offset == 30


def test_ending_the_only_one_leaves_none() -> None:
    transactions = OpenTransactions()
    transactions.begin(7, 0)
    transactions.end(7)
    assert transactions.first_offset == -1


def test_restored_transactions_are_ordered_by_their_first_offset() -> None:
    transactions = OpenTransactions({7: 30, 8: 10, 9: 20})
    transactions.end(8)
    assert transactions.first_offset == 20
