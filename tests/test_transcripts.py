"""A reader goes through the tutorial, and through each how-to, in an empty directory.

Every block is typed, and the output is compared with the page (`support/transcript.py`).
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

import test_pages
from spark.conftest import connector_jars
from support.transcript import HOW_TOS, PYTHON_TUTORIAL, TUTORIAL, Reader, is_like

pytestmark = pytest.mark.timeout(2000)


ROOT: Final = Path(__file__).parent.parent
ELSEWHERE: Final = {
    **test_pages.INSTALLED,
    r"python examples/spark/\w+\.py .*": test_pages.try_example,
}
"""Lines of shell that other tests run."""


def type_pages(pages: Iterable[Path], place: Path) -> None:
    reader = Reader(place, ELSEWHERE)
    try:
        for page in pages:
            reader.read(page.read_text())
    finally:
        reader.close()


def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    assert len(TUTORIAL) == 5
    type_pages(TUTORIAL, tmp_path)


def test_the_tutorial_of_the_python_client_prints_what_it_shows(tmp_path: Path) -> None:
    type_pages([PYTHON_TUTORIAL], tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.spark] if "pyspark" in page.read_text() else [])
        for page in HOW_TOS
    ],
    ids=lambda page: page.stem,
)
def test_a_how_to_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    if "txn.spark.jars()" in page.read_text() and not connector_jars():
        pytest.skip("Spark's Kafka connector cannot be fetched")
    type_pages([page], tmp_path)


def test_mirror_maker_is_tested_with_the_settings_of_the_page() -> None:
    """Those that make it exactly once; names of hosts and topics apart."""
    page = (ROOT / "docs" / "how-to" / "move-from-mirrormaker.md").read_text()
    tested = (ROOT / "tests" / "clients" / "test_connect.py").read_text()
    settings = re.findall(r"^([\w.>-]+)=(true|false|enabled|read_committed)$", page, re.MULTILINE)
    missing = [name for name, value in settings if f'"{name}": "{value}"' not in tested]
    assert len(settings) == 8
    assert missing == []


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("a\nb\n", "a\n…\nc\n"), ("a\nb\n", "a\n"), ("", "a\n"), ("a b\n", "a … c\n")],
)
def test_output_that_the_page_does_not_show_is_noticed(printed: str, shown: str) -> None:
    assert not is_like(printed, shown)
