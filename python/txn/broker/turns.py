"""Turns of the control loop, for a request with many items.

Other requests, timers of transactions and reactors wait while the loop is at one request. A
request with thousands of items gives way to them now and then. It does so between two items, never
within one, so a decision stays one step.
"""

import asyncio
from typing import Final

ITEMS_PER_TURN: Final = 200
"""Items of a turn: one or two milliseconds of work."""

OPENING_ITEMS: Final = 10
"""Cost of an item that may open a partition's log."""


class Turns:
    """Counts the finished items of a request."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ITEMS_PER_TURN

    def are_over(self, items: int) -> bool:
        """Count the next items; return True if other requests have to run first."""
        self._left -= items
        return self._left < 0

    async def give_way(self) -> None:
        """Let other requests run."""
        self._left = ITEMS_PER_TURN
        await asyncio.sleep(0)

    async def next(self, items: int = 1) -> None:
        """Let other requests run if this turn is over; to be called before each item."""
        if self.are_over(items):
            await self.give_way()
