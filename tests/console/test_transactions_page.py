"""The pages of transactions, and the abort of one."""

import html
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka import KafkaException, TopicPartition

import txn
from console.conftest import HOSTILE_ID, Story
from support.clients import (
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.console import ConsoleProcess
from support.late_batch import let_hang


def test_the_list_has_a_lane_for_each_id_open_ones_first(story: Story) -> None:
    text = story.console.browser().get("/transactions").text
    assert text.index(">pay-3</a>") < text.index("&lt;b&gt;1&lt;/b&gt;")
    lane = re.findall(r'<svg class="lane".*?</svg>', text, re.DOTALL)
    assert len(lane) == 2
    assert {"commit", "abort", "open"} <= set(re.findall(r'<rect class="(\w+)"', lane[0]))


def test_the_list_tells_the_last_request_only_of_an_open_transaction(story: Story) -> None:
    """The request and the connection of a client that has ended its work filled four lines."""
    text = story.console.browser().get("/transactions").text
    clients = [html.unescape(each) for each in re.findall(r'class="under">([^<]*)<', text)]
    of_open, at_rest = clients
    assert re.fullmatch(r"'payments' from 127\.0\.0\.1, Add\w+ToTxn .* ago", of_open)
    assert re.fullmatch(r"'[\w-]+' from 127\.0\.0\.1, [^;A-Z]* ago", at_rest)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("prefix=pay", "pay-3"),
        ("state=Ongoing", "pay-3"),
        ("state=CompleteCommit", "ship"),
        ("longer_than=1d", "No transactional id fits"),
        ("prefix=none", "No transactional id fits"),
    ],
)
def test_the_list_is_filtered_as_the_command_filters_it(
    story: Story, query: str, found: str
) -> None:
    text = story.console.browser().get(f"/transactions?{query}").text
    assert found in text
    assert ("pay-3</a>" in text) == (found == "pay-3")


@pytest.mark.parametrize("query", ["state=Odd", "longer_than=soon", "window=9y", "part=-1"])
def test_a_wrong_filter_is_an_error_page(story: Story, query: str) -> None:
    answer = story.console.browser().get(f"/transactions?{query}")
    assert answer.status == 400
    assert 'role="alert"' in answer.text


def test_the_page_of_a_transaction_has_its_logs_client_age_and_timeout(story: Story) -> None:
    text = story.console.browser().get("/transactions/one?id=pay-3").text
    for found in ("orders-0", "invoices-0", "payments", "15 min 0 s, aborted at", "Every event"):
        assert found in text
    assert f"txn transactions describe pay-3 --bootstrap {story.servers}" in text


def test_any_id_has_an_address_of_its_own(story: Story) -> None:
    answer = story.console.browser().get(f"/transactions/one?id={quote(HOSTILE_ID, safe='')}")
    assert answer.status == 200
    assert "<b>1" not in answer.text
    unknown = story.console.browser().get("/transactions/one?id=pay-4")
    assert (unknown.status, "did you mean pay-3?" in unknown.text) == (404, True)
    assert story.console.browser().get("/transactions/one").status == 400


def test_the_offsets_of_groups_in_a_transaction_are_listed(story: Story) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": story.servers, "group.id": "shop"})
    producer = transactional_producer(story.servers, "offsets")
    producer.begin_transaction()
    send(producer, "orders", [b"with offsets"])
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition("orders", 1, 17)], metadata)
    text = story.console.browser().get("/transactions/one?id=offsets").text
    producer.abort_transaction()
    consumer.close()
    assert "Offsets of groups in it" in text
    assert 'href="/groups/one?id=shop"' in text
    assert '<td class="num">17</td>' in text


def test_an_abort_shows_its_plan_first_and_ends_only_the_transaction_of_the_plan(
    story: Story,
) -> None:
    producer = transactional_producer(story.servers, "to-abort")
    commit_values(producer, "orders", [b"before"])
    producer.begin_transaction()
    send(producer, "orders", [b"to be aborted"])
    browser = story.console.browser()
    form = form_of(browser.get("/transactions/abort?id=to-abort").text)
    forged = browser.post("/transactions/do/abort", {**form, "planned": "x"})
    assert (forged.status, "Nothing was done" in forged.text) == (403, True)
    producer.abort_transaction()
    producer.begin_transaction()
    send(producer, "orders", [b"of another transaction"])
    refused = browser.post("/transactions/do/abort", form)
    assert (refused.status, "another one is open" in refused.text) == (403, True)
    form = form_of(browser.get("/transactions/abort?id=to-abort").text)
    done = browser.post("/transactions/do/abort", form)
    led = done.headers["location"]
    assert (done.status, led.partition("&")[0]) == (303, "/transactions/one?id=to-abort")
    page = browser.get(led).text
    assert "Ongoing" not in page
    assert re.search(r"The abort was carried out. The producer with epoch \d+ is fenced", page)
    assert '<a href="/readers/orders">The readers of orders</a>' in page
    assert "carried out" not in browser.get("/transactions/one?id=to-abort").text
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        producer.commit_transaction()
    assert "There is nothing to abort" in browser.get("/transactions/abort?id=to-abort").text


def test_a_console_without_write_aborts_nothing_and_shows_the_command(story: Story) -> None:
    console = ConsoleProcess("--bootstrap", story.servers)
    browser = console.browser()
    page = browser.get("/transactions/abort?id=pay-3").text
    assert "Abort it</button>" not in page
    assert "Start <code>txn console --write</code>" in page  # `txn serve --console` has no --write
    assert "txn transactions abort --transactional-id pay-3" in page
    form = {"csrf": browser.csrf(), "planned": ""}
    answer = browser.post("/transactions/do/abort", form)
    assert (answer.status, "`txn console --write`" in html.unescape(answer.text)) == (403, True)
    assert "Ongoing" in browser.get("/transactions/one?id=pay-3").text
    assert console.stop() == 0


def test_a_transaction_that_hangs_is_ended_from_the_page_that_explains_it(tmp_path: Path) -> None:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"before"])
        offset = let_hang(broker, "orders", 1_000, b"late")
        console = ConsoleProcess("--bootstrap", servers, "--write")
        browser = console.browser()
        address = f"/transactions/abort?topic=orders&partition=0&offset={offset}"
        for path in ("/", "/readers/orders/0"):
            assert f'href="{html.escape(address)}"' in browser.get(path).text, path
        page = browser.get(address).text
        command = f"txn transactions abort --topic-partition orders-0 --start-offset {offset}"
        assert f"{command} --bootstrap {servers}" in page
        assert "its producer is not told" in page
        form = form_of(page)
        done = browser.post("/transactions/do/abort", form)
        assert (done.status, done.headers["location"]) == (303, "/readers/orders/0")
        assert "No transaction holds readers back" in browser.get("/readers/orders/0").text
        again = browser.post("/transactions/do/abort", form)
        assert (again.status, "carried out already" in again.text) == (403, True)
        gone = browser.get(address)
        assert (gone.status, "is open since offset" in gone.text) == (403, True)
        send(plain_producer(servers), "orders", [b"after"])
        assert read_all(servers, "orders") == [b"before", b"after"]
        assert console.stop() == 0


def test_a_transaction_that_its_coordinator_knows_is_aborted_as_a_whole(story: Story) -> None:
    browser = story.console.browser()
    assert "/transactions/abort?id=pay-3" in browser.get("/readers/orders/0").text
    offset = re.findall(r"offset=(\d+)", browser.get("/readers/orders/0").text)
    assert offset == []
    page = browser.get("/topics/orders/0?from=earliest").text
    first = re.findall(r'<tr class="open">.*?/topics/orders/0/(\d+)"', page, re.DOTALL)[0]
    refused = browser.get(f"/transactions/abort?topic=orders&partition=0&offset={first}")
    assert (refused.status, "open at its coordinator" in refused.text) == (403, True)


def form_of(page: str) -> dict[str, str]:
    """The hidden fields of a page."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found}
