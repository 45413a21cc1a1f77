"""Time and waiting on an asyncio loop, and threads for blocking calls."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, Final

from txn import _core
from txn.broker.host import Timer
from txn.broker.shared_sync import Failures, not_synced
from txn.clock import monotonic_ms, now_ms
from txn.logs import log
from txn.storage.base import PartitionLog
from txn.storage.native import NativeLog

SYNC_THREADS: Final = 6
"""Number of partitions synced at a time: each waits for the disk."""


class LoopScheduler:
    """Time and waiting on an asyncio loop; a `txn.broker.shell.Scheduler`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[object]] = set()
        self._pool = _core.SyncPool(SYNC_THREADS)
        self._passes: dict[int, tuple[list[NativeLog], Callable[[Failures], None]]] = {}
        """Syncs under way, by their number in the pool."""
        self._numbers = count()
        self._is_closed = False
        loop.add_reader(self._pool.wakeup_fd, self._on_synced)

    now_ms = staticmethod(now_ms)
    monotonic_ms = staticmethod(monotonic_ms)

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
        """Make a call at a `monotonic_ms`; a failing call is logged and harms nothing else."""
        delay_s = max(when_ms - monotonic_ms(), 0) / 1000
        return self._loop.call_later(delay_s, _guarded, call)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work beside the current request; a failure is logged."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def in_worker(self, call: Callable[[], None]) -> None:
        """Run a blocking call on a worker thread."""
        await self._loop.run_in_executor(None, call)

    def sync_each(self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]) -> None:
        """Begin to sync partitions, side by side; tell when all are synced or have failed.

        After `close` nothing is begun and nobody told. A refusal would look like a disk that fails,
        and a commit would turn into an abort.
        """
        if self._is_closed:
            return
        native = [store for store in stores if isinstance(store, NativeLog)]
        assert len(native) == len(stores), "these are not all on disk"
        number = next(self._numbers)
        self._passes[number] = (native, done)
        try:
            self._pool.submit(number, [store.log for store in native])
        except OSError as error:
            reasons = [(place, str(error)) for place in range(len(native))]
            self._loop.call_soon(self._end_pass, number, reasons)

    def close(self) -> None:
        """Finish the syncs that were begun; nobody is told of them. The loop has stopped."""
        self._is_closed = True
        self._loop.remove_reader(self._pool.wakeup_fd)
        self._pool.stop()

    def _on_synced(self) -> None:
        for number, reasons in self._pool.take():
            self._end_pass(number, reasons)

    def _end_pass(self, number: int, reasons: list[tuple[int, str]]) -> None:
        stores, done = self._passes.pop(number)
        try:
            failures = {id(stores[n]): stores[n].sync_failure(why) for n, why in reasons}
        except Exception as error:
            failures = dict.fromkeys(map(id, stores), not_synced(error))
        done(failures)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("broker.work_failed", exc_info=task.exception())


def _guarded(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        log.exception("broker.timer_failed")
