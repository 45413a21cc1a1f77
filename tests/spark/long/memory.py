"""The memory of the broker, of Spark's driver and of its Python workers, over their lives."""

import csv
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

MIB: Final = 1 << 20
EVERY_S: Final = 5.0
LIFE_S_MIN: Final = 480.0
"""A shorter life says nothing about its growth."""

GROWTH_MAX: Final = 0.1
GROWTH_MIB_MAX: Final = 32
"""Growth from the second quarter of a life to its last: more than both is not flat."""

WORKERS: Final = "Python workers"


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory of a process, or of all Python workers, at a moment."""

    at_s: float
    role: str
    life: int
    """The process id; of workers that of their driver."""
    mib: float
    processes: int


@dataclass(frozen=True, slots=True)
class Life:
    """The memory of one process over its life."""

    role: str
    seconds: float
    peak_mib: float
    early_mib: float
    """Median of its second quarter."""
    late_mib: float
    """Median of its last quarter."""

    @property
    def is_long(self) -> bool:
        """Say whether it was long enough to show growth."""
        return self.seconds >= LIFE_S_MIN

    @property
    def is_flat(self) -> bool:
        """Say whether it did not grow after its first quarter."""
        grown = self.late_mib - self.early_mib
        return grown <= max(GROWTH_MIB_MAX, GROWTH_MAX * self.early_mib)


class Meter:
    """Samples memory in a thread.

    Args:
        file: Gets every sample, as CSV.
        processes: Returns the process ids by role.
        workers: Returns the present driver and its Python processes.
    """

    def __init__(
        self,
        file: Path,
        processes: Callable[[], Mapping[str, int]],
        workers: Callable[[], tuple[int, Sequence[int]]],
    ) -> None:
        self.samples: list[Sample] = []
        self._file = file
        self._processes = processes
        self._workers = workers
        self._began_s = time.monotonic()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def newest(self) -> dict[str, float]:
        """The last sample of each role, in MiB."""
        return {sample.role: sample.mib for sample in self.samples[-12:]}

    def _run(self) -> None:
        try:
            with self._file.open("w", newline="") as output:
                table = csv.DictWriter(output, [*Sample.__slots__])
                table.writeheader()
                while not self._stop.wait(EVERY_S):
                    for sample in self._look():
                        self.samples.append(sample)
                        table.writerow(asdict(sample))
                    output.flush()
        except BaseException as error:
            self.failure = error

    def _look(self) -> list[Sample]:
        now_s = round(time.monotonic() - self._began_s, 1)
        found = [
            Sample(now_s, role, pid, size, 1)
            for role, pid in self._processes().items()
            if (size := _resident_mib(pid))
        ]
        driver, workers = self._workers()
        sizes = [size for pid in workers if (size := _resident_mib(pid))]
        return [*found, Sample(now_s, WORKERS, driver, round(sum(sizes), 1), len(sizes))]


def lives(samples: Sequence[Sample]) -> list[Life]:
    """Each process's life, in order of their beginnings."""
    grouped: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        grouped.setdefault((sample.role, sample.life), []).append(sample)
    return [_life(role, each) for (role, _), each in grouped.items()]


def _life(role: str, samples: Sequence[Sample]) -> Life:
    sizes = [sample.mib for sample in samples]
    quarter = max(len(sizes) // 4, 1)
    return Life(
        role=role,
        seconds=round(samples[-1].at_s - samples[0].at_s, 1),
        peak_mib=max(sizes),
        early_mib=statistics.median(sizes[quarter : 2 * quarter] or sizes),
        late_mib=statistics.median(sizes[-quarter:]),
    )


def _resident_mib(pid: int) -> float:
    try:
        return round(psutil.Process(pid).memory_info().rss / MIB, 1)
    except psutil.NoSuchProcess:
        return 0.0
