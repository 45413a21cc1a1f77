"""Partitions of a table come and go with those of the input."""

import threading
from collections.abc import Callable

import pytest

import txn
from api.table.programs import produce, program, read, share
from support.clients import WAIT_S, plain_producer, transactional_producer
from txn.errors import AbortableError, RejectedError
from txn.table.partitioner import partition_of

Unique = Callable[[str], str]


def test_a_member_that_joins_has_the_rows_of_its_partitions(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7), ("ben", 3))
    with program(servers, orders, totals, name=unique("one")) as one:
        one.run_block(2)
        with program(servers, orders, totals, name=unique("two")) as two:
            share(one, two)
            produce(servers, orders, ("ann", 1), ("ben", 1))
            seen = [each.run_block(1) for each in (one, two)]
        assert {name: total for rows in seen for name, total in rows.items()} == {
            "ann": 8,
            "ben": 4,
        }
        assert all(len(rows) == 1 for rows in seen)
        one.await_partitions(2)
        produce(servers, orders, ("ann", 1), ("ben", 1))
        assert one.run_block(2) == {"ann": 9, "ben": 5}
    assert read(servers, totals) == {"ann": 9, "ben": 5}


def test_a_transaction_that_lost_its_partition_does_not_commit(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7), ("ben", 3))
    with program(servers, orders, totals, name=unique("one")) as one:
        with (
            program(servers, orders, totals, name=unique("two")) as two,
            pytest.raises(AbortableError, match="a rebalance took partition"),
            one.producer.transaction(one.consumer) as t,
        ):
            rows = one.table.within(t)
            for record in one.take(2):
                rows[record.key().decode()] = 99
            share(one, two)
            rows["ann"] = rows["ben"] = 100
        one.await_partitions(2)
        assert read(servers, totals) == {}
        assert one.run_block(2) == {"ann": 7, "ben": 3}


def test_a_row_of_a_lost_partition_is_neither_read_nor_written(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7), ("ben", 3))
    with program(servers, orders, totals, name=unique("one")) as one:
        one.run_block(2)
        with program(servers, orders, totals, name=unique("two")) as two:
            share(one, two)
            (own,) = one.table.partitions
            gone = "ben" if partition_of(b"ann", 2) == own else "ann"
            with pytest.raises(RejectedError, match=f"It owns: {own}"):
                one.table.get(gone)


def test_a_partition_that_comes_waits_for_the_transaction_of_its_former_owner(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    """Read up to the last stable offset alone, the row would be missing and counted from 0."""
    produce(servers, orders, ("ann", 7))
    former = transactional_producer(servers, unique("former"), partitioner="murmur2_random")
    former.begin_transaction()
    former.produce(totals, b"100", b"ann")
    assert former.flush(WAIT_S) == 0
    with program(servers, orders, totals, name=unique("adder")) as adder:
        later = threading.Timer(0.5, former.commit_transaction, [WAIT_S])
        later.start()
        assert adder.run_block(1) == {"ann": 107}
        later.join()


def test_a_partition_held_open_for_long_is_named(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    produce(servers, orders, ("ann", 7))
    former = transactional_producer(servers, unique("former"), partitioner="murmur2_random")
    former.begin_transaction()
    former.produce(totals, b"100", b"ann")
    assert former.flush(WAIT_S) == 0
    with program(servers, orders, totals, name=unique("adder"), timeout=1.0) as adder:
        with pytest.raises(txn.RetriableError, match="txn explain"):
            adder.run_block(1)
        former.abort_transaction(WAIT_S)
        assert adder.run_block(1) == {"ann": 7}


def test_rows_of_another_writer_show_after_the_partition_came_back(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    """The table does not trust what it knew of a partition that was away."""
    produce(servers, orders, ("ann", 7))
    with program(servers, orders, totals, name=unique("one")) as one:
        one.run_block(1)
        one.consumer.unsubscribe()
        other = plain_producer(servers, partitioner="murmur2_random")
        other.produce(totals, b"50", b"ann")
        assert other.flush(WAIT_S) == 0
        one.table.subscribe(one.consumer, [orders])
        produce(servers, orders, ("ann", 1))
        assert one.run_block(1) == {"ann": 51}


def test_a_topic_that_another_partitioner_wrote_is_refused_by_its_writer(
    servers: str, orders: str, totals: str, unique: Unique
) -> None:
    """Its rows would never be found, and counted anew from 0."""
    produce(servers, orders, ("ann", 7))
    other = plain_producer(servers)
    other.produce(totals, b"50", b"ben", partition=partition_of(b"ann", 2))
    assert other.flush(WAIT_S) == 0
    with (
        program(servers, orders, totals, name=unique("one")) as one,
        pytest.raises(RejectedError, match="another partitioner"),
    ):
        one.run_block(1)
