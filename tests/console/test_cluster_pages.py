"""The pages of the cluster, of activity, and of access."""

import json
import re

import pytest

from console.conftest import Story
from support.clients import plain_producer, send
from support.command_line import run_txn
from txn.console.lists import part_of
from txn.console.pages.activity import PARTITIONS_MAX, sampled_of
from txn.console.pages.activity.charts import HEIGHT, chart_of, number


def test_the_cluster_page_names_brokers_and_their_settings(story: Story) -> None:
    browser = story.console.browser()
    text = browser.get("/cluster").text
    assert story.servers in text
    assert "controller" in text
    (node,) = re.findall(r'href="/cluster/(\d+)"', text)
    assert "transaction.max.timeout.ms" in browser.get(f"/cluster/{node}?all=1").text
    assert "Show all settings" in browser.get(f"/cluster/{node}?name=nothing").text
    assert browser.get("/cluster/99").status == 404


def test_activity_is_followed_with_rates_and_charts(story: Story) -> None:
    browser = story.console.browser()
    assert "Offsets written a second" in browser.get("/activity?name=orders").text
    producer = plain_producer(story.servers)
    with browser.stream("/activity?name=orders") as stream:
        while True:
            send(producer, "orders", [b"busy"], partition=1)
            line = stream.readline()
            if not line.startswith(b"data: "):
                continue
            part = json.loads(line.removeprefix(b"data: "))
            (rate,) = re.findall(r"Offsets written a second<strong>([^<]+)<", part)
            if rate not in ("–", "0"):
                break
    assert 'role="img"' in part


def test_tabs_with_different_filters_keep_their_points(story: Story) -> None:
    """The past belonged to the session, so two tabs took each other's points away."""
    browser = story.console.browser()
    line = re.compile(r'<polyline class="trace" points="([^"]*)"')
    for _ in range(2):
        for text in ("orders", "invoices"):
            page = browser.get(f"/activity?name={text}").text
    held_back = line.findall(page)[3]
    assert len(held_back.split()) == 2


def test_activity_tells_the_lag_of_groups_and_the_age_of_the_oldest_transaction(
    story: Story,
) -> None:
    words = ("reset-offsets", "behind", "--topic", "orders", "--to", "earliest", "--yes")
    assert run_txn("groups", *words, "--bootstrap", story.servers)[0] == 0
    browser = story.console.browser()
    page = browser.get("/activity?name=orders").text
    (lag,) = re.findall(r"Offsets that groups have yet to read<strong>([\d,]+)<", page)
    (own,) = re.findall(r'id=behind">behind</a>.*?<td class="num">([\d,]+)</td>', page)
    assert int(lag.replace(",", "")) >= int(own.replace(",", "")) > 0
    (age,) = re.findall(r"Oldest open transaction, seconds<strong>([\d,.]+)<", page)
    assert float(age.replace(",", "")) > 0


def test_a_topic_that_is_too_large_hides_no_other() -> None:
    large, small = range(PARTITIONS_MAX + 1), range(3)
    assert sampled_of({"a": large, "b": small}) == {"b": small}
    assert sampled_of({"a": large}) == {"a": range(PARTITIONS_MAX)}
    assert sampled_of({}) == {}


def test_a_chart_stays_within_its_place() -> None:
    chart = chart_of("x", [0, 1_000, 2_000], [None, 5.0, 10.0])
    assert chart.line == f"150.0,{HEIGHT - 38.0} 300.0,4.0"
    assert "at most 10" in chart.words
    assert chart_of("x", [], []).line == ""
    assert chart_of("x", [5], [0]).newest == "0"
    assert (number(None), number(0.26), number(12_345.6)) == ("–", "0.3", "12,346")


@pytest.mark.parametrize(
    ("number_", "first", "last", "has_more"),
    [(1, 1, 10, True), (3, 21, 25, False), (0, 1, 10, True), (99, 21, 25, False)],
)
def test_a_long_list_is_shown_in_parts(number_: int, first: int, last: int, has_more: bool) -> None:
    part = part_of(range(25), number_, 10)
    assert (part.first, part.last, part.has_more, part.total) == (first, last, has_more, 25)
    assert part_of([], 1).items == []


def test_users_and_quotas_are_listed_as_the_commands_list_them(story: Story) -> None:
    at = ("--bootstrap", story.servers)
    assert run_txn("quotas", "set", "--user", "ada", "producer_byte_rate=1048576", *at)[0] == 0
    browser = story.console.browser()
    assert "1,048,576" in browser.get("/access/quotas").text
    assert "No user logs in by SCRAM" in browser.get("/access/users").text
    assert "SECURITY_DISABLED" in browser.get("/access").text
