"""The pages of topics: what is in the log, what a reader sees, and the search."""

import re
import shutil
from pathlib import Path

import pytest

import txn
from console.conftest import BIDI, HOSTILE_ID, NO_TEXT, SCRIPT, Story, tell
from support.at_work import copy_at_work
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.console import ConsoleProcess
from txn.console.pages.topics.records import PAGE_RECORDS
from txn.console.pages.topics.search import FOUND_MAX


def rows(page: str) -> list[tuple[str, str]]:
    """The kind and the text of each row of a log."""
    found = re.findall(r'<tr class="([a-z ]+)">(.*?)</tr>', page, re.DOTALL)
    return [(kind, " ".join(re.sub(r"<[^>]+>", " ", text).split())) for kind, text in found]


def test_the_log_shows_each_record_as_what_became_of_it(story: Story) -> None:
    found = rows(story.console.browser().get("/topics/orders/0?from=earliest").text)
    kinds = [kind for kind, _ in found]
    assert kinds[:6] == [
        *("committed", "committed", "marker commit"),
        *("aborted", "marker abort", "plain"),
    ]
    assert "open" in kinds
    assert "nothing: it is aborted" in found[3][1]
    assert "nothing yet: its transaction is open" in found[kinds.index("open")][1]


def test_the_reader_alone_sees_what_a_real_reader_gets(story: Story) -> None:
    page = story.console.browser().get("/topics/orders/0?from=earliest&view=reader").text
    records = [text for kind, text in rows(page) if not kind.startswith("marker")]
    assert len(records) == len(read_all(story.servers, "orders"))
    assert "taken back" not in page
    assert "not yet" not in page


def test_a_committed_record_behind_an_open_transaction_waits(story: Story) -> None:
    send(plain_producer(story.servers), "invoices", [b"stands behind"])
    found = rows(story.console.browser().get("/topics/invoices/0?from=earliest").text)
    (behind,) = (
        text for _, text in found if "stands behind" in text and "stands behind offset" in text
    )
    assert "nothing yet: it stands behind offset 0" in behind


def test_a_marker_far_behind_the_page_decides_its_records(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with txn.Broker(data, durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "big", 2)
        producer = transactional_producer(servers, "bulk")
        behind = [b"x" * 400_000] * 45  # more than the 16 MiB that are read behind a page
        for partition in (0, 1):
            producer.begin_transaction()
            send(producer, "big", [b"small"] * PAGE_RECORDS, partition)
            send(producer, "big", behind, partition)
            if partition == 0:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
        console = ConsoleProcess("--bootstrap", servers)
        require_decided(console)
    require_decided(ConsoleProcess("--data", data))


def require_decided(console: ConsoleProcess) -> None:
    """Require the right view of the first records of a commit and of an abort."""
    browser = console.browser()
    for partition, kind, seen in ((0, "committed", 50), (1, "aborted", 0)):
        place = f"/topics/big/{partition}"
        found = rows(browser.get(f"{place}?from=0").text)
        assert [each for each, _ in found] == [kind] * PAGE_RECORDS
        assert len(rows(browser.get(f"{place}?from=0&view=reader").text)) == seen
        record = browser.get(f"{place}/0").text
        assert "nothing yet" not in record
        assert ("this record" in record) == bool(seen)
        search = browser.get(f"/topics/big/search?value=small&partition={partition}").text
        assert search.count(f">{kind}</span>") == PAGE_RECORDS
    assert console.stop() == 0


@pytest.mark.parametrize(
    ("place", "first"),
    [("earliest", "0"), ("3", "3"), ("-2", None), ("1h-ago", "0"), ("999", None), ("latest", None)],
)
def test_a_page_begins_at_any_place_that_consume_knows(
    story: Story, place: str, first: str | None
) -> None:
    answer = story.console.browser().get(f"/topics/orders/0?from={place}")
    assert answer.status == 200
    if first is not None:
        assert rows(answer.text)[0][1].startswith(f"{first} ")


@pytest.mark.parametrize("query", ["from=sometime", "as=xml", "view=all"])
def test_a_wrong_place_or_form_is_an_error_page(story: Story, query: str) -> None:
    answer = story.console.browser().get(f"/topics/orders/0?{query}")
    assert answer.status == 400
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 20, "9" * 5_000, "%D9%A3", "3x", "-1"])
def test_a_number_that_no_log_has_is_not_found(story: Story, digits: str) -> None:
    browser = story.console.browser()
    for path in (
        f"/topics/orders/{digits}",
        f"/topics/orders/{digits}/0",
        f"/topics/orders/0/{digits}",
        f"/topics/orders/0/{digits}/value",
        f"/topics/orders/search?value=a&partition={digits}",
        f"/topics/orders/search?value=a&partition=0&from={digits}x",
    ):
        answer = browser.get(path)
        status = 400 if "?" in path else 404
        assert (answer.status, 'role="alert"' in answer.text) == (status, True), path
        assert len(answer.body) < 20_000


def test_an_offset_beyond_the_log_is_not_found_and_the_page_has_its_range(story: Story) -> None:
    browser = story.console.browser()
    create_topic(story.servers, "short")
    assert "its log is empty" in browser.get("/topics/short/0/0").text
    send(plain_producer(story.servers), "short", [b"1", b"2"])
    for offset in (2, 2**63 - 1):
        answer = browser.get(f"/topics/short/0/{offset}")
        assert (answer.status, "its log has offsets 0 to 1" in answer.text) == (404, True)


def test_a_time_that_no_calendar_has_is_shown_whole(story: Story) -> None:
    create_topic(story.servers, "timeless", message_timestamp_after_max_ms=str(2**63 - 1))
    producer = plain_producer(story.servers)
    producer.produce("timeless", b"1", timestamp=2**63 - 1)
    assert producer.flush(WAIT_S) == 0
    text = story.console.browser().get("/topics/timeless/0?from=earliest").text
    assert f">{2**63 - 1} ms<" in text


def test_records_never_become_markup_in_any_form_or_page(story: Story) -> None:
    browser = story.console.browser()
    assert b"<script>" in SCRIPT
    pages = [
        *(f"/topics/orders/0?from=earliest&as={form}" for form in ("text", "json", "hex")),
        *(f"/topics/orders/0/5?as={form}" for form in ("text", "json", "hex")),
        "/topics/orders/search?value=script",
        f"/topics/orders/search?value={SCRIPT.decode()}",
        "/topics/%3Cscript%3E",
        "/transactions?prefix=%3Cscript%3E",
    ]
    for path in pages:
        text = browser.get(path.replace(" ", "%20")).text
        assert "<script>document" not in text, path
        assert "<i>h</i>" not in text, path
        assert BIDI.decode()[0] not in text, path
        assert text.count("<script") == 1, path
    assert "\\u202eevil" in browser.get("/topics/orders/0/5?as=text").text


def test_a_record_has_a_page_and_its_bytes_as_a_download(story: Story) -> None:
    browser = story.console.browser()
    answer = browser.get("/topics/orders/0/6/value")
    assert answer.body == NO_TEXT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "These bytes are no UTF-8" in browser.get("/topics/orders/0/6?as=text").text
    missing = browser.get("/topics/orders/0/4")
    assert (missing.status, "It may be a marker" in missing.text) == (404, True)


def test_ten_megabytes_are_a_small_page_and_a_whole_download(story: Story) -> None:
    large = b"z" * (10 << 20)
    create_topic(story.servers, "large", max_message_bytes=str(11 << 20))
    send(plain_producer(story.servers, message_max_bytes=11 << 20), "large", [large])
    browser = story.console.browser()
    assert len(browser.get("/topics/large/0?from=earliest").body) < 100_000
    assert len(browser.get("/topics/large/0/0").body) < 300_000
    assert browser.get("/topics/large/0/0/value").body == large


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("value=apple", 1),
        ("value=0xfffe", 1),
        ("key=evil", 1),
        ("header=document", 1),
        ("value=apple&key=evil", 0),
        ("value=apple&partition=1", 0),
        ("value=apple&from=1", 0),
    ],
)
def test_a_search_finds_by_key_value_header_and_place(
    story: Story, query: str, matches: int
) -> None:
    text = story.console.browser().get(f"/topics/orders/search?{query}").text
    assert text.count('<li><a class="name"') == matches
    assert "The search has read to the end" in text


def test_a_search_shows_the_fate_of_each_match(story: Story) -> None:
    browser = story.console.browser()
    producer = transactional_producer(story.servers, "three-fates")
    create_topic(story.servers, "fates")
    commit_values(producer, "fates", [b"needle"])
    producer.begin_transaction()
    send(producer, "fates", [b"hay", b"needle"])
    producer.abort_transaction(WAIT_S)
    commit_values(producer, "fates", [b"needle"])
    send(plain_producer(story.servers), "fates", [b"needle"])
    producer.begin_transaction()
    send(producer, "fates", [b"needle"])
    commit_values(transactional_producer(story.servers, "behind"), "fates", [b"needle"])
    text = browser.get("/topics/fates/search?value=needle").text
    matches = re.findall(r'<li><a class="name".*?</li>', text)
    found = [re.findall(r'<span class="badge \w+">(\w+)<', each) for each in matches]
    fates = [["committed"], ["aborted"], ["committed"], [], ["open"], ["committed"]]
    assert found == fates
    assert "Records of an earlier one are not found" in text
    producer.abort_transaction(WAIT_S)


def test_a_search_for_nothing_says_nothing_about_matches(story: Story) -> None:
    text = story.console.browser().get("/topics/orders/search").text
    assert "matches" not in text
    assert text.rstrip().endswith("</html>")


def test_a_search_finds_the_records_of_a_transactional_id(story: Story) -> None:
    browser = story.console.browser()
    id_ = HOSTILE_ID.replace(" ", "%20").replace("<", "%3C").replace(">", "%3E")
    text = browser.get(f"/topics/orders/search?id={id_}").text
    assert "of the other" in text
    assert text.count('<li><a class="name"') == 1
    assert browser.get("/topics/orders/search?id=none").status == 404
    assert browser.get("/topics/orders/search?value=0xzz").status == 400


def test_a_search_ends_with_its_largest_number_of_matches(story: Story) -> None:
    create_topic(story.servers, "many", 2)
    producer = plain_producer(story.servers, linger_ms=100)
    send(producer, "many", [b"needle"] * 300, 0)
    send(producer, "many", [b"needle"] * 5_000, 1)
    text = story.console.browser().get("/topics/many/search?value=needle").text
    assert text.count('<li><a class="name"') == FOUND_MAX
    assert "many-1: read to offset 200 of 5,000" in text
    assert "500 matches: the search stopped here" in text


def test_a_search_that_finds_nothing_has_no_line_for_each_partition(story: Story) -> None:
    create_topic(story.servers, "wide", 200)
    producer = plain_producer(story.servers)
    for partition in range(200):
        producer.produce("wide", b"hay", partition=partition)
    assert producer.flush(WAIT_S) == 0
    text = story.console.browser().get("/topics/wide/search?value=needle").text
    assert text.count('<li class="progress">') < 100
    assert "0 matches. The search has read to the end." in text


def test_a_search_goes_on_behind_a_damaged_partition_and_says_that_it_lacks_a_part(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with txn.Broker(data, durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "partly", 2)
        producer = plain_producer(servers)
        for partition in (0, 1):
            send(producer, "partly", [b"a needle"], partition)
            send(producer, "partly", [b"another needle"], partition)
        (segment,) = (data / "partly-0").glob("*.log")
        content = segment.read_bytes()
        segment.write_bytes(content.replace(b"another needle", b"another noodle"))
        require_partly_searched(ConsoleProcess("--bootstrap", servers), "0 of 2")
    require_partly_searched(ConsoleProcess("--data", data), None)


def test_a_partition_that_cannot_be_asked_is_a_line_of_the_search(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with txn.Broker(data, durability="process") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "partly", 2)
        for partition in (0, 1):
            send(plain_producer(servers), "partly", [b"a needle"] * 2, partition)
    shutil.rmtree(data / "partly-0")
    with txn.Broker(data, durability="process") as broker:
        require_partly_searched(ConsoleProcess("--bootstrap", broker.bootstrap_servers), None)


def require_partly_searched(console: ConsoleProcess, stopped_at: str | None) -> None:
    """Require the matches of the sound partition, and words about the damaged one."""
    text = console.browser().get("/topics/partly/search?value=needle").text
    words = "it was not searched"
    if stopped_at is not None:
        words = f"the search stopped at offset {stopped_at} by this error"
    assert f"partly-0: {words}: " in text
    assert len(re.findall("partly-1 offset [01]<", text)) == 2
    assert "2 matches. The search has not read all: 1 partition ended by an error." in text
    assert "read to the end" not in text
    assert console.stop() == 0


def test_a_search_may_be_left_at_any_time(story: Story) -> None:
    browser = story.console.browser()
    with browser.stream("/topics/orders/search?value=e", accept="text/html") as answer:
        assert answer.readline().strip()
    for _ in range(8):  # each would keep a connection of its own
        with browser.stream("/topics/orders/search?value=e", accept="text/html"):
            pass
    assert browser.get("/topics/orders").status == 200


def test_topics_are_listed_by_name_and_internal_ones_on_demand(story: Story) -> None:
    browser = story.console.browser()
    text = browser.get("/topics").text
    assert 'href="/topics/orders"' in text
    assert "__transaction_state" not in text
    assert "__transaction_state" in browser.get("/topics?internal=1").text
    assert 'href="/topics/orders"' not in browser.get("/topics?name=invo").text
    missing = browser.get("/topics/order")
    assert (missing.status, "did you mean orders?" in missing.text) == (404, True)


def test_a_stopped_directory_has_the_same_records(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with txn.Broker(data, durability="process") as broker:
        holder = tell(broker.bootstrap_servers)
        copy_at_work(data, tmp_path / "copy")
        holder.abort_transaction()
    console = ConsoleProcess("--data", tmp_path / "copy")
    browser = console.browser()
    kinds = [kind for kind, _ in rows(browser.get("/topics/orders/0?from=1m-ago").text)]
    assert {"committed", "aborted", "open", "plain", "marker commit"} <= set(kinds)
    assert "apple" in browser.get("/topics/orders/search?value=apple").text
    assert browser.get("/topics").status == 200
    assert browser.get("/topics/orders").status == 200
    assert browser.get("/transactions").status == 200
    assert browser.get("/transactions/one?id=pay-3").status == 200
    assert console.stop() == 0
