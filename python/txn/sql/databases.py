"""The databases of `txn.sql`, each by its own driver: transactions, statements, doubts.

A `Database` is a user's connection with the few differences between psycopg, sqlite3 and duckdb.
Statements have `?` for parameters. `begin` marks the transaction and `require_unbroken` looks for
the mark, so that a `commit` inside a block is noticed: rows would be committed without a decision.
"""

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from txn.errors import ConfigError, RejectedError

MARK: Final = "txn_block"
"""The savepoint by which a block recognises its transaction."""

BROKEN: Final = (
    "the transaction of the database was committed or rolled back inside the block, so its rows "
    "and the topics are no longer one transaction. The topics are aborted; rows that were "
    "committed stay. Leave commit and rollback to the end of the block"
)

OPEN_ALREADY: Final = (
    "the connection has a transaction open, and its earlier statements would become part of the "
    "block's. Call commit() or rollback() before the block"
)


class Database(Protocol):
    """A connection to a database.

    Attributes:
        connection: The user's.
        blob: The type of a column for bytes.
        numbered: The definition of a column `id` that counts rows.
    """

    connection: Any
    blob: str
    numbered: str

    def begin(self) -> None:
        """Begin a transaction. Raises RejectedError if one is open."""

    def require_unbroken(self) -> None:
        """Raise RejectedError if the transaction of `begin` is not the open one any more."""

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement in the open transaction; return its rows, if it gives any."""

    def change(self, statement: str, parameters: Sequence[object] = ()) -> int:
        """Execute an INSERT, UPDATE or DELETE in the open transaction; return its rows' number."""

    def commit(self) -> None:
        """Commit; raises the driver's error."""

    def rollback(self) -> None:
        """Roll back, if a transaction is open; raises the driver's error."""

    def has_rolled_back(self, error: BaseException) -> bool:
        """True if this error of `commit` proves that nothing was or will be committed."""

    def is_conflict(self, error: BaseException) -> bool:
        """True if the same transaction may succeed later: another one was in its way."""

    def has_table(self, name: str) -> bool:
        """True if there is a table of this name; in the open transaction."""

    def require_durable(self) -> None:
        """Raise ConfigError if a commit may be lost in a crash; in the open transaction."""

    def limit_waits(self, seconds: float) -> None:
        """Let a statement of the open transaction wait no longer for another transaction."""


def database_of(connection: object) -> Database:
    """Return the database behind a connection of psycopg 3, sqlite3 or duckdb.

    Raises:
        TypeError: it is a connection of another driver, or an asynchronous one.
    """
    if isinstance(connection, sqlite3.Connection):
        return Sqlite(connection)
    psycopg, duckdb = sys.modules.get("psycopg"), sys.modules.get("duckdb")
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return Postgres(connection)
    if duckdb is not None and isinstance(connection, duckdb.DuckDBPyConnection):
        return DuckDb(connection)
    raise TypeError(
        f"txn.sql takes a connection of psycopg 3, sqlite3 or duckdb, not {connection!r}. From "
        "SQLAlchemy: engine.raw_connection().driver_connection"
    )


class Sqlite:
    """SQLite. Its transactions begin with the write lock: a later upgrade could fail."""

    blob = "BLOB"
    numbered = "id INTEGER PRIMARY KEY AUTOINCREMENT"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        # With autocommit=False (Python 3.12) a transaction is always open.
        self._is_always_open = getattr(connection, "autocommit", None) is False

    def begin(self) -> None:
        """Begin a transaction, with a savepoint as its mark."""
        if not self._is_always_open:
            if self.connection.in_transaction:
                raise RejectedError(OPEN_ALREADY)
            self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(f"SAVEPOINT {MARK}")

    def require_unbroken(self) -> None:
        """Release the savepoint, which is gone after a commit or a rollback."""
        try:
            self.connection.execute(f"RELEASE {MARK}")
        except sqlite3.OperationalError as error:
            raise RejectedError(BROKEN) from error

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement."""
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, tuple(parameters)).fetchall()

    def change(self, statement: str, parameters: Sequence[object] = ()) -> int:
        """Execute a statement."""
        return self.connection.execute(statement, tuple(parameters)).rowcount

    def commit(self) -> None:
        """Commit."""
        if self._is_always_open:
            self.connection.commit()
        else:
            self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back."""
        if self._is_always_open:
            self.connection.rollback()
        elif self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def has_rolled_back(self, error: BaseException) -> bool:
        """A COMMIT that found the database busy leaves its transaction open."""
        is_open = self.is_conflict(error) and self.connection.in_transaction
        return is_open and not self._is_always_open

    def is_conflict(self, error: BaseException) -> bool:
        """The database is locked by another connection."""
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
        )

    def has_table(self, name: str) -> bool:
        """Look into the schema."""
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def require_durable(self) -> None:
        """Refuse `PRAGMA synchronous` below FULL, but for a database in memory."""
        [(level,)] = self.run("PRAGMA synchronous")
        files = [row[2] for row in self.run("PRAGMA database_list") if row[1] == "main"]
        if level < 2 and any(files):
            raise ConfigError(
                f"PRAGMA synchronous is {level}: SQLite may lose a commit when the power fails, "
                "and topics would keep what the database has lost. Set PRAGMA synchronous=FULL",
                value=level,
            )

    def limit_waits(self, seconds: float) -> None:
        """The `timeout` of `sqlite3.connect` is the limit."""


class Postgres:
    """PostgreSQL by psycopg 3, whose `transaction` refuses commit() inside."""

    blob = "BYTEA"
    numbered = "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._block: Any = None

    def begin(self) -> None:
        """Begin a transaction, with a savepoint as its mark, in one round trip."""
        if self._status() != "IDLE":
            raise RejectedError(OPEN_ALREADY)
        block = self.connection.transaction(savepoint_name=MARK)
        block.__enter__()
        self._block = block

    def require_unbroken(self) -> None:
        """Release the savepoint, which is gone after a COMMIT that was sent as a statement."""
        import psycopg.errors as errors

        try:
            self.run(f"RELEASE SAVEPOINT {MARK}")
        except (errors.InvalidSavepointSpecification, errors.NoActiveSqlTransaction) as error:
            raise RejectedError(BROKEN) from error

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement, on a cursor of its own: the user's may give rows of another kind."""
        from psycopg.rows import tuple_row

        with self.connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(statement.replace("?", "%s"), tuple(parameters))
            return [] if cursor.description is None else list(cursor.fetchall())

    def change(self, statement: str, parameters: Sequence[object] = ()) -> int:
        """Execute a statement."""
        with self.connection.cursor() as cursor:
            return int(cursor.execute(statement.replace("?", "%s"), tuple(parameters)).rowcount)

    def commit(self) -> None:
        """Commit."""
        block, self._block = self._block, None
        block.__exit__(None, None, None)

    def rollback(self) -> None:
        """Roll back."""
        block, self._block = self._block, None
        if block is not None:
            reason = RejectedError("rolled back")
            block.__exit__(RejectedError, reason, None)
        elif self._status() in ("INTRANS", "INERROR"):
            self.connection.rollback()

    def has_rolled_back(self, error: BaseException) -> bool:
        """The server has answered the COMMIT with an error, and the connection goes on."""
        has_answered = getattr(error, "sqlstate", None) is not None
        return has_answered and not self.connection.closed

    def is_conflict(self, error: BaseException) -> bool:
        """Classes 40 (serialization, deadlock) and 55P03; or the same table was made meanwhile."""
        state = getattr(error, "sqlstate", None) or ""
        return state[:2] == "40" or state in ("55P03", "23505", "42P07")

    def has_table(self, name: str) -> bool:
        """Look for it on the search path, for which no right is needed."""
        return self.run("SELECT to_regclass(?) IS NOT NULL", (name,)) == [(True,)]

    def require_durable(self) -> None:
        """Refuse `synchronous_commit=off`."""
        [(level,)] = self.run("SHOW synchronous_commit")
        if level == "off":
            raise ConfigError(
                "synchronous_commit is off: PostgreSQL may lose a commit in a crash, and topics "
                "would keep what the database has lost. Set synchronous_commit to on or local",
                value=level,
            )

    def limit_waits(self, seconds: float) -> None:
        """Set `lock_timeout` for the transaction."""
        self.run("SELECT set_config('lock_timeout', ?, true)", (f"{int(seconds * 1000) + 1}ms",))

    def _status(self) -> str:
        return str(self.connection.info.transaction_status.name)


class DuckDb:
    """DuckDB, whose transactions are optimistic and have no savepoints.

    Of two transactions that write one row DuckDB 2.0 notices a conflict only if both change the
    value of the same column by a plain UPDATE. It lets both commit, and loses one, after an `ON
    CONFLICT DO UPDATE`, after a RETURNING on a table with a primary key, after updates of different
    columns, and after one that sets a column to its value. So each writer of `decisions.py` counts
    up `writes`, and `inbox.py` moves an offset.
    """

    blob = "BLOB"
    numbered = "id BIGINT DEFAULT nextval('txn_outbox_ids')"

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._mark: object = None

    def begin(self) -> None:
        """Begin a transaction; its number is the mark.

        A BEGIN inside a transaction would roll it back, so this looks for one first.
        """
        import duckdb

        try:
            is_open = self._number() == self._number()
        except duckdb.TransactionException as error:  # one is open, and has failed
            raise RejectedError(OPEN_ALREADY) from error
        if is_open:
            raise RejectedError(OPEN_ALREADY)
        self.connection.begin()
        self._mark = self._number()

    def require_unbroken(self) -> None:
        """Compare the number: without a transaction each statement has its own."""
        if self._number() != self._mark:
            raise RejectedError(BROKEN)

    def run(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement."""
        return list(self.connection.execute(statement, list(parameters)).fetchall())

    def change(self, statement: str, parameters: Sequence[object] = ()) -> int:
        """Execute a statement, which answers with one row."""
        return int(self.run(statement, parameters)[0][0])

    def commit(self) -> None:
        """Commit."""
        self.connection.commit()

    def rollback(self) -> None:
        """Roll back."""
        import duckdb

        with suppress(duckdb.TransactionException):  # none is open
            self.connection.rollback()

    def has_rolled_back(self, error: BaseException) -> bool:
        """A conflict, or a constraint, is found before anything is written."""
        import duckdb

        return isinstance(error, (duckdb.TransactionException, duckdb.ConstraintException))

    def is_conflict(self, error: BaseException) -> bool:
        """Another transaction has changed the same row."""
        return self.has_rolled_back(error)

    def has_table(self, name: str) -> bool:
        """Look into the catalog."""
        query = "SELECT 1 FROM information_schema.tables WHERE table_name = ?"
        return bool(self.run(query, (name,)))

    def require_durable(self) -> None:
        """DuckDB syncs its log at each commit."""

    def limit_waits(self, seconds: float) -> None:
        """DuckDB never waits for another transaction."""

    def _number(self) -> object:
        return self.run("SELECT txid_current()")[0][0]
