"""`txn topics` and `txn offsets` do the same on txn and on Apache Kafka."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    send,
    transactional_producer,
)
from support.command_line import run_txn

Unique = Callable[[str], str]


def told(bootstrap: str, *words: object) -> Any:
    """The JSON that a command prints."""
    code, out, err = run_txn(*words, "--json", "--bootstrap", bootstrap)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_topic_is_made_listed_described_enlarged_and_deleted(
    bootstrap: str, unique: Unique
) -> None:
    name = unique("orders")
    settings = ("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact")
    made = told(bootstrap, "topics", "create", name, "--partitions", 2, *settings)
    assert made == {"topic": name, "partitions": 2, "created": True}
    assert {"topic": name, "partitions": 2} in told(bootstrap, "topics", "list")
    (described,) = told(bootstrap, "topics", "describe", name)
    assert len(described.pop("topic_id")) == 36
    leader = described["partitions"][0]["leader"]
    assert described == {
        "topic": name,
        "internal": False,
        "replication_factor": 1,
        "configs": {"cleanup.policy": "compact", "retention.ms": "3600000"},
        "partitions": [
            {"partition": index, "leader": leader, "replicas": [leader], "in_sync": [leader]}
            for index in range(2)
        ],
    }
    altered = told(bootstrap, "topics", "alter", name, "--partitions", 3)
    assert altered == {"topic": name, "partitions": 3, "partitions_before": 2, "altered": True}
    assert told(bootstrap, "topics", "delete", name, "--yes") == [{"topic": name, "deleted": True}]
    assert name not in [each["topic"] for each in told(bootstrap, "topics", "list")]


def test_a_dry_run_makes_nothing(bootstrap: str, unique: Unique) -> None:
    name = unique("orders")
    made = told(bootstrap, "topics", "create", name, "--partitions", 2, "--dry-run")
    assert made == {"topic": name, "partitions": 2, "created": False}
    code, _, err = run_txn("topics", "describe", name, "--bootstrap", bootstrap)
    assert (code, "there is no topic" in err) == (2, True)


def test_a_topic_that_is_there_is_refused_or_left_as_it_is(bootstrap: str, unique: Unique) -> None:
    name = unique("orders")
    create_topic(bootstrap, name, partitions=2)
    code, out, err = run_txn("topics", "create", name, "--bootstrap", bootstrap)
    assert (code, out) == (1, "")
    assert err.startswith(f"txn: topic {name!r} is not made: TOPIC_ALREADY_EXISTS")
    left = told(bootstrap, "topics", "create", name, "--partitions", 5, "--if-not-exists")
    assert left == {"topic": name, "partitions": 2, "created": False}


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        (("create", "{new}", "--replication-factor", "7"), "INVALID_REPLICATION_FACTOR"),
        (("create", "{new}", "--config", "max.message.bytes=x"), "INVALID_CONFIG"),
        (("create", "no/topic"), "INVALID_TOPIC_EXCEPTION"),
        (("alter", "{there}", "--partitions", "1"), "INVALID_PARTITIONS"),
    ],
)
def test_a_refusal_has_the_brokers_reason(
    words: tuple[str, ...], told_of: str, bootstrap: str, unique: Unique
) -> None:
    there, new = unique("orders"), unique("new")
    create_topic(bootstrap, there, partitions=2)
    given = [word.format(there=there, new=new) for word in words]
    code, out, err = run_txn("topics", *given, "--bootstrap", bootstrap)
    assert (code, out) == (1, "")
    assert told_of in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "describe"),
        ("topics", "delete", "--yes"),
        ("topics", "alter", "--partitions", "9"),
        ("offsets", "list"),
    ],
)
def test_an_unknown_topic_is_wrong_usage_with_the_nearest_name(
    command: tuple[str, ...], bootstrap: str, unique: Unique
) -> None:
    name = unique("purchases")
    create_topic(bootstrap, name)
    wrong = name.replace("chas", "hcas")
    code, out, err = run_txn(*command, wrong, "--bootstrap", bootstrap)
    assert (code, out) == (2, "")
    assert err == f"txn: there is no topic {wrong!r}; did you mean {name}?\n"


def test_an_unknown_partition_is_wrong_usage(bootstrap: str, unique: Unique) -> None:
    name = unique("orders")
    create_topic(bootstrap, name, partitions=2)
    code, out, err = run_txn("offsets", "list", f"{name}-2", "--bootstrap", bootstrap)
    assert (code, out) == (2, "")
    assert err == f"txn: topic {name!r} has no partition 2: it has 2, from 0 on\n"


def test_nothing_is_deleted_where_nobody_can_confirm(bootstrap: str, unique: Unique) -> None:
    name = unique("orders")
    create_topic(bootstrap, name)
    code, _, err = run_txn("topics", "delete", name, "--bootstrap", bootstrap)
    assert (code, "Give --yes" in err) == (2, True)
    assert told(bootstrap, "topics", "describe", name)[0]["topic"] == name


def test_several_topics_go_or_none(bootstrap: str, unique: Unique) -> None:
    name = unique("orders")
    create_topic(bootstrap, name)
    delete = ("topics", "delete", name, unique("never"), "--yes")
    assert run_txn(*delete, "--bootstrap", bootstrap)[0] == 2
    assert told(bootstrap, *delete, "--if-exists") == [{"topic": name, "deleted": True}]


def test_internal_topics_are_listed_on_request(bootstrap: str, unique: Unique) -> None:
    transactional_producer(bootstrap, unique("loader"))
    name = "__transaction_state"
    assert name not in [each["topic"] for each in told(bootstrap, "topics", "list")]
    assert name in [each["topic"] for each in told(bootstrap, "topics", "list", "--internal")]


def test_offsets_are_the_ends_of_each_partition(bootstrap: str, unique: Unique) -> None:
    name = unique("orders")
    create_topic(bootstrap, name, partitions=2)
    producer = transactional_producer(bootstrap, unique("loader"))
    commit_values(producer, name, [b"1", b"2"])
    producer.begin_transaction()
    send(producer, name, [b"open"])
    listed = told(bootstrap, "offsets", "list", name)
    latest = told(bootstrap, "offsets", "list", f"{name}-0", "--at", "latest")
    everything = ("--isolation", "read_uncommitted", "--at", "-1")
    before_end = told(bootstrap, "offsets", "list", f"{name}-0", *everything)
    producer.abort_transaction(WAIT_S)
    assert listed == [
        {
            "topic": name,
            "partition": index,
            "log_start_offset": 0,
            "last_stable_offset": stable,
            "log_end_offset": end,
        }
        for index, (stable, end) in enumerate([(3, 4), (0, 0)])
    ]
    assert latest == [{"topic": name, "partition": 0, "offset": 3}]
    assert before_end == [{"topic": name, "partition": 0, "offset": 3}]


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        ("earliest", 0),
        ("latest", 3),
        ("2", 2),
        ("99", 3),
        ("-2", 1),
        ("-99", 0),
        ("1970-01-01T00:00:01.500", 1),
        ("1970-01-01T00:00:02Z", 1),
        ("1970-01-02", 2),
        ("1h-ago", 3),
    ],
)
def test_a_place_is_an_offset_of_the_log(
    place: str, offset: int, bootstrap: str, unique: Unique
) -> None:
    name = unique("orders")
    create_topic(bootstrap, name, retention_ms="-1")
    producer = plain_producer(bootstrap)
    for timestamp_ms in (1_000, 2_000, 200_000_000):
        producer.produce(name, b"1", timestamp=timestamp_ms)
    assert producer.flush(WAIT_S) == 0
    (found,) = told(bootstrap, "offsets", "list", name, "--at", place)
    assert found["offset"] == offset
