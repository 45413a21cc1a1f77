"""The pages of groups of both protocols, and the reset of offsets."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from console.conftest import Story
from console.test_transactions_page import form_of
from support.clients import WAIT_S, create_topic, plain_producer, send, transactional_producer
from support.command_line import run_txn
from support.console import ConsoleProcess
from txn.cluster.facts import PartitionOffsets
from txn.cluster.groups import PartitionLag
from txn.cluster.source import ClusterSource
from txn.console.access import PLANS_MAX, Plans
from txn.console.pages.groups import counted_places


@contextmanager
def reader(story: Story, group: str, records: int, **settings: str) -> Iterator[Consumer]:
    """A consumer that has committed so many records of `read`."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": story.servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **given,
        }
    )
    consumer.subscribe(["read"])
    while records:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            consumer.commit(message=message, asynchronous=False)
            records -= 1
    yield consumer
    consumer.close()


@pytest.fixture(scope="module")
def topic(story: Story) -> str:
    """Two committed records, one aborted, one committed: three for a reader."""
    create_topic(story.servers, "read")
    send(plain_producer(story.servers), "read", [b"1", b"2"])
    producer = transactional_producer(story.servers, "of-read")
    for ending, value in ((producer.abort_transaction, b"no"), (producer.commit_transaction, b"3")):
        producer.begin_transaction()
        send(producer, "read", [value])
        ending()
    return "read"


def test_a_group_behind_an_open_transaction_is_shown_with_the_way_to_it(story: Story) -> None:
    """It "has read everything", and its consumer got nothing."""
    consumer = Consumer({"bootstrap.servers": story.servers, "group.id": "behind"})
    (low, high) = consumer.get_watermark_offsets(TopicPartition("orders", 0), WAIT_S)
    assert low < high
    consumer.commit(offsets=[TopicPartition("orders", 0, low)], asynchronous=False)
    consumer.close()
    text = story.console.browser().get("/groups/one?id=behind").text
    assert "An open transaction holds back the records of" in text
    assert 'href="/readers/orders/0">See what will end it' in text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_each_protocol_shows_lag_in_committed_records_and_owners(
    story: Story, topic: str, protocol: str
) -> None:
    with reader(story, f"shop-{protocol}", 1, group_protocol=protocol, client_id="till"):
        browser = story.console.browser()
        text = browser.get(f"/groups/one?id=shop-{protocol}").text
        assert "<dd>2</dd>" in text  # neither markers nor the aborted record count
        assert "not drained" in text
        assert text.count("till") >= 2
        assert f"{protocol.capitalize()} protocol" in text
        assert "Stop them first" in text
        refused = browser.get(f"/groups/reset?id=shop-{protocol}&topic=read&to=earliest")
        assert (refused.status, "at work" in refused.text) == (403, True)
    listed = story.console.browser().get("/groups?name=shop").text
    assert f"id=shop-{protocol}" in listed
    assert f"txn groups list --bootstrap {story.servers}" in listed


def test_a_reset_shows_its_plan_and_moves_what_the_plan_showed(story: Story, topic: str) -> None:
    with reader(story, "mover", 2):
        pass
    browser = story.console.browser()
    page = browser.get("/groups/reset?id=mover&topic=read&to=earliest").text
    assert "txn groups reset-offsets mover --topic read --to earliest" in page
    form = form_of(page)
    done = browser.post("/groups/do/reset", form)
    assert done.headers["location"] == "/groups/one?id=mover"
    assert committed(story, "mover") == 0
    again = browser.post("/groups/do/reset", form)
    assert (again.status, "Nothing was done" in again.text) == (403, True)
    shifted = form_of(browser.get("/groups/reset?id=mover&shift_by=1").text)
    assert browser.post("/groups/do/reset", shifted).status == 303
    assert committed(story, "mover") == 1


def test_a_page_counts_the_records_of_the_partitions_that_it_shows(story: Story) -> None:
    create_topic(story.servers, "many", 120)
    producer = plain_producer(story.servers)
    for partition in range(120):
        producer.produce("many", b"x", partition=partition)
    producer.flush()
    at = ("--bootstrap", story.servers)
    words = ("reset-offsets", "lags", "--topic", "many", "--to", "earliest", "--execute")
    assert run_txn("groups", *words, *at)[0] == 0
    browser = story.console.browser()
    assert "<dd>over 100</dd>" in browser.get("/groups/one?id=lags").text
    second = browser.get("/groups/one?id=lags&part=2&exact=1").text
    assert "<dd>over 20</dd>" in second
    assert "The command below counts every record" in second


def test_counting_ends_at_its_limit_of_offsets() -> None:
    """`exact=1` read every log without a limit."""
    reads: list[tuple[int, int]] = []

    class Source(ClusterSource):
        def __init__(self) -> None:
            pass

        def count_committed(self, partition: tuple[str, int], start: int, end: int) -> int:
            reads.append((start, end))
            return end - start

    places = [
        PartitionLag(("t", index), 0, PartitionOffsets(0, end, end), None)
        for index, end in enumerate((60, 50, 40, 0))
    ]
    found = counted_places(Source(), places, 100)
    assert [each.records for each in found] == [60, None, 40, 0]
    assert reads == [(0, 60), (0, 40)]


@pytest.mark.parametrize(
    "query",
    [
        "id=mover",
        "id=mover&to=earliest&shift_by=1",
        "id=mover&shift_by=x",
        "id=mover&to=nowhere",
        "to=earliest",
    ],
)
def test_a_reset_without_one_place_is_an_error_page(story: Story, topic: str, query: str) -> None:
    answer = story.console.browser().get(f"/groups/reset?{query}")
    assert (answer.status, "Not understood" in answer.text) == (400, True)


def test_a_forged_plan_is_refused(story: Story, topic: str) -> None:
    browser = story.console.browser()
    csrf = browser.csrf()
    for planned in ("", "x", '[["read", 0, null, 1]]'):
        form = {"csrf": csrf, "id": "forged", "planned": planned}
        assert browser.post("/groups/do/reset", form).status == 403
    other = form_of(browser.get("/groups/reset?id=forged&topic=read&to=earliest").text)
    stranger = story.console.browser()
    other["csrf"] = stranger.csrf()
    assert stranger.post("/groups/do/reset", other).status == 403


def test_a_plan_of_any_size_is_carried_out(story: Story) -> None:
    """The plan went through a field of the form, which takes 64 KiB."""
    long = "l" * 240
    create_topic(story.servers, long, 400)
    browser = story.console.browser()
    form = form_of(browser.get(f"/groups/reset?id=wide&topic={long}&to=latest").text)
    done = browser.post("/groups/do/reset", form)
    assert done.headers.get("location") == "/groups/one?id=wide", done.text


def test_a_plan_that_moves_no_offset_offers_no_button(story: Story) -> None:
    page = story.console.browser().get("/groups/reset?id=without-offsets&shift_by=1").text
    assert "The plan moves no offset" in page
    assert "Move them</button>" not in page


def test_a_session_keeps_its_newest_plans_and_takes_each_once() -> None:
    plans = Plans()
    keys = [plans.keep(number) for number in range(PLANS_MAX + 1)]
    assert plans.take(keys[0]) is None
    assert plans.take(keys[1]) == 1
    assert plans.take(keys[1]) is None


def test_offsets_in_an_open_transaction_are_named_with_their_owner(
    story: Story, topic: str
) -> None:
    with reader(story, "waits", 1) as consumer:
        producer = transactional_producer(story.servers, "keeps-offsets")
        producer.begin_transaction()
        place = TopicPartition("read", 0, 2)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata())
        text = story.console.browser().get("/groups/one?id=waits").text
        producer.abort_transaction()
    assert "An open transaction has its next offsets" in text
    assert "keeps-offsets" in text


def test_an_unknown_group_is_an_error_page_and_files_have_no_groups(
    story: Story, tmp_path: object
) -> None:
    answer = story.console.browser().get("/groups/one?id=nobody")
    assert (answer.status, "no group" in answer.text) == (404, True)
    console = ConsoleProcess("--bootstrap", story.servers)
    reset = console.browser().get("/groups/reset?id=nobody&topic=read&to=latest").text
    assert "this makes it" in reset
    assert "Move them</button>" not in reset
    assert console.stop() == 0


def committed(story: Story, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": story.servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition("read", 0)], timeout=WAIT_S)
    consumer.close()
    return int(found.offset)
