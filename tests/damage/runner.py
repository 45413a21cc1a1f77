"""Runs cases in workers that may hang or end, and judges them.

PYTHONPATH=tests python -m damage.runner --every 1          # the whole product, on both brokers
PYTHONPATH=tests python -m damage.runner --only "txn killed .lock removed"
"""

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from damage.cases import STATES, DamageCase, cases_of, damaged_copy
from damage.gaps import gap_of
from damage.judge import LOCK, CaseResult, has_lost_cache, judge, judge_accepted
from damage.left import LeftDirectory, let_the_power_fail, make_left
from damage.worker import BrokerStart, Finding
from support.brokers import TESTS, environment
from support.memory import MEMORY
from support.shown import Shown

CASE_S: Final = 20.0
"""Two starts, with everything that is asked of them."""

START_S: Final = 60.0
"""Time that a worker may take to import everything."""


PROGRESS: Final = 200
"""Number of cases after which a line tells of them."""


class WorkerError(Exception):
    """A worker hangs, or has ended."""


class Worker:
    """A process of `damage.worker`; another takes its place when it hangs or ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, what: str, data: Path) -> Any:
        """Ask for findings or for starts.

        Raises:
            WorkerError: The process failed at it.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(f"{what} {data}\n".encode())
        process.stdin.flush()
        step = "nothing"
        for line in self._lines(process, time.monotonic() + CASE_S):
            said = json.loads(line)
            if "answer" in said:
                return said["answer"]
            step = said["step"]
        is_over = process.poll() is not None
        self.close()
        raise WorkerError(f"it {'ends' if is_over else 'hangs'} at: {step}")

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "damage.worker"],
            cwd=TESTS,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert any(self._lines(self._process, time.monotonic() + START_S)), "no worker starts"
        return self._process

    def _lines(self, process: subprocess.Popen[bytes], deadline: float) -> Iterator[bytes]:
        assert process.stdout is not None
        pending = b""
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([process.stdout], [], [], left)
            more = os.read(process.stdout.fileno(), 1 << 20) if ready else b""
            if not more:
                process.poll()
                return
            *lines, pending = (pending + more).split(b"\n")
            yield from lines

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()


@dataclass(frozen=True)
class Matrix:
    """The directories of some brokers, and their undamaged contents, by (broker, state)."""

    left: Mapping[tuple[str, str], Path]
    sound: Mapping[tuple[str, str], Shown]

    def sound_for(self, case: DamageCase, starts: Iterable[BrokerStart] = ()) -> list[Shown]:
        """Contents that a case may show: more than one if the note of the boot is damaged.

        A start that proves a lost cache shows what a start after a power failure shows.
        """
        states = STATES if case.path == LOCK and case.state != "closed" else (case.state,)
        if any(has_lost_cache(start["lines"]) for start in starts):
            states = ("power",)
        return [self.sound[case.broker, state] for state in states]

    def cases(self) -> list[DamageCase]:
        return [
            case
            for (broker, state), path in self.left.items()
            for case in cases_of(broker, state, path)
        ]


def make_matrix(made: Mapping[str, LeftDirectory], scratch: Path) -> Matrix:
    """Look at undamaged directories: they are sound, and hold the committed records."""
    left: dict[tuple[str, str], Path] = {}
    sound: dict[tuple[str, str], Shown] = {}
    worker = Worker()
    for broker, each in made.items():
        for state in STATES:
            path = each.closed if state == "closed" else each.killed
            data = Path(shutil.copytree(path, scratch / f"{broker}-{state}"))
            if state == "power":
                let_the_power_fail(data)
            findings = worker.ask("verify", data)
            assert findings == []
            starts: list[BrokerStart] = worker.ask("start", data)
            assert len(starts) == 2, starts
            first, second = (start["shown"] for start in starts)
            assert first is not None
            assert first == second
            for topic, (error, offset, _) in starts[1]["appended"].items():
                assert not error
                assert offset == first["partitions"][f"{topic}-0"]["end"]
            left[broker, state], sound[broker, state] = path, first
    worker.close()
    return Matrix(left, sound)


def run_cases(
    matrix: Matrix, cases: Iterable[DamageCase], scratch: Path, *, workers: int = 1
) -> Iterator[tuple[DamageCase, CaseResult]]:
    """Run cases, in no order."""
    free: SimpleQueue[Worker] = SimpleQueue()
    crew = [Worker() for _ in range(workers)]
    for worker in crew:
        free.put(worker)

    def run(case: DamageCase) -> tuple[DamageCase, CaseResult]:
        worker = free.get()
        try:
            return case, _run_case(matrix, case, worker, scratch)
        finally:
            free.put(worker)

    try:
        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(run, cases)
    finally:
        for worker in crew:
            worker.close()


def _run_case(matrix: Matrix, case: DamageCase, worker: Worker, scratch: Path) -> CaseResult:
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        data = Path(directory, "data")
        left = matrix.left[case.broker, case.state]
        damaged_copy(case, left, data)
        findings: list[Finding] | None = None
        failures: list[str] = []
        try:
            findings = worker.ask("verify", data)
        except WorkerError as error:
            failures.append(f"txn log verify: {error}")
        try:
            starts = worker.ask("start", data)
        except WorkerError as error:
            return CaseResult("hang or crash", [*failures, str(error)])
        verdict = judge(case, left, matrix.sound_for(case, starts), starts, findings)
        if verdict.kind in ("partition refused", "start refused"):
            try:
                accepted = worker.ask("accept", data)
                judge_accepted(matrix.sound_for(case)[0], accepted, verdict)
            except WorkerError as error:
                failures.append(f"txn log accept-loss: {error}")
    verdict.faults += failures
    gap = gap_of(case, left) if verdict.faults else None
    return CaseResult("known gap", notes=[gap, *verdict.faults]) if gap else verdict


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--brokers", nargs="+", default=["txn", "kafka"])
    parser.add_argument("--every", type=int, default=1, help="run each so-many-th case")
    parser.add_argument("--only", help="run the cases whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="print every case")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txn-damage-", dir=MEMORY) as name:
        scratch = Path(name)
        made = {broker: make_left(broker, scratch / broker) for broker in asked.brokers}
        matrix = make_matrix(made, scratch)
        cases = [case for case in matrix.cases() if not asked.only or asked.only in str(case)]
        kinds: Counter[str] = Counter()
        faulty = 0
        cases = cases[:: asked.every]
        for case, verdict in run_cases(matrix, cases, scratch, workers=asked.workers):
            kinds[verdict.kind] += 1
            faulty += bool(verdict.faults)
            if kinds.total() % PROGRESS == 0:
                print(f"{kinds.total()} of {len(cases)} cases", file=sys.stderr, flush=True)
            if verdict.faults or asked.verbose:
                print(f"{case}: {verdict.kind}")
                for each in verdict.faults:
                    print(f"    FAULT {each}", flush=True)
                for each in verdict.notes:
                    print(f"    note {each}", flush=True)
        print(f"{sum(kinds.values())} cases, {faulty} with faults: {dict(kinds)}")
    sys.exit(1 if faulty else 0)


if __name__ == "__main__":
    main()
