"""Cancels a coroutine at each of its awaits in turn."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from enum import Enum
from typing import Any


class Moment(Enum):
    """Moments of a cancellation at an await."""

    WAITING = "waiting"
    """The task has begun to wait."""
    WOKEN = "woken"
    """What it waits for is done, and the task has not gone on yet."""


async def is_cancelled_at(step: int, moment: Moment, coroutine: Coroutine[Any, Any, None]) -> bool:
    """Run a coroutine as a task that is cancelled where it suspends for the `step`th time.

    Returns:
        True if it was cancelled there; False if it has ended with fewer steps.
    """
    runner = _Runner(coroutine, step, moment)
    task = asyncio.ensure_future(runner.run())
    runner.task = task
    try:
        await task
    except asyncio.CancelledError:
        assert runner.has_cancelled
        return True
    return runner.has_cancelled


class _Runner:
    def __init__(self, coroutine: Coroutine[Any, Any, None], step: int, moment: Moment) -> None:
        self._coroutine = coroutine
        self._left = step
        self._moment = moment
        self.task: asyncio.Task[None] | None = None
        self.has_cancelled = False

    async def run(self) -> None:
        await self._steps()

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, None]:
        error: BaseException | None = None
        while True:
            try:
                waits_for = (
                    self._coroutine.send(None) if error is None else self._coroutine.throw(error)
                )
            except StopIteration:
                return
            self._left -= 1
            if self._left == 0:
                self._cancel_at(waits_for)
            error = None
            try:
                yield waits_for
            except BaseException as raised:
                error = raised

    def _cancel_at(self, waits_for: "asyncio.Future[Any] | None") -> None:
        if self._moment is Moment.WOKEN and waits_for is not None:
            waits_for.add_done_callback(lambda _: self._cancel())
        else:
            asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        assert self.task is not None
        self.has_cancelled = True
        self.task.cancel()
