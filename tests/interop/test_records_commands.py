"""`txn produce` and `txn consume` write and read the same on txn and on Apache Kafka."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    read_messages,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from txn.cli.record_texts import Record, as_json_line

Unique = Callable[[str], str]


@pytest.fixture
def topic(bootstrap: str, unique: Unique) -> str:
    name = unique("orders")
    create_topic(bootstrap, name, partitions=2, retention_ms="-1")
    return name


def consumed(bootstrap: str, *words: object) -> str:
    code, out, err = run_txn("consume", *words, "--bootstrap", bootstrap)
    assert (code, err) == (0, "")
    return out


def produced(bootstrap: str, *words: object, stdin: bytes = b"") -> Any:
    code, out, err = run_txn("produce", *words, "--json", "--bootstrap", bootstrap, stdin=stdin)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_each_line_becomes_a_record(bootstrap: str, topic: str) -> None:
    told = produced(bootstrap, topic, "--partition", 1, stdin=b"7 apples\r\n\n\xff\xfe")
    assert told == {
        "topic": topic,
        "records": 3,
        "transactional_id": None,
        "partitions": [{"partition": 1, "records": 3, "first_offset": 0, "last_offset": 2}],
    }
    assert read_all(bootstrap, topic) == [b"7 apples", b"", b"\xff\xfe"]


def test_a_key_goes_to_the_partition_that_java_chooses(bootstrap: str, topic: str) -> None:
    """murmur2 of Kafka's own test vector `abc` is 479470107, and its CRC-32 is even."""
    produced(bootstrap, topic, "--key-separator", ":", stdin=b"abc:a:b\n:empty\n")
    records = {each.key(): each for each in read_messages(bootstrap, topic)}
    assert records[b"abc"].value() == b"a:b"
    assert records[b"abc"].partition() == 479470107 % 2
    assert records[b""].value() == b"empty"


def test_files_become_records_line_by_line_or_whole(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    lines, picture = tmp_path / "lines.txt", tmp_path / "picture"
    lines.write_bytes(b"1\n2\n")
    picture.write_bytes(b"\x89\n\x00")
    to = (topic, "--partition", 0)
    produced(bootstrap, *to, lines, "-", "--key", "k", "--header", "a=b=c", stdin=b"3")
    produced(bootstrap, *to, picture, "--whole", "--compression", "zstd")
    found = read_messages(bootstrap, topic)
    assert [each.value() for each in found] == [b"1", b"2", b"3", b"\x89\n\x00"]
    assert (found[2].key(), found[2].headers()) == (b"k", [("a", b"b=c")])


def test_lines_of_json_carry_records_whole_to_another_topic(
    bootstrap: str, topic: str, unique: Unique
) -> None:
    producer = plain_producer(bootstrap)
    headers: list[tuple[str, str | bytes | None]]
    headers = [("trace", b"\xff"), ("none", None), ("trace", b"2")]
    at_ms = 1_763_744_767_145
    producer.produce(topic, "ähre", "k", partition=1, timestamp=at_ms, headers=headers)
    producer.produce(topic, None, b"\xff", partition=1, timestamp=at_ms)
    assert producer.flush(WAIT_S) == 0
    copies = unique("copies")
    create_topic(bootstrap, copies, partitions=2)
    lines = consumed(bootstrap, topic, "--json")
    first = json.loads(lines.splitlines()[0])
    produced(bootstrap, copies, "--json-lines", "--keep-partitions", stdin=lines.encode())
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": at_ms,
        "key": "k",
        "value": "ähre",
        "headers": [
            {"key": "trace", "value": {"base64": "/w=="}},
            {"key": "none", "value": None},
            {"key": "trace", "value": "2"},
        ],
    }
    parts = [
        (each.key(), each.value(), each.headers(), each.timestamp()[1], each.partition())
        for each in read_messages(bootstrap, copies)
    ]
    assert parts == [
        (b"k", "ähre".encode(), headers, at_ms, 1),
        (b"\xff", None, None, at_ms, 1),
    ]


def test_one_transaction_is_seen_whole_or_not_at_all(
    bootstrap: str, topic: str, unique: Unique
) -> None:
    name = ("--transactional-id", unique("loader"))
    to = (topic, "--partition", 0, "--json-lines", *name)
    wrong = b'{"value": "1"}\n{"value": 2}\n'
    code, out, err = run_txn("produce", *to, "--bootstrap", bootstrap, stdin=wrong)
    assert (code, out) == (2, "")
    assert err == 'txn: line 2 of stdin: value is a text, null or {"base64": "…"}, not 2\n'
    assert read_all(bootstrap, topic) == []
    told = produced(bootstrap, *to, stdin=b'{"value": "3"}\n{"value": null}\n')
    assert (told["records"], told["transactional_id"]) == (2, name[1])
    assert read_all(bootstrap, topic) == [b"3", None]


@pytest.mark.parametrize(
    ("options", "line", "said"),
    [
        (("--json-lines",), b"{", "line 1 of stdin is no JSON"),
        (("--json-lines",), b"[]", "line 1 of stdin is no record"),
        (
            ("--json-lines",),
            b'{"timestamp": -1}',
            "timestamp is a whole number below 9223372036854775808, not -1",
        ),
        (("--json-lines",), b'{"key": {"base64": "?"}}', "line 1 of stdin: key is no base64"),
        (("--json-lines",), b'{"headers": ["a"]}', "headers are a list"),
        (("--json-lines",), b'{"valeu": "a"}', "a record has no part 'valeu'; did you mean value?"),
        (("--json-lines",), b'{"payload": "a"}', "has no part 'payload'; it has topic, partition"),
        (("-K", ":"), b"no key", "line 1 of stdin has no ':' behind a key"),
        (("/no/such/file",), b"", "'/no/such/file' cannot be read: No such file"),
        (("--whole", "-K", ":"), b"", "it has no lines to read"),
        (("--header", "x"), b"", "give NAME=VALUE"),
        (("--partition", "2"), b"1", "has no partition 2: it has 2, from 0 on"),
    ],
)
def test_faulty_input_is_one_line_with_its_place(
    options: tuple[str, ...], line: bytes, said: str, bootstrap: str, topic: str
) -> None:
    code, out, err = run_txn("produce", topic, *options, "--bootstrap", bootstrap, stdin=line)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (b'{"partition": 7}', 1, "Of 4 records that were read, 3 are known to be stored\n"),
        (b"{", 2, "Stored before it: 3 records\n"),
    ],
)
def test_records_before_an_error_are_told_where_there_is_no_transaction(
    line: bytes, code: int, said: str, bootstrap: str, topic: str
) -> None:
    """A partition that is not there ended the command without a word of them: a rerun doubled."""
    words = (topic, "--json-lines", "--keep-partitions", "--bootstrap", bootstrap)
    lines = b'{"value": "1"}\n' * 3 + line
    ended, out, err = run_txn("produce", *words, stdin=lines)
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert err.endswith(". " + said)
    assert read_all(bootstrap, topic) == [b"1"] * 3


def test_a_record_of_time_0_is_not_copied_with_another_time(bootstrap: str, topic: str) -> None:
    """librdkafka takes 0 for the time now, and so the copy had that."""
    line = as_json_line(Record(None, b"1", timestamp_ms=0, topic=topic, partition=0, offset=0))
    words = (topic, "--json-lines", "--bootstrap", bootstrap)
    code, out, err = run_txn("produce", *words, stdin=line)
    assert (code, out) == (2, "")
    assert err == (
        "txn: line 1 of stdin: timestamp 0 cannot be written, as librdkafka takes it for the time "
        "now. Give 1, or leave it out for the time now\n"
    )
    assert read_all(bootstrap, topic) == []


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_misspelled_topic_is_neither_made_nor_awaited(
    command: str, bootstrap: str, topic: str
) -> None:
    wrong = topic.replace("orders", "ordres")
    code, out, err = run_txn(command, wrong, "--bootstrap", bootstrap, stdin=b"1\n")
    assert (code, out) == (2, "")
    assert err == f"txn: there is no topic {wrong!r}; did you mean {topic}?\n"


@pytest.fixture
def filled(bootstrap: str, topic: str, unique: Unique) -> Producer:
    """Partition 0 has a committed record, an aborted one, a committed one and an open one."""
    producer = transactional_producer(bootstrap, unique("pay"))
    commit_values(producer, topic, [b"1"])
    producer.begin_transaction()
    send(producer, topic, [b"aborted"])
    producer.abort_transaction(WAIT_S)
    commit_values(producer, topic, [b"2"])
    producer.begin_transaction()
    send(producer, topic, [b"open"])
    return producer


def test_records_without_a_commit_are_seen_on_request_alone(
    bootstrap: str, topic: str, filled: Producer
) -> None:
    code, committed, note = run_txn("consume", topic, "--bootstrap", bootstrap)
    everything = consumed(bootstrap, topic, "--isolation", "read_uncommitted")
    filled.abort_transaction(WAIT_S)
    assert (code, committed) == (0, "1\n2\n")
    assert "wait for an open transaction, and are not shown" in note
    assert f"This command names it: txn explain {topic}" in note
    assert everything == "1\naborted\n2\nopen\n"


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ((), ["a", "b", "c", "d"]),
        (("--from", "1"), ["b", "c", "d"]),
        (("--from", "-2"), ["c", "d"]),
        (("--from", "1h-ago"), ["d"]),
        (("--from", "1970-01-01T00:00:02"), ["b", "c", "d"]),
        (("--to", "2"), ["a", "b"]),
        (("--from", "1", "--to", "1970-01-01T00:00:03"), ["b"]),
        (("-n", "3"), ["a", "b", "c"]),
        (("-n", "3", "--from", "99"), []),
    ],
)
def test_a_part_of_a_partition_is_read(
    words: tuple[str, ...], values: list[str], bootstrap: str, unique: Unique
) -> None:
    name = unique("times")
    create_topic(bootstrap, name, retention_ms="-1")
    producer = plain_producer(bootstrap)
    for value, timestamp_ms in (("a", 1_000), ("b", 2_000), ("c", 3_000), ("d", 0)):
        producer.produce(name, value, timestamp=timestamp_ms)
    assert producer.flush(WAIT_S) == 0
    assert consumed(bootstrap, f"{name}-0", *words).split() == values


def test_columns_stand_before_the_value(bootstrap: str, topic: str) -> None:
    producer = plain_producer(bootstrap)
    producer.produce(
        topic, "v", "k", partition=1, timestamp=1_500, headers=[("a", "1"), ("b", None)]
    )
    producer.produce(topic, None, partition=1, timestamp=2_000)
    assert producer.flush(WAIT_S) == 0
    shown = consumed(bootstrap, topic, "--timestamps", "--offsets", "--keys", "--headers")
    assert [line.split("\t") for line in shown.splitlines()] == [
        ["1970-01-01 00:00:01.500 UTC", f"{topic}-1 offset 0", "k", "a=1,b=null", "v"],
        ["1970-01-01 00:00:02.000 UTC", f"{topic}-1 offset 1", "null", "-", "null"],
    ]


def test_a_group_goes_on_behind_the_records_that_were_printed(
    bootstrap: str, topic: str, unique: Unique
) -> None:
    send(plain_producer(bootstrap), topic, [b"1", b"2", b"3"])
    group = ("--group", unique("shop"))
    assert consumed(bootstrap, topic, *group, "-n", 2) == "1\n2\n"
    assert consumed(bootstrap, topic, *group) == "3\n"
    assert consumed(bootstrap, topic, *group) == ""


def test_a_group_begins_at_no_place_of_its_own(bootstrap: str, topic: str) -> None:
    words = (topic, "--group", "shop", "--from", "7", "--bootstrap", bootstrap)
    code, _, err = run_txn("consume", *words)
    assert (code, "`txn groups reset-offsets` moves a group" in err) == (2, True)


# ---------------------------------------------------------------- forms


def test_records_are_shown_in_each_form(bootstrap: str, topic: str) -> None:
    """Bytes that are no text could be seen as they are, or as base64, and no document was JSON."""
    producer = plain_producer(bootstrap)
    producer.produce(topic, b"\xff\n", key=b"k", partition=0, headers=[("h", b"\x00")])
    producer.produce(topic, None, partition=0)
    producer.produce(topic, b"7 apples", partition=0)
    assert producer.flush(WAIT_S) == 0
    shown = consumed(bootstrap, topic, "--format", "hex", "--keys", "--headers")
    assert shown.splitlines() == ["6b\th=00\tff0a", "null\t-\tnull", "null\t-\t37206170706c6573"]
    lines = consumed(bootstrap, topic, "--format", "jsonl")
    assert lines == consumed(bootstrap, topic, "--json")
    assert consumed(bootstrap, topic, "--json", "--format", "jsonl") == lines
    listed = json.loads(consumed(bootstrap, topic, "--format", "json"))
    assert listed == [json.loads(line) for line in lines.splitlines()]
    first = json.loads(
        consumed(bootstrap, topic, "--format", "json", "--follow", "-n", 1, "--from", "earliest")
    )
    assert first == listed[:1]
    assert consumed(bootstrap, topic, "--format", "text", "--from", "99") == ""


def test_a_list_of_no_records_is_json(bootstrap: str, topic: str) -> None:
    assert json.loads(consumed(bootstrap, topic, "--format", "json")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--json", "--format", "hex"), "--json is --format jsonl, not hex"),
        (("--format", "json", "--follow"), "--follow has none: give --format jsonl"),
        (("--format", "yaml"), "yaml"),
    ],
)
def test_a_form_that_does_not_fit_is_wrong_usage(words: tuple[str, ...], said: str) -> None:
    code, out, err = run_txn("consume", "orders", *words)
    assert (code, out, said in err) == (2, "", True), err
