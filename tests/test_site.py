"""The site that Sphinx makes: its links, what a page loads, and its search box in a real browser.

Sphinx finds the pages that have all words of a search. `docs/scorer.js` adds pages that lack one,
and ranks them.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from txn.manual.__main__ import write_pages
from txn.manual.pages import all_pages

ROOT: Final = Path(__file__).parent.parent
FIRST: Final = 3

SEARCHES: Final = {
    "hanging transaction abort": "how-to/end-a-hanging-transaction",
    "transaction hangs": "how-to/end-a-hanging-transaction",
    "restart broker": "how-to/run-a-broker",
    "read_committed consumer stopped": "how-to/run-a-broker",
    "run broker in pytest": "how-to/test-an-application",
    "fenced": "errors/fenced",
    "INVALID_PRODUCER_EPOCH": "errors/fenced",
    "TOPIC_AUTHORIZATION_FAILED": "errors/codes",
    "address in use": "errors/address",
    "fork": "errors/forked",
    "corrupt log": "errors/corrupt-log",
    "disk full": "settings",
    "txn.timed_out": "errors/log-lines",
    "spark exactly once": "concepts/delivery-semantics",
    "asyncio": "how-to/asyncio",
    "threads": "how-to/transactions-in-threads",
    "dead letter": "how-to/dead-letters",
    "table state": "how-to/keep-state-in-a-table",
    "schema registry": "how-to/schemas",
    "confluent-kafka": "how-to/move-from-confluent-kafka",
    "mirrormaker": "how-to/move-from-mirrormaker",
    "TLS broker": "how-to/secure-a-broker",
    "SASL SCRAM": "security-broker",
    "producer quota": "quotas",
    "prometheus": "metrics",
    "opentelemetry": "tracing",
    "kafka clients": "clients",
    "data directory apache kafka": "interchange",
    "num.partitions": "reference/broker-settings",
    "console": "console",
    "systemd": "deploy",
    "hanging xyzzy transaction": "how-to/end-a-hanging-transaction",
    "kubernetes prometheus": "metrics",
    "xyzzy prometheus plugh": "metrics",
}
"""The words that a reader types, and a page that is to be among the first."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does it: a warning is an error."""
    place = tmp_path_factory.mktemp("site")
    write_pages(place / "pages")
    options = ["-q", "-W", "-n", "--keep-going", "-c", str(ROOT / "docs")]
    command = [sys.executable, "-m", "sphinx", *options, str(place / "pages"), str(place / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / "html"


def test_the_site_is_built_without_a_warning_and_without_an_address_to_load(site: Path) -> None:
    """Every link, anchor and reference is checked."""
    for name in all_pages():
        html = (site / f"{name}.html").read_text()
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"([^\"]+)", html)
        assert [each for each in loaded if "//" in each] == []


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """The lines of requests are nobody's."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_search_box_shows_the_right_page_among_the_first_three(address: str) -> None:
    pytest.importorskip("playwright.sync_api")
    from console.browser import CHROMIUM, chromium_browser

    if CHROMIUM is None:
        pytest.skip("there is no chromium: `make browser` installs it by apt")
    missed = {}
    with chromium_browser() as browser:
        page = browser.new_page()
        for words, wanted in SEARCHES.items():
            page.goto(f"{address}/search.html?q={quote(words)}")
            page.locator("#search-results p.search-summary", has_text="found").wait_for()
            links = page.locator("#search-results ul.search > li > a").evaluate_all(
                f"found => found.slice(0, {FIRST}).map(each => each.getAttribute('href'))"
            )
            if wanted not in [re.split(r"\.html", link)[0] for link in links]:
                missed[words] = links
    assert missed == {}
