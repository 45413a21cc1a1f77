"""Group commit: one pass of fdatasync serves everybody who was waiting when it began.

Whoever comes while a pass runs waits for the next one, which may sync what the running
one has already passed over. Promise P2 rests on this order. A partition that cannot be
synced fails those who wait for it, and nobody else.

The partitions of a pass are synced side by side: a file system with a journal then writes
that once for many of them, where one after the other would each wait for a commit of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

from txn.errors import StorageError
from txn.storage.base import PartitionStore

LANES: Final = 6
"""How many partitions are synced at a time; as many threads as the loop has on two cores."""

Failures = dict[int, StorageError]
"""By the identity of the partition that could not be synced."""


class SharedSync:
    """Syncs partitions on worker threads, many callers at a time."""

    def __init__(
        self, in_workers: Callable[[Sequence[Callable[[], None]]], Awaitable[None]]
    ) -> None:
        """`in_workers` runs blocking calls side by side and waits for all."""
        self._in_workers = in_workers
        self._waiting: list[tuple[list[PartitionStore], asyncio.Future[None]]] = []
        self._passes: asyncio.Task[None] | None = None

    async def sync(self, stores: Iterable[PartitionStore]) -> None:
        """Return when all of `stores` are on the disk. Raises StorageError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(stores), done))
        if self._passes is None:
            self._passes = asyncio.ensure_future(self._run())
        await done

    async def _run(self) -> None:
        while self._waiting:
            served, self._waiting = self._waiting, []
            stores = {id(store): store for wanted, _ in served for store in wanted}
            failures: Failures = {}
            lanes = [[*stores.items()][lane::LANES] for lane in range(min(LANES, len(stores)))]
            await self._in_workers([partial(_sync_all, lane, failures) for lane in lanes])
            for wanted, done in served:
                _settle(done, [failures[id(store)] for store in wanted if id(store) in failures])
        self._passes = None


def _sync_all(stores: Iterable[tuple[int, PartitionStore]], failures: Failures) -> None:
    for key, store in stores:
        try:
            store.sync()
        except StorageError as error:
            failures[key] = error


def _settle(done: "asyncio.Future[None]", failures: list[StorageError]) -> None:
    if done.cancelled():
        return
    if failures:
        done.set_exception(failures[0])
    else:
        done.set_result(None)
