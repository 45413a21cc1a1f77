"""The pages as HTML files, for a browser without a network: `txn docs` makes them once."""

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

import txn
from txn.manual.contents import sections_of
from txn.manual.pages import Page, all_pages, images

STYLE: Final = (Path(__file__).parent / "manual.css").read_text(encoding="utf-8")

_MADE: Final = "made"
"""The file that a directory gets once every page is in it."""


def html_path(name: str) -> Path:
    """Return the file with a page as HTML; `index` is the table of contents.

    Raises OSError if the directory for caches, XDG_CACHE_HOME, cannot be written.
    """
    return _made_site() / f"{name}.html"


def _made_site() -> Path:
    pages = all_pages()
    told = "\0".join([STYLE, *(page.text for page in pages.values())]).encode()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(b"\0".join([told, *images().values()])).hexdigest()[:12]
    site = caches / "txn" / f"docs-{txn.__version__}-{digest}"
    if not (site / _MADE).exists():
        texts = {f"{name}.html": text.encode() for name, text in _files(pages)}
        for name, content in (texts | dict(images())).items():
            path = site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (site / _MADE).touch()
    return site


def _files(pages: Mapping[str, Page]) -> Iterator[tuple[str, str]]:
    contents = "".join(
        f"<h2>{escape(section)}</h2><ul>{_items(pages, names, '')}</ul>"
        for section, names in sections_of(pages)
    )
    yield "index", _document("txn", "index", f"<h1>txn</h1>{contents}", "")
    for name, page in pages.items():
        links = "".join(
            f"<details{' open' if name in names else ''}><summary>{escape(section)}</summary>"
            f"<ul>{_items(pages, names, name)}</ul></details>"
            for section, names in sections_of(pages)
        )
        yield name, _document(page.title, name, html_of(page.text), links)


def _items(pages: Mapping[str, Page], names: list[str], here: str) -> str:
    folder = posixpath.dirname(here) or "."
    current = ' aria-current="page"'
    return "".join(
        f'<li><a href="{posixpath.relpath(each, folder)}.html"{current if each == here else ""}>'
        f"{escape(pages[each].title)}</a></li>"
        for each in names
    )


def _document(title: str, name: str, body: str, links: str) -> str:
    home = posixpath.relpath("index", posixpath.dirname(name) or ".")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<nav><a href="{home}.html">txn {escape(txn.__version__)}</a>{links}</nav>'
        f"<main>{body}</main></body></html>\n"
    )


def html_of(text: str) -> str:
    """Return Markdown as HTML; headings have the anchors that GitHub gives them."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrs["id"] = anchor_of(tokens[at + 1].content)
        for part in token.children or ():
            _lead_to_html(part)
    made: str = markdown.renderer.render(tokens, markdown.options, {})
    return made


def _lead_to_html(part: Token) -> None:
    target = str(part.attrs.get("href", ""))
    if part.type == "link_open" and "://" not in target:
        part.attrs["href"] = re.sub(r"\.md(?=#|$)", ".html", target)


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and Sphinx make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
