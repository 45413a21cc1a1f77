"""`txn.sql.transaction` between its steps: kills, lost answers, and instances thought dead.

A program that is killed leaves a producer that is closed without a word, and a connection too.
"""

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest

import txn
import txn.client
import txn.sql
from txn.sql import databases
from txn.testing import TestBroker

Open = Callable[[], txn.Producer]
Connect = Callable[[], Any]


class Killed(BaseException):
    """What a step of the program raises in the place of a kill."""


def values(broker: TestBroker) -> list[str]:
    return [(record.value or b"").decode() for record in broker.records("orders")]


def rows(connect: Connect) -> list[str]:
    return [row[0] for row in connect().execute("SELECT text FROM orders ORDER BY id").fetchall()]


def order(t: txn.sql.SqlTransaction, number: int) -> None:
    text = f"order {number}"
    t.connection.execute(f"INSERT INTO orders VALUES ({number}, '{text}')")
    t.produce("orders", text)


def adapter(connection: Any) -> type[databases.Database]:
    return type(databases.database_of(connection))


def run_on(broker: TestBroker, open_producer: Open, connect: Connect) -> None:
    """The next start: it finishes the last run, and runs a transaction of its own."""
    producer, connection = open_producer(), connect()
    txn.sql.recover(producer, connection)
    with txn.sql.transaction(producer, connection) as t:
        order(t, 9)
    assert values(broker) == rows(connect)


def test_a_commit_whose_answer_is_lost_is_found_and_finished(
    broker: TestBroker,
    open_producer: Open,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, connection = open_producer(), connect()
    txn.sql.recover(producer, connection)
    kind = adapter(connection)
    commit = kind.commit

    def lose_the_answer(self: databases.Database) -> None:
        commit(self)
        raise ConnectionError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "commit", lose_the_answer)
        with (
            pytest.raises(txn.InDoubtError, match=r"txn\.sql\.recover") as raised,
            txn.sql.transaction(producer, connection) as t,
        ):
            order(t, 1)
    assert raised.value.action is txn.Action.REOPEN
    assert values(broker) == []
    assert txn.sql.recover(open_producer(), connect())
    assert values(broker) == rows(connect) == ["order 1"]
    run_on(broker, open_producer, connect)


def test_a_commit_that_never_arrives_is_found_and_aborted(
    broker: TestBroker,
    open_producer: Open,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, connection = open_producer(), connect()
    txn.sql.recover(producer, connection)

    def lose_the_request(self: databases.Database) -> None:
        self.connection.close()
        raise ConnectionError("never sent")

    with monkeypatch.context() as patch:
        patch.setattr(adapter(connection), "commit", lose_the_request)
        with (
            pytest.raises(txn.InDoubtError),
            txn.sql.transaction(producer, connection) as t,
        ):
            order(t, 1)
    assert not txn.sql.recover(open_producer(), connect())
    assert values(broker) == rows(connect) == []
    run_on(broker, open_producer, connect)


def test_a_signal_between_the_commits_loses_nothing(
    broker: TestBroker,
    open_producer: Open,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, connection = open_producer(), connect()
    txn.sql.recover(producer, connection)
    kind = adapter(connection)
    commit = kind.commit

    def be_interrupted(self: databases.Database) -> None:
        commit(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, "commit", be_interrupted)
        with pytest.raises(KeyboardInterrupt), txn.sql.transaction(producer, connection) as t:
            order(t, 1)
    run_on(broker, open_producer, connect)
    assert rows(connect) == ["order 1", "order 9"]


def test_topics_whose_commit_has_no_answer_are_committed_by_the_next_start(
    broker: TestBroker, open_producer: Open, connect: Connect
) -> None:
    producer, connection = open_producer(), connect()
    held = broker.hold("EndTxn")
    with (
        pytest.raises(txn.InDoubtError) as raised,
        txn.sql.transaction(producer, connection, timeout=0.5) as t,
    ):
        order(t, 1)
    assert "The database has committed" in "".join(raised.value.__notes__)
    producer.close()
    held.release()
    run_on(broker, open_producer, connect)
    assert rows(connect) == ["order 1", "order 9"]


def test_a_start_that_is_cut_short_is_repeated(
    broker: TestBroker,
    open_producer: Open,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, connection = open_producer(), connect()
    txn.sql.recover(producer, connection)
    with pytest.raises(txn.InDoubtError):
        broker.hold("EndTxn")
        with txn.sql.transaction(producer, connection, timeout=0.5) as t:
            order(t, 1)
    producer.close()
    broker.heal()
    with monkeypatch.context() as patch:
        patch.setattr(txn.Producer, "complete_transaction", raise_killed)
        with pytest.raises(Killed):
            txn.sql.recover(open_producer(), connect())
    run_on(broker, open_producer, connect)


def raise_killed(*_: object) -> None:
    raise Killed


def test_an_instance_thought_dead_can_decide_nothing_any_more(
    broker: TestBroker,
    open_producer: Open,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, connection = open_producer(), connect()
    if isinstance(connection, sqlite3.Connection):
        pytest.skip("an open block holds SQLite's only write lock, so the next start waits for it")
    prepare = txn.client.Transaction.prepare

    def stand_still(self: txn.client.Transaction) -> txn.PreparedTxnState:
        """Prepare; and go on when the next start has finished."""
        state = prepare(self)
        assert not txn.sql.recover(open_producer(), connect())
        return state

    with (
        monkeypatch.context() as patch,
        pytest.raises(Exception, match=r"does not own its row|Conflict on update"),
        txn.sql.transaction(old, connection) as t,
    ):
        order(t, 1)
        patch.setattr(txn.client.Transaction, "prepare", stand_still)
    run_on(broker, open_producer, connect)
    assert rows(connect) == ["order 9"]


def test_a_start_waits_for_a_decision_that_is_being_committed(
    broker: TestBroker,
    open_producer: Open,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, connection = open_producer(), connect()
    txn.sql.recover(old, connection)
    kind = adapter(connection)
    commit = kind.commit
    successors: list[threading.Thread] = []

    def commit_late(self: databases.Database) -> None:
        """A successor starts while this COMMIT is on its way."""
        if self.connection is connection:
            producer = open_producer()
            successor = threading.Thread(target=txn.sql.recover, args=(producer, connect()))
            successors.append(successor)
            successor.start()
            successor.join(0.3)
            assert successor.is_alive(), "it has not waited"
        commit(self)

    monkeypatch.setattr(kind, "commit", commit_late)
    with pytest.raises(txn.FencedError), txn.sql.transaction(old, connection) as t:
        order(t, 1)
    for successor in successors:
        successor.join(30)
    assert values(broker) == rows(connect) == ["order 1"]


def test_postgres_that_ends_the_connection_in_commit_is_asked_again(
    broker: TestBroker, open_producer: Open, postgres: Any
) -> None:
    import psycopg

    with postgres.connect() as admin:
        admin.execute("DROP TABLE IF EXISTS orders, txn_decisions, txn_outbox, txn_offsets")
        admin.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, text VARCHAR(99))")
        admin.execute(
            "CREATE OR REPLACE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'"
        )
        admin.execute(
            "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW WHEN (NEW.id = 1) EXECUTE FUNCTION die()"
        )

    def connect() -> psycopg.Connection:
        return psycopg.connect(postgres.uri("postgres", "shop"))

    with (
        connect() as connection,
        pytest.raises(txn.InDoubtError),
        txn.sql.transaction(open_producer(), connection) as t,
    ):
        order(t, 1)
    with connect() as connection:
        assert not txn.sql.recover(open_producer(), connection)
    with connect() as connection, txn.sql.transaction(open_producer(), connection) as t:
        order(t, 2)
    with connect() as connection:
        assert values(broker) == rows(lambda: connection) == ["order 2"]


def test_postgres_that_refuses_the_commit_undoes_both_and_the_producer_goes_on(
    broker: TestBroker, open_producer: Open, postgres: Any
) -> None:
    import psycopg

    with postgres.connect() as admin:
        admin.execute("DROP TABLE IF EXISTS orders, txn_decisions, txn_outbox, txn_offsets")
        admin.execute(
            "CREATE TABLE orders (id INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED, text TEXT)"
        )
    producer = open_producer()
    with psycopg.connect(postgres.uri("postgres", "shop")) as connection:
        with (
            pytest.raises(psycopg.errors.UniqueViolation),
            txn.sql.transaction(producer, connection) as t,
        ):
            order(t, 1)
            order(t, 1)
        with txn.sql.transaction(producer, connection) as t:
            order(t, 2)
    assert values(broker) == ["order 2"]
