"""Threads for the questions of one session, which wait for brokers.

A session has few threads, so slow brokers of one session leave the others and the assets alone. The
threads are daemons: the end of the process waits for none of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

AT_ONCE: Final = 4
"""The most questions of a session that wait for brokers at once; others wait for their turn."""


class Threads:
    """Runs functions in threads, a few at once. Its methods belong to the loop's thread."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._running: set[asyncio.Future[Any]] = set()

    @property
    def is_busy(self) -> bool:
        """True while a function runs, also one whose answer nobody awaits any more."""
        return bool(self._running)

    async def run(self, function: Callable[..., Result], *given: Any) -> Result:
        """Run a function in a thread; return its result, or raise its error.

        A caller that is cancelled waits no longer. The function keeps its place until it ends, or
        does not begin.
        """
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append((partial(function, *given), answer))
        self._begin()
        return await answer

    def give_up(self, error: Exception) -> None:
        """End every wait with an error."""
        for answer in [*self._running, *(answer for _, answer in self._queue)]:
            if not answer.done():
                answer.set_exception(error)

    def _begin(self) -> None:
        while self._queue and len(self._running) < AT_ONCE:
            function, answer = self._queue.popleft()
            if not answer.done():
                self._running.add(answer)
                Thread(target=self._run, args=(function, answer), daemon=True).start()

    def _run(self, function: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: the process ends
            answer.get_loop().call_soon_threadsafe(self._end, answer, result, error)

    def _end(self, answer: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        self._running.discard(answer)
        if not answer.done() and error is None:
            answer.set_result(result)
        elif not answer.done() and error is not None:
            answer.set_exception(error)
        self._begin()
