"""Every line of the log that asks for a look is on the page, with its cause and its step."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from txn.broker.host import HangUpError
from txn.manual.pages import all_pages

PYTHON: Final = Path(__file__).parents[2] / "python"
PAGE: Final = all_pages()["errors/log-lines"].text
LEVELS: Final = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
EVENT: Final = re.compile(r"[a-z_]+\.[a-z_]+\b")
ROWS: Final = {
    row[0].strip("` "): row[1:]
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for row in [[cell.strip() for cell in line.strip("|").split(" | ")]]
}

NOT_EVENTS: Final = {
    ("txn/logs.py", "event"): "passes on those of others",
    ("txn/client/cautions.py", "text"): "advice to the program's author, in whole sentences",
    ("txn/client/delivery.py", "A callb"): "a sentence to the program's author",
    ("txn/client/unclosed.py", "%s was"): "a sentence to the program's author",
    ("txn/client/unclosed.py", "A produ"): "a sentence to the program's author",
    ("txn/otel/faults.py", "tracing"): "a sentence to the program's author",
}
"""Calls of a logger without an event, by file and by the beginning of what they write."""


def calls() -> Iterator[tuple[str, str, str]]:
    """Each call of a logger at a level of `LEVELS`: its file, its level and its first argument."""
    for path in sorted(PYTHON.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and re.search(r"log|_events", ast.unparse(node.func.value))
            ):
                first = node.args[0]
                text = first.value if isinstance(first, ast.Constant) else ast.unparse(first)
                yield str(path.relative_to(PYTHON)), LEVELS[node.func.attr], str(text)


def declared(name: str) -> set[str]:
    """The texts that classes declare under a name, for the calls that take it from there."""
    return {
        node.value.value
        for path in PYTHON.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == name
    }


def events() -> set[tuple[str, str]]:
    """Every event with its level, and that of `txn.logs` itself, which makes a record by hand."""
    found = {("log.lines_dropped", "WARNING")}
    for path, level, text in calls():
        if text == "self.not_served":
            found |= {(event, level) for event in declared("not_served")}
        elif text == "hang_up.event":
            kinds: list[type[HangUpError]] = [HangUpError, *HangUpError.__subclasses__()]
            found |= {(each.event, level) for each in kinds}
        elif (event := EVENT.match(text)) and event[0] != "self.":
            found.add((event[0], level))
        else:
            assert any(text.startswith(start) for place, start in NOT_EVENTS if place == path), (
                f"{path} logs {text!r}, which names no event"
            )
    return found


def test_each_warning_and_error_of_the_log_is_on_the_page() -> None:
    assert sorted({event for event, _ in events()} - ROWS.keys()) == []


def test_the_page_has_no_line_that_is_never_written() -> None:
    assert sorted(ROWS.keys() - {event for event, _ in events()}) == []


def test_each_line_has_the_level_at_which_it_is_written() -> None:
    assert sorted(events()) == sorted((event, row[0]) for event, row in ROWS.items())


@pytest.mark.parametrize("event", ROWS)
def test_each_line_has_a_cause_and_a_step(event: str) -> None:
    _, cause, step = ROWS[event]
    assert cause.endswith(".")
    assert step.endswith(".")
