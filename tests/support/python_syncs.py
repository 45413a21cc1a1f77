"""Has a broker's syncs go through `NativeLog.sync`, where a test can watch or hold them.

In production the control loop waits at the durability service of Rust (`_core.Durability`). Python
decides all the same which log is synced, and that is the subject of such a test.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from txn.broker.syncs import Failures
from txn.errors import StorageError
from txn.server.loop.scheduler import LoopScheduler
from txn.storage.base import PartitionLog


def sync_each(
    scheduler: LoopScheduler, stores: Sequence[PartitionLog], done: Callable[[Failures], None]
) -> None:
    """Replaces `LoopScheduler.sync_each`: every store on a thread of Python."""
    failures: Failures = {}

    def sync(store: PartitionLog) -> None:
        try:
            store.sync()
        except StorageError as error:
            failures[id(store)] = error

    async def sync_all() -> None:
        await asyncio.gather(*(asyncio.to_thread(sync, store) for store in stores))
        done(failures)

    scheduler.spawn(sync_all())


def sync_in_turn(stores: Iterable[PartitionLog]) -> StorageError | None:
    """Force stores to the disk, one after the other; return the failure that ended it."""
    try:
        for store in stores:
            store.sync()
    except StorageError as error:
        return error
    return None
