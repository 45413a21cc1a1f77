"""Addresses written by hand: a wrong parameter is an answer that names it, and never a bug."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl, quote, urlencode

import pytest

import txn.console.pages as pages_of_console
from console.conftest import Story
from txn.admin.cluster import RunningCluster
from txn.cluster.facts import PartitionOffsets
from txn.cluster.source import ClusterSource
from txn.console.pages import PAGES
from txn.console.pages.topics.browse import ends_of
from txn.console.site import Action, status_of
from txn.errors import RetriableError
from txn.identifiers import TopicPartition

READERS = frozenset({"text", "raw", "parsed", "chosen", "flag", "number"})
"""The methods of a Visit that read a parameter of the address."""

TEXTS = frozenset(
    {
        *("name", "text", "prefix", "key", "value", "header", "id", "topic"),
        *("original", "error"),
    }
)
"""Parameters that are texts to look for, or names: any is understood."""

PACKAGES = {
    "/": "readers",
    "/transactions": "transactions",
    "/topics": "topics",
    "/groups": "groups",
    "/dead-letters": "dead_letters",
    "/activity": "activity",
    "/cluster": "cluster",
    "/access": "rights",
}

PLACES = {"topic": "orders", "index": "0", "offset": "0", "part": "key", "node": "1"}

QUERIES: dict[str, tuple[str, dict[str, str]]] = {
    # route → the parameters without which the others are not read, and wrong texts of the others
    "/": ("", {"part": "x"}),
    "/readers/{topic}": ("", {"part": "-1"}),
    "/readers/{topic}/{index:int}": ("", {"part": "1.5"}),
    "/transactions": (
        "",
        {"state": "Odd", "longer_than": "soon", "window": "9y", "part": "9" * 20},
    ),
    "/transactions/one": ("id=pay-3&fenced=0", {"id": "", "fenced": "x"}),
    "/transactions/abort": (
        "topic=orders&partition=0&offset=0",
        {"partition": "-1", "offset": "first", "id": ""},
    ),
    "/topics": ("", {"internal": "yes", "part": "x"}),
    "/topics/{topic}": ("", {"part": "x"}),
    "/topics/{topic}/search": (
        "value=a",
        {"partition": "all", "from": "sometime", "value": "0xzz"},
    ),
    "/topics/{topic}/{index}": ("", {"from": "sometime", "as": "xml", "view": "all"}),
    "/topics/{topic}/{index}/{offset}": ("", {"as": "schema"}),
    "/topics/{topic}/{index}/{offset}/{part}": ("", {}),
    "/groups": ("", {"part": "x"}),
    "/groups/one": ("id=g", {"exact": "2", "part": "x", "id": ""}),
    "/groups/reset": ("id=g&topic=orders&to=0", {"to": "nowhere", "shift_by": "x", "id": ""}),
    "/dead-letters": ("topic=orders", {"part": "x"}),
    "/dead-letters/one": ("topic=orders&letter=0:0", {"letter": "x"}),
    "/dead-letters/redrive": ("topic=orders", {"letter": "x"}),
    "/activity": ("", {}),
    "/cluster": ("", {}),
    "/cluster/{node:int}": ("", {"all": "no"}),
    "/access": ("", {"part": "x"}),
    "/access/users": ("", {"part": "x"}),
    "/access/quotas": ("", {"part": "x"}),
}


def routes() -> list[str]:
    """The routes of the site that show something."""
    return [
        path for page in PAGES for path, served in page.routes if not isinstance(served, Action)
    ]


def address(route: str, query: str) -> str:
    for name, value in PLACES.items():
        route = route.replace(f"{{{name}}}", value).replace(f"{{{name}:int}}", value)
    return f"{route}?{query}"


@pytest.mark.parametrize(
    ("route", "name"), [(route, name) for route, (_, wrong) in QUERIES.items() for name in wrong]
)
def test_a_wrong_parameter_is_a_page_that_names_it(story: Story, route: str, name: str) -> None:
    """Wrong words of a search were `Not found`, and a flag that was no flag was passed over."""
    base, wrong = QUERIES[route]
    query = dict(parse_qsl(base))
    if wrong[name]:
        query[name] = wrong[name]
    else:
        query = {other: value for other, value in query.items() if other in ("to", "exact")}
    answer = story.console.browser().get(address(route, urlencode(query)))
    (told,) = re.findall(r'role="alert">(.*?)</p>', answer.text, re.DOTALL)
    assert (answer.status, name in told) == (400, True), told


@pytest.mark.parametrize("route", QUERIES)
def test_no_nonsense_in_an_address_is_a_bug_or_a_large_page(story: Story, route: str) -> None:
    browser = story.console.browser()
    base, wrong = QUERIES[route]
    names = [*dict(parse_qsl(base)), *wrong, *sorted(TEXTS)]
    for nonsense in ("\0", "-1", "9" * 400, "é" * 300, "<script>'\"", "\ud800", " "):
        text = quote(nonsense, errors="surrogatepass")
        answer = browser.get(address(route, "&".join(f"{name}={text}" for name in names)))
        assert answer.status in (200, 400, 403, 404), nonsense
        assert len(answer.body) < 200_000


def test_the_table_of_this_test_has_every_route_and_every_parameter() -> None:
    assert routes() == list(QUERIES)
    for page in PAGES:
        package = Path(pages_of_console.__file__).parent / PACKAGES[page.path]
        known = {
            name
            for path, _ in page.routes
            if path in QUERIES
            for name in [*dict(parse_qsl(QUERIES[path][0])), *QUERIES[path][1]]
        }
        read = set(parameters_in(package))
        assert read - TEXTS == known - TEXTS, package.name


def parameters_in(package: Path) -> Iterator[str]:
    """The parameters of addresses that the modules of a page read."""
    for path in package.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in READERS
                and ast.unparse(node.func.value) == "visit"
                and isinstance(node.args[0], ast.Constant)
            ):
                yield str(node.args[0].value)


def test_a_partition_without_a_leader_is_no_answer_instead_of_a_page_that_is_not_there() -> None:
    class Leaderless(ClusterSource):
        def __init__(self) -> None:
            pass

        def ends(self, partitions: object) -> dict[TopicPartition, PartitionOffsets]:
            return {}

    with pytest.raises(RetriableError, match="no broker leads orders-0") as raised:
        ends_of(cast(RunningCluster, Leaderless()), ("orders", 0))
    assert status_of(raised.value) == 503
