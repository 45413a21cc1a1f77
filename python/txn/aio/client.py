"""Common to producers and consumers: their loop, their worker, and their refusals."""

import asyncio
import os
from collections.abc import Callable
from typing import Final, Generic, NoReturn, Protocol, TypeVar

from txn import forks
from txn.aio.worker import Call, Worker
from txn.client.deadline import interrupted_by
from txn.client.failures import not_copied, opened_elsewhere
from txn.errors import RejectedError


class Closes(Protocol):
    """A synchronous client."""

    def close(self) -> None:
        """Close it."""


S = TypeVar("S", bound=Closes)
T = TypeVar("T")


class Client(Generic[S]):
    """A synchronous client, and the worker that runs its calls.

    Args:
        kind: `txn.aio.Producer` or `txn.aio.Consumer`.
        whose: Which one it is, as a message begins.
        make: Opens the synchronous client; it may take long.
    """

    def __init__(self, kind: str, whose: str, make: Callable[[], S]) -> None:
        self._kind: Final = kind
        self.whose: Final = whose
        self._make: Final = make
        self._worker: Final = Worker(kind.rpartition(".")[2].lower())
        self._sync: S | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._opened_by: int | None = None
        self._usable: S | None = None  # `_sync`, until it is closed, or inherited by a child

    def _abandon(self, parent: int) -> None:
        """Be of no use in a forked child: the worker is not in it; see `txn.forks`."""
        self._usable = None

    def __reduce__(self) -> NoReturn:
        raise not_copied(self._kind)

    @property
    def is_abandoned(self) -> bool:
        """True in a forked child, where it is of no use."""
        return self._opened_by not in (None, os.getpid())

    async def open(self) -> None:
        """Open the synchronous client on the worker.

        A cancellation ends the opening within a second or so, and nothing is open then.
        """
        self._require_process()
        if self._loop is not None:
            raise RejectedError(f"{self.whose} was opened before; make another {self._kind}")
        self._loop = asyncio.get_running_loop()
        self._opened_by = os.getpid()
        forks.watch(self)
        try:
            self._sync = await self.interruptible(self._make, undo=lambda made: made.close())
            self._usable = self._sync
        except BaseException:
            self._is_closed = True
            self._worker.stop()
            raise

    async def interruptible(
        self, call: Callable[[], T], undo: Callable[[T], None] = lambda _: None
    ) -> T:
        """Make a call on the worker that a cancellation of the task interrupts.

        The task goes on when the call has ended.

        Args:
            call: It waits in slices of `txn.client.deadline`.
            undo: Called with the result if the cancellation came too late.
        """
        is_given_up = False

        def run() -> T:
            with interrupted_by(lambda: is_given_up):
                result = call()
            if is_given_up:
                undo(result)
            return result

        made = self._worker.call(run)
        try:
            await made.wait()
        except asyncio.CancelledError as cancelled:
            has_result = made.is_over and made.error is None
            is_given_up = True
            await made.end()
            if has_result:
                await self._worker.call(lambda: undo(made.result())).end()
            if isinstance(made.error, Exception):
                cancelled.add_note(str(made.error))
            raise
        return made.result()

    def sync(self) -> S:
        """Return the synchronous client, for a call in the right event loop.

        Raises:
            ForkedError: the process that opened it is another one.
            RejectedError: it is not open, or was opened in another event loop.
        """
        try:
            is_ours = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_ours = False
        if is_ours and self._usable is not None:
            return self._usable
        self._require_process()
        if self._sync is None or self._is_closed:
            raise RejectedError(
                f"{self.whose} is closed; open another"
                if self._is_closed
                else f"{self.whose} is not open: use `async with {self._kind}(...)`, or "
                f"`await {self._kind}.open(...)`"
            )
        if not is_ours:
            raise RejectedError(
                f"{self.whose} belongs to the event loop that opened it, and is used outside of "
                f"that one. Open a {self._kind} in each event loop"
            )
        return self._sync

    @property
    def is_closed(self) -> bool:
        """True once it is being closed."""
        return self._is_closed

    def made(self) -> S:
        """Return the synchronous client, for a call in the worker."""
        assert self._sync is not None
        return self._sync

    def call(self, call: Callable[[], T]) -> Call[T]:
        """Run a call on the worker."""
        return self._worker.call(call)

    @property
    def has_more_calls(self) -> bool:
        """True if a call waits for the worker."""
        return self._worker.has_more

    async def close(self, close: Callable[[], None]) -> None:
        """Close it, even if the task is cancelled meanwhile. Can be repeated.

        Args:
            close: Closes the synchronous client.
        """
        if self.is_abandoned or self._is_closed:
            return
        if self._sync is None:
            self._is_closed = True
            self._worker.stop()
            return
        self.sync()
        self._is_closed, self._usable = True, None
        try:
            await self._worker.call(close).finish()
        finally:
            self._worker.stop()

    def _require_process(self) -> None:
        if self._opened_by not in (None, os.getpid()):
            raise opened_elsewhere(self.whose, self._opened_by or 0)
