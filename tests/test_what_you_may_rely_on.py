"""The promises of docs/concepts/what-you-may-rely-on.md are those of the README, held by tests."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "concepts" / "what-you-may-rely-on.md"
README: Final = (ROOT / "README.md").read_text()
SECTIONS: Final = dict(
    re.findall(r"^## (P\d: [^\n]*)\n(.*?)(?=^## )", PAGE.read_text(), re.DOTALL | re.MULTILINE)
)
HELD: Final = [
    (title.partition(":")[0], name, path)
    for title, text in SECTIONS.items()
    for name, path in re.findall(r"\[(\w+)\]\((\S+\.py)\)", text.partition("Held by")[2])
]


def test_the_promises_are_those_of_the_readme() -> None:
    rows = re.findall(r"^\| (P\d) \| (.*?)(?: \(.*\))? \|", README, re.MULTILINE)
    assert [f"{number}: {promise}" for number, promise in rows] == list(SECTIONS)


def test_each_promise_has_limits_and_three_tests() -> None:
    held = [number for number, _, _ in HELD]
    for title, text in SECTIONS.items():
        assert held.count(title.partition(":")[0]) == 3, title
        assert re.search(r"^- ", text, re.MULTILINE), title


@pytest.mark.parametrize(("number", "name", "path"), HELD, ids=lambda part: str(part)[:40])
def test_a_promise_links_to_a_test_of_its_name(number: str, name: str, path: str) -> None:
    program = (PAGE.parent / path).resolve()
    assert re.search(rf"^ *def {name}\(", program.read_text(), re.MULTILINE)
    first, _, last = name.removeprefix("test_").partition("_to_P")
    numbers = set(re.findall(r"P[1-9](?=_)", f"{first}_"))
    if last:
        numbers |= {f"P{each}" for each in range(1, int(last[0]) + 1)}
    assert number in numbers or "and_the_others" in name
