"""Turns of clients at the few places for large requests.

Each client has a queue of its own, and the queues are served in turn. So a client waits for one
request of every other client at most, however many these have sent. One client never has all of
the places: a client with none under way finds one free, unless several others have them.

All calls come from the holder of the control lock.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import NamedTuple


class ClientLeftError(Exception):
    """The client of a request has closed its connection: it does not wait for the answer."""


class _Waiting(NamedTuple):
    """A request in its client's queue."""

    begins: "asyncio.Future[None]"
    is_there: Callable[[], bool]


class ClientTurns:
    """The places, and the requests that wait for one.

    Args:
        places: Limit of requests under way.
        of_one: That of one client's.
    """

    def __init__(self, places: int, of_one: int) -> None:
        assert 0 < of_one <= places
        self._free = places
        self._of_one = of_one
        self._under_way: Counter[Hashable] = Counter()
        self._queues: dict[Hashable, deque[_Waiting]] = {}
        """Clients that wait, in the order of their turns; none of the queues is empty."""

    @asynccontextmanager
    async def turn_of(self, client: Hashable, is_there: Callable[[], bool]) -> AsyncIterator[None]:
        """Wait for a place, and have it for the time of the context.

        Args:
            client: Requests of the same client share a queue, first come, first served.
            is_there: Returns whether the client still waits for the answer.

        Raises:
            ClientLeftError: the client has left by the time of its turn.
        """
        await self._enter(client, is_there)
        try:
            yield
        finally:
            self._leave(client)

    async def _enter(self, client: Hashable, is_there: Callable[[], bool]) -> None:
        if client not in self._queues and self._may_begin(client):
            self._begin(client)
            return
        begins = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(_Waiting(begins, is_there))
        try:
            await begins
        except asyncio.CancelledError:
            if begins.done() and not begins.cancelled() and begins.exception() is None:
                self._leave(client)  # it had just got its place
            raise

    def _leave(self, client: Hashable) -> None:
        self._free += 1
        self._under_way[client] -= 1
        if not self._under_way[client]:
            del self._under_way[client]
        while (following := self._next_client()) is not None:
            self._serve(following)

    def _may_begin(self, client: Hashable) -> bool:
        return self._free > 0 and self._under_way[client] < self._of_one

    def _begin(self, client: Hashable) -> None:
        self._free -= 1
        self._under_way[client] += 1

    def _next_client(self) -> Hashable | None:
        """The client whose turn it is; passes few over, since few can be at their limit."""
        return next((client for client in self._queues if self._may_begin(client)), None)

    def _serve(self, client: Hashable) -> None:
        """Begin a client's oldest request, and put the client behind the others."""
        queue = self._queues.pop(client)
        waiting = queue.popleft()
        if queue:
            self._queues[client] = queue
        if waiting.begins.done():  # it was cancelled
            return
        if waiting.is_there():
            self._begin(client)
            waiting.begins.set_result(None)
        else:
            waiting.begins.set_exception(ClientLeftError())
