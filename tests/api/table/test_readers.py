"""A reader follows the topic of a table in the background."""

from collections.abc import Callable

import pytest

import txn
from api.table.programs import produce, program, table_on
from support.clients import WAIT_S, plain_producer, transactional_producer
from txn.errors import ConfigError, RejectedError, RetriableError, UnreachableError
from txn.table.partitioner import partition_of

Unique = Callable[[str], str]


def test_a_reader_follows_commits(servers: str, orders: str, totals: str, unique: Unique) -> None:
    with (
        table_on(servers, totals).reader() as rows,
        program(servers, orders, totals, name=unique("adder")) as adder,
    ):
        assert (len(rows), rows.get("ann")) == (0, None)
        produce(servers, orders, ("ann", 7), ("ben", 3))
        adder.run_block(2)
        rows.wait_until_current()
        assert (rows["ann"], len(rows), set(rows)) == (7, 2, {"ann", "ben"})


def test_a_reader_waits_for_an_offset(servers: str, totals: str) -> None:
    producer = plain_producer(servers)
    with table_on(servers, totals).reader(poll_interval=60.0) as rows:
        producer.produce(totals, b"7", b"ann", partition=partition_of(b"ann", 2))
        assert producer.flush(WAIT_S) == 0
        rows.wait_until(0, partition_of(b"ann", 2))
        assert rows["ann"] == 7
        with pytest.raises(RetriableError, match="offset 1 of"):
            rows.wait_until(1, partition_of(b"ann", 2), timeout=0.3)
        with pytest.raises(ConfigError, match="no partition 9"):
            rows.wait_until(0, 9)


def test_a_reader_does_not_show_what_is_not_committed(
    servers: str, totals: str, unique: Unique
) -> None:
    producer = transactional_producer(servers, unique("open"), partitioner="murmur2_random")
    producer.begin_transaction()
    producer.produce(totals, b"7", b"ann")
    assert producer.flush(WAIT_S) == 0
    with table_on(servers, totals).reader() as rows:
        rows.wait_until_current()
        assert dict(rows) == {}
        producer.abort_transaction(WAIT_S)
        producer.begin_transaction()
        producer.produce(totals, b"8", b"ann")
        producer.commit_transaction(WAIT_S)
        rows.wait_until(3, partition_of(b"ann", 2))  # behind the marker: not before it is there
        assert dict(rows) == {"ann": 8}


def test_a_reader_finds_keys_that_another_partitioner_placed(servers: str, totals: str) -> None:
    producer = plain_producer(servers)
    producer.produce(totals, b"7", b"ann", partition=1 - partition_of(b"ann", 2))
    assert producer.flush(WAIT_S) == 0
    with table_on(servers, totals).reader() as rows:
        assert (rows["ann"], dict(rows)) == (7, {"ann": 7})


def test_a_reader_that_is_closed_refuses(servers: str, totals: str) -> None:
    rows = table_on(servers, totals).reader()
    rows.close()
    rows.close()
    with pytest.raises(RejectedError, match="is closed"):
        rows.get("ann")


def test_a_reader_of_a_cluster_that_is_not_there_says_so() -> None:
    with pytest.raises(UnreachableError, match="Check bootstrap"):
        txn.Table("t", bootstrap_servers="127.0.0.1:1", timeout=1.0).reader()


def test_a_reader_of_a_topic_that_is_not_there_says_so(servers: str, unique: Unique) -> None:
    with pytest.raises(ConfigError, match="there is no topic"):
        txn.Table(unique("nowhere"), bootstrap_servers=servers).reader()
