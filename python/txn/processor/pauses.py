"""Exponential back-off with jitter."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double: `first`, 2 × `first`, …, at most `longest`, in seconds.

    Each is shortened by up to half at random, so that workers do not come back at one moment.
    """

    first: float = 0.1
    longest: float = 30.0

    def seconds(self, failures: int) -> float:
        """Return the pause after so many failures in a row, from 1 on."""
        whole = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return whole * random.uniform(0.5, 1.0)
