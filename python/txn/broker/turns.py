"""Turns of the control loop, for a request that has many things to do.

Other requests, timers of transactions and reactors wait while the loop is at one request. One
that names thousands of things gives way to them now and then. What it decides in one step stays
one step: it gives way between two things, never within one.
"""

import asyncio
from typing import Final

ITEMS_PER_TURN: Final = 200
"""Things done in a turn: one or two milliseconds of them."""

OPENING_ITEMS: Final = 10
"""What a thing counts that may open a partition's log."""


class Turns:
    """Counts what a request has done."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ITEMS_PER_TURN

    def are_over(self, items: int) -> bool:
        """Count things about to be done; say whether others have to have their turn first."""
        self._left -= items
        return self._left < 0

    async def give_way(self) -> None:
        """Let others have their turn."""
        self._left = ITEMS_PER_TURN
        await asyncio.sleep(0)

    async def next(self, items: int = 1) -> None:
        """Let others have their turn if this one is over; to be called before each thing."""
        if self.are_over(items):
            await self.give_way()
