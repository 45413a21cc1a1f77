"""Time and waiting on an asyncio loop, and threads for blocking calls."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, Final

from txn import _core
from txn.broker.host import Timer
from txn.broker.syncs import Failures, not_synced
from txn.clock import monotonic_ms, now_ms
from txn.logs import log
from txn.server.loop.side_thread import SideCall, SideThread
from txn.storage.base import PartitionLog
from txn.storage.native_log import NativeLog

SYNC_THREADS: Final = 6
"""Number of partitions synced at a time: each waits for the disk."""


class LoopScheduler:
    """Time and waiting on an asyncio loop; a `txn.broker.shell.Scheduler`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, durability: _core.Durability) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[object]] = set()
        self._durability = durability
        self._waits: dict[int, tuple[list[NativeLog], Callable[[Failures], None]]] = {}
        """Syncs under way, by their number at the service."""
        self._asked: list[tuple[int, list[tuple[_core.PartitionLog, int]]]] = []
        """Those that begin in the next turn of the loop."""
        self._numbers = count()
        self._side = SideThread(loop)
        self._is_closed = False
        loop.add_reader(durability.wakeup_fd, self.settle)

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

    async def in_side_thread(self, owner: str, call: SideCall) -> None:
        """Run a call whose cost a client chooses on a thread for which a stop does not wait."""
        await self._side.run(owner, call)

    def sync_each(self, stores: Sequence[PartitionLog], done: Callable[[Failures], None]) -> None:
        """Begin to sync partitions, in parallel; report when all are synced or have failed.

        The syncs begin in the next turn of the loop, so that all callers of this one share them.
        After `close` nothing is begun or reported. A refusal would look like a disk that fails,
        and a commit would turn into an abort.
        """
        if self._is_closed:
            return
        native: list[NativeLog] = []
        asked = []
        for store in stores:
            assert isinstance(store, NativeLog), f"{store.topic}-{store.index} is not on disk"
            native.append(store)
            asked.append((store.log, store.log.log_end_offset))
        number = next(self._numbers)
        self._waits[number] = (native, done)
        if not self._asked:
            self._loop.call_soon(self._ask)
        self._asked.append((number, asked))

    def let_reactors_settle(self, server: _core.Server, settle: Callable[[], object]) -> None:
        """Register a function that a reactor calls when syncs have ended; it calls `settle`."""
        server.let_reactors_settle(self._durability, settle)

    def settle(self) -> None:
        """Report the syncs that have ended to their waiters."""
        for number, reasons in self._durability.take():
            stores, done = self._waits.pop(number)
            try:
                failures = {id(stores[n]): stores[n].sync_failure(why) for n, why in reasons}
            except Exception as error:
                failures = dict.fromkeys(map(id, stores), not_synced(error))
            done(failures)

    def close(self) -> None:
        """Drop the syncs that were begun without a report. The loop has stopped."""
        self._is_closed = True
        self._asked.clear()
        self._side.close()
        self._loop.remove_reader(self._durability.wakeup_fd)
        del self._durability  # the scheduler stays until a collection, its descriptor need not

    def _ask(self) -> None:
        asked, self._asked = self._asked, []
        if asked:  # none: it was closed
            self._durability.when_durable(asked)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("broker.work_failed", exc_info=task.exception())


def _guarded(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        log.exception("broker.timer_failed")
