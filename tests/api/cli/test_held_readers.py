"""An operator who does not know which topic hangs: `txn explain` alone, and the note of consume."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import txn
from support.clients import WAIT_S, create_topic, plain_producer, send, transactional_producer
from support.command_line import run_txn


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("held") / "data"


@pytest.fixture(scope="module")
def servers(directory: Path) -> Iterator[str]:
    """A broker where `pay-1` holds back orders-1 from offset 1, and invoices-0 from offset 0."""
    with txn.Broker(directory, durability="process") as broker:
        address = broker.bootstrap_servers
        create_topic(address, "orders", 2)
        create_topic(address, "invoices")
        create_topic(address, "free")
        plain = plain_producer(address)
        send(plain, "orders", [b"seen"], partition=1)
        send(plain, "free", [b"seen"])
        producer = transactional_producer(address, "pay-1")
        producer.begin_transaction()
        send(producer, "orders", [b"open"], partition=1)
        send(producer, "invoices", [b"open"])
        send(plain, "orders", [b"behind"], partition=1)
        yield address
        producer.abort_transaction(WAIT_S)


def test_explain_without_a_topic_explains_each_partition_whose_readers_wait(servers: str) -> None:
    code, out, _ = run_txn("explain", "--bootstrap", servers)
    first_lines = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert code == 0
    assert first_lines == [
        "invoices-0: read_committed readers wait at offset 0 (the log ends at 1)",
        "orders-1: read_committed readers wait at offset 1 (the log ends at 3)",
    ]


def test_explain_prints_the_life_of_a_transaction_once(servers: str) -> None:
    """A transaction over thirty partitions printed its timeline thirty times."""
    _, out, _ = run_txn("explain", "--bootstrap", servers)
    assert out.count("  timeline") == 2
    assert "  timeline    the same transaction as at invoices-0, above\n" in out
    assert out.count("begun, with") == 1


def test_where_nothing_hangs_the_open_transactions_that_hold_readers_are_counted(
    servers: str,
) -> None:
    """An operator whose consumer stood still asked `hanging`, read that nothing hangs, and left."""
    code, out, _ = run_txn("transactions", "hanging", "--bootstrap", servers)
    assert code == 0
    assert out.endswith(
        "1 transaction within the timeout holds read_committed readers back: "
        f"txn explain --bootstrap {servers}\n"
    )
    _, out, _ = run_txn("transactions", "hanging", "--topic", "free", "--bootstrap", servers)
    assert out == "nothing hangs on 1 partition\n"


def test_a_drained_group_behind_an_open_transaction_is_shown_with_the_command(
    servers: str,
) -> None:
    """`drained`, lag 0: the group looked well, and its consumer got nothing."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "waits"})
    offsets = [TopicPartition("orders", 1, 1), TopicPartition("free", 0, 1)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    _, out, _ = run_txn("groups", "describe", "waits", "--bootstrap", servers)
    assert "waits: Empty, drained" in out
    assert out.endswith(
        "  an open transaction holds back the records of orders-1 from the last stable offset on. "
        "The lag does not count them\n"
        f"  see it with txn explain orders --bootstrap {servers}\n"
    )


def test_a_group_is_shown_a_partition_in_which_it_could_read_nothing_yet(servers: str) -> None:
    """Its readers got no record of the partition, and the group was `drained` without a word."""
    create_topic(servers, "early", 2)
    send(plain_producer(servers), "early", [b"read"], partition=0)
    producer = transactional_producer(servers, "pay-2")
    producer.begin_transaction()
    send(producer, "early", [b"open"], partition=1)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "starts"})
    consumer.commit(offsets=[TopicPartition("early", 0, 1)], asynchronous=False)
    consumer.close()
    _, out, _ = run_txn("groups", "describe", "starts", "--bootstrap", servers)
    producer.abort_transaction(WAIT_S)
    assert "an open transaction holds back the records of early-1 from the last" in out
    assert f"see it with txn explain early --bootstrap {servers}" in out


def test_a_group_without_an_offset_is_shown_with_the_command_that_looks_for_a_transaction(
    servers: str,
) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "begins"})
    consumer.subscribe(["invoices"])
    assert consumer.poll(1) is None
    consumer.close()
    _, out, _ = run_txn("groups", "describe", "begins", "--bootstrap", servers)
    assert f"look for an open transaction: txn explain --bootstrap {servers}\n" in out


def test_explain_without_a_topic_lists_the_same_as_json(servers: str) -> None:
    _, out, _ = run_txn("explain", "--bootstrap", servers, "--json")
    assert [(each["topic"], each["partition"]) for each in json.loads(out)] == [
        ("invoices", 0),
        ("orders", 1),
    ]


def test_explain_without_a_topic_says_that_no_readers_wait() -> None:
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "free", 2)
        code, out, err = run_txn("explain", "--bootstrap", broker.bootstrap_servers)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"no transaction holds readers back on \d+ partitions\n", out)


def test_a_partition_without_a_topic_is_refused(servers: str) -> None:
    code, _, err = run_txn("explain", "--partition", 1, "--bootstrap", servers)
    assert code == 2
    assert "name the topic, too" in err


def test_consume_says_that_records_wait_and_which_command_names_the_transaction(
    servers: str,
) -> None:
    code, out, err = run_txn("consume", "orders", "--bootstrap", servers)
    assert (code, out) == (0, "seen\n")
    assert err == (
        "txn: the records of orders-1 from offset 1 on wait for an open transaction, and are not "
        f"shown. This command names it: txn explain orders --bootstrap {servers}\n"
    )


def test_consume_that_follows_a_topic_says_at_once_that_records_wait(servers: str) -> None:
    """It has no end at which to say it: the operator looked at an empty screen."""
    words = ("orders", "--follow", "--from", "earliest", "--max-records", 1)
    code, out, err = run_txn("consume", *words, "--bootstrap", servers)
    assert (code, out) == (0, "seen\n")
    assert err == (
        "txn: the records of orders-1 from offset 1 on wait for an open transaction, and are shown "
        f"when it ends. This command names it: txn explain orders --bootstrap {servers}\n"
    )


def test_consume_of_several_topics_counts_the_partitions_whose_records_wait(servers: str) -> None:
    _, _, err = run_txn("consume", "orders", "invoices", "free", "--bootstrap", servers)
    assert err.startswith(
        "txn: the records of invoices-0 from offset 0 on, and of 1 more partition"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["free"], id="no record waits"),
        pytest.param(["orders", "--isolation", "read_uncommitted"], id="all records are shown"),
        pytest.param(["orders", "--max-records", "1"], id="it stops before"),
        pytest.param(["orders-1", "--to", "1"], id="its end is chosen"),
    ],
)
def test_consume_is_silent(servers: str, arguments: list[str]) -> None:
    code, out, err = run_txn("consume", *arguments, "--bootstrap", servers)
    assert (code, err) == (0, "")
    assert out.startswith("seen\n")
