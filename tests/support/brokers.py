"""Brokers as processes, for tests that kill them."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

START_S = 30.0
TESTS = Path(__file__).parents[1]


UNBUFFERED: Final = "PYTHONUNBUFFERED"
"""Where it is set, a failed write to stderr leaves nothing behind; users rarely set it."""


def environment() -> dict[str, str]:
    """The environment of processes that run modules of the tests by name, with `python -m`."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class BrokerProcess:
    """`txn serve` on a directory; keeps its port over restarts."""

    def __init__(
        self,
        data: Path,
        *options: str,
        durability: str = "process",
        program: Sequence[str] = ("-m", "txn"),
        descriptors: int | None = None,
        python: Path = Path(sys.executable),
        listeners: Mapping[str, int] | None = None,
    ) -> None:
        """Start it.

        `descriptors`: hard limit of open files, for the process's whole life. `listeners`: ports by
        name, the first one's server is `bootstrap_servers`.
        """
        self.data = data
        self._listeners = listeners or {}
        self._program = program
        self._options = options
        self._durability = durability
        self._descriptors = descriptors
        self._python = python
        self.port = 0
        self._start()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def servers(self) -> dict[str, str]:
        """Bootstrap servers by the name of the listener, of those that were given."""
        return {name: f"127.0.0.1:{port}" for name, port in self._listeners.items()}

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def memory_peak(self) -> int:
        """The most memory that it has had, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def await_end(self, seconds: float) -> None:
        """Wait for it to end by itself; kill it if it does not."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        self._start()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for it to end by itself; return the exit code."""
        return self._process.wait(timeout=START_S)

    def limit_files(self, size: int = resource.RLIM_INFINITY) -> None:
        """Let no file grow beyond a size: writes behind it fail, as on a disk that is full."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def open_descriptors(self) -> int:
        """Number of files, sockets and pipes it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def _limit_descriptors(self) -> None:
        assert self._descriptors is not None
        soft = min(256, self._descriptors)  # the broker raises it
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, self._descriptors))

    def _command(self) -> list[str]:
        named = ",".join(f"{name}://{server}" for name, server in self.servers.items())
        where = ("-o", f"listeners={named}") if named else ("--listen", f"127.0.0.1:{self.port}")
        return [
            *(str(self._python), *self._program, "serve", "--data", str(self.data)),
            *(*where, "--durability", self._durability),
            *(word for option in self._options for word in ("-o", option)),
        ]

    def _start(self) -> None:
        log = self.data.with_suffix(".log").open("ab")
        self._process = subprocess.Popen(
            self._command(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={name: value for name, value in environment().items() if name != UNBUFFERED},
            preexec_fn=self._limit_descriptors if self._descriptors else None,
        )
        log.close()
        assert self._process.stdout is not None
        with self._process.stdout as output:
            line = output.readline()
        if not line.startswith("listening on "):
            self.kill()
        assert line.startswith("listening on "), (
            f"no broker: {line!r}\n{self.data.with_suffix('.log').read_text()[-2000:]}"
        )
        self.port = int(line.rpartition(":")[2])
