"""`docs/concepts/transactions.md` agrees with the rules, and names existing files."""

import re
from pathlib import Path

import pytest

from transactions_page import MEANINGS, PAGE, moves_made, page_with_tables
from txn.coordinator.transaction import states
from txn.coordinator.transaction.states import MOVES, TxnState

ROOT = Path(__file__).parent.parent.parent
TEXT = PAGE.read_text()
FILES = sorted(set(re.findall(r"`((?:python|rust|tests)/[\w/.-]+\.(?:py|rs))`", TEXT)))


def test_the_tables_are_what_the_rules_answer() -> None:
    assert page_with_tables(TEXT) == TEXT, "run: python tests/transactions_page.py"


def test_every_move_of_the_table_is_made_by_something_and_no_other_is() -> None:
    """The table in `states` and the rules in `decide` are written apart."""
    assert set(moves_made()) == {(before, after) for before in MOVES for after in MOVES[before]}


def test_every_state_has_a_meaning() -> None:
    assert set(MEANINGS) == set(TxnState)


def test_a_rule_that_changes_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        states.MOVES,
        TxnState.PREPARE_COMMIT,
        frozenset({TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}),
    )
    assert page_with_tables(TEXT) != TEXT


def test_the_steps_name_files() -> None:
    assert len(FILES) > 10


@pytest.mark.parametrize("file", FILES)
def test_every_file_that_is_named_is_there(file: str) -> None:
    assert (ROOT / file).is_file()
