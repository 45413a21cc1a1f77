"""Coroutines that are watched at each step: one counts its time, one ends when its client left."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from txn.broker.host import Toll, counted_in
from txn.server.loop import eager
from txn.server.loop.client_turns import ClientLeftError

T = TypeVar("T")


class _Stepped(Coroutine[Any, Any, T]):
    """A coroutine of which each step is watched; awaited once."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            waits_for = self.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        return (yield from eager.Suspended(self, waits_for).__await__())


class Metered(_Stepped[T]):
    """A coroutine whose steps are counted in a toll, in CPU time of the thread that takes them."""

    def __init__(self, work: Coroutine[Any, Any, T], toll: Toll) -> None:
        super().__init__(work)
        self._toll = toll

    def send(self, value: Any) -> Any:
        """Take a step, and add its time to the toll."""
        return counted_in(self._toll, self._work.send, value)


class UntilClientLeft(_Stepped[T]):
    """A coroutine that takes no further step once its client has left. Raises ClientLeftError."""

    def __init__(self, work: Coroutine[Any, Any, T], is_there: Callable[[], bool]) -> None:
        super().__init__(work)
        self._is_there = is_there

    def send(self, value: Any) -> Any:
        """Take a step while the client is connected."""
        if self._is_there():
            return self._work.send(value)
        self._work.close()
        raise ClientLeftError
