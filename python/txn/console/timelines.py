"""Bars on a common axis of time, for SVG that the server writes.

An axis has `WIDTH` units. A chart is stretched to the width of its place, so it has rectangles
alone: a stretched circle would be no circle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from txn.moments import duration

WIDTH: Final = 1_000
BAR_MIN: Final = 4.0
"""A shorter bar could not be seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a lane: its place on the axis, its kind, and the words about it."""

    x: float
    width: float
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The times from `start_ms` to `end_ms`."""

    start_ms: int
    end_ms: int

    def x(self, at_ms: int) -> float:
        """The place of a time, at most the ends of the axis."""
        length_ms = max(self.end_ms - self.start_ms, 1)
        place = (at_ms - self.start_ms) * WIDTH / length_ms
        return round(min(max(place, 0.0), float(WIDTH)), 1)

    def bar(self, start_ms: int, end_ms: int, kind: str, words: str) -> Bar | None:
        """The bar of a stretch of time; None: it lies outside."""
        if end_ms < self.start_ms or start_ms > self.end_ms:
            return None
        x = self.x(start_ms)
        width = max(self.x(end_ms) - x, BAR_MIN)
        return Bar(min(x, WIDTH - BAR_MIN), round(width, 1), kind, words)

    @property
    def labels(self) -> Sequence[str]:
        """The words below its start, middle and end."""
        length_ms = self.end_ms - self.start_ms
        return f"{duration(length_ms)} ago", f"{duration(length_ms // 2)} ago", "now"
