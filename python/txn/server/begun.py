"""Coroutines that are run at once, and become tasks only if they have to wait.

A handler that may wait is a coroutine, though most requests wait for nothing. A task for each
would cost a round of the loop before its first step, and wake the loop where another thread
stands in for it. Python 3.12 calls this an eager task; we serve 3.11 too.
"""

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Awaitable[T], Generic[T]):
    """What is left of a coroutine that has come to its first wait; to be awaited once."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: object) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = self._work.throw(error)
                else:
                    waits_for = self._work.send(sent)
        except StopIteration as done:
            result: T = done.value
            return result

    def close(self, _: object = None) -> None:
        """End it where it is, unless it has ended; takes what a done callback is told."""
        self._work.close()


def begin(work: Coroutine[Any, Any, T]) -> T | Begun[T]:
    """Run a coroutine to its first wait; return its result, or what is left to be awaited.

    It must not ask for its task before it waits: there is none. Raises what the coroutine does.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    return Begun(work, waits_for)
