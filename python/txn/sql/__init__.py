"""One decision over topics and a database: PostgreSQL (psycopg 3), SQLite and DuckDB.

    two_phase = {"engine": "native", "two_phase_commit": True}
    with txn.Producer(..., transactional_id="shop-1", **two_phase) as producer:
        with txn.sql.transaction(producer, connection) as t:
            t.connection.execute("INSERT INTO orders VALUES (7, 'apples')")
            t.produce("orders", b"7 apples")

`transaction` and `recover` need a cluster with two-phase commit (KIP-939); `block.py` says why no
crash can part the two. On other clusters `outbox` publishes rows that were written with the
program's own, and `Inbox` reads topics into the database. Both need the database alone.
"""

from txn.client.two_phase import PreparedTxnState
from txn.sql import outbox
from txn.sql.block import SqlTransaction, recover, transaction
from txn.sql.decisions import TABLE
from txn.sql.inbox import Inbox

__all__ = [
    "TABLE",
    "Inbox",
    "PreparedTxnState",
    "SqlTransaction",
    "outbox",
    "recover",
    "transaction",
]
