"""An event loop under the control lock: another thread may do its work while it sleeps.

A loop's state needs no locks, but the loop has to be woken for everything. This one holds the
control lock whenever it runs, and releases it for as long as it sleeps. Another holder may
meanwhile do the loop's work on its own thread, see `run_for_loop`. So no two threads are ever in
the loop's state, and none has to be woken for a quick answer.
"""

import asyncio
import selectors
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Final, Protocol, TypeVarTuple

Arguments = TypeVarTuple("Arguments")

ROUNDS_MAX: Final = 4
"""Rounds of the loop that a stand-in makes: the end of a sync takes three to its answer. A request
that gives way to others (`broker.turns`) is soon left to the loop."""


class ControlLock(Protocol):
    """Its holder runs the loop's work."""

    def take_control_lock(self) -> None:
        """Wait until the lock is free, and acquire it."""
        ...

    def release_control_lock(self) -> None:
        """Leave it to others."""
        ...


class _ReleasingSelector(selectors.DefaultSelector):
    """Releases the control lock while it waits."""

    control_lock: ControlLock | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.control_lock is None or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        self.control_lock.release_control_lock()
        try:
            return super().select(timeout)
        finally:
            self.control_lock.take_control_lock()


class ControlLockLoop(asyncio.SelectorEventLoop):
    """A loop for which others may stand in."""

    def __init__(self) -> None:
        self._releasing_selector = _ReleasingSelector()
        self._due: list[Handle] | None = None
        """The calls of a stand-in's next round; None: no other thread runs them."""
        self._has_timers = False
        """A stand-in has begun a timer."""
        super().__init__(self._releasing_selector)
        self.set_debug(False)  # which takes every other thread for a mistake

    def run_locked(self, control_lock: ControlLock) -> None:
        """Run until `stop`, holding the control lock but while it sleeps."""
        control_lock.take_control_lock()
        self._releasing_selector.control_lock = control_lock
        try:
            self.run_forever()
        finally:
            self._releasing_selector.control_lock = None
            control_lock.release_control_lock()

    def run_for_loop(self, call: Callable[[*Arguments], object], *args: *Arguments) -> None:
        """Make a call that belongs to the loop on this thread, which holds the control lock.

        So are the calls that it leaves to the loop's next rounds, `ROUNDS_MAX` of them. The loop
        itself makes those of later rounds and of timers.
        """
        self._due, self._has_timers = [], False
        asyncio._set_running_loop(self)
        try:
            call(*args)
            for _ in range(ROUNDS_MAX):
                if not self._due:
                    break
                due, self._due = self._due, []
                _run_all(due)
        finally:
            asyncio._set_running_loop(None)
            left, self._due = self._due, None
            if left or self._has_timers:
                self.call_soon_threadsafe(_run_all, left)

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Handle:
        """Schedule a call for the loop's next round."""
        if self._due is None:
            return super().call_soon(callback, *args, context=context)
        handle = Handle(callback, args, self, context)
        self._due.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> TimerHandle:
        """Schedule a call for a time of the loop's clock."""
        self._has_timers = True
        return super().call_at(when, callback, *args, context=context)


def _run_all(handles: Iterable[Handle]) -> None:
    """Make calls as the loop does; their exceptions go to the loop's handler."""
    for handle in handles:
        if not handle.cancelled():
            handle._run()
