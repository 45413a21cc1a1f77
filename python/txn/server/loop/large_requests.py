"""Requests and answers that are large, so that they are decoded and encoded on a worker thread.

A large request waits for the turn of its client before it is decoded, because a decoded request
needs many times the memory of its bytes.
"""

from txn.wire.api_keys import ApiKey
from txn.wire.encoding import Body

LARGE_BYTES = 8 << 10
"""Bytes from which on a request is large: it may have thousands of items."""

LARGE_ENTRIES = 500
"""Entries from which on an answer is large."""

LARGE_AT_A_TIME, LARGE_OF_A_CLIENT = 3, 2
"""Limits of large requests under way, in all and of one principal at one address. Those that search
logs have limits of their own, as high.
"""

LARGE_ANSWERS = frozenset(
    {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
    }
)
"""APIs with answers that may be many times as large as their requests. None waits for another
request, so they may wait for memory.
"""

READ_ONLY = frozenset(
    {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
"""APIs with large requests that change nothing: they end with the client's connection."""

WAITING = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""APIs whose answers wait for other members; they count as under way while decoded alone."""


def is_large(response: Body) -> bool:
    """Return True if a response has many entries, in its lists and in those of its entries."""
    return _counted(response, 0) >= LARGE_ENTRIES


def _counted(body: tuple[object, ...], entries: int) -> int:
    """The entries with those of a body's lists, at any depth; counting ends when they are many."""
    for value in body:
        if isinstance(value, list):
            entries += len(value)
            for entry in value:
                if entries >= LARGE_ENTRIES:
                    return entries
                if isinstance(entry, tuple):
                    entries = _counted(entry, entries)
    return entries
