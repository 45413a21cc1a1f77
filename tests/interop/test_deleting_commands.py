"""`txn topics delete-records` and `txn topics sizes` do the same on txn and on Apache Kafka."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.clients import create_topic, plain_producer, read_messages, send
from support.command_line import Terminal, run_txn

Unique = Callable[[str], str]


@pytest.fixture
def topic(bootstrap: str, unique: Unique) -> str:
    """Two partitions with three records each."""
    name = unique("orders")
    create_topic(bootstrap, name, partitions=2)
    for index in (0, 1):
        send(plain_producer(bootstrap), name, [b"1", b"2", b"3"], partition=index)
    return name


def left(bootstrap: str, topic: str) -> list[tuple[int | None, int | None]]:
    """Partition and offset of each record."""
    found = read_messages(bootstrap, topic)
    return sorted((each.partition(), each.offset()) for each in found)


def deleted(bootstrap: str, *words: object) -> Any:
    code, out, err = run_txn(
        *("topics", "delete-records", *words, "--json", "--bootstrap", bootstrap)
    )
    assert (code, err) == (0, "")
    return json.loads(out)


def test_records_before_an_offset_are_deleted(bootstrap: str, topic: str) -> None:
    places = (f"{topic}:0=2", f"{topic}:1=latest")
    plan = [
        {
            "topic": topic,
            "partition": index,
            "log_start_offset_before": 0,
            "log_start_offset": offset,
            "deleted": False,
            "error": None,
        }
        for index, offset in ((0, 2), (1, 3))
    ]
    assert deleted(bootstrap, *places, "--dry-run") == plan
    assert len(left(bootstrap, topic)) == 6
    assert deleted(bootstrap, *places, "--execute") == [{**each, "deleted": True} for each in plan]
    assert left(bootstrap, topic) == [(0, 2)]


def test_offsets_come_from_a_file_of_kafkas_tool(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.json"
    entries = [{"topic": topic, "partition": 0, "offset": -1}]
    file.write_text(json.dumps({"partitions": entries, "version": 1}))
    (told,) = deleted(bootstrap, "--offset-json-file", file, "--execute")
    assert (told["partition"], told["log_start_offset"]) == (0, 3)
    assert left(bootstrap, topic) == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(("answer", "code", "count"), [("n\n", 1, 6), ("y\n", 0, 4)])
def test_records_go_once_a_person_has_seen_the_plan(
    answer: str,
    code: int,
    count: int,
    bootstrap: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    words = ("topics", "delete-records", f"{topic}:0=2", "--bootstrap", bootstrap)
    done, _, err = run_txn(*words)
    assert (done, len(left(bootstrap, topic))) == (code, count)
    assert err.splitlines()[0] == "To be deleted, the records before an offset:"
    assert err.splitlines()[2].split() == [f"{topic}-0", "0", "2", "2"]


def test_nothing_goes_where_nobody_can_confirm(bootstrap: str, topic: str) -> None:
    words = ("topics", "delete-records", f"{topic}:0=2", "--bootstrap", bootstrap)
    code, out, err = run_txn(*words)
    assert (code, out, "Give --yes" in err) == (2, "", True)
    assert len(left(bootstrap, topic)) == 6


def test_a_partition_that_is_refused_is_told_beside_those_that_are_done(
    bootstrap: str, topic: str, unique: Unique
) -> None:
    compacted = unique("compacted")
    create_topic(bootstrap, compacted, cleanup_policy="compact")
    producer = plain_producer(bootstrap)
    producer.produce(compacted, b"1", key=b"k")
    assert producer.flush(30) == 0
    words = ("topics", "delete-records", f"{compacted}:0=1", f"{topic}:0=1", "--execute")
    code, out, err = run_txn(*words, "--bootstrap", bootstrap)
    assert (code, out) == (1, f"{topic}-0 begins at offset 1\n")
    told = f"txn: the records of {compacted}-0 are not deleted: POLICY_VIOLATION: "
    assert err.startswith(f"{told}the topic is compacted alone. ")
    assert err.count("\n") == 1


def test_an_offset_behind_the_end_is_refused_before_anything_goes(
    bootstrap: str, topic: str
) -> None:
    places = (f"{topic}:0=1", f"{topic}:1=4")
    code, out, err = run_txn(
        *("topics", "delete-records", *places, "--execute", "--bootstrap", bootstrap)
    )
    assert (code, out) == (2, "")
    assert f"{topic}-1 ends at offset 3, before 4" in err
    assert len(left(bootstrap, topic)) == 6


def test_sizes_are_told_by_topic_and_partition(bootstrap: str, unique: Unique) -> None:
    name = unique("sized")
    create_topic(bootstrap, name, partitions=2)
    send(plain_producer(bootstrap), name, [b"x" * 1000], partition=1)
    code, out, err = run_txn("topics", "sizes", name, "--json", "--bootstrap", bootstrap)
    assert (code, err) == (0, "")
    (told,) = json.loads(out)
    sizes = [each["size_bytes"] for each in told["partitions"]]
    assert (told["topic"], told["size_bytes"]) == (name, sizes[1])
    assert sizes[0] == 0
    assert 1000 < sizes[1] < 1200
    assert all(each["log_dir"] for each in told["partitions"])
    code, out, err = run_txn("topics", "sizes", name, "--bootstrap", bootstrap)
    broker = str(told["partitions"][0]["broker"])
    assert [line.split() for line in out.splitlines()] == [
        ["topic", "broker", "bytes"],
        [name, f"{sizes[1]:,}"],
        [f"{name}-0", broker, "0"],
        [f"{name}-1", broker, f"{sizes[1]:,}"],
    ]


def test_sizes_are_told_of_every_topic(bootstrap: str, topic: str) -> None:
    code, out, _ = run_txn("topics", "sizes", "--json", "--bootstrap", bootstrap)
    assert (code, topic in [each["topic"] for each in json.loads(out)]) == (0, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "in one way: TOPIC:PARTITION=OFFSET, or --from-file"),
        (("orders:0=1", "--from-file", "x"), "in one way"),
        (("orders",), "'orders' is no place: give TOPIC:PARTITION=OFFSET, as orders:0=217"),
        (("orders-0=1",), "is no place"),
        (("orders:0=",), "'' is no offset: give a number, or latest"),
        (("orders:0=-2",), "'-2' is no offset"),
        (("orders:0=1", "orders:0=2"), "orders:0 is given twice"),
        (("--from-file", "/no/such"), "cannot be read: No such file or directory"),
        (("--from-file", "/etc/hostname"), "is no JSON"),
    ],
)
def test_a_deletion_that_does_not_say_what_it_wants_is_wrong_usage(
    words: tuple[str, ...], said: str
) -> None:
    code, out, err = run_txn("topics", "delete-records", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", 'has no list "partitions"'),
        ('{"partitions": {}}', 'has no list "partitions"'),
        ('{"partitions": [], "version": 1}', 'has no list "partitions"'),
        ('{"partitions": [1], "version": 2}', "has version 2; known is 1"),
        ('{"partitions": [1]}', "entry 1 of partitions needs a topic, a partition and an offset"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "entry 1 of partitions"),
        ('{"partitions": [{"topic": "t", "partition": -1, "offset": 1}]}', "entry 1"),
        ('{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}', "entry 1"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_file_of_another_form_is_wrong_usage(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    code, out, err = run_txn("topics", "delete-records", "--from-file", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
