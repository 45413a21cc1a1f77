"""Coroutines that run at once, and become tasks only if they have to wait.

A handler is a coroutine, though most requests wait for nothing. A task for each would cost a round
of the loop before its first step. It would wake the loop where another thread stands in. Python
3.12 calls this an eager task; we serve 3.11 too.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Suspended(Generic[T]):
    """A coroutine suspended at its first await; await it once.

    No subclass of Awaitable: an abstract class makes each `isinstance` a call of Python.
    """

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: object) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        # A future that failed has the error, and the error's traceback this frame. If the frame had
        # the future, the cycle would keep a malformed request's bytes until the next collection.
        waits_for, self._waits_for = self._waits_for, None
        try:
            while True:
                try:
                    sent = yield waits_for
                except GeneratorExit:  # `throw` would fail on work that was collected first
                    self._work.close()
                    raise
                except BaseException as error:
                    waits_for = None
                    waits_for = self._work.throw(error)
                else:
                    waits_for = None
                    waits_for = self._work.send(sent)
        except StopIteration as done:
            result: T = done.value
            return result

    def close(self) -> None:
        """End it where it is, unless it has ended."""
        self._work.close()


def step(work: Coroutine[Any, Any, T]) -> T | Suspended[T]:
    """Run a coroutine to its first wait; return its result, or the suspended rest.

    It must not ask for its task before it waits: there is none. Raises as the coroutine does.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    return Suspended(work, waits_for)


Ended = Callable[["asyncio.Task[None]"], object]
"""Called with a task at its end."""


def run(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], ended: Ended | None = None
) -> asyncio.Task[None] | None:
    """Run a coroutine to its first wait; return a task for the rest, None if it has ended."""
    rest = step(work)
    return None if rest is None else continue_as_task(loop, _finished(rest), rest, ended)


def continue_as_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, None],
    rest: Suspended[Any],
    ended: Ended | None = None,
) -> asyncio.Task[None]:
    """Make a task of work that awaits a suspended coroutine before anything else."""
    task = loop.create_task(work)

    def on_end(task: asyncio.Task[None]) -> None:
        rest.close()  # a stop may cancel the task before it awaits the rest
        if ended is not None:
            ended(task)

    task.add_done_callback(on_end)  # one for both: each is a round of the loop
    return task


async def _finished(rest: Suspended[None]) -> None:
    await rest
