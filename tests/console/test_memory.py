"""The memory of a console whose tabs follow a cluster for long."""

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from support.brokers import BrokerProcess
from support.clients import (
    commit_values,
    create_topic,
    send,
    transactional_producer,
)
from txn.cli.cluster import Cluster
from txn.console.pages import PAGES
from txn.console.pages.activity import SAMPLES_MAX
from txn.console.site import Site, View, Visit
from txn.console.sources import Way

REFRESHES = 500
GROWTH_MAX = 100 * REFRESHES
"""Bytes that may be more after the last refresh: less than one small object for each."""

FOLLOWED = {
    path: served.ask
    for page in PAGES
    for path, served in page.routes
    if isinstance(served, View) and path in ("/", "/transactions", "/topics", "/activity")
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = BrokerProcess(tmp_path_factory.mktemp("memory") / "data")
    servers = broker.bootstrap_servers
    for name in ("orders", "invoices"):
        create_topic(servers, name, 20)
    commit_values(transactional_producer(servers, "pay-3"), "orders", [b"1"])
    holder = transactional_producer(servers, "holds")
    holder.begin_transaction()
    send(holder, "invoices", [b"not yet"])
    yield servers
    broker.stop()


@pytest.mark.parametrize("path", FOLLOWED)
def test_a_page_that_is_followed_for_500_looks_keeps_no_memory_of_them(
    servers: str, tmp_path: Path, path: str
) -> None:
    site = Site(Way(Cluster(servers)), PAGES, may_write=False)
    session = site.access.session(site.access.by_token(site.access.token))
    assert session is not None
    scope = {"type": "http", "path": path, "query_string": b"", "headers": [], "path_params": {}}

    def look() -> None:
        visit = Visit(site, Request(scope), session)
        with session.sources.borrowed() as source:
            asked = FOLLOWED[path](visit, source)
        assert asked["is_live"]

    def kept() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    for _ in range(SAMPLES_MAX + 10):  # activity keeps so many points
        look()
    before = kept()
    for _ in range(REFRESHES):
        look()
    growth = kept() - before
    tracemalloc.stop()
    site.access.close()
    assert growth < GROWTH_MAX
