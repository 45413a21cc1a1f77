"""A plugin of pytest: the time of each test file, on the clock and in seconds of CPU.

    pytest --file-times …     prints a table of folders, and writes `target/test-times.json`

A file's CPU time covers its process and all processes below it, running ones too. So each file
that a JVM serves gets a part of that JVM's time. A process whose parent dies first leaves the
count.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

WRITTEN: Final = Path(__file__).resolve().parents[2] / "target" / "test-times.json"
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of those below it, in seconds; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    ticks = sum(map(int, stat.rpartition(")")[2].split()[11:15]))  # its own, and ended children's
    return ticks / TICKS_PER_S + sum(map(cpu_seconds, _children(pid)))


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, task.read_text().split())
        except OSError:  # the thread has just ended
            continue


class FileTimes:
    """Keeps each file's number of tests, wall seconds and CPU seconds."""

    def __init__(self) -> None:
        self.files: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        self._cpu = cpu_seconds(os.getpid())

    def pytest_collection_finish(self) -> None:
        self._count_cpu("collection")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        began = time.monotonic()
        result = yield
        file = item.nodeid.partition("::")[0]
        self._add(file, 1, time.monotonic() - began, 0)
        if nextitem is None or nextitem.path != item.path:  # the processes are read once a file
            self._count_cpu(file)
        return result

    def begin(self) -> None:
        """Count from here, in a process of its own."""
        self.files.clear()
        self._cpu = cpu_seconds(os.getpid())

    def merge(self, files: Mapping[str, Sequence[float]]) -> None:
        """Add what another process has counted."""
        for file, times in files.items():
            self._add(file, *times)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        kinds: defaultdict[str, list[list[float]]] = defaultdict(list)
        for file, times in self.files.items():
            kinds["/".join(file.split("/")[:2])].append(times)
            kinds["all"].append(times)
        terminalreporter.section("times")
        terminalreporter.write_line(f"{'tests':>6} {'wall s':>7} {'CPU s':>7}")
        for kind, files in sorted(kinds.items()):
            tests, wall, cpu = map(sum, zip(*files, strict=True))
            terminalreporter.write_line(f"{tests:6} {wall:7.0f} {cpu:7.0f}  {kind}")
        WRITTEN.parent.mkdir(exist_ok=True)
        names = ("tests", "wall_s", "cpu_s")
        longest = sorted(self.files.items(), key=lambda entry: -entry[1][1])
        table = {file: dict(zip(names, times, strict=True)) for file, times in longest}
        WRITTEN.write_text(json.dumps(table, indent=1) + "\n")

    def _count_cpu(self, file: str) -> None:
        before, self._cpu = self._cpu, cpu_seconds(os.getpid())
        self._add(file, 0, 0, self._cpu - before)

    def _add(self, file: str, *times: float) -> None:
        self.files[file] = [a + b for a, b in zip(self.files[file], times, strict=True)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--file-times`."""
    parser.addoption("--file-times", action="store_true", help="print the time of each folder")


def pytest_configure(config: pytest.Config) -> None:
    """Measure if the option is given."""
    if config.getoption("file_times"):
        config.pluginmanager.register(FileTimes(), "file-times")
