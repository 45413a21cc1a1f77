"""Every public error has a page, and each error leads to its page."""

import inspect
import os
import pickle
import pty
import re
import subprocess
import sys
import traceback
from typing import Final

import pytest

import txn
import txn.testing
from txn.errors import TxnError
from txn.manual.pages import all_pages

PUBLIC: Final = [
    found
    for module in (txn, txn.testing)
    for name in module.__all__
    if inspect.isclass(found := getattr(module, name)) and issubclass(found, TxnError)
]
PAGES: Final = all_pages()
PARTS: Final = ("## Cause", "## Is the data safe?", "## What to do")


@pytest.mark.parametrize("error", PUBLIC)
def test_each_public_error_has_a_page_of_its_own(error: type[TxnError]) -> None:
    assert "page" in vars(error)
    page = PAGES[error.page]
    assert page.title == error.__name__
    assert [part for part in PARTS if f"\n{part}\n" not in page.text] == []
    assert error.action.name in page.text


def test_the_pages_of_errors_are_all_different() -> None:
    assert len({error.page for error in PUBLIC}) == len(PUBLIC)


def test_the_page_of_the_root_lists_every_error() -> None:
    text = PAGES["errors/txn"].text
    assert [
        error.page
        for error in PUBLIC
        if error is not TxnError and f"({error.page[7:]}.md)" not in text
    ] == []


@pytest.mark.parametrize("error", PUBLIC)
def test_a_traceback_has_the_address_of_the_page_and_the_message_stays(
    error: type[TxnError],
) -> None:
    raised = error("it happened")
    shown = "".join(traceback.format_exception(raised))
    assert f"it happened\nSee: txn docs {error.page}\n" in shown
    assert str(raised) == "it happened"


def test_an_error_from_another_process_has_the_address_once() -> None:
    copy = pickle.loads(pickle.dumps(txn.FencedError("it happened", open_ms=5)))
    assert copy.__notes__ == ["See: txn docs errors/fenced"]
    assert copy.open_ms == 5


def test_a_command_shows_the_address_at_a_terminal_alone() -> None:
    """Scripts compare the one line of an error."""
    command = [sys.executable, "-m", "txn", "topics", "list", "--wrong"]
    piped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (piped.returncode, piped.stderr.count("\n")) == (2, 1)
    assert "txn docs" not in piped.stderr

    ours, theirs = pty.openpty()
    shown = subprocess.run(command, stderr=theirs, check=False)
    os.close(theirs)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    assert shown.returncode == 2
    assert text.splitlines() == [piped.stderr.strip(), "See: txn docs errors/config"]


def test_the_pages_say_the_same_of_actions_as_the_classes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", PAGES["errors/txn"].text, re.MULTILINE)
    for name, actions in rows:
        assert f"`{getattr(txn, name).action.name}`" in actions
    assert {name for name, _ in rows} | {"TxnError", "WaitError"} == {
        error.__name__ for error in PUBLIC
    }


def test_no_page_is_about_an_error_that_is_not_there() -> None:
    others = {"errors/codes", "errors/log-lines"}
    found = {name for name in PAGES if name.startswith("errors/")} - others
    assert found == {error.page for error in PUBLIC}
