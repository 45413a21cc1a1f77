"""The CPU time of processes that come and go."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil


class CpuMeter:
    """CPU of processes by role; of those that have ended, as far as the last look saw.

    Args:
        processes: Returns the present processes with their roles.
    """

    def __init__(self, processes: Callable[[], Iterable[tuple[psutil.Process, str]]]) -> None:
        self._processes = processes
        self._spent_s: dict[tuple[str, int, float], float] = {}

    def seconds(self) -> defaultdict[str, float]:
        """Look, and return the CPU of each role so far. Several threads may call it."""
        for process, role in self._processes():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._spent_s[role, process.pid, process.create_time()] = times.user + times.system
        found: defaultdict[str, float] = defaultdict(float)
        for (role, _, _), spent_s in list(self._spent_s.items()):
            found[role] += spent_s
        return found
