"""Rows of a table in a file of SQLite, which a restart finds again.

Rows and the place that was read change in one transaction of SQLite. So a process that is killed
leaves rows that fit their place. SQLite keeps the file locked for as long as it is open, and the
lock goes with the process: two processes cannot share a file.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from txn.errors import ConfigError, DirectoryError, StorageError
from txn.table.stores import Place, Rows

FORMAT: Final = "txn-table-1"

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS places (
    partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL, current_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS rows (
    partition INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (partition, key)
) WITHOUT ROWID;
"""


class SqliteStore:
    """Rows in a file of SQLite, which belongs to one process at a time.

    Args:
        path: The file; it is created where it is not there. Its directory has to exist.

    Raises:
        DirectoryError: another process has the file open, it is no file of a table, or it cannot
            be opened.
    """

    is_kept = True

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        try:
            # The thread that follows a topic and the one that reads take turns by a lock.
            self._connection = sqlite3.connect(
                self._path, timeout=0.0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute("BEGIN EXCLUSIVE")
            self._require_ours()
            for statement in SCHEMA.split(";"):
                self._connection.execute(statement)
            self._note("format", FORMAT.encode())
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unusable(error) from error
        except DirectoryError:
            self._connection.close()
            raise

    def _require_ours(self) -> None:
        names = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}
        if names and ("facts" not in names or self._fact("format") != FORMAT.encode()):
            raise DirectoryError(
                f"{self._path!r} is a file of another program. Give the table a file of its own",
                path=self._path,
            )

    def _unusable(self, error: sqlite3.Error) -> DirectoryError:
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return DirectoryError(
                f"the store {self._path!r} is in use by another table. Give each table of each "
                "process a file of its own",
                path=self._path,
            )
        return DirectoryError(
            f"the store {self._path!r} cannot be opened: {error}. If it is damaged, delete it: "
            "the table is built again from its topic",
            path=self._path,
        )

    def belong_to(self, topic: str, topic_id: bytes | None) -> None:
        """Note the topic of the rows; forget all rows of another topic id.

        Raises ConfigError: the file keeps another topic's rows.
        """
        known = self._fact("topic")
        if known is not None and known != topic.encode():
            raise ConfigError(
                f"the store {self._path!r} keeps the table {known.decode()!r}, not {topic!r}. Give "
                "each table a file of its own"
            )
        if known is not None and self._fact("topic_id") == topic_id:
            return
        with self._changing():
            self._connection.execute("DELETE FROM rows")
            self._connection.execute("DELETE FROM places")
            self._note("topic", topic.encode())
            self._note("topic_id", topic_id)

    def place(self, partition: int) -> Place | None:
        """Return how far a partition was read; None: not at all."""
        found = self._connection.execute(
            "SELECT next_offset, current_ms FROM places WHERE partition = ?", (partition,)
        ).fetchone()
        return None if found is None else Place(*found)

    def get(self, partition: int, key: bytes) -> bytes | None:
        """Return a row's value; None: there is no such row."""
        found = self._connection.execute(
            "SELECT value FROM rows WHERE partition = ? AND key = ?", (partition, key)
        ).fetchone()
        return None if found is None else bytes(found[0])

    def keys(self, partition: int) -> Iterator[bytes]:
        """Return the keys of a partition, in order."""
        found = self._connection.execute(
            "SELECT key FROM rows WHERE partition = ? ORDER BY key", (partition,)
        )
        return (bytes(key) for (key,) in found)

    def count(self, partition: int) -> int:
        """Return the number of rows of a partition. Cost: looks at each."""
        (found,) = self._connection.execute(
            "SELECT count(*) FROM rows WHERE partition = ?", (partition,)
        ).fetchone()
        return int(found)

    def apply(self, partition: int, rows: Rows, place: Place | None) -> None:
        """Store rows and the place that was read, in one transaction of SQLite.

        Raises StorageError: the disk refused; nothing was stored.
        """
        kept = [(partition, key, value) for key, value in rows.items() if value is not None]
        gone = [(partition, key) for key, value in rows.items() if value is None]
        with self._changing():
            self._connection.executemany("REPLACE INTO rows VALUES (?, ?, ?)", kept)
            self._connection.executemany("DELETE FROM rows WHERE partition = ? AND key = ?", gone)
            if place is not None:
                self._connection.execute(
                    "REPLACE INTO places VALUES (?, ?, ?)",
                    (partition, place.next_offset, place.current_ms),
                )

    def clear(self, partition: int) -> None:
        """Forget the rows and the place of a partition."""
        with self._changing():
            self._connection.execute("DELETE FROM rows WHERE partition = ?", (partition,))
            self._connection.execute("DELETE FROM places WHERE partition = ?", (partition,))

    def close(self) -> None:
        """Close the file and its lock. Can be repeated."""
        self._connection.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StorageError(
                f"the store {self._path!r} refused a change: {error}. Make room on its disk; if it "
                "is damaged, delete it: the table is built again from its topic"
            ) from error

    def _fact(self, name: str) -> bytes | None:
        found = self._connection.execute(
            "SELECT value FROM facts WHERE name = ?", (name,)
        ).fetchone()
        return None if found is None or found[0] is None else bytes(found[0])

    def _note(self, name: str, value: bytes | None) -> None:
        self._connection.execute("REPLACE INTO facts VALUES (?, ?)", (name, value))
