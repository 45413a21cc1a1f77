"""Lines over time for SVG that the server writes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from txn.moments import duration

WIDTH: Final = 300
HEIGHT: Final = 80


@dataclass(frozen=True, slots=True)
class Chart:
    """A line, the words beside it, and the same in a sentence."""

    title: str
    newest: str
    top: str
    since: str
    line: str
    area: str

    @property
    def words(self) -> str:
        """The chart in words, for those who do not see it."""
        return f"{self.title}: now {self.newest}, at most {self.top} in {self.since}"


def chart_of(title: str, times: Sequence[int], values: Sequence[float | None]) -> Chart:
    """Draw the values that are known over their times, from 0 up."""
    known = [(at, value) for at, value in zip(times, values, strict=True) if value is not None]
    top = max((value for _, value in known), default=0)
    length_ms = max(times[-1] - times[0], 1) if times else 1
    points = [
        (
            round((at - times[0]) * WIDTH / length_ms, 1),
            round(HEIGHT - value * (HEIGHT - 4) / (top or 1), 1),
        )
        for at, value in known
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    area = f"{points[0][0]},{HEIGHT} {line} {points[-1][0]},{HEIGHT}" if points else ""
    newest = values[-1] if values else None
    return Chart(title, number(newest), number(top), duration(length_ms), line, area)


def number(value: float | None) -> str:
    """A value as a person reads it."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if 0 < value < 100 and value != int(value) else f"{value:,.0f}"
