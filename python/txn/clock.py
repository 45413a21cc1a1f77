"""The time, as an argument.

Everything below the server takes the time from its caller; this is the one place that asks the
operating system. There are two clocks. The time of day is for stored and displayed times; it steps
when an operator or NTP sets it. The monotonic clock is for durations: timeouts, sessions, retries
and intervals; it never steps, and starts anew with the machine.
"""

import time


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since some moment before this process, on a clock that never steps."""
    return time.monotonic_ns() // 1_000_000
