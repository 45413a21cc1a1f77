"""Group commit: one pass of fdatasync serves everybody who was waiting when it began.

A caller that comes while a pass runs waits for the next one, which may sync logs that the running
one has already passed over. Promise P2 rests on this order. A partition that cannot be synced fails
its own callers and no others. A pass that could not begin fails all its callers.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from txn.errors import StorageError
from txn.logs import log
from txn.storage.base import PartitionLog

Failures = dict[int, StorageError]
"""Failures by the identity of the partition that could not be synced."""

SyncEach = Callable[[Sequence[PartitionLog], Callable[[Failures], None]], None]
"""Begins to sync partitions, side by side; tells when all are synced or have failed."""

Caller = tuple[list[PartitionLog], "asyncio.Future[None]"]


class SharedSync:
    """Syncs partitions, many callers at a time. All calls come from the loop's thread."""

    def __init__(self, sync_each: SyncEach) -> None:
        self._sync_each = sync_each
        self._waiting: list[Caller] = []
        self._is_running = False

    def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        """Promise that all of `stores` are on the disk, or that StorageError is raised.

        The pass begins in the next turn of the loop, so that all callers of this one share it.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((list(stores), done))
        if not self._is_running:
            self._is_running = True
            loop.call_soon(self._begin)
        return done

    def _begin(self) -> None:
        served, self._waiting = self._waiting, []
        stores = {id(store): store for wanted, _ in served for store in wanted}
        try:
            self._sync_each([*stores.values()], partial(self._end, served))
        except Exception as error:
            self._end(served, dict.fromkeys(stores, not_synced(error)))

    def _end(self, served: list[Caller], failures: Failures) -> None:
        for wanted, done in served:
            _settle(done, [failures[id(store)] for store in wanted if id(store) in failures])
        self._is_running = bool(self._waiting)
        if self._is_running:
            self._begin()


def not_synced(error: BaseException) -> StorageError:
    """Log a bug, and return its meaning for waiting callers: nothing of theirs is on the disk."""
    log.error("sync.failed", exc_info=error)
    return StorageError(
        f"what had to be on the disk was not synced: {error!r}. This is a bug in txn; the log has "
        "its place"
    )


def _settle(done: "asyncio.Future[None]", failures: list[StorageError]) -> None:
    if done.done():  # the caller gave up
        return
    if failures:
        done.set_exception(failures[0])
    else:
        done.set_result(None)
