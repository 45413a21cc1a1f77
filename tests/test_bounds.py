"""docs/bounds.md names constants with their values, and settings and tests that exist."""

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from txn.config import BROKER_PROPERTIES, TOPIC_PROPERTIES

PAGE: Final = Path(__file__).parent.parent / "docs" / "bounds.md"
ROW: Final = re.compile(r"^\| (?!bytes \||---)(.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
CONSTANT: Final = re.compile(r"\[`(\w+)`\]\((\S+)\)(?:: ([\d,]+) (\w+))?")
SETTING: Final = re.compile(r"(?<!\[)`([a-z]+(?:\.[a-z]+)+)`")
TEST: Final = re.compile(r"\[(\w+)\]\((\S+)\)")
SCALES: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
"""Units of bytes; any other unit, such as s, is one of the constant itself."""


class Row(NamedTuple):
    """A row of the page."""

    bytes: str
    bound: str
    beyond: str
    held_by: str


ROWS: Final = [Row(*found) for found in ROW.findall(PAGE.read_text())]
CONSTANTS: Final = [found for row in ROWS for found in CONSTANT.findall(row.bound)]


def source(path: str) -> str:
    return (PAGE.parent / path).resolve().read_text()


def value_of(name: str, text: str) -> float | None:
    """The value of a constant of Python or Rust; None: it is none of numbers alone."""
    found = re.search(rf"^[\w() ]*\b{name}(?:: [^=\n]+)? = (.+?);?$", text, re.MULTILINE)
    assert found is not None, f"{name} is not defined"
    inner = re.sub(r"^Duration::from_secs\((.+)\)$", r"\1", found[1])
    if not re.fullmatch(r"[\d_ .<*]+", inner):
        return None
    return computed(ast.parse(inner, mode="eval").body)


def computed(node: ast.expr) -> float:
    """The value of numbers with `<<` and `*`."""
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type] # it has digits alone
    assert isinstance(node, ast.BinOp)
    left, right = computed(node.left), computed(node.right)
    return left * (2**right if isinstance(node.op, ast.LShift) else right)


def test_the_page_has_each_kind_of_bytes() -> None:
    titles = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    assert titles == [
        "Requests to the broker",
        "Answers to txn's clients",
        "Files that settings name",
        "Identity providers and schema registries",
        "Files of a data directory",
    ]
    assert len(ROWS) > 40


@pytest.mark.parametrize(("name", "path", "number", "unit"), CONSTANTS, ids=lambda part: part[:40])
def test_a_constant_has_the_value_of_the_page(name: str, path: str, number: str, unit: str) -> None:
    value = value_of(name, source(path))
    if number:
        assert value == int(number.replace(",", "")) * SCALES.get(unit, 1)


def test_each_setting_exists() -> None:
    named = {name for row in ROWS for name in SETTING.findall(row.bound)}
    assert len(named) >= 6
    assert named <= {*BROKER_PROPERTIES, *TOPIC_PROPERTIES}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bytes[:40])
def test_each_row_has_a_test_that_exists(row: Row) -> None:
    (found,) = TEST.findall(row.held_by)
    name, path = found
    assert re.search(rf"^ *(?:def|fn) {name}\(", source(path), re.MULTILINE)
