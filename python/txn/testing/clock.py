"""A broker's clock that a test moves.

The clock runs with the machine's clocks, some time ahead of them. The broker's timers follow it:
transaction timeouts, sessions of group members, deadlines of rebalances, the expiry of
transactional ids and offsets. Two things follow the machine's clock: the waits of sockets, such
as a Fetch's, and the thread for retention by time.

`AheadScheduler` is the whole hook. A broker of `txn.Broker` and `txn serve` has no such clock.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from txn import _core, clock
from txn.broker.host import Timer
from txn.server.loop.scheduler import LoopScheduler

MOVE_S: Final = 30.0
"""Limit of the wait for the broker to take note."""


class Ahead:
    """Milliseconds that a broker's clock is ahead of the machine's; restarts keep them."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ms = ahead_ms


class AheadTimer:
    """A call that is due on a moved clock."""

    def __init__(self, when_ms: int, call: Callable[[], object], timers: "set[AheadTimer]") -> None:
        self.when_ms = when_ms
        self.handle: Timer | None = None
        self._call = call
        self._timers = timers
        timers.add(self)

    def fire(self) -> object:
        """Make the call."""
        self._timers.discard(self)
        return self._call()

    def cancel(self) -> None:
        """Make the call no more."""
        self._timers.discard(self)
        if self.handle is not None:
            self.handle.cancel()


class AheadScheduler(LoopScheduler):
    """A scheduler whose clock may run ahead."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, durability: _core.Durability, ahead: Ahead
    ) -> None:
        super().__init__(loop, durability)
        self._ahead = ahead
        self._timers: set[AheadTimer] = set()

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC, on the moved clock."""
        return clock.now_ms() + self._ahead.ms

    def monotonic_ms(self) -> int:
        """Milliseconds on the moved clock that never steps back."""
        return clock.monotonic_ms() + self._ahead.ms

    def call_at(self, when_ms: int, call: Callable[[], object]) -> Timer:
        """Make a call at a `monotonic_ms`; a failing call is logged and harms nothing else."""
        timer = AheadTimer(when_ms, call, self._timers)
        self._arm(timer)
        return timer

    def advance(self, by_ms: int) -> None:
        """Move the clock; return when each call that is due has been made. From any thread."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._advance, by_ms, done)
        if not done.wait(MOVE_S):
            raise TimeoutError(f"the broker's loop did not answer within {MOVE_S:g} s")

    def _advance(self, by_ms: int, done: threading.Event) -> None:
        self._ahead.ms += by_ms
        for timer in sorted(self._timers, key=lambda each: each.when_ms):
            if timer.handle is not None:
                timer.handle.cancel()
            self._arm(timer)
        # Behind the calls that are due now: the loop makes timed calls by their time.
        self._loop.call_later(0.001, done.set)

    def _arm(self, timer: AheadTimer) -> None:
        machine_ms = timer.when_ms - self._ahead.ms
        timer.handle = super().call_at(machine_ms, timer.fire)
