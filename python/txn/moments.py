"""Times and durations as an operator reads them."""

import datetime
import re
from typing import Final

from txn.errors import ConfigError

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment(at_ms: int) -> str:
    """A time of day with its date, UTC, to the millisecond."""
    try:
        at = datetime.datetime.fromtimestamp(at_ms // 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):  # clients may set any
        return f"{at_ms} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03} UTC"


def duration(length_ms: int) -> str:
    """A duration in its two largest units: `4 min 12 s`."""
    if length_ms < 1_000:
        return f"{length_ms} ms"
    seconds = length_ms // 1000
    if seconds < 60:
        return f"{length_ms / 1000:.1f} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"


def relative(at_ms: int, now_ms: int) -> str:
    """Text for a time in the past, or in the future, relative to now."""
    if at_ms <= now_ms:
        return f"{duration(now_ms - at_ms)} ago"
    return f"in {duration(at_ms - now_ms)}"


def distance(length_ms: int) -> str:
    """Text for the distance from a beginning, to the millisecond within an hour of it."""
    if abs(length_ms) < UNITS_MS["h"]:
        return f"{length_ms / 1000:+.3f} s"
    return f"{'-' if length_ms < 0 else '+'}{duration(abs(length_ms))}"


def parse_duration(text: str) -> int:
    """Milliseconds of `90s`, `15m`, `2h`; a bare number is seconds. Raises ConfigError."""
    match = re.fullmatch(r"([0-9]{1,12})\s*(ms|s|m|h|d)?", text.strip())
    if match is None:
        raise ConfigError(f"a duration is a number with ms, s, m, h or d, as in 90s: not {text!r}")
    return int(match[1]) * UNITS_MS[match[2] or "s"]
