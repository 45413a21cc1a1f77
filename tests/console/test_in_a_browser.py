"""The console in a real browser: scripts, keyboard, contrast and names for all, hostile records.

`make screenshots WHERE=…` makes pictures of the pages, to look at, in light, dark and narrow.
"""

from collections.abc import Iterator

import pytest
from starlette.routing import compile_path

import txn.processor
from console.conftest import HOSTILE_ID, SCRIPT, Story
from console.letters import make_letters
from support.clients import (
    commit_values,
    create_topic,
    plain_producer,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.samples import sampled
from txn.console.pages import PAGES
from txn.console.site import Action, Download

playwright = pytest.importorskip("playwright.sync_api")
from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import Browser, Page, ViewportSize, expect  # noqa: E402

from console.browser import CHROMIUM, chromium_browser, open_page  # noqa: E402

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium: `make browser` installs it by apt"
)

PATHS = {
    "readers": "/",
    "readers-topic": "/readers/orders",
    "readers-partition": "/readers/orders/0",
    "transactions": "/transactions",
    "transaction": "/transactions/one?id=pay-3",
    "abort": "/transactions/abort?id=pay-3",
    "topics": "/topics?internal=1",
    "topic": "/topics/orders",
    "records": "/topics/orders/0?from=earliest",
    "record": "/topics/orders/0/5?as=text",
    "search": "/topics/orders/search?value=a",
    "groups": "/groups",
    "group": "/groups/one?id=shelf",
    "reset": "/groups/reset?id=shelf&topic=orders&to=latest",
    "activity": "/activity",
    "cluster": "/cluster",
    "settings": "/cluster/1?all=1",
    "access": "/access",
    "users": "/access/users",
    "quotas": "/access/quotas",
    "dead-letters": "/dead-letters?topic=parcels-dead",
    "dead-letter": "/dead-letters/one?topic=parcels-dead&letter=0:0",
    "redrive": "/dead-letters/redrive?topic=parcels-dead",
    "missing": "/nothing/here",
    "login": "/login",
}

DARK = sampled(list(PATHS), 3)
"""The pages whose contrast is measured in dark too; all share the same few colours."""

ACTIONS = {
    "/transactions/do/abort": "test_the_keyboard_alone_finds_a_transaction_and_aborts_it",
    "/groups/do/reset": "test_the_keyboard_alone_moves_the_offsets_of_a_group",
    "/dead-letters/do/redrive": "test_the_keyboard_alone_redrives_the_letters_of_a_topic",
    "/logout": "test_a_log_out_leads_to_the_log_in",
    "/login": "test_a_log_out_leads_to_the_log_in",
}
"""Each address that changes something, and the test that does it by the keyboard."""

FOCUSABLE_MAX = 200

PARCELS = [b"a parcel", SCRIPT]


@pytest.fixture(scope="module", autouse=True)
def shelf(story: Story) -> None:
    """A group with offsets and without members."""
    make_group(story, "shelf")


@pytest.fixture(scope="module", autouse=True)
def parcels(story: Story) -> None:
    """A topic of dead letters."""
    make_letters(story, "parcels", PARCELS, refuse)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with chromium_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def seen(chromium: Browser, story: Story) -> Iterator[tuple[Page, list[str]]]:
    """A page with a session."""
    with open_page(chromium, story.console.url) as found:
        yield found


@pytest.mark.parametrize("name", PATHS)
def test_every_page_is_without_violations_complaints_and_sideways_scrolling(
    seen: tuple[Page, list[str]], story: Story, name: str
) -> None:
    page, complaints = seen
    complaints.clear()
    page.emulate_media(color_scheme="light")
    page.goto(f"{story.console.base}{PATHS[name]}")
    expect(page.locator("h1")).to_be_visible()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]
    if name in DARK:
        page.emulate_media(color_scheme="dark")
        contrast = Axe().run(page, options={"runOnly": ["color-contrast"]})
        assert contrast.violations_count == 0, contrast.generate_report()
    assert [each for each in complaints if "status of 404" not in each] == []


def test_every_route_of_the_site_is_among_the_pages_and_actions_of_this_module() -> None:
    """The page of a group and the plan of a reset were in no test of a browser."""
    shown = {route_of(path) for path in PATHS.values()}
    for page in PAGES:
        for path, served in page.routes:
            if isinstance(served, Action):
                assert ACTIONS[path] in globals()
            elif not isinstance(served, Download):
                assert path in shown


def route_of(address: str) -> str | None:
    """The route of an address; None: it belongs to no page."""
    path = address.partition("?")[0]
    for page in PAGES:
        for route, served in page.routes:
            if not isinstance(served, Action) and compile_path(route)[0].match(path):
                return route
    return None


def test_tab_reaches_everything_that_can_be_used_on_every_page(
    seen: tuple[Page, list[str]], story: Story
) -> None:
    """Links, fields, buttons and parts that scroll; each shows that it has the focus."""
    page, _ = seen
    for name, path in PATHS.items():
        page.goto(f"{story.console.base}{path}")
        count = page.evaluate(COUNT_FOCUSABLE)
        assert 0 < count < FOCUSABLE_MAX, name
        for _ in range(3 * count):  # a part that is refreshed meanwhile gives the focus away
            page.keyboard.press("Tab")
            if not page.evaluate(LEFT_OUT):
                break
        assert page.evaluate(LEFT_OUT) == [], name


COUNT_FOCUSABLE = """() => {
  const all = 'a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]';
  window.wanted = [...document.querySelectorAll(all)].filter((each) => each.checkVisibility());
  window.reached = new Set();
  document.addEventListener("focusin", (event) => {
    const shown = getComputedStyle(event.target).outlineStyle !== "none";
    if (shown) window.reached.add(event.target);
  });
  return window.wanted.length;
}"""
"""Notes the elements that can have the focus and those that get it; returns their number."""

LEFT_OUT = """() => window.wanted.filter((each) => each.isConnected && !window.reached.has(each))
  .map((each) => each.outerHTML.slice(0, 80))"""


def test_a_narrow_screen_scrolls_no_page_sideways(chromium: Browser, story: Story) -> None:
    narrow = ViewportSize(width=390, height=800)
    with open_page(chromium, story.console.url, size=narrow) as (page, _):
        for name, path in PATHS.items():
            page.goto(f"{story.console.base}{path}")
            widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            assert widths[0] <= widths[1], name


def test_a_hostile_record_runs_nothing_and_changes_no_page(chromium: Browser, story: Story) -> None:
    with open_page(chromium, story.console.url) as (page, complaints):
        for path in ("/topics/orders/0?from=earliest", "/topics/orders/0/5", "/transactions"):
            page.goto(f"{story.console.base}{path}")
            assert "owned" not in page.title()
            assert page.locator("main script, main b, main i").count() == 0
        expect(page.get_by_role("link", name=HOSTILE_ID, exact=True)).to_be_visible()
        assert complaints == []


def test_the_page_follows_the_cluster_and_can_be_paused(chromium: Browser, story: Story) -> None:
    with open_page(chromium, f"{story.console.url}") as (page, _):
        page.goto(f"{story.console.base}/transactions?prefix=comes-")
        expect(page.get_by_text("No transactional id fits")).to_be_visible()
        expect(page.get_by_role("status")).to_have_text("Live")
        commit_values(transactional_producer(story.servers, "comes-later"), "orders", [b"1"])
        expect(page.get_by_role("link", name="comes-later")).to_be_visible(timeout=30_000)
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("status")).to_have_text("Paused")
        expect(page.get_by_role("button", name="Follow")).to_be_visible()


def test_a_part_that_comes_while_text_is_selected_is_shown_afterwards(
    chromium: Browser, story: Story
) -> None:
    """The part was dropped, and the page said Live without it."""
    make_group(story, "select-1")
    with open_page(chromium, story.console.url) as (page, _):
        page.goto(f"{story.console.base}/groups?name=select-")
        page.get_by_role("link", name="select-1").wait_for()
        expect(page.get_by_role("status")).to_have_text("Live")
        page.evaluate(
            "getSelection().selectAllChildren(document.querySelector('#live th[scope=row]'))"
        )
        with page.expect_event("console", lambda message: message.text == "came"):
            page.evaluate(
                "{ const parse = JSON.parse; JSON.parse = (text) => {"
                " if (String(text).includes('select-2')) console.log('came');"
                " return parse(text); } }"
            )
            make_group(story, "select-2")
        expect(page.get_by_role("link", name="select-2")).to_have_count(0)
        page.evaluate("getSelection().removeAllRanges()")
        expect(page.get_by_role("link", name="select-2")).to_be_visible()


def test_a_page_whose_session_has_ended_leads_to_the_log_in(
    chromium: Browser, story: Story
) -> None:
    """The page tried for ever, with no word about the session."""
    with open_page(chromium, story.console.url) as (page, _):
        expect(page.get_by_role("status")).to_have_text("Live")
        other = page.context.new_page()
        other.goto(story.console.base)
        other.get_by_role("button", name="Log out").click()
        link = page.get_by_role("link", name="Log in again")
        expect(link).to_be_visible(timeout=30_000)
        link.click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_search_is_stopped_by_its_button(chromium: Browser, story: Story) -> None:
    create_topic(story.servers, "sought")
    send(plain_producer(story.servers), "sought", [b"needle"] * 500)
    with open_page(chromium, story.console.url) as (page, _):
        slow = page.context.new_cdp_session(page)
        speed = {"offline": False, "latency": 0, "uploadThroughput": -1}
        slow.send("Network.enable")
        slow.send("Network.emulateNetworkConditions", {**speed, "downloadThroughput": 20_000})
        address = f"{story.console.base}/topics/sought/search?value=needle"
        page.goto(address, wait_until="commit")
        page.get_by_role("button", name="Stop the search").click()
        expect(page.get_by_text("Stopped. Search again to go on.")).to_be_visible()
        assert page.locator(".found li").count() < 500
        slow.send("Network.emulateNetworkConditions", {**speed, "downloadThroughput": -1})
        page.goto(address)
        expect(page.locator(".found li:not(.progress)")).to_have_count(500)
        expect(page.get_by_role("button", name="Stop the search")).to_have_count(0)


def test_without_scripts_every_page_is_whole(chromium: Browser, story: Story) -> None:
    with open_page(chromium, story.console.url, scripts=False) as (page, _):
        for name, path in PATHS.items():
            page.goto(f"{story.console.base}{path}")
            expect(page.locator("h1")).to_be_visible()
            expect(page.locator("#follow:visible, #search:visible")).to_have_count(0)
            assert page.locator("nav[aria-label=Pages] a").count() > 0 or name == "login"


def test_the_keyboard_alone_finds_a_transaction_and_aborts_it(
    chromium: Browser, story: Story
) -> None:
    producer = transactional_producer(story.servers, "by-keyboard")
    producer.begin_transaction()
    producer.produce("orders", b"typed", partition=1)
    producer.flush()
    with open_page(chromium, story.console.url) as (page, _):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        tab_to(page, "Transactions")
        page.keyboard.press("Enter")
        page.wait_for_url("**/transactions")
        tab_to(page, "Ids that begin with")
        page.keyboard.type("by-key")
        page.keyboard.press("Enter")
        page.wait_for_url("**prefix=by-key**")
        tab_to(page, "by-keyboard")
        page.keyboard.press("Enter")
        page.wait_for_url("**/transactions/one**")
        tab_to(page, "See what an abort would do")
        page.keyboard.press("Enter")
        page.wait_for_url("**/transactions/abort**")
        tab_to(page, "Abort it")
        page.keyboard.press("Enter")
        page.wait_for_url("**/transactions/one**")
        expect(page.get_by_text("See what an abort would do")).to_have_count(0)


def test_the_keyboard_alone_moves_the_offsets_of_a_group(chromium: Browser, story: Story) -> None:
    make_group(story, "by-keyboard")
    with open_page(chromium, story.console.url) as (page, _):
        page.goto(f"{story.console.base}/groups/one?id=by-keyboard")
        tab_to(page, "To a place")
        page.keyboard.type("latest")
        page.keyboard.press("Enter")
        page.wait_for_url("**/groups/reset**")
        expect(page.get_by_text("Nothing is changed yet")).to_be_visible()
        tab_to(page, "Move them")
        page.keyboard.press("Enter")
        page.wait_for_url("**/groups/one**")


def test_the_keyboard_alone_redrives_the_letters_of_a_topic(
    chromium: Browser, story: Story
) -> None:
    make_letters(story, "typed", PARCELS, refuse)
    with open_page(chromium, story.console.url) as (page, _):
        page.goto(f"{story.console.base}/dead-letters")
        tab_to(page, "typed-dead")
        page.keyboard.press("Enter")
        page.wait_for_url("**/dead-letters?topic=typed-dead")
        tab_to(page, "See what a redrive of these would do")
        page.keyboard.press("Enter")
        page.wait_for_url("**/dead-letters/redrive**")
        expect(page.get_by_text("Nothing is done yet")).to_be_visible()
        tab_to(page, "Redrive them")
        page.keyboard.press("Enter")
        expect(page.get_by_text("No dead letter is left")).to_be_visible()


def test_a_log_out_leads_to_the_log_in(chromium: Browser, story: Story) -> None:
    with open_page(chromium, story.console.url) as (page, _):
        tab_to(page, "Log out")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        tab_to(page, "Token")
        page.keyboard.type(story.console.token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Who holds the readers back")).to_be_visible()


def make_group(story: Story, name: str) -> None:
    words = ("reset-offsets", name, "--topic", "orders", "--to", "earliest", "--yes")
    assert run_txn("groups", *words, "--bootstrap", story.servers)[0] == 0


def refuse(record: txn.processor.Record) -> None:
    """Fail on every record."""
    raise ValueError(f"no price for {record.value!r}")


def tab_to(page: Page, words: str) -> None:
    """Press Tab until an element with these words has the focus, which can be seen."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "(() => { const e = document.activeElement; const s = getComputedStyle(e); return ["
            "(e.labels && e.labels[0] ? e.labels[0].textContent : e.textContent).trim(),"
            "s.outlineStyle]; })()"
        )
        if focused[0] == words:
            assert focused[1] != "none"
            return
    raise AssertionError(f"Tab does not reach {words!r}")
