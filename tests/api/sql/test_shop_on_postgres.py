"""`examples/sql/shop.py` on PostgreSQL, killed at every step of its protocol."""

import os
import zlib
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from kit.everywhere import function_of
from txn.testing import crash_everywhere

SERVER: Final = "SHOP_POSTGRES"


def on_postgres(servers: str, directory: str) -> None:
    """Sell in a database of this run, and write its table into a file."""
    name = f"shop_{zlib.crc32(directory.encode())}"
    server = os.environ[SERVER]
    with psycopg.connect(server.format("postgres"), autocommit=True) as admin:
        query = "SELECT 1 FROM pg_database WHERE datname = %s"
        if admin.execute(query, (name,)).fetchone() is None:
            admin.execute(f"CREATE DATABASE {name}".encode())
    with psycopg.connect(server.format(name), autocommit=True) as connection:
        function_of("sql/shop", "sell")(servers, connection)
        rows = connection.execute("SELECT text FROM orders ORDER BY id").fetchall()
    Path(directory, "table").write_text("".join(f"{text}\n" for (text,) in rows))


def test_topic_and_postgres_agree_wherever_it_is_stopped(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER, postgres.uri("{}", "shop"))
    crash_everywhere(
        on_postgres,
        input=lambda broker: None,
        output="orders",
        files="table",
        stops=["kill", "kill after", "lose answer", "refuse", "pause"],
        quick=5,
        properties={"transaction.two.phase.commit.enable": True},
    )
