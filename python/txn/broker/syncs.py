"""Futures of syncs, which are done once partitions are on the disk (P2)."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from txn.errors import StorageError
from txn.logs import log
from txn.storage.base import PartitionLog

Failures = dict[int, StorageError]
"""Failures by the identity of the partition that could not be synced."""

SyncEach = Callable[[Sequence[PartitionLog], Callable[[Failures], None]], None]
"""Begins to sync partitions in parallel; reports when all are synced or have failed."""


def synced(sync_each: SyncEach, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
    """Promise that all of `stores` are on the disk, or that StorageError is raised.

    That is their records as of this call. A partition that cannot be synced fails its own callers
    and no others.
    """
    logs = list(stores)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        sync_each(logs, partial(_settle, done, logs))
    except Exception as error:
        done.set_exception(not_synced(error))
    return done


def not_synced(error: BaseException) -> StorageError:
    """Log a bug, and return its meaning for waiting callers: nothing of theirs is on the disk."""
    log.error("sync.failed", exc_info=error)
    return StorageError(
        f"what had to be on the disk was not synced: {error!r}. This is a bug in txn; the log has "
        "its place"
    )


def _settle(done: "asyncio.Future[None]", stores: list[PartitionLog], failures: Failures) -> None:
    if done.done():  # the caller gave up
        return
    failed = [failures[id(store)] for store in stores if id(store) in failures]
    if failed:
        done.set_exception(failed[0])
    else:
        done.set_result(None)
