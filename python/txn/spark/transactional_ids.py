"""The transactional ids of a query: of its driver, and of its tasks.

The id of a task begins with `txn.id` and cannot be the one of another query.
"""

import re


def driver_id(txn_id: str) -> str:
    """The transactional id of a driver."""
    return f"{txn_id}.driver"


def task_id(txn_id: str, unique: str) -> str:
    """A transactional id for a task; `unique` is 16 hexadecimal digits."""
    name = f"{txn_id}.{unique}"
    assert is_task_id(txn_id, name), name
    return name


def is_task_id(txn_id: str, transactional_id: str) -> bool:
    """Return True if a transactional id is that of a task under this `txn.id`.

    Exact, since one `txn.id` may begin like another: `a` must not abort a transaction of `a.b`.
    """
    return re.fullmatch(re.escape(txn_id) + r"\.[0-9a-f]{16}", transactional_id) is not None
