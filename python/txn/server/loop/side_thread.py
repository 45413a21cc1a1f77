"""One thread beside the control loop, for calls whose cost a client chooses.

The threads of the loop's executor serve other requests, and a stop waits for them. Calls here wait
for each other alone, and a stop waits for none.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

SideCall = Callable[[Callable[[], bool]], None]
"""A call that is given a function. It asks it now and then whether to give up."""


class SideThread:
    """Makes calls one after the other. The thread starts with the first one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: SimpleQueue[tuple[SideCall, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def run(self, call: SideCall) -> None:
        """Make a call; return when it has ended. Raises its exception."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="txn-side", daemon=True)
            self._thread.start()
        done: asyncio.Future[None] = self._loop.create_future()
        self._calls.put((call, done))
        await done

    def close(self) -> None:
        """Let the thread end soon, without waiting for it. Calls under way are never reported."""
        self._is_closed = True
        self._calls.put(None)

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None and not self._is_closed:
            call, done = asked
            if done.cancelled():
                continue
            error: Exception | None = None
            try:
                call(lambda: self._is_closed)
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(_end, done, error)


def _end(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
