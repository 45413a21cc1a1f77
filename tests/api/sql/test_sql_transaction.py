"""`txn.sql.transaction`: rows and records are committed together, or neither is."""

from collections.abc import Callable
from typing import Any

import pytest

import txn
import txn.sql
from txn.testing import TestBroker

Open = Callable[[], txn.Producer]
Connect = Callable[[], Any]


def values(broker: TestBroker) -> list[str]:
    return [(record.value or b"").decode() for record in broker.records("orders")]


def rows(connect: Connect) -> list[str]:
    return [row[0] for row in connect().execute("SELECT text FROM orders ORDER BY id").fetchall()]


def order(t: txn.sql.SqlTransaction, number: int) -> None:
    text = f"order {number}"
    t.connection.execute(f"INSERT INTO orders VALUES ({number}, '{text}')")
    t.produce("orders", text)


def test_rows_and_records_are_committed_together(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    producer, connection = open_producer(), connect()
    for number in (1, 2):
        with txn.sql.transaction(producer, connection) as t:
            order(t, number)
            assert len(values(broker)) == number - 1
    assert values(broker) == rows(connect) == ["order 1", "order 2"]


def test_an_error_in_the_block_undoes_both(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    producer, connection = open_producer(), connect()
    with pytest.raises(ZeroDivisionError), txn.sql.transaction(producer, connection) as t:
        order(t, 1)
        raise ZeroDivisionError
    with txn.sql.transaction(producer, connection) as t:
        order(t, 2)
    assert values(broker) == rows(connect) == ["order 2"]


def test_an_error_of_the_database_undoes_both(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    producer, connection = open_producer(), connect()
    with txn.sql.transaction(producer, connection) as t:
        order(t, 1)
    with (
        pytest.raises(Exception, match=r"(?i)unique|duplicate"),
        txn.sql.transaction(producer, connection) as t,
    ):
        t.produce("orders", "twice")
        order(t, 1)
    with txn.sql.transaction(producer, connection) as t:
        order(t, 2)
    assert values(broker) == rows(connect) == ["order 1", "order 2"]


def test_a_refused_record_undoes_the_rows(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    broker.refuse_next_append("orders")
    with (
        pytest.raises(txn.TxnError, match="INVALID_RECORD"),
        txn.sql.transaction(open_producer(), connect()) as t,
    ):
        order(t, 1)
    assert values(broker) == rows(connect) == []


def test_a_commit_inside_the_block_is_refused_and_no_record_is_committed(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    with (
        pytest.raises(txn.RejectedError, match="inside the block"),
        txn.sql.transaction(open_producer(), connect()) as t,
    ):
        order(t, 1)
        t.connection.execute("COMMIT")
        t.connection.execute("BEGIN")
    assert values(broker) == []


def test_a_connection_with_an_open_transaction_is_refused(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    producer, connection = open_producer(), connect()
    txn.sql.recover(producer, connection)
    connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (1, 'before')")
    with (
        pytest.raises(txn.RejectedError, match="before the block"),
        txn.sql.transaction(producer, connection) as t,
    ):
        order(t, 2)
    connection.commit()
    with txn.sql.transaction(producer, connection) as t:
        order(t, 3)
    assert (values(broker), rows(connect)) == (["order 3"], ["before", "order 3"])


def test_an_empty_transaction_of_the_topics_decides_nothing_for_the_next(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    producer, connection = open_producer(), connect()
    with txn.sql.transaction(producer, connection) as t:
        t.connection.execute("INSERT INTO orders VALUES (1, 'no record')")
    with producer.transaction() as prepared:  # it has the epoch of the empty one
        prepared.produce("orders", "undecided")
        prepared.prepare()
        prepared.leave_prepared()
    assert not txn.sql.recover(open_producer(), connect())
    assert (values(broker), rows(connect)) == ([], ["no record"])


def test_the_offsets_of_a_consumer_belong_to_the_decision(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    broker.create_topic("in")
    broker.produce("in", "1", "2")
    producer, connection = open_producer(), connect()
    consumer = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="shop", auto_offset_reset="earliest"
    )
    with consumer:
        consumer.subscribe(["in"])
        with (
            pytest.raises(ZeroDivisionError),
            txn.sql.transaction(producer, connection, consumer),
        ):
            assert len(consumer.consume(2, timeout=30)) == 2
            raise ZeroDivisionError
        with txn.sql.transaction(producer, connection, consumer) as t:
            for message in consumer.consume(2, timeout=30):
                order(t, int(message.value() or b""))
    broker.wait_until_consumed("shop")
    assert values(broker) == rows(connect) == ["order 1", "order 2"]


def test_a_producer_without_two_phase_commit_is_refused(
    broker: TestBroker, connect: Connect
) -> None:
    with (
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="plain"
        ) as producer,
        pytest.raises(txn.ConfigError, match="two_phase_commit=True"),
    ):
        txn.sql.transaction(producer, connect())


def test_another_kind_of_connection_is_refused(open_producer: Open) -> None:
    with pytest.raises(TypeError, match="psycopg 3, sqlite3 or duckdb"):
        txn.sql.transaction(open_producer(), object())
