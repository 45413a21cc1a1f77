"""One thread beside the control loop, for calls whose cost a client chooses.

The threads of the loop's executor serve other requests, and a stop waits for them. Calls here wait
for each other alone, and a stop waits for none.

Each call has an owner. Owners take turns, so the many calls of one delay a call of another by one
call at most for each owner that waits.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

SideCall = Callable[[Callable[[], bool]], None]
"""A call that is given a function. It asks it now and then whether to give up."""


class _Waiting(NamedTuple):
    """A call that waits for the thread."""

    call: SideCall
    done: "asyncio.Future[None]"


class SideThread:
    """Makes one call at a time; owners take turns. The thread starts with the first call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = threading.Condition()
        self._calls: dict[str, deque[_Waiting]] = {}
        """Owner → its calls that wait; the first owner is the next."""
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def run(self, owner: str, call: SideCall) -> None:
        """Make a call; return when it has ended. Raises its exception."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="txn-side", daemon=True)
            self._thread.start()
        waiting = _Waiting(call, self._loop.create_future())
        with self._changed:
            self._calls.setdefault(owner, deque()).append(waiting)
            self._changed.notify()
        await waiting.done

    def close(self) -> None:
        """Let the thread end soon, without waiting for it. Calls under way are never reported."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            if waiting.done.cancelled():
                continue
            error: Exception | None = None
            try:
                waiting.call(lambda: self._is_closed)
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(_end, waiting.done, error)

    def _next(self) -> _Waiting | None:
        """The next owner's oldest call; that owner is the last from now on. None: it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._calls or self._is_closed)
            if self._is_closed:
                return None
            owner = next(iter(self._calls))
            calls = self._calls.pop(owner)
            waiting = calls.popleft()
            if calls:
                self._calls[owner] = calls
            return waiting


def _end(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
