"""A broker with two-phase commit, and a database of each kind.

The databases are real: SQLite and DuckDB in files, PostgreSQL as a server of its own.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import txn
from txn.testing import TestBroker

Connect = Callable[[], Any]
"""Opens another connection to the database of the test."""

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, text VARCHAR(99))"


@pytest.fixture(scope="session")
def two_phase_broker() -> Iterator[TestBroker]:
    with TestBroker(properties={"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


@pytest.fixture
def broker(two_phase_broker: TestBroker) -> Iterator[TestBroker]:
    two_phase_broker.reset()
    two_phase_broker.create_topic("orders")
    yield two_phase_broker
    two_phase_broker.heal()


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    if request.param == "sqlite":
        yield from _sqlite(tmp_path)
    elif request.param == "duckdb":
        yield from _duckdb(tmp_path)
    else:
        yield from _postgres(request)


def _sqlite(directory: Path) -> Iterator[Connect]:
    opened: list[sqlite3.Connection] = []

    def open_one() -> sqlite3.Connection:
        opened.append(sqlite3.connect(directory / "shop.db", check_same_thread=False, timeout=0.1))
        return opened[-1]

    with open_one() as first:
        first.execute(ORDERS)
    yield open_one
    for connection in opened:
        connection.close()


def _duckdb(directory: Path) -> Iterator[Connect]:
    duckdb = pytest.importorskip("duckdb")
    # A file has one process, whose connections are cursors of the first.
    with duckdb.connect(str(directory / "shop.duckdb")) as first:
        first.execute(ORDERS)
        yield first.cursor


def _postgres(request: pytest.FixtureRequest) -> Iterator[Connect]:
    import psycopg

    server = request.getfixturevalue("postgres")
    opened: list[psycopg.Connection] = []

    def open_one() -> psycopg.Connection:
        opened.append(psycopg.connect(server.uri("postgres", "shop")))
        return opened[-1]

    with server.connect() as admin:
        admin.execute("DROP TABLE IF EXISTS orders, txn_decisions, txn_outbox, txn_offsets")
        admin.execute(ORDERS)
    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    from harnesses.peers.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


def open_shop(broker: TestBroker) -> txn.Producer:
    return txn.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id="shop",
        engine="native",
        two_phase_commit=True,
    )


@pytest.fixture
def open_producer(broker: TestBroker) -> Iterator[Callable[[], txn.Producer]]:
    opened: list[txn.Producer] = []

    def open_one() -> txn.Producer:
        opened.append(open_shop(broker))
        return opened[-1]

    yield open_one
    for producer in opened:
        producer.close()
