"""`txn dead-letters` lists, shows and redrives, each letter exactly once."""

import json
from typing import Any

import pytest

import txn
from support.command_line import run_txn
from txn.processor import Record
from txn.processor.letters import NAMES, TIMESTAMP
from txn.processor.redrive import GROUP_ID, DeadLetters
from txn.testing import TestBroker, crash_everywhere

VALUES = ("good", "bad 1", "worse 2", "bad 3", "worse 4", "bad 5")


def refuse(record: Record) -> None:
    """Fail on each record that is not good."""
    if record.value is not None and record.value.startswith(b"bad"):
        raise ValueError("it is bad")
    if record.value is not None and record.value.startswith(b"worse"):
        raise KeyError("price")


def bury(broker: TestBroker, topic: str) -> str:
    """Produce records and handle them; return the topic of their dead letters."""
    broker.produce(topic, *(("key", value) for value in VALUES))
    dead = f"{topic}-dead"
    txn.Processor(
        topic,
        refuse,
        dead_letter=dead,
        group_id=f"group-{topic}",
        transactional_id=f"id-{topic}",
        bootstrap_servers=broker.bootstrap_servers,
        attempts=1,
    ).run_until_caught_up(30)
    return dead


@pytest.fixture
def dead(shared: TestBroker, topics: dict[str, str]) -> str:
    return bury(shared, topics["in"])


def ran(shared: TestBroker, *words: object) -> str:
    code, out, err = run_txn("dead-letters", *words, "--bootstrap", shared.bootstrap_servers)
    assert (code, err) == (0, "")
    return out


def listed(shared: TestBroker, dead: str, *words: object) -> list[Any]:
    found: list[Any] = json.loads(ran(shared, "list", dead, "--json", *words))
    return found


def values(shared: TestBroker, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in shared.records(topic)]


def test_letters_are_listed_and_filtered_by_topic_and_error(
    shared: TestBroker, topics: dict[str, str], dead: str
) -> None:
    letters = listed(shared, dead)
    assert [each["error"]["class"] for each in letters] == [
        *("ValueError", "KeyError", "ValueError", "KeyError", "ValueError")
    ]
    assert letters[0]["original"]["topic"] == topics["in"]
    assert letters[0]["key"] == "key"
    assert len(listed(shared, dead, "--error", "KeyError")) == 2
    assert len(listed(shared, dead, "--error", "is bad")) == 3
    assert len(listed(shared, dead, "--error", letters[0]["error"]["digest"])) == 3
    assert len(listed(shared, dead, "--original", topics["in"])) == 5
    assert listed(shared, dead, "--original", "another") == []
    text = ran(shared, "list", dead)
    assert f"{topics['in']}-" in text
    assert "it is bad" in text


def test_one_letter_is_shown_with_its_value_and_error(shared: TestBroker, dead: str) -> None:
    first = listed(shared, dead)[0]
    place = f"{first['partition']}:{first['offset']}"
    shown = json.loads(ran(shared, "show", dead, place, "--json"))
    assert shown["value"] == "bad 1"
    assert {each["key"] for each in shown["headers"]} <= NAMES
    text = ran(shared, "show", dead, place)
    assert "bad 1" in text
    assert "in refuse" in text
    code, _, err = run_txn(
        "dead-letters", "show", dead, "0:999", "--bootstrap", shared.bootstrap_servers
    )
    assert (code, err.startswith(f"txn: '{dead}' has no dead letter 0:999")) == (2, True)


def test_a_redrive_produces_each_letter_once_to_its_partition_and_leaves_none(
    shared: TestBroker, topics: dict[str, str], dead: str
) -> None:
    home = shared.records(topics["in"])[0].partition
    assert "would be redriven: 5 letters" in ran(shared, "redrive", dead, "--dry-run")
    assert len(listed(shared, dead)) == 5
    assert ran(shared, "redrive", dead, "--yes") == f"redriven: 5 letters to {topics['in']}\n"
    assert ran(shared, "redrive", dead, "--yes") == "redriven: no dead letter\n"
    assert values(shared, topics["in"]) == [*VALUES, *VALUES[1:]]
    again = shared.records(topics["in"])[-1]
    assert (again.partition, again.key) == (home, b"key")
    assert [name for name, _ in again.headers] == [TIMESTAMP]
    assert listed(shared, dead) == []
    assert shared.unconsumed(GROUP_ID, [dead]) == []


def test_a_chosen_letter_and_a_chosen_error_leave_the_others(
    shared: TestBroker, topics: dict[str, str], dead: str
) -> None:
    letters = listed(shared, dead)
    third = f"{letters[2]['partition']}:{letters[2]['offset']}"
    ran(shared, "redrive", dead, "--letter", third, "--yes")
    assert values(shared, topics["in"])[6:] == ["bad 3"]
    ran(shared, "redrive", dead, "--error", "KeyError", "--yes")
    assert values(shared, topics["in"])[6:] == ["bad 3", "worse 2", "worse 4"]
    left = listed(shared, dead)
    assert [each["offset"] for each in left] == [letters[0]["offset"], letters[4]["offset"]]
    ran(shared, "redrive", dead, "--yes")
    assert sorted(values(shared, topics["in"])[6:]) == sorted(VALUES[1:])
    assert listed(shared, dead) == []


def test_letters_go_to_another_topic_if_one_is_named(shared: TestBroker, dead: str) -> None:
    other = shared.create_topic()
    ran(shared, "redrive", dead, "--to", other, "--yes")
    assert values(shared, other) == list(VALUES[1:])


def test_a_record_that_is_no_letter_is_kept(shared: TestBroker) -> None:
    dead = shared.create_topic()
    shared.produce(dead, "stray")
    text = ran(shared, "redrive", dead, "--yes")
    assert text.splitlines() == [
        "redriven: no dead letter",
        "kept: 1 letter without an original topic in the headers. Give --to TOPIC",
    ]
    assert len(listed(shared, dead)) == 1


def test_a_redrive_asks_and_names_a_missing_topic(shared: TestBroker, dead: str) -> None:
    servers = shared.bootstrap_servers
    code, _, err = run_txn("dead-letters", "redrive", dead, "--bootstrap", servers, stdin=b"")
    assert code == 2
    assert "Give --yes" in err
    code, _, err = run_txn("dead-letters", "list", f"{dead}x", "--bootstrap", servers)
    assert code == 2
    assert f"did you mean {dead}" in err


def buried(broker: TestBroker) -> None:
    """A broker with dead letters, in front of `redrive_all`."""
    broker.create_topic("orders")
    bury(broker, "orders")


def redrive_all(servers: str) -> None:
    """Redrive what is there."""
    with DeadLetters({"bootstrap.servers": servers}, "orders-dead") as letters:
        letters.redrive()


def test_a_redrive_that_is_killed_and_repeated_is_exactly_once() -> None:
    crash_everywhere(
        redrive_all,
        input=buried,
        output="orders",
        expected={"orders": [(b"key", value.encode()) for value in (*VALUES, *VALUES[1:])]},
        stops=["kill", "kill after", "lose answer"],
        quick=6,
    )
