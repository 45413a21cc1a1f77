"""`shop.py` killed at every step of its protocol: each order is in the topic exactly when it is in
the table. Each run writes its table into a file at its end, which is output like the topic.

`tests/api/sql/test_shop_on_postgres.py` plays the same on PostgreSQL.
"""

import sqlite3
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from txn.testing import crash_everywhere

BROKER = {"transaction.two.phase.commit.enable": True}
STOPS = ["kill", "kill after", "lose answer", "refuse", "pause"]
"""All but `fence`: an ordinary producer of the same id aborts what is prepared (KIP-939)."""


def run(servers: str, directory: str, connection: Any) -> None:
    """Sell, and write the table into a file."""
    spec = spec_from_file_location("shop", Path(__file__).with_name("shop.py"))
    assert spec is not None
    assert spec.loader is not None
    shop = module_from_spec(spec)
    spec.loader.exec_module(shop)
    shop.sell(servers, connection)
    rows = connection.execute("SELECT text FROM orders ORDER BY id").fetchall()
    Path(directory, "table").write_text("".join(f"{text}\n" for [text] in rows))


def on_sqlite(servers: str, directory: str) -> None:
    """Run with SQLite."""
    run(servers, directory, sqlite3.connect(Path(directory, "shop.db"), timeout=20))


def on_duckdb(servers: str, directory: str) -> None:
    """Run with DuckDB, whose file one process at a time can open."""
    import duckdb

    with duckdb.connect(str(Path(directory, "shop.duckdb"))) as connection:
        run(servers, directory, connection)


def play(program: Callable[[str, str], None], quick: int, stops: list[str] = STOPS) -> None:
    """Stop the program at its steps."""
    crash_everywhere(
        program,
        input=lambda broker: None,
        output="orders",
        files="table",
        stops=stops,
        quick=quick,
        properties=BROKER,
    )


def test_topic_and_sqlite_agree_wherever_it_is_stopped() -> None:
    play(on_sqlite, 8)


def test_topic_and_duckdb_agree_wherever_it_is_stopped() -> None:
    pytest.importorskip("duckdb")
    play(on_duckdb, 4, ["kill", "kill after", "lose answer"])
