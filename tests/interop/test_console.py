"""The console shows the same of txn and of Apache Kafka."""

from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    send,
    transactional_producer,
)
from support.console import Browser, ConsoleProcess

Unique = Callable[[str], str]


@pytest.fixture
def browser(bootstrap: str) -> Iterator[Browser]:
    console = ConsoleProcess("--bootstrap", bootstrap, "--write")
    yield console.browser()
    assert console.stop() == 0


def test_transactions_records_and_groups_are_shown(
    bootstrap: str, unique: Unique, browser: Browser
) -> None:
    topic, group, loader = unique("orders"), unique("shop"), unique("loader")
    create_topic(bootstrap, topic, partitions=2)
    producer = transactional_producer(bootstrap, loader)
    commit_values(producer, topic, [b"first", b"second"])
    producer.begin_transaction()
    send(producer, topic, [b"taken back"])
    producer.abort_transaction(WAIT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    producer.begin_transaction()
    send(producer, topic, [b"not yet"])
    send(plain_producer(bootstrap), topic, [b"behind"])

    assert loader in browser.get("/").text
    held = browser.get(f"/readers/{topic}").text
    assert f"txn transactions abort --transactional-id {loader}" in held
    log = browser.get(f"/topics/{topic}/0?from=earliest").text
    for words in (
        '<tr class="committed">',
        '<tr class="aborted">',
        '<tr class="open">',
        '<tr class="marker commit">',
        '<tr class="marker abort">',
        "nothing yet: it stands behind offset",
    ):
        assert words in log
    assert "taken back" not in browser.get(f"/topics/{topic}/0?from=earliest&view=reader").text
    assert "1 match" in browser.get(f"/topics/{topic}/search?{urlencode({'value': 'beh'})}").text
    one = browser.get(f"/transactions/one?{urlencode({'id': loader})}").text
    assert "Ongoing" in one
    assert f"{topic}-0" in one
    lanes = browser.get(f"/transactions?{urlencode({'prefix': loader})}").text
    assert '<rect class="open"' in lanes
    assert '<rect class="commit"' in lanes
    read = browser.get(f"/groups/one?{urlencode({'id': group})}").text
    assert "<dd>1</dd>" in read  # the second record: the open one and the one behind it are not
    for path in ("/topics", f"/topics/{topic}", "/groups", "/activity", "/cluster", "/access"):
        assert browser.get(path).status == 200, path
    producer.abort_transaction(WAIT_S)
    assert "No transaction holds readers back" in browser.get(f"/readers/{topic}").text
