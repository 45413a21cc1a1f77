"""The table `txn_decisions`: one row for each transactional id, its last decision and its owner.

    transactional_id   the name of the producer over restarts
    owner              a random token of the producer that is allowed to decide
    producer_id,       the last transaction that was decided to commit, as `PreparedTxnState`;
    producer_epoch     -1, -1 before the first one
    writes             how often the row was written

`take_over` and `decide` are the only writers. Both write the row, so the database orders them: a
take-over waits for a transaction that has decided, or that transaction fails. Each writer changes
`writes` by a plain UPDATE, without which DuckDB would not notice the conflict: see `DuckDb`.
"""

import time
import uuid
from collections.abc import Callable
from typing import Final, TypeVar

from txn.client.two_phase import PreparedTxnState
from txn.errors import FencedError, RetriableError
from txn.sql.databases import Database

TABLE: Final = """CREATE TABLE IF NOT EXISTS txn_decisions (
    transactional_id VARCHAR(255) PRIMARY KEY,
    owner VARCHAR(32) NOT NULL,
    producer_id BIGINT NOT NULL,
    producer_epoch INTEGER NOT NULL,
    writes BIGINT NOT NULL
)"""
"""The statement that makes the table, where a program may not make it at its first start."""

PAUSE_S: Final = 0.05

T = TypeVar("T")


def take_over(
    database: Database, transactional_id: str, timeout: float
) -> tuple[str, PreparedTxnState]:
    """Become the owner of an id's row; return the owner's token and the last decision.

    Afterwards no earlier owner can decide. A transaction of one that has decided and not committed
    yet is awaited.

    Raises:
        ConfigError: the database may lose a commit.
        RejectedError: the connection has a transaction open.
        RetriableError: another transaction was in the way for all the time.
    """
    owner = uuid.uuid4().hex

    def write() -> PreparedTxnState:
        database.require_durable()
        if not database.has_table("txn_decisions"):
            database.run(TABLE)
        database.change(
            "INSERT INTO txn_decisions VALUES (?, ?, -1, -1, 0) ON CONFLICT DO NOTHING",
            (transactional_id, owner),
        )
        database.change(
            "UPDATE txn_decisions SET writes = writes + 1, owner = ? WHERE transactional_id = ?",
            (owner, transactional_id),
        )
        [row] = database.run(
            "SELECT producer_id, producer_epoch FROM txn_decisions WHERE transactional_id = ?",
            (transactional_id,),
        )
        return PreparedTxnState(*row)

    return owner, in_transaction(database, write, timeout)


def decide(database: Database, transactional_id: str, owner: str, state: PreparedTxnState) -> None:
    """Write a decision, in the open transaction: its commit is the decision.

    Raises:
        FencedError: the row has another owner.
    """
    changed = database.change(
        "UPDATE txn_decisions SET writes = writes + 1, producer_id = ?, producer_epoch = ? "
        "WHERE transactional_id = ? AND owner = ?",
        (state.producer_id, state.producer_epoch, transactional_id, owner),
    )
    _require_one(changed, transactional_id)


def require_owner(database: Database, transactional_id: str, owner: str) -> None:
    """Hold the row to the end of the open transaction, so that nobody takes over meanwhile.

    Raises:
        FencedError: the row has another owner.
    """
    changed = database.change(
        "UPDATE txn_decisions SET writes = writes + 1 WHERE transactional_id = ? AND owner = ?",
        (transactional_id, owner),
    )
    _require_one(changed, transactional_id)


def _require_one(changed: int, transactional_id: str) -> None:
    if changed != 1:
        raise FencedError(
            f"producer {transactional_id!r} does not own its row in txn_decisions any more: "
            "another instance took it over, or the connection is to another database. Nothing is "
            "committed; close this producer",
            transactional_id=transactional_id,
        )


def in_transaction(database: Database, work: Callable[[], T], timeout: float) -> T:
    """Run statements in a transaction of their own, again after each conflict; return the result.

    Raises:
        RejectedError: the connection has a transaction open.
        RetriableError: conflicts did not end within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            database.begin()
            try:
                database.limit_waits(max(0.0, deadline - time.monotonic()))
                result = work()
                database.commit()
                return result
            except BaseException as error:
                roll_back_or_note(database, error)
                raise
        except Exception as error:
            if not database.is_conflict(error):
                raise
            if time.monotonic() > deadline:
                raise RetriableError(
                    f"another transaction of the database was in the way for {timeout:g} s: {error}"
                ) from error
            time.sleep(PAUSE_S)


def roll_back_or_note(database: Database, reason: BaseException) -> None:
    """Roll back; a failure becomes a note of the reason: the database rolls back by itself then."""
    try:
        database.rollback()
    except Exception as failure:
        reason.add_note(f"The database could not be asked to roll back: {failure}")
