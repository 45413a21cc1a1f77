"""An attack and its neighbours: times of transactions, and resources of the broker."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hostile.attacks import Attack
from hostile.neighbour import FORGOTTEN_MS, Forgotten, Neighbour, p99
from hostile.target import TargetBroker

P99_S: Final = 0.25
LATE_S: Final = 1.0
"""Time after its timeout by which a forgotten transaction has to be aborted."""

PAUSE_S: Final = 0.05
"""Pause between two strikes."""

TIMES_MIN: Final = 40
STRIKES_MIN: Final = 3
PATIENCE_S: Final = 15.0


@dataclass(frozen=True)
class Observations:
    """Observations of a broker under attack.

    Attributes:
        strikes: How often the attacker struck.
        times_s: How long each transaction of the neighbour took.
        forgotten_s: How long the forgotten transaction held its readers.
        failure: The neighbour's failure, or None.
        grown: The most memory that the broker had, beyond that before the attack, in bytes.
    """

    strikes: int
    times_s: list[float]
    forgotten_s: float
    failure: Exception | None
    grown: int

    def unfair(self) -> list[str]:
        """Name the effects that neighbours of an attack need not bear."""
        found = []
        if self.failure is not None:
            found.append(f"a transaction failed: {self.failure!r}")
        if not self.times_s or p99(self.times_s) > P99_S:
            slowest = [round(each, 3) for each in sorted(self.times_s)[-5:]]
            found.append(f"of {len(self.times_s)} transactions the slowest took {slowest} s")
        if self.forgotten_s > FORGOTTEN_MS / 1000 + LATE_S:
            found.append(f"a timeout of {FORGOTTEN_MS} ms came after {self.forgotten_s:.1f} s")
        return found


class Assault:
    """An attack in a thread of its own."""

    def __init__(self, attack: Attack, servers: str) -> None:
        self.strikes = 0
        self.is_exhausted = False
        self._steps: Iterator[None] = attack(servers)
        next(self._steps)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Assault":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            try:
                next(self._steps)
            except (StopIteration, OSError):
                self.is_exhausted = True
                return
            self.strikes += 1


def attacked(target: TargetBroker, attack: Attack, seconds: float) -> Observations:
    """Let an attack and its neighbours run beside each other."""
    servers = target.bootstrap_servers
    assault = Assault(attack, servers)
    target.forget_most_memory()
    before = target.most_memory()
    forgotten_s = None
    began = time.monotonic()
    with Neighbour(servers) as neighbour, assault:
        forgotten = Forgotten(servers)
        while neighbour.failure is None:
            if forgotten_s is None and forgotten.is_over():
                forgotten_s = time.monotonic() - forgotten.began
            elapsed = time.monotonic() - began
            is_enough = elapsed > seconds and len(neighbour.times_s) >= TIMES_MIN
            has_struck = assault.is_exhausted or assault.strikes >= STRIKES_MIN
            if (is_enough and has_struck and forgotten_s is not None) or elapsed > PATIENCE_S:
                break
            time.sleep(0.02)
        forgotten.close()
    return Observations(
        assault.strikes,
        neighbour.times_s,
        forgotten_s if forgotten_s is not None else time.monotonic() - forgotten.began,
        neighbour.failure,
        target.most_memory() - before,
    )
