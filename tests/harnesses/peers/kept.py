"""A plugin of pytest: peers that all processes of a test run share.

The first test that asks for a peer starts its keeper, a process that runs the peer until the test
run is over. A run consists of processes that come and go, so none of them can be the keeper.
"""

import atexit
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harnesses.peers.jars import PeerUnavailableError


@dataclass(frozen=True, slots=True)
class Run:
    """What the processes of a run share."""

    directory: Path
    """A folder for each peer."""
    over: int
    """The end of a pipe that keepers read: end-of-file when the last process of the run ends."""
    lifeline: int
    """The other end, open in each process of the run and in no other."""


_run: Run | None = None


def pytest_configure() -> None:
    """Prepare, before the run forks its processes."""
    global _run
    directory = Path(tempfile.mkdtemp(prefix="txn-peers-"))
    atexit.register(_remove_if_empty, directory)
    _run = Run(directory, *os.pipe())
    os.register_at_fork(after_in_child=partial(_leave_unless_below, os.getpid()))


def pytest_unconfigure() -> None:
    """End the keepers: a second run in this program has its own."""
    global _run
    if _run is not None:
        os.close(_run.lifeline)
        os.close(_run.over)
        _run = None


def _leave_unless_below(main: int) -> None:
    """Close the lifeline in a process that a test has forked: it may outlive the run."""
    if _run is not None and os.getppid() != main:
        os.close(_run.lifeline)


def kept(peer: str, module: str) -> tuple[Path, Mapping[str, str]]:
    """Return the directory of a peer and its servers by name, once it serves.

    Args:
        peer: Its name in this run.
        module: Runs it: `python -m MODULE DIRECTORY OVER LOCK` is the keeper, which calls `keep`.

    Raises:
        PeerUnavailableError: It does not start.
    """
    assert _run is not None, "the plugin is not configured"
    directory = _run.directory / peer
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process starts it, others wait
        if not _servers(directory).exists():
            _start_keeper(directory, module, _run.over, lock.fileno())
        servers: dict[str, str] = json.loads(_servers(directory).read_text())
    return directory, servers


def keep(directory: Path, servers: Mapping[str, str]) -> None:
    """In a keeper: write down the servers of the peer, and return when the run is over."""
    written = directory / "servers.tmp"
    written.write_text(json.dumps(dict(servers)))
    written.rename(_servers(directory))
    os.close(int(sys.argv[3]))  # who was interrupted in its start let the next one wait
    os.close(sys.stdout.fileno())  # the test that waits goes on
    os.read(int(sys.argv[2]), 1)


def remove(directory: Path) -> None:
    """In a keeper: remove the directory of a peer that has stopped."""
    shutil.rmtree(directory, ignore_errors=True)
    _remove_if_empty(directory.parent)


def _start_keeper(directory: Path, module: str, over: int, lock: int) -> None:
    output = directory / "keeper.log"
    with output.open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", module, str(directory), str(over), str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[over, lock],
            start_new_session=True,  # Ctrl-C ends the run, and so the keeper
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert keeper.stdout is not None
    with keeper.stdout as ready:
        ready.read()
    if not _servers(directory).exists():
        raise PeerUnavailableError(output.read_text(errors="replace"))
    keeper.returncode = 0  # it outlives this process, which need not wait for it


def _servers(directory: Path) -> Path:
    return directory / "servers.json"


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()
