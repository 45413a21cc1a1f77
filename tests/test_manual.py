"""The pages of the documentation as a whole: links, and the wheel's."""

import posixpath
import re
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt

import txn
from txn.manual.api_reference import MODULES, public_names
from txn.manual.contents import sections_of
from txn.manual.html import html_path
from txn.manual.pages import OTHER_NAMES, PLACE, Page, all_pages, images, name_of
from txn.testing import TestBroker

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = [
    *(ROOT / path for path in OTHER_NAMES),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES: Final = all_pages()


def links_of(text: str) -> list[str]:
    return [
        str(part.attrs["href"])
        for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text)
        for part in token.children or ()
        if part.type == "link_open"
    ]


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub and Sphinx give to headings."""
    found = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", found, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each).lower() for each in headings]
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in plain}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_of_a_page_leads_to_a_file_and_an_anchor_of_the_repository(path: Path) -> None:
    for target in links_of(path.read_text()):
        place, _, anchor = target.partition("#")
        if "://" in target:
            continue
        led = (path.parent / place).resolve() if place else path
        assert led.exists(), target
        if anchor:
            assert anchor in anchors_of(led.read_text()), target


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_each_link_of_the_manual_leads_to_a_page_and_an_anchor(page: Page) -> None:
    for target in links_of(page.text):
        place, _, anchor = target.partition("#")
        if "://" in target:
            continue
        led = posixpath.normpath(posixpath.join(posixpath.dirname(page.name), place))
        name = led.removesuffix(".md") if place else page.name
        assert name in PAGES, target
        if anchor:
            assert anchor in anchors_of(PAGES[name].text), target


def test_each_page_of_the_repository_is_a_page_of_the_manual_and_has_a_title() -> None:
    assert {name_of(str(path.relative_to(ROOT))) for path in SOURCES} <= PAGES.keys()
    assert [name for name, page in PAGES.items() if not page.title] == []


def test_each_page_is_listed_in_one_section() -> None:
    listed = [name for _, names in sections_of(PAGES) for name in names]
    assert sorted(listed) == sorted(PAGES)


def test_the_pages_beside_the_code_are_those_of_the_repository() -> None:
    for path in OTHER_NAMES:
        assert (PLACE / path).samefile(ROOT / path)
    assert (PLACE / "docs").samefile(ROOT / "docs")


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_of_a_module_is_described(module: str) -> None:
    text = PAGES[f"reference/python/{module.replace('.', '-')}"].text
    for name in public_names(module):
        _, found, below = text.partition(f"\n## {name}\n")
        assert found
        described = below.partition("\n## ")[0]
        assert re.sub(r"```.*?```", "", described, flags=re.DOTALL).strip(), name


def test_a_class_is_described_with_what_its_parts_give_it() -> None:
    text = PAGES["reference/python/txn-testing"].text
    public = {name for name in dir(TestBroker) if not name.startswith("_")}
    assert public == set(re.findall(r"^### TestBroker\.(\w+)", text, re.MULTILINE))
    assert "class TestBroker\n" in text


def test_the_reference_has_every_name_of_the_package() -> None:
    assert set(public_names("txn")) == {name for name in txn.__all__ if name != "__version__"}


def test_each_image_of_a_page_is_beside_its_html(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shown = [
        (html_path(name).parent / source).resolve()
        for name in PAGES
        for source in re.findall(r'<img src="([^"]+)"', html_path(name).read_text())
    ]
    site = html_path("index").parent
    assert {path.relative_to(site).as_posix() for path in shown} == images().keys()
    assert all(path.is_file() for path in shown)
