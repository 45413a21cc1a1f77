"""Programs of `examples/spark/` that write to a database, killed on both sides of its commit (P3).

PostgreSQL itself makes them wait there. A trigger keeps a transaction from its end, after its last
statement. And a standby that never comes keeps back the answer to a commit that is on the disk.
"""

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from harnesses.peers.postgres import PostgresServer
from spark.kill.harness import TxnBroker, kill_session
from spark.logs import tail
from spark.patterns.harness import EXAMPLES, SETTINGS, newest, started_together
from support import clients

HANGS_S: Final = 400.0
ROWS: Final = 30
"""Orders of a bite in each of two partitions."""

PROGRAMS: Final = ("database_rows", "database_totals")
BEFORE, AFTER = "killed_before", "killed_after"
"""Two databases, by the moment of the kill: before their commit, or after it."""

CORES: Final = ["--conf", "spark.master=local[4,4]"]
"""A task that waits at its commit keeps its core."""

HOLD: Final = """
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END';
    CREATE TRIGGER hold AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION hold();
    CREATE TRIGGER hold AFTER UPDATE ON spark_progress EXECUTE FUNCTION hold();
"""
"""The last statement of each program's transaction waits while somebody has the lock 1."""

WAITING: Final = """
    SELECT datname, application_name FROM pg_stat_activity
    WHERE (datname, wait_event) IN ((%s, 'advisory'), (%s, 'SyncRep'))
"""
CONNECTED: Final = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ANY(%s)"

Order = tuple[int, str, int]
"""Partition, customer, cents."""


def bite(number: int) -> list[Order]:
    first = number * 2 * ROWS
    return [(n % 2, f"c{n % 7}", 100 + n) for n in range(first, first + 2 * ROWS)]


class Stage:
    """The programs on both databases, as queries of one session, and their input."""

    def __init__(self, server: PostgresServer, servers: str, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.log = directory / "programs.log"
        self.sent: list[Order] = []
        self._servers = servers
        clients.create_topic(servers, "orders", 2)
        with server.connect() as admin:
            for name in (BEFORE, AFTER):
                admin.execute(f"CREATE DATABASE {name}")
            admin.execute(f"ALTER DATABASE {BEFORE} SET synchronous_commit = local")

    @property
    def targets(self) -> list[tuple[str, str]]:
        return [(database, program) for database in (BEFORE, AFTER) for program in PROGRAMS]

    def checkpoint(self, database: str, program: str) -> Path:
        return self.directory / f"{program}-{database}"

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        plan = [(program, self._arguments(database, program)) for database, program in self.targets]
        with started_together(plan, self.log) as process:
            yield process

    def _arguments(self, database: str, program: str) -> list[str]:
        words = {
            "--bootstrap-servers": self._servers,
            "--database": self.server.uri(database, program),
            "--checkpoint": str(self.checkpoint(database, program)),
            "--every": "200 milliseconds",
        }
        return [word for pair in words.items() for word in pair] + SETTINGS + CORES

    def feed(self, orders: list[Order]) -> None:
        producer = clients.plain_producer(self._servers)
        for partition, customer, cents in orders:
            value = json.dumps({"customer": customer, "cents": cents})
            producer.produce("orders", value, partition=partition)
        assert producer.flush(clients.WAIT_S) == 0
        self.sent += orders

    def rows(self, database: str) -> list[tuple[Any, ...]]:
        return self._select(
            database, "SELECT partition, record_offset, customer, cents FROM orders"
        )

    def totals(self, database: str) -> list[tuple[Any, ...]]:
        return self._select(database, "SELECT customer, orders, cents FROM totals")

    def _select(self, database: str, query: str) -> list[tuple[Any, ...]]:
        with self.server.connect(database) as connection:
            return sorted(connection.execute(query.encode()).fetchall())

    def expected_rows(self) -> list[tuple[Any, ...]]:
        offsets: Counter[int] = Counter()
        rows = []
        for partition, customer, cents in self.sent:
            rows.append((partition, offsets[partition], customer, cents))
            offsets[partition] += 1
        return sorted(rows)

    def expected_totals(self) -> list[tuple[Any, ...]]:
        orders = Counter(customer for _, customer, _ in self.sent)
        cents: Counter[str] = Counter()
        for _, customer, amount in self.sent:
            cents[customer] += amount
        return sorted((customer, orders[customer], cents[customer]) for customer in orders)

    def counts(self, database: str) -> tuple[int, int]:
        """Orders in the rows, and in the totals."""
        return len(self.rows(database)), sum(orders for _, orders, _ in self.totals(database))

    def is_through(self) -> bool:
        """Say whether everything that was sent has come, perhaps twice, and Spark knows it."""
        return (
            all(newest(self.checkpoint(*target) / "commits") >= 0 for target in self.targets)
            and all(min(self.counts(database)) >= len(self.sent) for database in (BEFORE, AFTER))
            and not self.unfinished()
        )

    def unfinished(self) -> list[tuple[str, str]]:
        """Queries with a batch that is planned, and not in Spark's commit log."""
        logs = {target: self.checkpoint(*target) for target in self.targets}
        return [t for t, log in logs.items() if newest(log / "offsets") > newest(log / "commits")]

    def await_(self, process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANGS_S
        while not is_so():
            assert process.poll() is None, f"the programs ended:\n{tail(self.log)}"
            assert time.monotonic() < deadline, f"they hang:\n{tail(self.log)}"
            time.sleep(0.1)


@contextmanager
def commits_held(stage: Stage) -> Iterator[Callable[[], bool]]:
    """Let each program wait at its next commit; says whether all of them do.

    In the end the lock is given back, and no standby is needed any more. Then the connections of
    killed programs end.
    """
    server = stage.server
    with server.connect(BEFORE) as lock, server.connect() as admin:
        lock.execute(HOLD)
        lock.execute("SELECT pg_advisory_lock(1)")
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        admin.execute("SELECT pg_reload_conf()")
        yield lambda: set(admin.execute(WAITING, (BEFORE, AFTER))) == set(stage.targets)
        admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        admin.execute("SELECT pg_reload_conf()")
        lock.execute("SELECT pg_advisory_unlock(1)")
        deadline = time.monotonic() + HANGS_S
        while admin.execute(CONNECTED, (list(PROGRAMS),)).fetchone() != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(900)
def test_P3_database_has_each_record_once_when_the_driver_is_killed_around_its_commit(
    tmp_path: Path,
) -> None:
    broker = TxnBroker(tmp_path)
    try:
        with PostgresServer() as server:
            stage = Stage(server, broker.bootstrap_servers, tmp_path)
            with stage.running() as process:
                stage.feed(bite(0))
                stage.await_(process, stage.is_through)
                with commits_held(stage) as all_wait:
                    stage.feed(bite(1))
                    stage.await_(process, all_wait)
                    kill_session(process)
            assert stage.unfinished() == stage.targets
            assert stage.counts(BEFORE) == (2 * ROWS, 2 * ROWS)  # nothing of the batch
            assert min(stage.counts(AFTER)) > 2 * ROWS  # all of it
            with stage.running() as process:
                stage.feed(bite(2))
                stage.await_(process, stage.is_through)
                process.send_signal(signal.SIGTERM)
                assert process.wait(HANGS_S) == 0, tail(stage.log)
            for database in (BEFORE, AFTER):
                assert stage.rows(database) == stage.expected_rows()
                assert stage.totals(database) == stage.expected_totals()
    finally:
        broker.stop()


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_totals_refuse_a_new_checkpoint_and_take_a_batch_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    program = import_module("database_totals")
    with PostgresServer() as server, server.connect() as connection:
        connection.execute(program.TABLE.format(psycopg.sql.Identifier("totals")))
        connection.execute(program.PROGRESS)
        for batch in (0, 1, 1, 0):
            with connection.transaction():
                program.add(connection, "totals", "a", batch, [("c1", 1, 10 + batch)])
        with pytest.raises(program.ConfigError, match="batches 0 to 1 of query a, and this is b"):
            program.add(connection, "totals", "b", 0, [("c1", 1, 10)])
        assert connection.execute("SELECT * FROM totals").fetchall() == [("c1", 2, 21)]
