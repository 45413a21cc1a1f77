"""A plugin of pytest: each test file runs in a process of its own, some at a time.

    pytest --processes 3 …

One process collects the tests. It forks a process for a file, which runs the file's tests and
ends. So the threads, memory and processes that a test leaves behind end with its file and cost no
later test anything, and a file that crashes its process costs no other file anything. Files below
one of `FAMILIES` share costly fixtures of the session, so a process runs several of them.

A process sends tuples to its parent, over a pipe:

| message | meaning |
|---|---|
| `("start",)` | it begins its next test |
| `("report", data)` | a phase of that test ended |
| `("next",)` | one test is left; the answer is a file and the number of its last tests, or None |
| `("done", times)` | it has run all, and closed the fixtures; `times` is for `file_times` |
| `("broke", text)` | pytest itself raised, outside any test |
"""

import os
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from _pytest.config import create_terminal_writer

from support.file_times import FileTimes

FAMILIES: Final[Mapping[str, int]] = {
    "tests/spark/": 2,
    "tests/differential/": 1,
    "tests/api/sql/": 1,
}
"""Folders whose files share a Spark session, a pair of brokers or a database server, with the
processes that may do so at a time."""
END_SECONDS_MAX: Final = 20.0
"""Time that processes have to close their fixtures once the run is stopped."""

Files = dict[str, list[pytest.Item]]


@dataclass(slots=True)
class Process:
    """A forked process, as its parent sees it."""

    pid: int
    connection: Connection
    family: str
    left: list[pytest.Item]
    """Tests that it has not begun."""
    running: pytest.Item | None = None
    done: bool = False
    broke: str = ""


class Parent:
    """Hands out files, and passes reports on to the plugins of pytest."""

    def __init__(self, config: pytest.Config, count: int) -> None:
        self._config = config
        self._hook = config.hook
        self._count = count
        self._files: Files = {}
        """Files that nobody has begun, in the order of their tests."""
        self._processes: list[Process] = []
        self._forks = 0
        self._unreported: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests, in place of pytest's own loop."""
        if session.config.option.collectonly or session.testsfailed:
            return None  # pytest's loop lists the tests, or reports the errors of the collection
        self._files = _by_file(session.items)
        self._unreported = {item.nodeid for item in session.items}
        if reporter := self._config.pluginmanager.getplugin("terminalreporter"):
            reporter.showfspath = False  # files take turns
        _base_of_tmp_path(self._config)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            self._run(session)
        finally:
            self._stop()
            signal.signal(signal.SIGTERM, before)
        if self._unreported:
            raise pytest.UsageError(f"no result of {', '.join(sorted(self._unreported)[:9])}")
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._unreported.discard(report.nodeid)

    def _run(self, session: pytest.Session) -> None:
        while True:
            while len(self._processes) < self._count and (file := self._next_file()):
                self._fork(session, file)
            if not self._processes:
                return
            ready = wait([process.connection for process in self._processes])
            for process in [each for each in self._processes if each.connection in ready]:
                self._receive(process)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)

    def _next_file(self) -> str | None:
        """The first file whose family may have another process."""
        running = [process.family for process in self._processes]
        for file in self._files:
            family = family_of(file)
            if running.count(family) < FAMILIES.get(family, 1):
                return file
        return None

    def _fork(self, session: pytest.Session, file: str) -> None:
        items = self._files.pop(file)
        ours, theirs = Pipe()
        self._forks += 1
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *(process.connection for process in self._processes)):
                connection.close()
            _be_child(session, theirs, items, name=f"{self._forks}")
        theirs.close()
        self._processes.append(Process(pid, ours, family_of(file), items))

    def _receive(self, process: Process) -> None:
        try:
            kind, *content = process.connection.recv()
        except (EOFError, OSError):  # also in the middle of a message
            self._processes.remove(process)
            self._bury(process)
            return
        if kind == "start":
            item = process.running = process.left.pop(0)
            self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif kind == "report":
            report = self._hook.pytest_report_from_serializable(
                config=self._config, data=content[0]
            )
            self._hook.pytest_runtest_logreport(report=report)
        elif kind == "next":
            file = next((f for f in self._files if family_of(f) == process.family), None)
            more = self._files.pop(file) if file else []
            process.left += more
            with suppress(OSError):  # it has died: `_bury` hands them out again
                process.connection.send((file, len(more)) if file else None)
        elif kind == "broke":
            process.broke = content[0]
        else:
            process.done = True
            if times := _times(self._config):
                times.merge(content[0])

    def _bury(self, process: Process) -> None:
        """A process has ended. If it crashed, report so, and hand out its other tests again."""
        process.connection.close()
        _, status = os.waitpid(process.pid, 0)
        _end_leftovers(process)
        if process.done:
            return
        code = os.waitstatus_to_exitcode(status)
        item = process.running or process.left.pop(0)
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"the process ended with exit code {code} while it ran {item.nodeid}\n"
            + process.broke,
            when="call",
        )
        self._hook.pytest_runtest_logreport(report=report)
        self._files |= _by_file(process.left)

    def _stop(self) -> None:
        """Stop what runs still, as Ctrl-C does, so that it closes its fixtures."""
        for process in self._processes:
            process.connection.close()  # nobody reads its reports any more
            os.kill(process.pid, signal.SIGINT)
        ends_s = time.monotonic() + END_SECONDS_MAX
        for process in self._processes:
            while os.waitpid(process.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > ends_s:
                    os.kill(process.pid, signal.SIGKILL)
                time.sleep(0.05)
            _end_leftovers(process)


class Child:
    """Runs the tests of files in a forked process, and sends their reports."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self._session = session
        self._config = session.config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    def run(self, items: list[pytest.Item]) -> None:
        """Run tests, and those of the files that the parent hands out, until there is none."""
        for item, following in self._in_turn(items):
            self._connection.send(("start",))
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        times = _times(self._config)
        self._connection.send(("done", dict(times.files) if times else {}))

    def _in_turn(
        self, items: list[pytest.Item]
    ) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        """Each test with the one behind it, for which pytest keeps fixtures open."""
        yield from pairwise(items)
        self._connection.send(("next",))
        answer = self._connection.recv()
        if answer is None:
            yield items[-1], None
            return
        file, count = answer
        more = _by_file(self._session.items)[file][-count:]  # the others ran before a crash
        yield items[-1], more[0]
        yield from self._in_turn(more)


def _end_leftovers(process: Process) -> None:
    """End what the tests of a process that has ended have left behind in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def family_of(file: str) -> str:
    """Return the folder of a file if files share processes there, else the file itself."""
    return next((folder for folder in FAMILIES if file.startswith(folder)), file)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--processes`."""
    help_text = "run files in processes of their own, this many at a time"
    parser.addoption("--processes", type=int, default=0, help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    """Fork if the option is given."""
    count = config.getoption("processes")
    if count < 0:
        raise pytest.UsageError(f"--processes is {count}: it is a number of processes, or 0")
    if count:
        config.pluginmanager.register(Parent(config, count), "processes")


def _be_child(
    session: pytest.Session, connection: Connection, items: list[pytest.Item], name: str
) -> NoReturn:
    """Run tests in this forked process, and end it."""
    plugins = session.config.pluginmanager
    code = 1
    os.setpgid(0, 0)  # Ctrl-C at a terminal is for the parent, and its end takes all it has left
    os.register_at_fork(after_in_child=connection.close)  # a fork of a test is no such process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _have_own_output(session.config, name)
        child = Child(session, connection)
        plugins.register(child, "child")
        child.run(items)
        code = 0
    except BaseException:
        signal.signal(signal.SIGINT, lambda *_: None)  # one is enough
        with suppress(OSError):
            connection.send(("broke", traceback.format_exc()))
        session._setupstate.teardown_exact(None)
    finally:
        os._exit(code)  # a thread that a test left behind keeps no process alive


def _have_own_output(config: pytest.Config, name: str) -> None:
    """Print nothing of pytest's, and have files of one's own for what tests print and write."""
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    # pytest-timeout writes the stacks of all threads by it.
    config.get_terminal_writer = lambda: create_terminal_writer(config)  # type: ignore[method-assign]
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    base = _base_of_tmp_path(config) / name
    base.mkdir(mode=0o700)
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = base
    if times := _times(config):
        times.begin()


def _base_of_tmp_path(config: pytest.Config) -> Path:
    base: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return base


def _times(config: pytest.Config) -> FileTimes | None:
    plugin: FileTimes | None = config.pluginmanager.getplugin("file-times")
    return plugin


def _by_file(items: list[pytest.Item]) -> Files:
    files: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    return dict(files)
