"""A reader goes through the tutorial, and through each how-to, in an empty directory.

Every block is typed, and the output is compared with the page (`support/transcript.py`).
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

import test_pages
from support.transcript import HOW_TOS, TUTORIAL, Reader, is_like

pytestmark = pytest.mark.timeout(900)


def type_pages(pages: Iterable[Path], place: Path) -> None:
    reader = Reader(place, test_pages.INSTALLED)
    try:
        for page in pages:
            reader.read(page.read_text())
    finally:
        reader.close()


def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    assert len(TUTORIAL) == 5
    type_pages(TUTORIAL, tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.spark] if "pyspark" in page.read_text() else [])
        for page in HOW_TOS
    ],
    ids=lambda page: page.stem,
)
def test_a_how_to_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    type_pages([page], tmp_path)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("a\nb\n", "a\n…\nc\n"), ("a\nb\n", "a\n"), ("", "a\n"), ("a b\n", "a … c\n")],
)
def test_output_that_the_page_does_not_show_is_noticed(printed: str, shown: str) -> None:
    assert not is_like(printed, shown)
