"""The time that an operation has left."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLICE_SECONDS = 1.0
"""Longest block of one call into librdkafka: between two calls Ctrl-C is heard."""

INTERRUPTIBLE_SLICE_SECONDS = 0.1
"""The same in a thread whose wait another thread may interrupt."""

PAUSE_SECONDS = 0.1
"""Pause before a call that failed is repeated; also the shortest wait of such a call."""

_interrupts = threading.local()


class InterruptedWaitError(BaseException):
    """Another thread has interrupted a wait, as Ctrl-C interrupts one of the main thread."""


@contextmanager
def interrupted_by(is_interrupted: Callable[[], bool]) -> Iterator[None]:
    """Raise InterruptedWaitError between two slices of a wait of this thread, once asked to.

    Args:
        is_interrupted: Says whether the wait is to end; asked before each slice.
    """
    _interrupts.is_interrupted = is_interrupted
    try:
        yield
    finally:
        del _interrupts.is_interrupted


class Deadline:
    """A point in time that waiting stops at.

    Args:
        seconds: From now on.
        clock: Monotonic seconds; tests give their own.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    @property
    def remaining(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self._end - self._clock())

    @property
    def has_passed(self) -> bool:
        """True if no time is left."""
        return self.remaining == 0.0

    def slice(self) -> float:
        """Return how long the next blocking call may take."""
        is_interrupted: Callable[[], bool] | None = getattr(_interrupts, "is_interrupted", None)
        if is_interrupted is None:
            return min(SLICE_SECONDS, self.remaining)
        if is_interrupted():
            raise InterruptedWaitError
        return min(INTERRUPTIBLE_SLICE_SECONDS, self.remaining)
