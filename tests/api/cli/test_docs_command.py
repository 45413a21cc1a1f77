"""`txn docs` opens the pages that ship with txn, and finds the one that a question needs."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlparse

import pytest

from txn.manual.pages import all_pages


def docs(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `txn docs`, with standard output in a pipe."""
    command = [sys.executable, "-m", "txn", "docs", *words]
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def docs_at_a_terminal(cache: Path, browser: str, *words: str) -> str:
    """Run `txn docs` at a terminal whose browser is this command; return what it printed."""
    env: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name != "DISPLAY"},
        "XDG_CACHE_HOME": str(cache),
        "BROWSER": browser,
    }
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "txn", "docs", *words]
    done = subprocess.run(command, env=env, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    printed = os.read(ours, 65536).decode()
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")
    return printed.strip()


def test_a_page_is_a_file_that_a_browser_shows_without_a_network(tmp_path: Path) -> None:
    done = docs(tmp_path, "errors/fenced")
    assert (done.returncode, done.stderr) == (0, "")
    html = Path(done.stdout.strip()).read_text()
    assert "<h1" in html
    assert "another instance has its place" in html
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", html) == []
    assert "<script" not in html


def test_each_link_of_each_file_leads_to_a_file_and_an_anchor(tmp_path: Path) -> None:
    index = Path(docs(tmp_path, "--path").stdout.strip())
    files = {path: path.read_text() for path in index.parent.rglob("*.html")}
    assert len(files) == len(all_pages()) + 1
    anchors = {path: set(re.findall(r" id=\"([^\"]+)\"", text)) for path, text in files.items()}
    for path, text in files.items():
        for target in re.findall(r"<a href=\"([^\"]+)\"", text):
            if "://" in target:
                continue
            place, _, anchor = target.partition("#")
            led = (path.parent / place).resolve() if place else path
            assert led in files, f"{path}: {target}"
            assert not anchor or anchor in anchors[led], f"{path}: {target}"


def test_json_has_the_name_the_title_the_path_and_the_address(tmp_path: Path) -> None:
    told = json.loads(docs(tmp_path, "settings", "--json").stdout)
    assert (told["page"], told["title"]) == ("settings", "Settings")
    assert urlparse(told["url"]).path == told["path"]
    assert Path(told["path"]).is_file()


def test_a_page_as_text_is_its_markdown(tmp_path: Path) -> None:
    done = docs(tmp_path, "damage", "--text")
    assert done.stdout.startswith("# Damaged or missing files\n")
    assert list(tmp_path.iterdir()) == []


def test_the_contents_as_text_name_every_page_with_its_title(tmp_path: Path) -> None:
    """It printed the path of an HTML file, to a reader without a browser."""
    done = docs(tmp_path, "--text")
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  ")]
    assert dict(rows) == {name: page.title for name, page in all_pages().items()}
    assert list(tmp_path.iterdir()) == []


def test_at_a_terminal_the_page_opens_in_the_browser(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {asked}\n')
    browser.chmod(0o755)
    printed = docs_at_a_terminal(tmp_path, str(browser), "errors/in-doubt")
    url = asked.read_text().strip()
    assert url.endswith("/errors/in-doubt.html")
    assert printed == f"opened {url}"


def test_without_a_browser_the_path_is_printed(tmp_path: Path) -> None:
    printed = docs_at_a_terminal(tmp_path, "/nonexistent/browser", "errors/in-doubt")
    assert printed.endswith("/errors/in-doubt.html")
    assert Path(printed.removeprefix("opened file://")).is_file()


@pytest.mark.parametrize("words", [("search", "disk", "full"), ("disk", "full")])
def test_words_are_searched_for(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = docs(tmp_path, *words)
    assert done.returncode == 0
    assert "txn docs errors/storage\n" in done.stdout


def test_a_search_as_json_names_pages_with_titles(tmp_path: Path) -> None:
    found = json.loads(docs(tmp_path, "search", "quotas", "--json").stdout)
    assert found[0]["page"] == "quotas"
    assert found[0]["title"] == "Quotas"


@pytest.mark.parametrize("words", [("errors/fence",), ("fnord", "--path"), ("search", "xyzzy")])
def test_what_is_not_there_is_refused_with_the_next_step(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = docs(tmp_path, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "txn docs" in done.stderr


def test_a_misspelled_page_is_told_with_the_one_that_is_close(tmp_path: Path) -> None:
    assert "did you mean errors/fenced?" in docs(tmp_path, "errors/fence").stderr


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = docs(tmp_path / "file", "settings")
    assert done.returncode == 1
    assert "XDG_CACHE_HOME" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_search_takes_words_that_look_like_options(tmp_path: Path) -> None:
    """`kill -9` ended with "No such option: -9"."""
    words = ("search", "kill", "-9", "broker", "lost", "--no-such", "data")
    done = docs(tmp_path, *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "page" in json.loads(done.stdout)[0]


@pytest.mark.parametrize("words", [("settings", "--txt"), ("kill", "-9")])
def test_an_unknown_option_without_a_search_is_wrong_usage(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = docs(tmp_path, *words)
    told = f"txn: No such option: {words[1]}. To search for it, give `txn docs search`"
    assert (done.returncode, done.stdout, done.stderr.startswith(told)) == (2, "", True)


@pytest.mark.parametrize("folder", ["errors", "how-to"])
def test_the_last_name_of_a_page_is_enough_where_one_page_has_it(
    tmp_path: Path, folder: str
) -> None:
    """They were searched for, though a message or a link names them."""
    names = [each for each in all_pages() if each.startswith(f"{folder}/")]
    last = [each.rpartition("/")[2] for each in all_pages()]
    name = next(each for each in names if last.count(each.rpartition("/")[2]) == 1)
    done = docs(tmp_path, name.rpartition("/")[2], "--text")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"# {all_pages()[name].title[:8]}")
