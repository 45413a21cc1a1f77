"""`txn top` shows the same of txn and of Apache Kafka."""

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from support.clients import WAIT_S, commit_values, create_topic, send, transactional_producer
from support.command_line import run_txn

Unique = Callable[[str], str]


def looked(bootstrap: str, *options: object) -> list[dict[str, Any]]:
    code, out, err = run_txn("top", "--json", *options, "--bootstrap", bootstrap)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def named(entries: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in entries if each[kind] == name]
    return found


def test_topics_groups_and_open_transactions_are_shown(bootstrap: str, unique: Unique) -> None:
    topic, group, loader = unique("orders"), unique("shop"), unique("loader")
    create_topic(bootstrap, topic, partitions=2)
    producer = transactional_producer(bootstrap, loader)
    commit_values(producer, topic, [b"1", b"2"])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    producer.begin_transaction()
    send(producer, topic, [b"open"])
    first, second = looked(bootstrap, "-n", 2, "--every", "100ms")
    plain = run_txn("top", "-n", 1, "--bootstrap", bootstrap)[1]
    producer.abort_transaction(WAIT_S)
    (after,) = looked(bootstrap, "-n", 1)
    assert named(first["topics"], "topic", topic) == {
        "topic": topic,
        "partitions": 2,
        "log_start_offsets": 0,
        "last_stable_offsets": 3,
        "log_end_offsets": 4,
        "offsets_per_s": None,
    }
    assert named(second["topics"], "topic", topic)["offsets_per_s"] == 0
    assert named(first["groups"], "group", group) == {
        "group": group,
        "state": "Empty",
        "committed_offsets": 1,
        "lag": 2,
        "offsets_per_s": None,
    }
    opened = named(first["transactions"], "transactional_id", loader)
    assert (opened["state"], opened["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert 0 < opened["start_time"] <= first["at"] + 60_000
    rows = [line.split() for line in plain.splitlines()]
    assert [topic, "2", "4", "-", "1"] in rows
    assert [group, "Empty", "2", "-"] in rows
    assert loader not in [each["transactional_id"] for each in after["transactions"]]


def test_internal_topics_are_left_out(bootstrap: str, unique: Unique) -> None:
    transactional_producer(bootstrap, unique("loader"))
    (look,) = looked(bootstrap, "-n", 1)
    assert "__transaction_state" not in [each["topic"] for each in look["topics"]]


def test_a_short_interval_is_wrong_usage() -> None:
    code, _, err = run_txn("top", "--every", "10ms")
    assert (code, err) == (2, "txn: --every 10ms is short: give 100ms or more\n")
