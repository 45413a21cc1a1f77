"""Run seeds: one to see its story, or many for as long as there is time.

    python -m sim 4711                  one seed; if it fails, made small and told
    python -m sim --seeds 200000        seeds from --first on
    python -m sim --minutes 30 --json   as many as fit, and a summary for machines

All cores are used unless `--jobs` says otherwise. SIGTERM and SIGINT end it after the seeds
under way, with the summary. Exit code 0: no seed failed; 1: some did.
"""

import argparse
import gc
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from sim.plan import make_plan
from sim.world import run_plan, run_seed, shrink, text_of

CHUNK = 50
"""Seeds that a worker runs between two reports."""
PROGRESS_S = 10.0
STORIES_MAX = 3


@dataclass(slots=True)
class SeedChunk:
    """The results of some seeds."""

    seeds: int = 0
    steps: int = 0
    committed: int = 0
    lives: int = 0
    cpu_s: float = 0.0
    failed: dict[int, list[str]] = field(default_factory=dict)
    """Seed → names of its anomalies."""

    def add(self, other: "SeedChunk") -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.committed += other.committed
        self.lives += other.lives
        self.cpu_s += other.cpu_s
        self.failed |= other.failed


def run_chunk(first: int) -> SeedChunk:
    """Run `CHUNK` seeds."""
    done = SeedChunk()
    began_s = time.process_time()
    for seed in range(first, first + CHUNK):
        done.seeds += 1
        try:
            result = run_seed(seed)
        except Exception as error:
            done.failed[seed] = [f"the simulation raised {error!r}"]
            continue
        done.steps += result.steps
        done.committed += result.committed
        done.lives += result.lives
        if result.names:
            done.failed[seed] = sorted(result.names)
    done.cpu_s = time.process_time() - began_s
    return done


class Soak:
    """Many seeds on many cores."""

    def __init__(self, first: int, seeds: int | None, minutes: float | None) -> None:
        self.total = SeedChunk()
        self._first = first
        self._seeds = seeds
        self._began_s = time.monotonic()
        self._ends_s = None if minutes is None else self._began_s + 60 * minutes
        self._is_stopped = False
        self._given = 0
        """Chunks that workers were told to run."""
        self._jobs = 1

    def run(self, jobs: int) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        told_s = self._began_s
        self._jobs = jobs
        with multiprocessing.Pool(jobs, _set_up_worker) as pool:
            for done in pool.imap_unordered(run_chunk, self._chunks()):
                self.total.add(done)
                for seed, names in done.failed.items():
                    print(f"seed {seed} fails: {', '.join(names)}", file=sys.stderr, flush=True)
                if time.monotonic() - told_s >= PROGRESS_S:
                    told_s = time.monotonic()
                    print(self.text(), file=sys.stderr, flush=True)
            pool.close()  # workers are deaf to the signal by which they would be ended
            pool.join()

    def _chunks(self) -> Iterator[int]:
        first = self._first
        while not self._is_over(first):
            while self._given - self.total.seeds // CHUNK >= 2 * self._jobs:
                time.sleep(0.02)  # the pool would take every number there is at once
            self._given += 1
            yield first
            first += CHUNK

    def _is_over(self, next_seed: int) -> bool:
        is_late = self._ends_s is not None and time.monotonic() >= self._ends_s
        is_done = self._seeds is not None and next_seed >= self._first + self._seeds
        return self._is_stopped or is_late or is_done

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopped = True

    def text(self) -> str:
        total, wall_s = self.total, time.monotonic() - self._began_s
        return (
            f"{total.seeds} seeds in {wall_s:.0f} s, {total.seeds / max(wall_s, 1e-9):.0f}/s, "
            f"{1000 * total.cpu_s / max(total.seeds, 1):.1f} ms of CPU each; "
            f"{total.committed} commits, {total.lives} lives of the broker; "
            f"{len(total.failed)} failed"
        )

    def summary(self) -> dict[str, Any]:
        total = self.total
        return {
            "first": self._first,
            "seeds": total.seeds,
            "steps": total.steps,
            "committed": total.committed,
            "lives": total.lives,
            "wall_s": round(time.monotonic() - self._began_s, 1),
            "cpu_s": round(total.cpu_s, 1),
            "anomalies": Counter(name for names in total.failed.values() for name in names),
            "failed": total.failed,
        }


def _set_up_worker() -> None:
    """Workers finish their seeds; the one that started them stops."""
    gc.freeze()  # modules live as long as the worker: no pass has to look at them
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def tell(seed: int) -> int:
    """Run one seed and print its story."""
    result = run_plan(make_plan(seed), tells=True)
    print(text_of(shrink(result)) if result.names else "\n".join([*result.story, "nothing found"]))
    return 1 if result.names else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("seed", type=int, nargs="?", help="run this one and tell its story")
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--minutes", type=float, help="how long")
    parser.add_argument("--first", type=int, help="default: a new one for each run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    given = parser.parse_args()
    if given.seed is not None:
        return tell(given.seed)
    first = random.SystemRandom().randrange(10**9) if given.first is None else given.first
    print(f"seeds from {first} on", file=sys.stderr, flush=True)
    soak = Soak(first, given.seeds, given.minutes or (None if given.seeds else 1.0))
    soak.run(given.jobs)
    print(json.dumps(soak.summary()) if given.json else soak.text())
    if not given.json:
        for seed in sorted(soak.total.failed)[:STORIES_MAX]:
            print(text_of(shrink(run_seed(seed))))
    return 1 if soak.total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
