"""An event loop under the control lock: another thread stands in for it while it sleeps.

A loop's state needs no locks, but the loop has to be woken for everything. This one holds the
control lock whenever it runs, and releases it for as long as it sleeps. Another holder may
meanwhile do the loop's work on its own thread, see `stand_in`. So no two threads are ever in the
loop's state, and none has to be woken for a quick answer.
"""

import asyncio
import selectors
from asyncio import Handle, TimerHandle
from collections.abc import Callable
from contextvars import Context
from typing import Protocol, TypeVarTuple

Arguments = TypeVarTuple("Arguments")


class ControlLock(Protocol):
    """Its holder runs the loop's work."""

    def take_control_lock(self) -> None:
        """Wait until nobody holds it, and take it."""
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
        self._has_more_to_do = False
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

    def stand_in(self, call: Callable[[*Arguments], object], *args: *Arguments) -> None:
        """Make a call that belongs to the loop on this thread, which holds the control lock.

        The loop itself does the call's later work (timers, tasks, callbacks).
        """
        self._has_more_to_do = False
        asyncio._set_running_loop(self)
        try:
            call(*args)
        finally:
            asyncio._set_running_loop(None)
            if self._has_more_to_do:
                self.call_soon_threadsafe(_wake)

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Handle:
        """Have a call made in the loop's next round."""
        self._has_more_to_do = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> TimerHandle:
        """Have a call made at a time of the loop's clock."""
        self._has_more_to_do = True
        return super().call_at(when, callback, *args, context=context)


def _wake() -> None:
    """Nothing: to have been called is enough."""
