"""One run: a client lives, its broker is stopped, starts again, and is judged."""

import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NoReturn

from harnesses.stops import life
from harnesses.stops.sure import LOSSES, PowerLoss, lose_power, some_of
from harnesses.stops.tracer import Boundary, Report, TracePlan
from harnesses.stops.tracer import run as trace
from support.brokers import BrokerProcess
from support.wire_producer import WireProducer
from txn.inspect.verify import verify

SOME: Final = "some"
FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["txn.cli", "txn.server.lifecycle.serve", "harnesses.stops.run"])
END_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings that do not change from run to run."""

    version: int
    """The version of transactions, as the client knows them."""
    durability: str
    program: tuple[str, ...] = ("txn",)
    """The module to run, and the arguments before `serve`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The place and the kind of a broker's stop."""

    boundary: Boundary
    half: bool = False
    """True if a write has its first half before."""
    loss: str | None = None
    """Loss of a power failure, one of `LOSSES` or `SOME`; None is a crash of the process."""
    draw: int = 0
    """Seed of `SOME`: every number takes another part."""
    then: "Stop | None" = None
    """Where the broker that starts after this stop stops too; see `StopRun.begin_again`."""

    @property
    def loses_power(self) -> bool:
        return self.loss is not None or (self.then is not None and self.then.loses_power)

    def __str__(self) -> str:
        draw = f" {self.draw}" if self.loss == SOME else ""
        what = "crash" if self.loss is None else f"power fails, loss of {self.loss}{draw}"
        here = f"{what} {'half-way through' if self.half else 'before'} {self.boundary}"
        return f"{here}; started again, {self.then}" if self.then else here


def loss_of(stop: Stop) -> PowerLoss:
    """The loss of the stop: the same in every run."""
    if stop.loss == SOME:
        return some_of(random.Random(str(stop)))
    assert stop.loss is not None
    return LOSSES[stop.loss]


class TracedBroker:
    """`txn serve` under the tracer, in a process forked from one that has loaded it already."""

    def __init__(self, plan: TracePlan, setting: Setting) -> None:
        log = Path(plan.directory).with_suffix(".log")
        output, theirs = FORKS.Pipe(duplex=False)
        options = ("--listen", "127.0.0.1:0", "--durability", setting.durability)
        arguments = (*setting.program[1:], "serve", "--data", plan.directory, *options)
        self._process = FORKS.Process(
            target=_serve, args=(plan, setting.program[0], arguments, theirs, log), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self._handle = os.pidfd_open(self._process.pid)
        theirs.close()
        with open(output.fileno(), closefd=False) as lines:
            line = lines.readline()
        output.close()
        self.is_listening = line.startswith("listening on ")
        self._told, self._log = line, log

    @property
    def bootstrap_servers(self) -> str:
        assert self.is_listening, f"no broker: {self._told!r}\n{self._log.read_text()[-2000:]}"
        return self._told.split()[-1]

    def end(self, number: signal.Signals) -> int:
        """Send a signal, wait until it has ended, and return its exit code.

        It dies of SIGUSR1 as it would of SIGKILL, but its end is reported.
        """
        with suppress(ProcessLookupError):  # it may have been stopped
            signal.pidfd_send_signal(self._handle, number)
        os.close(self._handle)
        self._process.join(END_S)
        assert self._process.exitcode is not None, "the broker does not end"
        return self._process.exitcode


def _serve(
    plan: TracePlan, module: str, arguments: Sequence[str], output: Connection, log: Path
) -> NoReturn:
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    trace(plan, module, arguments, output.fileno(), errors)


class StopRun:
    """Brokers, one after the other, on a copy of a prepared directory."""

    def __init__(self, prepared: Path, work: Path, setting: Setting) -> None:
        work.mkdir()
        self.data = work / "data"
        shutil.copytree(prepared, self.data)
        self._setting = setting
        self._armed, self._report = work / "armed", work / "report"
        self._is_sure = True
        """True if all of the directory is on the disk."""

    def start(self, stop: Stop | None = None) -> TracedBroker:
        directory, armed, report = map(str, (self.data, self._armed, self._report))
        boundary, half = (stop.boundary, stop.half) if stop is not None else (None, False)
        plan = TracePlan(directory, armed, report, self._is_sure, boundary, half)
        self._is_sure = False
        return TracedBroker(plan, self._setting)

    def live(
        self, stop: Stop | None = None, end: signal.Signals = signal.SIGTERM
    ) -> tuple[life.ToldAnswers, Report]:
        """Have the client live, and the broker end: where it has to stop, or of a signal."""
        broker = self.start(stop)
        self._armed.touch()
        told = life.die_alone(broker.bootstrap_servers, self._setting.version)
        broker.end(end)
        self._armed.unlink()
        return told, self.report()

    def begin_again(self, after: Stop, stop: Stop | None) -> Report:
        """Start after a stop, and have the client begin again: until a stop, or that is done."""
        self._lose(after)
        self._armed.touch()
        broker = self.start(stop)
        if broker.is_listening:
            life.begin_alone(broker.bootstrap_servers, self._setting.version)
        broker.end(signal.SIGUSR1)
        self._armed.unlink()
        report = self.report()
        if not report.stopped:
            assert broker.bootstrap_servers
        return report

    def _lose(self, stop: Stop) -> None:
        if stop.loss is not None:
            lose_power(self.data, self.report().sure, loss_of(stop))
            self._is_sure = True

    def report(self) -> Report:
        return Report.read(self._report)

    def recover(self, told: life.ToldAnswers, stop: Stop) -> None:
        """Start again after the stop, judge, and stop twice more: at once, and in order."""
        version, is_crash = self._setting.version, not stop.loses_power
        if stop.then is not None:
            self.begin_again(stop, stop.then)
        self._lose(stop.then or stop)
        if self._setting.durability == "process" and not is_crash:
            broker = self.start()
            life.go_on(broker.bootstrap_servers, version)
            assert broker.end(signal.SIGTERM) == 0
            return
        broker = self.start()
        view = life.come_back(broker.bootstrap_servers, version, told, keeps_answered=is_crash)
        broker.end(signal.SIGUSR1)
        if stop.loses_power:
            self._lose(replace(stop, loss="all"))
        broker = self.start()
        with WireProducer(broker.bootstrap_servers) as wire:
            again = life.look(wire)
        assert broker.end(signal.SIGTERM) == 0
        assert life.judge(again, told, keeps_answered=is_crash) == told.committed
        assert again == view or not is_crash, f"P8: another start shows {again}, not {view}"
        found = verify(self.data)
        assert not found.findings, found.findings


class PreparedDirectory:
    """A directory that knows the topics and was left in order, and the runs that begin with it."""

    def __init__(self, work: Path, setting: Setting) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._work, self._setting = work, setting
        self._prepared = work / "prepared"
        self._runs = 0
        broker = BrokerProcess(self._prepared, durability=setting.durability)
        life.prepare(broker.bootstrap_servers)
        assert broker.stop() == 0

    def boundaries(self, end: signal.Signals = signal.SIGTERM) -> list[Boundary]:
        """Every boundary of a life after which a signal ends the broker."""
        told, report = self._run().live(end=end)
        assert told.committed == [2, 3]
        return report.boundaries

    def boundaries_after(self, stop: Stop) -> list[Boundary]:
        """Every boundary of the start after a stop; none if it was not met."""
        run = self._run()
        _, report = run.live(stop)
        return run.begin_again(stop, None).boundaries if report.stopped else []

    def stop_at(self, stop: Stop) -> bool:
        """Stop there, recover and judge; return whether the boundary was met.

        Raises:
            AssertionError: a promise is broken. The directory is left.
        """
        run = self._run()
        told, report = run.live(stop)
        if report.stopped:
            run.recover(told, stop)
        shutil.rmtree(run.data.parent)
        return report.stopped

    def stop_at_each(self, stops: Sequence[Stop]) -> tuple[list[str], list[Stop]]:
        """Make a run for each stop; return the broken promises, and the stops that were not met."""
        broken, unmet = [], []
        for stop in stops:
            try:
                if not self.stop_at(stop):
                    unmet.append(stop)
            except AssertionError as error:
                broken.append(f"{stop}: {error}")
        return broken, unmet

    def _run(self) -> StopRun:
        self._runs += 1
        return StopRun(self._prepared, self._work / f"run-{self._runs}", self._setting)
