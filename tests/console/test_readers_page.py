"""The page that names who holds the readers back."""

import html
import re
from pathlib import Path

import txn
from console.conftest import Story, tell
from support.at_work import copy_at_work
from support.clients import create_topic
from support.console import ConsoleProcess


def test_the_first_page_names_the_holder_its_client_and_the_event_that_ends_it(
    story: Story,
) -> None:
    text = story.console.browser().get("/").text
    assert 'href="/readers/orders/0"' in text
    assert 'href="/readers/invoices/0"' in text
    assert "pay-3" in text
    assert "payments" in text
    assert "else the coordinator aborts it at" in text
    assert "<dt>past their timeout or hanging</dt>" in text
    assert "It may need you too if its client is dead" in text
    footer = text.partition("The same in a terminal")[2]
    commands = re.findall(r"txn [^\n<]+", html.unescape(footer))
    assert commands == [f"txn explain --bootstrap {story.servers}"]


def test_the_page_of_a_topic_has_its_life_and_the_command_lines(story: Story) -> None:
    text = story.console.browser().get("/readers/orders").text
    at = f"--bootstrap {story.servers}"
    assert f"txn explain orders {at}" in text
    assert f"txn transactions abort --transactional-id pay-3 {at}" in text
    assert "begun, with orders-0" in text
    assert "No transaction is open in 1 other partition" in text


def test_a_partition_that_holds_nobody_says_so(story: Story) -> None:
    text = story.console.browser().get("/readers/orders/1").text
    assert "No transaction holds readers back" in text


def test_an_unknown_topic_is_an_error_page_with_the_nearest_name(story: Story) -> None:
    answer = story.console.browser().get("/readers/order")
    assert answer.status == 404
    assert "did you mean orders?" in answer.text


def test_the_files_of_a_stopped_broker_tell_the_same(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with txn.Broker(data, durability="process") as broker:
        create_topic(broker.bootstrap_servers, "quiet")
        holder = tell(broker.bootstrap_servers)
        copy_at_work(data, tmp_path / "copy")
        holder.abort_transaction()
    console = ConsoleProcess("--data", tmp_path / "copy")
    browser = console.browser()
    assert "pay-3" in browser.get("/").text
    assert "start the broker" in browser.get("/readers/orders").text
    assert browser.get("/readers/quiet").status == 200
    assert console.stop() == 0
