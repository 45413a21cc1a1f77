"""Feeds the long job, kills it again and again, watches it, and has its outputs judged."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import psutil

from spark.kill.harness import (
    OUTPUT_PARTITIONS,
    Session,
    TopicEnds,
    TxnBroker,
    kill_a_worker,
    kill_session,
    session_of,
)
from spark.logs import tail
from spark.long.feed import Feed
from spark.long.judge import LiveReader, Reading, Verdict, are_reached, compare, read
from spark.long.memory import Life, Meter, lives
from spark.long.rows import PARTITIONS, Totals, Years
from support import clients
from txn.demo.flights import FLIGHT_COUNT

INPUT, ROWS, TOTALS = "flights", "rows", "totals"
STANDS_STILL_S: Final = 600.0
"""No new row for so long, while some are due: it hangs."""

FAILURES_MAX: Final = 5
CLOSING_EVERY_S: Final = 10.0
MOMENT_S: Final = 40.0
SCATTER_S: Final = (0.0, 0.01, 0.05, 0.3)
POLL_S: Final = 0.1


class Victim(Enum):
    """A process to kill by SIGKILL."""

    DRIVER = "driver"  # with all its workers
    WORKER = "worker"
    BROKER = "broker"


class HangError(AssertionError):
    """The job stands still."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A planned kill."""

    at_s: float
    victim: Victim
    at_work: bool
    """Wait until tasks write."""


@dataclass
class LongResult:
    """The summary of a run."""

    seconds: float
    sent: int
    kills: dict[str, int]
    starts: int
    failures: int
    behind_s_max: float
    cpu_s: dict[str, float]
    lives: list[Life]
    verdict: Verdict

    @property
    def is_flat(self) -> bool:
        return all(life.is_flat for life in self.lives if life.is_long)


def plan(seconds: float, every_s: float, seed: int) -> list[Kill]:
    """A kill in each interval, at a random moment.

    In the first third any process dies; in the second the driver lives, in the last the broker. So
    both have a long life, which shows whether their memory grows.
    """
    dice = random.Random(seed)
    thirds = (
        tuple(Victim),
        (Victim.WORKER, Victim.BROKER),
        (Victim.WORKER, Victim.DRIVER),
    )
    kills = []
    for number in range(int(seconds / every_s)):
        at_s = (number + dice.uniform(0.3, 0.7)) * every_s
        victims = thirds[min(int(3 * at_s / seconds), 2)]
        kills.append(Kill(at_s, dice.choice(victims), dice.random() < 0.7))
    return kills


class LongRun:
    """One run in a directory: broker, feed, job, reader and meter.

    Args:
        directory: For data, checkpoints and logs.
        years: The flights.
        seconds: How long to feed.
        rate: Years of flights an hour.
        kills: As planned.
        totals: Run the query with totals, too.
        options: Further words for the job's command line.
        tell: Called with lines for people.
    """

    def __init__(
        self,
        directory: Path,
        years: Years,
        *,
        seconds: float,
        rate: float,
        kills: Sequence[Kill],
        totals: bool = True,
        options: Sequence[str] = (),
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._directory = directory
        self.years = years
        self.per_second = rate * FLIGHT_COUNT / 3600
        self._count = max(int(seconds * self.per_second), 1)
        self._kills = list(kills)
        self._queries = (ROWS, TOTALS) if totals else (ROWS,)
        self._options = ["--queries", ",".join(self._queries), *options]
        self.tell = tell
        self._dice = random.Random(len(self._kills))
        self._log = directory / "spark.log"
        self._broker = TxnBroker(directory / "broker")
        self._struck: Counter[str] = Counter()
        self._starts = self._failures = self._failures_in_a_row = 0
        self._cpu_s: dict[tuple[str, int, float], float] = {}
        self._process: subprocess.Popen[bytes]

    def run(self, tell_every_s: float = 60.0) -> LongResult:
        """Run it all.

        Raises:
            HangError: the job stands still, or does not start.
        """
        servers = self._broker.bootstrap_servers
        clients.create_topic(servers, INPUT, PARTITIONS)
        for topic in (ROWS, TOTALS):
            clients.create_topic(servers, topic, OUTPUT_PARTITIONS)
        began_s = time.monotonic()
        with ExitStack() as stack:
            stack.callback(self._broker.stop)
            stack.callback(lambda: kill_session(self._process))
            self._start()
            reader = LiveReader(servers, Reading(self.years), {ROWS: True, TOTALS: False})
            feed = Feed(servers, INPUT, self.years, self._count, self.per_second)
            stack.callback(feed.stop)
            meter = Meter(self._directory / "memory.csv", self._pids, self._python_processes)
            stack.callback(meter.stop)
            watch = _Watch(self, feed, reader, meter, began_s, tell_every_s)
            watch.until_fed()
            watch.until_through()
            self._note_cpu()
            meter.stop()
            self._process.send_signal(signal.SIGTERM)
            code = self._process.wait(STANDS_STILL_S)
            assert code == 0, f"SIGTERM ended the job with {code}:\n{self.tail()}"
            self.tell("all rows are through; reading everything once more")
            verdict = self._judge(reader)
        return LongResult(
            seconds=time.monotonic() - began_s,
            sent=feed.sent,
            kills=dict(self._struck),
            starts=self._starts,
            failures=self._failures,
            behind_s_max=round(watch.behind_s_max, 1),
            cpu_s=self._cpu(),
            lives=lives(meter.samples),
            verdict=verdict,
        )

    def totals(self) -> Totals:
        """The totals that have to come out."""
        return self.years.totals(self._count) if TOTALS in self._queries else {}

    def _judge(self, reader: LiveReader) -> Verdict:
        servers = self._broker.bootstrap_servers
        ends, held_back = {}, 0
        for topic in (ROWS, TOTALS):
            for partition in range(OUTPUT_PARTITIONS):
                stable, high = clients.ends(servers, topic, partition)
                ends[topic, partition] = stable
                held_back += high - stable
        reader.stop_at(ends)
        final = Reading(self.years)
        read(
            servers, final, {ROWS: True, TOTALS: False}, lambda reached: are_reached(reached, ends)
        )
        return compare(reader.reading, final, self._count, held_back, self.totals())

    # ---------------------------------------------------------------- kills

    def strike_if_due(self, at_s: float) -> None:
        """Carry out the next kill if its time has come."""
        if not self._kills or at_s < self._kills[0].at_s:
            return
        kill = self._kills.pop(0)
        if kill.at_work:
            self._await_work()
        time.sleep(self._dice.choice(SCATTER_S))
        self._note_cpu()
        self._struck[kill.victim.value] += 1
        match kill.victim:
            case Victim.WORKER:
                kill_a_worker(self._process.pid, self._dice)
            case Victim.BROKER:
                self._broker.kill_and_restart()
            case Victim.DRIVER:
                kill_session(self._process)
                self._start()

    def restart_if_ended(self) -> None:
        """Start the job again if it has ended by itself."""
        if self._process.poll() is None:
            return
        self._failures += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row > FAILURES_MAX:
            raise HangError(f"the job does not run:\n{self.tail()}")
        kill_session(self._process)
        self._start()

    def note_progress(self) -> None:
        """New rows came."""
        self._failures_in_a_row = 0

    @property
    def is_to_strike(self) -> bool:
        """Say whether kills are left."""
        return bool(self._kills)

    @property
    def struck(self) -> Counter[str]:
        """The kills so far, by victim."""
        return self._struck

    def _await_work(self) -> None:
        """Wait until an output grows by rows that are not committed yet."""
        with TopicEnds(self._broker.bootstrap_servers, ROWS, "read_uncommitted") as end:
            before, deadline = end(), time.monotonic() + MOMENT_S
            while end() == before and time.monotonic() < deadline:
                time.sleep(POLL_S / 10)

    def _start(self) -> None:
        self._starts += 1
        command = [
            *(sys.executable, str(Path(__file__).with_name("job.py"))),
            *("--bootstrap-servers", self._broker.bootstrap_servers),
            *("--input", INPUT, "--rows", ROWS, "--totals", TOTALS),
            *("--checkpoints", str(self._directory / "checkpoints"), *self._options),
        ]
        self._process = Session(command, self._log).__enter__()

    def tail(self) -> str:
        """The end of the job's log."""
        return tail(self._log)

    # ---------------------------------------------------------------- processes

    def _pids(self) -> dict[str, int]:
        driver = next((pid for pid, name in self._members() if "java" in name), None)
        return {"broker": self._broker.pid} | ({} if driver is None else {"driver JVM": driver})

    def _python_processes(self) -> tuple[int, list[int]]:
        """The job's first process, and its Python workers with their daemons."""
        first = self._process.pid
        return first, [pid for pid, name in self._members() if pid != first and "python" in name]

    def _members(self) -> list[tuple[int, str]]:
        """(process id, name) of the job's processes."""
        found = []
        for pid in session_of(self._process.pid):
            with suppress(psutil.NoSuchProcess):
                found.append((pid, psutil.Process(pid).name()))
        return found

    def _note_cpu(self) -> None:
        """Remember the CPU of all present processes, before some of them go."""
        roles = {pid: "JVM" if "java" in name else "Python" for pid, name in self._members()}
        for pid, role in (roles | {self._broker.pid: "broker"}).items():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                times = process.cpu_times()
                spent_s = times.user + times.system
                if role == "Python":  # workers that have ended are their daemon's children
                    spent_s += times.children_user + times.children_system
                self._cpu_s[role, pid, process.create_time()] = spent_s

    def _cpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for (role, _, _), spent_s in self._cpu_s.items():
            found[role] = round(found.get(role, 0.0) + spent_s, 1)
        return found


@dataclass
class _Watch:
    """Waits for the job, with kills and lines of progress on the way."""

    run: LongRun
    feed: Feed
    reader: LiveReader
    meter: Meter
    began_s: float
    tell_every_s: float
    behind_s_max: float = 0.0
    _moved_s: float = field(default_factory=time.monotonic)
    _rows: int = 0
    _told: int = 0

    def until_fed(self) -> None:
        """Wait until all rows are in the input, and the kills are done."""
        while not self.feed.is_through or self.run.is_to_strike:
            self._step()

    def until_through(self) -> None:
        """Wait for all rows and all totals, which need the watermark to move on."""
        expected = len(self.run.totals())
        step, closed_s = 0, -CLOSING_EVERY_S
        while self._rows < self.feed.count or self._missing_totals(expected):
            self._step()
            now_s = time.monotonic()
            if self._rows == self.feed.count and now_s - closed_s > CLOSING_EVERY_S:
                step, closed_s = step + 1, now_s
                self.feed.send(list(self.run.years.closing(self.feed.count, step)))

    def _missing_totals(self, expected: int) -> bool:
        return len(self.reader.reading.totals) < expected

    def _step(self) -> None:
        time.sleep(POLL_S)
        for failure in (self.feed.failure, self.reader.failure, self.meter.failure):
            if failure is not None:
                raise failure
        at_s = time.monotonic() - self.began_s
        self.run.strike_if_due(at_s)
        self.run.restart_if_ended()
        self._look()
        if at_s >= self._told * self.tell_every_s:
            self._told += 1
            self._tell(at_s)

    def _look(self) -> None:
        rows, now_s = self.reader.reading.rows, time.monotonic()
        due = self.feed.sent - rows
        self.behind_s_max = max(self.behind_s_max, due / self.run.per_second)
        if rows > self._rows or not due:
            self._moved_s = now_s
            self.run.note_progress()
        self._rows = rows
        if now_s - self._moved_s > STANDS_STILL_S:
            raise HangError(
                f"no new row for {STANDS_STILL_S:.0f} s, {due:,} are due:\n{self.run.tail()}"
            )

    def _tell(self, at_s: float) -> None:
        reading = self.reader.reading
        kills = ", ".join(f"{n} {who}" for who, n in sorted(self.run.struck.items())) or "none"
        memory = ", ".join(f"{role} {mib:.0f} MiB" for role, mib in self.meter.newest().items())
        self.run.tell(
            f"{int(at_s) // 60:3}:{int(at_s) % 60:02}  {self.feed.sent:,} sent, {reading.rows:,} "
            f"out, {len(reading.totals):,} totals, {len(reading.repeated)} repeated; killed: "
            f"{kills}; {memory}"
        )
