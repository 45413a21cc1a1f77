"""One run of `crash_everywhere`: a branch of the broker, a directory, and the program's processes.

A stage ends each process that it started, and closes its broker, whatever happens in between. It
waits for effects only: a request, the end of a process, or silence behind a consumed input.
"""

import re
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import txn
from txn.errors import RejectedError
from txn.testing.broker import Snapshot
from txn.testing.faults import Fault
from txn.testing.places import ScratchDirectory
from txn.testing.program import Program, Run
from txn.testing.stops import STOPS, Point
from txn.testing.story import Story
from txn.wire.error_codes import ErrorCode

FRAME: Final = re.compile(r'\s+File "(?P<file>[^"<]+)", line (?P<line>\d+)')
LIBRARIES: Final = (
    str(Path(txn.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
"""Directories of code that is not the program's."""

IDLE_S: Final = 0.25
"""Silence after which a program whose input is consumed counts as done."""
BLOCKED: Final = "UNSTABLE_OFFSET_COMMIT"
BLOCKED_ANSWERS: Final = 5
"""Answers after which a second instance counts as waiting for the first. Source: KIP-447."""
STARTS_MAX: Final = 5
"""Starts of a program until it counts as unable to go on."""
POLL_S: Final = 0.01
TRANSACTION_TIMEOUT_MS: Final = 60_000


class Stage:
    """A broker, a directory and the runs of the program on them."""

    def __init__(
        self, program: Program, snapshot: Snapshot, sources: Sequence[str], give_up: threading.Event
    ) -> None:
        self._program = program
        self._snapshot = snapshot
        self._sources = sources
        self._give_up = give_up
        self._runs: list[Run] = []
        self._ended: set[int] = set()
        self.story = Story()

    def __enter__(self) -> "Stage":
        self._place = ScratchDirectory(in_memory=False)
        self._directory = self._place.path / "run"
        self._directory.mkdir()
        self._log = self._place.path / "log"
        self.broker = self._snapshot.branch()
        self.broker.proxy.watch = self.story
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.kill()
        self.broker.close()
        self._place.close()

    def arm(self, point: Point) -> Fault:
        """Inject the stop's effect at its step."""
        effect = STOPS[point.stop][0]
        code = ErrorCode.INVALID_RECORD
        fault = Fault(effect, point.step.key, number=point.step.number, code=code)
        self.broker.proxy.add(fault)
        return fault

    def start(self, text: str) -> Run:
        """Start a run."""
        self.story.add_line(text)
        run = self._program.start(self.broker.bootstrap_servers, self._directory, self._log)
        self._runs.append(run)
        return run

    def start_again(self) -> Run:
        """Start another run once the sessions of those that ended have expired."""
        self.rebalance()
        return self.start("the program starts again")

    def end(self, run: Run) -> None:
        """End a run, and add a line to the story if it failed."""
        if run.code() is None:
            run.stop()
        elif run.code() and run.pid not in self._ended:
            self.story.add_line(f"the program ends with code {run.code()}{self.last_words()}")
        self._ended.add(run.pid)

    def await_fault(self, fault: Fault, run: Run, timeout_s: float) -> None:
        """Wait until a fault happens, or the run ends or is done without it."""
        self._await(lambda: fault.happened or run.code() is not None, timeout_s)

    def await_done(self, run: Run, timeout_s: float) -> None:
        """Wait until a run has ended, is idle behind its input, or waits for offsets of another
        transaction, or the time is up.
        """
        self._await_end_or_block(run, self.story.count_errors(BLOCKED) + BLOCKED_ANSWERS, timeout_s)

    def _await(self, is_over: Callable[[], bool], timeout_s: float) -> None:
        """Wait for something, or until all input is consumed and nothing is written any more."""
        ends_s = time.monotonic() + timeout_s
        asked_s = 0.0
        while not is_over() and not self._give_up.is_set():
            now_s = time.monotonic()
            if now_s > ends_s:
                return
            if min(now_s - self.story.last_write_s, now_s - asked_s) > IDLE_S:
                if self.is_consumed():
                    return
                asked_s = time.monotonic()
            time.sleep(POLL_S)

    def play_second(self, timeout_s: float) -> None:
        """Run a second instance until it is done, or waits for offsets that the first holds."""
        seen = self.story.count_errors(BLOCKED)
        for _ in range(STARTS_MAX):  # as `watch_undisturbed`
            run = self.start("a second instance starts")
            self._await_end_or_block(run, seen + BLOCKED_ANSWERS, timeout_s)
            code = run.code()
            self.end(run)
            if code != 0 or self.is_consumed():
                return

    def _await_end_or_block(self, run: Run, answers: int, timeout_s: float) -> None:
        def is_over() -> bool:
            return run.code() is not None or self.story.count_errors(BLOCKED) >= answers

        self._await(is_over, timeout_s)

    def rebalance(self) -> None:
        """Remove every member from its group."""
        for group in self._groups():
            with suppress(RejectedError):  # it has no members, or they are just leaving
                self.broker.rebalance(group)

    def write_aborted(self) -> None:
        """Write all input again, and abort: a batch of any size gets some of it."""
        for topic in self._sources:
            for each in self.broker.records(topic):
                pair = (each.key, each.value)
                self.broker.produce(topic, pair, partition=each.partition, aborted=True)

    def is_consumed(self) -> bool:
        """True if groups have consumed all input, and no transaction is open."""
        if any(state == "Ongoing" for state in self.broker.transactions().values()):
            return False
        return not self.left()

    def left(self) -> str:
        """The input that no group has consumed, in words; empty if there is none."""
        if not self._sources:
            is_done = bool(self._runs) and self._runs[-1].code() == 0
            return "" if is_done else "its last run did not end with code 0"
        left = []
        groups = self._groups()
        if not groups:
            return "no consumer group was there"
        for topic in self._sources:
            by_group = [self.broker.unconsumed(group, [topic]) or [] for group in groups]
            if all(by_group):
                left.append(", ".join(by_group[0]))
        return "; ".join(left)

    def expire_transactions(self) -> None:
        """Advance the clock beyond the timeout of transactions that were left open."""
        if any(state == "Ongoing" for state in self.broker.transactions().values()):
            self.story.add_line("its open transactions expire")
            self.broker.clock.advance(self.story.timeout_ms(TRANSACTION_TIMEOUT_MS) / 1000 + 1)

    def lines_of(self, name: str) -> list[str]:
        """The lines of a file of the program."""
        file = self._directory / name
        return file.read_text().splitlines() if file.exists() else []

    def last_words(self) -> str:
        """The last line of the program's output, behind a colon; empty if there is none.

        Behind an exception of Python's it has the file and the line of the program's own frame.
        """
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        said = [line for line in lines if line.strip()]
        return f": {said[-1].strip()}{_place_of_exception(said)}" if said else ""

    def _groups(self) -> list[str]:
        return self.broker.groups()


def _place_of_exception(said: Sequence[str]) -> str:
    """The place of the exception that ended the output, in brackets; empty if none did."""
    begins = [number for number, line in enumerate(said) if line.startswith("Traceback (most ")]
    frames = (
        [match for line in said[begins[-1] :] if (match := FRAME.match(line))] if begins else []
    )
    own = [each for each in frames if not each["file"].startswith(LIBRARIES)] or frames
    return f" ({own[-1]['file']}:{own[-1]['line']})" if own else ""
