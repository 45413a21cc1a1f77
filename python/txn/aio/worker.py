"""The thread of one client: it runs the client's blocking calls one after the other.

The event loop puts a call into the worker's queue, and is woken when the call has ended. The thread
sleeps while the queue is empty. A call never ends early because a task was cancelled. The task
either leaves it (`Call.wait`), or waits for its end all the same (`Call.finish`).
"""

import asyncio
import contextlib
import contextvars
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """A blocking call on a worker, and its outcome.

    Args:
        call: Runs on the worker, in a copy of the context of the task that asked for it.
        loop: The event loop that is told when the call has ended.
    """

    def __init__(self, call: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self._call: Callable[[], T] | None = call
        self._context = contextvars.copy_context()
        self._loop = loop
        self._waiters: list[asyncio.Future[None]] = []
        self._outcome: tuple[T] | BaseException | None = None
        self.is_over = False

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the call has ended, or for so many seconds.

        A cancellation ends the wait, and the call goes on.
        """
        if self.is_over:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = None if seconds is None else self._loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()

    async def finish(self) -> T:
        """Wait until the call has ended, even if the task is cancelled meanwhile; give its result.

        Raises:
            asyncio.CancelledError: the task was cancelled. The call has ended; its error is the
                cause.
        """
        cancelled = await self.end()
        if cancelled is not None:
            raise cancelled from self.error
        return self.result()

    async def end(self) -> asyncio.CancelledError | None:
        """Wait until the call has ended; return the cancellation that came meanwhile, if any."""
        cancelled: asyncio.CancelledError | None = None
        while not self.is_over:
            try:
                await self.wait()
            except asyncio.CancelledError as raised:
                cancelled = cancelled or raised
        return cancelled

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the call."""
        return self._outcome if isinstance(self._outcome, BaseException) else None

    def result(self) -> T:
        """Return the result of a call that is over, or raise its exception."""
        assert self._outcome is not None
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome[0]

    def run(self) -> None:
        """Make the call, in the worker's thread, and wake the event loop."""
        call, self._call = self._call, None
        assert call is not None
        try:
            self._outcome = (self._context.run(call),)
        except BaseException as raised:
            self._outcome = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self.is_over = True
        for waiter in self._waiters:
            _wake(waiter)


class Worker:
    """A thread that runs the calls of one client, begun with the first of them.

    It ends when `stop` was called or the worker is collected.
    """

    def __init__(self, name: str) -> None:
        self._calls: Final[SimpleQueue[Call[object] | None]] = SimpleQueue()
        self._thread = threading.Thread(
            target=_work, args=(self._calls,), name=f"txn-aio-{name}", daemon=True
        )
        self._end = weakref.finalize(self, self._calls.put, None)
        self._end.atexit = False

    def call(self, call: Callable[[], T]) -> Call[T]:
        """Run a call behind those that were asked for before. To be used in an event loop."""
        if self._thread.ident is None:
            self._thread.start()
        made = Call(call, asyncio.get_running_loop())
        self._calls.put(made)  # type: ignore[arg-type] # its result is asked of `made` alone
        return made

    @property
    def has_more(self) -> bool:
        """True if another call waits behind the one that runs."""
        return not self._calls.empty()

    def stop(self) -> None:
        """End the thread behind the calls that wait. Can be repeated."""
        self._end()


def _work(calls: "SimpleQueue[Call[object] | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # it may hold what its client has to free


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
