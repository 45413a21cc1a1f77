"""`txn docs`: the pages of the documentation that ship with txn, and their search."""

import sys
import webbrowser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from txn.cli.output import print_json, print_lines, print_text
from txn.errors import ConfigError, RejectedError
from txn.hints import did_you_mean
from txn.manual.contents import sections_of
from txn.manual.html import html_path
from txn.manual.pages import Page, all_pages
from txn.manual.search import Found, search

CONTEXT_SETTINGS: Final = {"ignore_unknown_options": True}
"""Words of a search may look like options, such as `kill -9`."""


def docs(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAGE|search WORDS...]", help="[default: the table of contents]"),
    ] = None,
    path: Annotated[
        bool, typer.Option("--path", help="Print the path of the page, and open nothing.")
    ] = False,
    text: Annotated[
        bool, typer.Option("--text", help="Print the page as Markdown, for a terminal.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Open a page of the documentation in the browser, or search the pages. Needs no network.

    Where there is no browser, and where standard output is no terminal, it prints the path of the
    page. A page's last name is enough where one page alone has it. Words that name no page are
    searched for.

    \b
    Examples:
      txn docs                               the table of contents
      txn docs errors/fenced                 the page that a message names
      txn docs search consumer gets nothing
      txn docs --text | less                 the same in a terminal
      txn docs settings --text | less
    """
    asked = words or []
    if asked[:1] == ["search"]:
        _show_found(" ".join(asked[1:]), as_json=as_json)
        return
    option = next((each for each in asked if each.startswith("-")), None)
    if option is not None:
        raise ConfigError(
            f"No such option: {option}. To search for it, give `txn docs search` and the words"
        )
    name = _page_name(asked[0]) if len(asked) == 1 else ""
    page = all_pages().get(name)
    if asked and page is None:
        if len(asked) == 1 and (path or text or "/" in name):
            near = did_you_mean(name, all_pages())
            raise RejectedError(f"there is no page {name!r}{near}. Run `txn docs search WORDS`")
        _show_found(" ".join(asked), as_json=as_json)
    elif text and page is not None:
        print_text(page.text)
    elif text:
        print_lines(_contents())
    else:
        _open(page, name or "index", opens=not path and not as_json, as_json=as_json)


def _page_name(given: str) -> str:
    """The name of the page that is meant; the given one if that is none, or several."""
    name = given.removesuffix(".md").strip("/")
    named = [each for each in all_pages() if each.rpartition("/")[2] == name]
    return named[0] if len(named) == 1 and name not in all_pages() else name


def _contents() -> Iterator[str]:
    """The table of contents: the title of each page beside the words that open it."""
    pages = all_pages()
    for section, names in sections_of(pages):
        width = max(map(len, names))
        yield from (section, *(f"  {name:<{width}}  {pages[name].title}" for name in names), "")
    yield "`txn docs PAGE --text` prints a page, and `txn docs search WORDS` finds one."


def _open(page: Page | None, name: str, *, opens: bool, as_json: bool) -> None:
    try:
        place = html_path(name)
    except OSError as error:
        raise RejectedError(
            f"the pages cannot be written: {error}. Give XDG_CACHE_HOME a directory, or --text"
        ) from error
    if as_json:
        print_json(_as_data(name, "txn" if page is None else page.title, place))
        return
    if opens and sys.stdout.isatty():
        with suppress(webbrowser.Error):
            if webbrowser.open(place.as_uri()):
                print_text(f"opened {place.as_uri()}")
                return
    print_text(str(place))


def _show_found(question: str, *, as_json: bool) -> None:
    found = search(question)
    if as_json:
        print_json(
            [
                {"page": each.page.name, "title": each.page.title, "line": each.line}
                for each in found
            ]
        )
    elif found:
        print_lines(line for each in found for line in _lines(each))
    else:
        raise RejectedError(f"no page has a word of {question!r}. `txn docs` lists all pages")


def _lines(found: Found) -> list[str]:
    line = found.line if len(found.line) <= 96 else f"{found.line[:95]}…"
    return [f"txn docs {found.page.name}", f"    {found.page.title}: {line}"]


def _as_data(name: str, title: str, place: Path) -> dict[str, Any]:
    return {"page": name, "title": title, "path": str(place), "url": place.as_uri()}
