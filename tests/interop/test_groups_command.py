"""`txn groups` tells and does the same to txn's groups and to Apache Kafka's."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_messages,
    send,
    transactional_producer,
)
from support.command_line import Terminal, run_txn
from support.served import SERVED_IN_PYTHON
from txn.wire.api_keys import ApiKey

Unique = Callable[[str], str]
EXECUTED = ("--execute", "--json")


@pytest.fixture
def topic(bootstrap: str, unique: Unique) -> str:
    """Two partitions; partition 0 has three committed records, two aborted ones, and markers."""
    name = unique("orders")
    create_topic(bootstrap, name, partitions=2)
    producer = transactional_producer(bootstrap, unique("loader"))
    commit_values(producer, name, [b"1", b"2"])
    producer.begin_transaction()
    send(producer, name, [b"aborted", b"aborted too"])
    producer.abort_transaction(WAIT_S)
    commit_values(producer, name, [b"3"])
    return name


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("shop")


@pytest.fixture
def member(bootstrap: str, topic: str, group: str) -> Iterator[Consumer]:
    """The only member of the group, with both partitions assigned."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "till-7",
        "group.instance.id": "till",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def commit(bootstrap: str, group: str, *places: TopicPartition) -> None:
    """Commit offsets of a group without members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=list(places), asynchronous=False)
    consumer.close()


def described(bootstrap: str, group: str, *options: str) -> tuple[int, dict[str, Any]]:
    words = ("groups", "describe", group, "--json", *options, "--bootstrap", bootstrap)
    code, out, err = run_txn(*words)
    assert err == ""
    return code, json.loads(out)


def test_lag_counts_committed_records_alone(bootstrap: str, topic: str, group: str) -> None:
    second = read_messages(bootstrap, topic)[1].offset()
    assert second is not None
    commit(bootstrap, group, TopicPartition(topic, 0, second))
    code, told = described(bootstrap, group, "--drained")
    (partition,) = told.pop("partitions")
    assert (code, told) == (
        1,
        {
            "group": group,
            "state": "Empty",
            "protocol_type": "",
            "consumer_protocol": None,
            "drained": False,
            "lag": 2,
            "members": [],
            "pending_offsets": None,
        },
    )
    assert partition == {
        "topic": topic,
        "partition": 0,
        "committed_offset": 1,
        "log_start_offset": 0,
        "last_stable_offset": 8,  # 5 records and 3 markers
        "log_end_offset": 8,
        "lag": 2,
        "offsets_left": 7,
        "owner": None,
    }


def test_a_group_that_has_read_everything_is_drained_below_the_log_end(
    bootstrap: str, topic: str, group: str
) -> None:
    last = read_messages(bootstrap, topic)[-1].offset()
    assert last is not None
    commit(bootstrap, group, TopicPartition(topic, 0, last + 1), TopicPartition(topic, 1, 0))
    code, told = described(bootstrap, group, "--drained")
    assert (code, told["drained"], told["lag"]) == (0, True, 0)
    first, untouched = told["partitions"]
    assert (first["committed_offset"], first["log_end_offset"]) == (7, 8)
    assert (untouched["partition"], untouched["lag"]) == (1, 0)
    words = ("groups", "describe", group, "--bootstrap", bootstrap)
    assert run_txn(*words)[1].splitlines()[0] == f"{group}: Empty, drained"


def test_an_open_transaction_holds_back_no_lag(
    bootstrap: str, topic: str, group: str, unique: Unique
) -> None:
    commit(bootstrap, group, TopicPartition(topic, 0, 8), TopicPartition(topic, 1, 0))
    producer = transactional_producer(bootstrap, unique("pay"))
    producer.begin_transaction()
    send(producer, topic, [b"open"], partition=1)
    send(plain_producer(bootstrap), topic, [b"behind it"], partition=1)
    _, told = described(bootstrap, group)
    partition = told["partitions"][1]
    ends = (partition["last_stable_offset"], partition["log_end_offset"], partition["lag"])
    producer.commit_transaction(WAIT_S)
    assert ends == (0, 2, 0)
    assert described(bootstrap, group)[1]["lag"] == 2


def test_offsets_in_an_open_transaction_are_told_with_the_transaction(
    bootstrap: str, topic: str, group: str, unique: Unique
) -> None:
    """A consumer of the group waits for them in silence, and a new group had no offset at all."""
    name = unique("mover")
    producer = transactional_producer(bootstrap, name)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 1, 3)], metadata, WAIT_S)
    _, pending = described(bootstrap, group)
    _, lines, _ = run_txn("groups", "describe", group, "--bootstrap", bootstrap)
    producer.commit_transaction(WAIT_S)
    kept_in = pending["pending_offsets"]["kept_in"]
    assert pending["partitions"] == []
    assert pending["pending_offsets"]["partitions"] == [{"topic": topic, "partition": 1}]
    assert kept_in["topic"] == "__consumer_offsets"
    assert pending["pending_offsets"]["transactional_ids"] == [name]
    place = f"__consumer_offsets-{kept_in['partition']}"
    assert [line.strip() for line in lines.splitlines()[1:]] == [
        f"an open transaction has its next offsets of {topic}-1: consumers wait there for the end",
        f"open in {place}: {name!r}",
        f"see it with txn explain {place} --bootstrap {bootstrap}",
        "no committed offset",
    ]
    while described(bootstrap, group)[1]["pending_offsets"] is not None:
        time.sleep(0.1)  # Apache Kafka answers a commit before its markers are written
    places = described(bootstrap, group)[1]["partitions"]
    assert [each["committed_offset"] for each in places] == [None, 3]


def test_a_member_is_named_with_its_client(
    bootstrap: str, topic: str, group: str, member: Consumer
) -> None:
    member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    _, told = described(bootstrap, group)
    (named,) = told["members"]
    assert (told["state"], told["protocol_type"], told["lag"]) == ("Stable", "consumer", 3)
    assert (named["client_id"], named["instance_id"]) == ("till-7", "till")
    assert named["client_host"].removeprefix("/") == "127.0.0.1"
    assert named["member_id"].startswith("till-")


def test_each_partition_is_told_with_the_member_that_owns_it(
    bootstrap: str, topic: str, group: str, member: Consumer
) -> None:
    """Members and partitions stood beside each other, and nothing said which had which."""
    member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    _, told = described(bootstrap, group)
    (named,) = told["members"]
    places = [{"topic": topic, "partition": index} for index in (0, 1)]
    assert named.pop("partitions") == places
    assert named.pop("consumer_protocol") is None
    owned = [(each["partition"], each["owner"]) for each in told["partitions"]]
    assert owned == [(0, named), (1, named)]
    second = told["partitions"][1]
    assert (second["committed_offset"], second["lag"]) == (None, 0)
    _, lines, _ = run_txn("groups", "describe", group, "--bootstrap", bootstrap)
    cells = [line.split() for line in lines.splitlines()[-3:]]
    assert cells[0][-3:] == ["client", "host", "member"]
    owner = ["till-7", named["client_host"], named["member_id"]]
    assert [row[-3:] for row in cells[1:]] == [owner, owner]
    assert ", 2 partitions" in lines


def test_owners_are_told_of_each_of_two_members(bootstrap: str, topic: str, group: str) -> None:
    members = [
        Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": name})
        for name in ("till-1", "till-2")
    ]
    for each in members:
        each.subscribe([topic])
    while [len(each.assignment()) for each in members] != [1, 1]:
        for each in members:
            each.poll(0.1)
    _, told = described(bootstrap, group)
    for each in members:
        each.close()
    owners = {each["partition"]: each["owner"]["client_id"] for each in told["partitions"]}
    assert sorted(owners.values()) == ["till-1", "till-2"]
    assert owners == {
        place["partition"]: each["client_id"]
        for each in told["members"]
        for place in each["partitions"]
    }


def test_groups_are_listed_with_their_states(
    bootstrap: str, topic: str, group: str, member: Consumer, unique: Unique
) -> None:
    empty = unique("empty")
    commit(bootstrap, empty, TopicPartition(topic, 0, 0))
    code, out, err = run_txn("groups", "list", "--json", "--bootstrap", bootstrap)
    assert (code, err) == (0, "")
    listed = {each["group"]: each for each in json.loads(out)}
    stable = {"group": group, "state": "Stable", "protocol_type": "consumer", "type": "classic"}
    assert listed[group] == stable
    assert listed[empty] == {
        "group": empty,
        "state": "Empty",
        "protocol_type": "",
        "type": "classic",
    }
    plain = run_txn("groups", "list", "--bootstrap", bootstrap)[1].splitlines()
    assert [line.split() for line in plain if group in line] == [[group, "Stable"]]


def test_a_group_that_is_not_there_is_wrong_usage(bootstrap: str, group: str) -> None:
    code, out, err = run_txn("groups", "describe", group, "--bootstrap", bootstrap)
    assert (code, out) == (2, "")
    assert err.startswith(f"txn: there is no group {group!r}")


def test_the_nearest_group_is_named(bootstrap: str, topic: str, unique: Unique) -> None:
    group = unique("payments")
    commit(bootstrap, group, TopicPartition(topic, 0, 0))
    wrong = group.replace("payments", "paymnets")
    for words in (("describe", wrong), ("delete", wrong, "--yes")):
        code, out, err = run_txn("groups", *words, "--bootstrap", bootstrap)
        assert (code, out) == (2, "")
        assert err == f"txn: there is no group {wrong!r}; did you mean {group}?\n"


# ---------------------------------------------------------------- offsets


def reset(bootstrap: str, group: str, *options: object) -> dict[int, tuple[int | None, int]]:
    """Partition → offset before and after, as the command tells them."""
    words = ("groups", "reset-offsets", group, *options, *EXECUTED, "--bootstrap", bootstrap)
    code, out, err = run_txn(*words)
    assert (code, err) == (0, "")
    return {
        each["partition"]: (each["committed_offset_before"], each["committed_offset"])
        for each in json.loads(out)["partitions"]
    }


def committed(bootstrap: str, group: str) -> dict[int, int]:
    _, told = described(bootstrap, group)
    return {
        each["partition"]: each["committed_offset"]
        for each in told["partitions"]
        if each["committed_offset"] is not None
    }


@pytest.mark.parametrize(
    ("options", "offset"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 8),  # the last stable offset
        (("--to", "5"), 5),
        (("--to", "500"), 8),
        (("--to", "-3"), 5),
        (("--to", "1h-ago"), 0),
        (("--to", "2999-01-01"), 8),
        (("--shift-by", "-1"), 3),
        (("--shift-by", "2"), 6),
        (("--shift-by", "-99"), 0),
    ],
)
def test_offsets_are_moved_within_the_log(
    options: tuple[str, ...], offset: int, bootstrap: str, topic: str, group: str
) -> None:
    commit(bootstrap, group, TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0))
    place = ("--topic", f"{topic}-0", *options)
    assert reset(bootstrap, group, *place, "--dry-run") == {0: (4, offset)}
    assert committed(bootstrap, group) == {0: 4, 1: 0}
    assert reset(bootstrap, group, *place) == {0: (4, offset)}
    assert committed(bootstrap, group) == {0: offset, 1: 0}


def test_offsets_are_restored_from_a_description(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    commit(bootstrap, group, TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0))
    saved = tmp_path / "group.json"
    saved.write_text(json.dumps(described(bootstrap, group)[1]))
    assert reset(bootstrap, group, "--all-topics", "--to", "latest") == {0: (4, 8), 1: (0, 0)}
    assert reset(bootstrap, group, "--from-file", saved) == {0: (8, 4), 1: (0, 0)}


def test_a_new_group_gets_its_first_offsets(bootstrap: str, topic: str, group: str) -> None:
    assert reset(bootstrap, group, "--topic", topic, "--to", "2") == {0: (None, 2), 1: (None, 0)}
    assert committed(bootstrap, group) == {0: 2, 1: 0}


def test_a_group_is_not_drained_while_a_partition_of_its_topic_has_no_offset(
    bootstrap: str, topic: str, group: str
) -> None:
    """It was, and a script that waits for it went on with a partition unread."""
    commit(bootstrap, group, TopicPartition(topic, 1, 0))
    code, found = described(bootstrap, group, "--drained")
    assert (code, found["drained"], found["lag"]) == (1, None, None)
    unread, _ = found["partitions"]
    assert (unread["partition"], unread["committed_offset"], unread["lag"]) == (0, None, None)
    assert unread["offsets_left"] > 0


def test_a_group_without_any_offset_is_not_known_to_be_drained(
    bootstrap: str, topic: str, group: str, member: Consumer
) -> None:
    code, found = described(bootstrap, group, "--drained")
    assert (code, found["drained"], found["lag"]) == (1, None, None)
    offsets = [(each["committed_offset"], each["lag"]) for each in found["partitions"]]
    assert offsets == [(None, None), (None, 0)]


def test_a_group_with_an_offset_that_was_never_written_is_not_known_to_be_drained(
    bootstrap: str, topic: str, group: str
) -> None:
    """A topic made anew has such groups: they were drained, and read nothing of it."""
    commit(bootstrap, group, TopicPartition(topic, 0, 1000), TopicPartition(topic, 1, 0))
    code, told = described(bootstrap, group, "--drained")
    assert (code, told["drained"], told["lag"]) == (1, None, None)
    assert [each["offsets_left"] for each in told["partitions"]] == [None, 0]
    _, lines, _ = run_txn("groups", "describe", group, "--bootstrap", bootstrap)
    assert lines.splitlines()[0] == f"{group}: Empty, not known to be drained"
    assert lines.splitlines()[2].split()[-3:] == ["beyond", "the", "end"]


def test_offsets_are_moved_once_a_person_has_seen_the_plan(
    bootstrap: str, topic: str, group: str
) -> None:
    """A new group was refused where another one had a similar name: its result hung on the
    names of others. The plan says that a group is new, and nothing moves unasked.
    """
    commit(bootstrap, group, TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0))
    words = ("groups", "reset-offsets", f"x{group}", "--topic", topic, "--to", "2")
    code, out, err = run_txn(*words, "--bootstrap", bootstrap)
    assert (code, out) == (2, "")
    plan = err.splitlines()
    assert plan[0] == f"there is no group 'x{group}' yet: this makes it; did you mean {group}?"
    assert plan[1] == f"To be moved, the offsets of group 'x{group}':"
    assert [line.split() for line in plan[3:5]] == [
        [f"{topic}-0", "none", "2"],
        [f"{topic}-1", "none", "0"],
    ]
    assert plan[-1].endswith("standard input is no terminal. Give --yes")
    assert run_txn("groups", "describe", f"x{group}", "--bootstrap", bootstrap)[0] == 2


@pytest.mark.parametrize(("answer", "code", "is_made"), [("n\n", 1, False), ("y\n", 0, True)])
def test_offsets_are_moved_at_a_yes_alone(
    bootstrap: str,
    topic: str,
    group: str,
    answer: str,
    code: int,
    is_made: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    words = ("groups", "reset-offsets", group, "--topic", topic, "--to", "2")
    assert run_txn(*words, "--bootstrap", bootstrap)[0] == code
    found = run_txn("groups", "describe", group, "--bootstrap", bootstrap)[0]
    assert (found == 0) == is_made


def test_a_group_without_offsets_is_moved_in_named_topics_alone(
    bootstrap: str, topic: str, group: str
) -> None:
    passing = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    passing.subscribe([topic])
    while not passing.assignment():
        passing.poll(0.1)
    passing.close()
    words = ("groups", "reset-offsets", group, "--all-topics", "--to", "latest")
    code, out, err = run_txn(*words, "--bootstrap", bootstrap)
    assert (code, out) == (2, "")
    told = f"txn: group {group!r} has no committed offset. Name its topics with --topic\n"
    assert err in (told, f"txn: there is no group {group!r}. `txn groups list` names them all\n")


def test_a_group_at_work_is_neither_moved_nor_deleted(
    bootstrap: str, topic: str, group: str, member: Consumer
) -> None:
    member.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    words = ("reset-offsets", group, "--all-topics", "--to", "earliest")
    code, out, err = run_txn("groups", *words, "--bootstrap", bootstrap)
    assert (code, out) == (1, "")
    assert "is at work (Stable)" in err
    assert "Stop them first: 'till-7'" in err
    code, out, err = run_txn("groups", "delete", group, "--yes", "--bootstrap", bootstrap)
    assert (code, out) == (1, "")
    assert err == f"txn: group {group!r} is not deleted: NON_EMPTY_GROUP. Stop its members first\n"
    assert committed(bootstrap, group) == {0: 4}


def test_a_group_is_deleted_with_its_offsets(bootstrap: str, topic: str, group: str) -> None:
    commit(bootstrap, group, TopicPartition(topic, 0, 4))
    assert run_txn("groups", "delete", group, "--bootstrap", bootstrap)[0] == 2  # nobody confirms
    done = run_txn("groups", "delete", group, "--yes", "--bootstrap", bootstrap)
    assert done == (0, f"deleted  {group}\n", "")
    assert run_txn("groups", "describe", group, "--bootstrap", bootstrap)[0] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--topic", "t"), "in one way: --to, --shift-by or --from-file"),
        (("--topic", "t", "--to", "1", "--shift-by", "1"), "in one way: --to"),
        (("--to", "latest"), "in one way: --topic, or --all-topics"),
        (("--to", "latest", "--topic", "t", "--all-topics"), "in one way: --topic"),
        (("--to", "lastest", "--topic", "t"), "is no place in a topic; did you mean latest?"),
        (("--from-file", "/no/such"), "cannot be read: No such file"),
        (("--from-file", "/etc/hostname"), "is no JSON: "),
        (("--from-file", "/etc/hostname", "--all-topics"), "names the partitions"),
    ],
)
def test_a_reset_that_does_not_say_what_it_wants_is_wrong_usage(
    options: tuple[str, ...], said: str
) -> None:
    code, out, err = run_txn("groups", "reset-offsets", "shop", *options)
    assert (code, out) == (2, "")
    assert said in err


@pytest.fixture
def consumers(bootstrap: str, txn_broker: str, topic: str, group: str) -> Iterator[list[Consumer]]:
    """Two members of the consumer protocol, each with one of the partitions."""
    if bootstrap == txn_broker and ApiKey.CONSUMER_GROUP_HEARTBEAT not in SERVED_IN_PYTHON:
        pytest.skip("txn does not have the consumer protocol")
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
    members = [Consumer({**settings, "client.id": f"till-{number}"}) for number in range(2)]
    for member in members:
        member.subscribe([topic])
    while [len(member.assignment()) for member in members] != [1, 1]:
        for member in members:
            member.poll(0.1)
    yield members
    for member in members:
        member.close()


def test_a_group_of_the_consumer_protocol_is_described_with_epochs_and_targets(
    bootstrap: str, topic: str, group: str, consumers: list[Consumer]
) -> None:
    is_settled = False
    while not is_settled:
        for consumer in consumers:
            consumer.poll(0.1)
        _, told = described(bootstrap, group)
        added = told["consumer_protocol"]
        epochs = {member["consumer_protocol"]["member_epoch"] for member in told["members"]}
        is_settled = epochs == {added["group_epoch"]} == {added["assignment_epoch"]}
    assert (told["state"], told["protocol_type"]) == ("Stable", "consumer")
    assert told["consumer_protocol"]["assignor"] == "uniform"
    owned = []
    for member in told["members"]:
        added = member["consumer_protocol"]
        assert added["target_partitions"] == member["partitions"]
        assert (added["topics"], added["pattern"], added["is_classic"]) == ([topic], None, False)
        owned += member["partitions"]
    assert sorted(one["partition"] for one in owned) == [0, 1]
    _, text, _ = run_txn("groups", "describe", group, "--bootstrap", bootstrap)
    epoch = told["consumer_protocol"]["group_epoch"]
    assert f"consumer protocol, epoch {epoch}, assigned by 'uniform' at epoch {epoch}" in text
    assert f"1 partition, epoch {epoch}" in text
    _, listed, _ = run_txn("groups", "list", "--bootstrap", bootstrap)
    (line,) = [line for line in listed.splitlines() if line.startswith(f"{group} ")]
    assert line.split() == [group, "Stable", "consumer"]
