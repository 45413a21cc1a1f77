"""The pages by their names, as `txn docs` and the site have them.

The name of `docs/errors/fenced.md` is `errors/fenced`. Links between pages lead from name to name.
A link to another file of the repository becomes plain text: neither the site nor the wheel has it.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from txn.manual.api_reference import api_pages
from txn.manual.reference import reference_pages

PLACE: Final = Path(__file__).parent / "pages"

OTHER_NAMES: Final[Mapping[str, str]] = {
    "README.md": "overview",
    "ARCHITECTURE.md": "architecture",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "deploy/README.md": "deploy",
    "examples/spark/README.md": "spark-examples",
    "tests/README.md": "tests",
}
"""Names of the pages outside of `docs/`, by their paths in the repository."""

_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE: Final = re.compile(r"^ *(```+|~~~+)")


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its name, its title and its Markdown."""

    name: str
    title: str
    text: str


@cache
def all_pages() -> Mapping[str, Page]:
    """Return every page by its name: those that are written, and the reference."""
    return {page.name: page for page in (*_written_pages(), *_generated_pages())}


def _written_pages() -> Iterator[Page]:
    paths = [*(PLACE / path for path in OTHER_NAMES), *sorted((PLACE / "docs").rglob("*.md"))]
    for path in paths:
        source = path.relative_to(PLACE).as_posix()
        text = _led_to_pages(path.read_text(encoding="utf-8"), source)
        yield Page(name_of(source), title_of(text), text)


@cache
def images() -> Mapping[str, bytes]:
    """Return every image that the pages show, by its path beside them."""
    paths = sorted((PLACE / "docs").rglob("*.png"))
    return {path.relative_to(PLACE / "docs").as_posix(): path.read_bytes() for path in paths}


def _generated_pages() -> Iterator[Page]:
    for name, text in {**reference_pages(), **api_pages()}.items():
        yield Page(name, title_of(text), text)


def name_of(source: str) -> str:
    """Return the name of the page at a path of the repository."""
    if source in OTHER_NAMES:
        return OTHER_NAMES[source]
    name = source.removeprefix("docs/").removesuffix(".md")
    folder, _, last = name.rpartition("/")
    return f"{folder}/index" if last == "README" else name


def title_of(text: str) -> str:
    """Return the text of the first heading."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].replace("`", "") if found else ""


def _led_to_pages(text: str, source: str) -> str:
    """The text with its links led to names."""
    here = posixpath.dirname(source)
    at = posixpath.dirname(name_of(source))

    def led(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        path, hash_mark, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        found = posixpath.normpath(posixpath.join(here, path))
        if (PLACE / found).is_file() and found.endswith(".md"):
            return (
                f"[{words}]({posixpath.relpath(name_of(found), at or '.')}.md{hash_mark}{anchor})"
            )
        return words if words.strip("`") == path else f"{words} (`{found}`)"

    return outside_of_code(text, lambda line: _LINK.sub(led, line))


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """Return the text with each line changed that stands in no fenced block."""
    return "".join(line if is_code else change(line) for line, is_code in lines_of(text))


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line of a text with its end, and whether it belongs to a fenced block."""
    fence = ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        yield line, bool(fence or found)
        if fence:
            fence = "" if found and found[1].startswith(fence) else fence
        elif found:
            fence = found[1]
