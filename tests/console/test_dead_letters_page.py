"""The pages of dead letters: the list, one letter, and the redrive of one or all."""

import html

import pytest

from console.conftest import SCRIPT, Story
from console.letters import make_letters
from console.test_transactions_page import form_of
from support.command_line import run_txn
from support.console import ConsoleProcess
from txn.processor import Record

VALUES = [b'{"item": "plum"}', SCRIPT, b"nonsense"]


def refuse(record: Record) -> None:
    """Fail on every record; the message of the error is hostile."""
    raise (KeyError if record.value == SCRIPT else ValueError)(SCRIPT.decode())


@pytest.fixture
def dead(story: Story, request: pytest.FixtureRequest) -> str:
    """A topic of three dead letters for each test."""
    topic = f"sold-{abs(hash(request.node.name)) % 10**9}"
    return make_letters(story, topic, VALUES, refuse)


def records(story: Story, topic: str) -> list[str]:
    code, out, _ = run_txn("consume", topic, "--bootstrap", story.servers)
    assert code == 0
    return out.splitlines()


def test_letters_are_listed_with_their_errors_and_nothing_of_them_is_markup(
    story: Story, dead: str
) -> None:
    browser = story.console.browser()
    assert f'href="/dead-letters?topic={dead}"' in browser.get("/dead-letters").text
    page = browser.get(f"/dead-letters?topic={dead}").text
    assert page.count('href="/dead-letters/one?') == 3
    assert html.escape(SCRIPT.decode(), quote=False) in html.unescape(page).replace(
        "<", "&lt;"
    ).replace(">", "&gt;")
    assert SCRIPT.decode() not in page
    assert f"txn dead-letters list {dead} --bootstrap {story.servers}" in page
    some = browser.get(f"/dead-letters?topic={dead}&error=KeyError").text
    assert some.count('href="/dead-letters/one?') == 1
    assert f"txn dead-letters list {dead} --error KeyError" in some


def test_a_letter_is_shown_with_its_origin_error_and_value(story: Story, dead: str) -> None:
    page = story.console.browser().get(f"/dead-letters/one?topic={dead}&letter=0:0").text
    assert "ValueError" in page
    assert "in refuse" in page
    assert "&#34;plum&#34;" in page
    assert f"/topics/{dead.removesuffix('-dead')}/0?from=0" in page
    assert f"txn dead-letters show {dead} 0:0 --bootstrap {story.servers}" in page
    missing = story.console.browser().get(f"/dead-letters/one?topic={dead}&letter=0:9")
    assert (missing.status, "has no dead letter 0:9" in html.unescape(missing.text)) == (404, True)


def test_one_letter_is_redriven_and_then_the_others(story: Story, dead: str) -> None:
    topic = dead.removesuffix("-dead")
    browser = story.console.browser()
    page = browser.get(f"/dead-letters/redrive?topic={dead}&letter=0:1").text
    assert f"txn dead-letters redrive {dead} --letter 0:1 --bootstrap {story.servers}" in page
    assert len(records(story, topic)) == 3
    done = browser.post("/dead-letters/do/redrive", form_of(page))
    assert (done.status, done.headers["location"]) == (303, f"/dead-letters?topic={dead}")
    assert records(story, topic)[3:] == [SCRIPT.decode()]
    again = browser.post("/dead-letters/do/redrive", form_of(page))
    assert (again.status, "Nothing was done" in again.text) == (403, True)
    rest = form_of(browser.get(f"/dead-letters/redrive?topic={dead}").text)
    assert browser.post("/dead-letters/do/redrive", rest).status == 303
    assert len(records(story, topic)) == 6
    assert "No dead letter is left" in browser.get(f"/dead-letters?topic={dead}").text


def test_a_redrive_needs_the_secret_of_the_session_and_a_plan(story: Story, dead: str) -> None:
    browser = story.console.browser()
    form = form_of(browser.get(f"/dead-letters/redrive?topic={dead}").text)
    assert browser.post("/dead-letters/do/redrive", {**form, "csrf": "x"}).status == 403
    assert browser.post("/dead-letters/do/redrive", {**form, "planned": "x"}).status == 403
    stranger = story.console.browser()
    assert (
        stranger.post("/dead-letters/do/redrive", {**form, "csrf": stranger.csrf()}).status == 403
    )
    assert len(records(story, dead.removesuffix("-dead"))) == 3


def test_a_console_that_may_not_write_shows_the_command_alone(story: Story, dead: str) -> None:
    console = ConsoleProcess("--bootstrap", story.servers)
    browser = console.browser()
    page = browser.get(f"/dead-letters/redrive?topic={dead}").text
    assert "Redrive them" not in page
    assert f"txn dead-letters redrive {dead}" in page
    form = (
        {"csrf": browser.csrf(), "planned": "x"} if 'name="csrf"' in browser.get("/").text else {}
    )
    assert browser.post("/dead-letters/do/redrive", form).status == 403
    assert console.stop() == 0
