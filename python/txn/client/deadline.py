"""The time that an operation has left."""

import time
from collections.abc import Callable

SLICE_SECONDS = 1.0
"""Longest block of one call into librdkafka: between two calls Ctrl-C is heard."""


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
        return min(SLICE_SECONDS, self.remaining)
