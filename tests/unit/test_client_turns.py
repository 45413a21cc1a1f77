"""Turns of clients at the places for large requests.

There were two places and one queue: 20 requests of 1 MB each, from a client without any right,
kept the 12 KB of another client waiting for 24 s.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from txn.server.loop.client_turns import ClientLeftError, ClientTurns

PLACES, OF_ONE = 3, 2


class Requests:
    """Requests that begin when they have a place, and end when they are told to."""

    def __init__(self) -> None:
        self._turns = ClientTurns(PLACES, OF_ONE)
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.begun: list[str] = []
        self.dropped: list[str] = []

    async def come(self, *names: str, is_there: Callable[[], bool] = lambda: True) -> None:
        """Have requests come, each named after its client and a number."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._go(name, is_there))
            await settled()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await settled()

    async def _go(self, name: str, is_there: Callable[[], bool]) -> None:
        try:
            async with self._turns.turn_of(name[0], is_there):
                self.begun.append(name)
                await self._ends[name].wait()
        except ClientLeftError:
            self.dropped.append(name)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def played(story: Callable[[Requests], Coroutine[Any, Any, None]]) -> Requests:
    """Requests after a story of them."""
    requests = Requests()

    async def play() -> None:
        await story(requests)
        for task in requests.tasks.values():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*requests.tasks.values())

    asyncio.run(play())
    return requests


def test_a_client_that_sends_very_many_leaves_a_place_to_another() -> None:
    async def story(requests: Requests) -> None:
        await requests.come(*(f"a{number}" for number in range(20)), "n")

    assert played(story).begun == ["a0", "a1", "n"]


def test_a_client_waits_for_one_request_of_each_other() -> None:
    async def story(requests: Requests) -> None:
        await requests.come(*(f"{client}{number}" for client in "abc" for number in range(9)), "n")
        await requests.end("a0", "a1", "b0", "a2")

    assert played(story).begun == ["a0", "a1", "b0", "a2", "b1", "c0", "n"]


def test_requests_of_one_client_begin_as_they_come() -> None:
    async def story(requests: Requests) -> None:
        await requests.come("a0", "a1", "a2", "a3")
        await requests.end("a0", "a1")

    assert played(story).begun == ["a0", "a1", "a2", "a3"]


def test_a_request_whose_client_has_left_does_not_begin() -> None:
    async def story(requests: Requests) -> None:
        await requests.come("a0", "a1")
        await requests.come("a2", "a3", is_there=lambda: False)
        await requests.come("a4")
        await requests.end("a0")

    requests = played(story)
    assert requests.begun == ["a0", "a1", "a4"]
    assert requests.dropped == ["a2", "a3"]


def test_a_place_of_a_request_that_is_cancelled_is_another_s() -> None:
    async def story(requests: Requests) -> None:
        await requests.come("a0", "a1", "a2", "a3", "a4")
        requests.tasks["a2"].cancel()  # it waits
        await settled()
        requests._ends["a0"].set()
        await asyncio.sleep(0)
        requests.tasks["a3"].cancel()  # it has a place and has not begun, or has just begun
        await settled()
        await requests.end("a1")

    assert played(story).begun[-1] == "a4"
