"""A shop with its orders in a table and in a topic: each in both, or in neither.

`test_shop.py` kills it at every step of its protocol, on three databases.
"""

from typing import Any, Final

import txn
import txn.sql

TABLE: Final = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, text VARCHAR(99))"
TWO_PHASE: Final[dict[str, Any]] = {"engine": "native", "two_phase_commit": True}


def sell(servers: str, connection: Any) -> None:
    """Take the orders 1 to 4, but for those that an earlier run has taken."""
    connection.execute(TABLE)
    with txn.Producer(bootstrap_servers=servers, transactional_id="shop", **TWO_PHASE) as producer:
        txn.sql.recover(producer, connection)  # finishes the last run, if it was killed
        for number in range(1, 5):
            with txn.sql.transaction(producer, connection) as t:
                query = f"SELECT text FROM orders WHERE id = {number}"
                if not t.connection.execute(query).fetchall():
                    t.connection.execute(f"INSERT INTO orders VALUES ({number}, 'order {number}')")
                    t.produce("orders", f"order {number}")
