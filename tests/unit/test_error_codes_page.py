"""docs/errors/codes.md has codes of the protocol, and every option of txn that it names exists."""

import re
from typing import Final

import pytest

from support.command_line import run_txn
from txn.manual.pages import all_pages
from txn.wire.error_codes import ErrorCode

PAGE: Final = all_pages()["errors/codes"].text
ROWS: Final = [
    re.split(r" \| ", line.strip("| ")) for line in PAGE.splitlines() if line.startswith("| `")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_row_has_a_code_of_the_protocol_a_cause_and_a_step(row: list[str]) -> None:
    name, cause, step = row
    assert name.strip("`") in ErrorCode.__members__
    assert cause.endswith(".")
    assert step


@pytest.mark.parametrize("page", ["errors/codes", "errors/log-lines"])
def test_each_command_that_a_step_names_exists_with_its_options(page: str) -> None:
    for words in set(re.findall(r"`txn ([a-z ,-]+)", all_pages()[page].text)):
        named = words.split()
        command = [word for word in named if not word.startswith("-")]
        code, printed, _ = run_txn(*command[:2], "--help")
        if code != 0:
            code, printed, _ = run_txn(command[0], "--help")
        assert code == 0, words
        assert [word for word in named if word.startswith("--") and word not in printed] == []
