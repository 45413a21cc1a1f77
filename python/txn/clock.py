"""The time of day, as an argument.

Everything below the server takes milliseconds since the epoch from whoever calls it; this
is the one place that asks the operating system.
"""

import time


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000
