"""The program under test of `crash_everywhere`: a function or a command, run in processes.

A run is killed with everything that it started: each has a process group of its own.
"""

import contextlib
import inspect
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from txn.errors import RejectedError, TxnError
from txn.testing.program_host import IN_HOST

STOP_S: Final = 2.0
"""Time between SIGTERM and SIGKILL at the end of a run that goes on for ever."""

PYTHONS: Final = ("python", "python3")
"""Names for the Python of the test itself, with its packages: not for the first on the PATH."""

LOAD_S: Final = 60.0
POLL_S: Final = 0.01


class Run(ABC):
    """One run of the program."""

    pid: int

    @abstractmethod
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def kill(self) -> None:
        """SIGKILL for it and its children; returns when it has ended."""
        self._signal(signal.SIGKILL)
        self.wait(LOAD_S)

    def pause(self) -> None:
        """Stop it where it is, as a long garbage collection or a suspended machine does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the run."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it: SIGTERM, then SIGKILL."""
        self._signal(signal.SIGTERM)
        if not self.wait(STOP_S):
            self.kill()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False after some seconds."""
        ends_s = time.monotonic() + seconds
        while self.code() is None:
            if time.monotonic() > ends_s:
                return False
            time.sleep(POLL_S)
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self.code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class Program(ABC):
    """Starts runs."""

    @abstractmethod
    def start(self, servers: str, directory: Path, log: Path) -> Run:
        """Start a run; its output goes behind the contents of `log`."""

    @abstractmethod
    def close(self) -> None:
        """Start no more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def program_of(app: Callable[..., object] | Sequence[str] | str) -> Program:
    """The program of a function or of a command. Raises RejectedError: it is neither."""
    if os.environ.get(IN_HOST):
        raise RejectedError(
            "crash_everywhere was called while its own program was loaded. Put the call behind "
            'if __name__ == "__main__":, or into a test function'
        )
    if callable(app):
        return FunctionProgram(app)
    words = app.split() if isinstance(app, str) else [str(word) for word in app]
    if not words:
        raise RejectedError("the command is empty: give a function or [program, argument, …]")
    return CommandProgram(words)


def environment(servers: str, directory: Path) -> dict[str, str]:
    """The variables that each run gets."""
    return {"BOOTSTRAP_SERVERS": servers, "RUN_DIRECTORY": str(directory), "PYTHONUNBUFFERED": "1"}


# ---------------------------------------------------------------- commands


class CommandRun(Run):
    """A run of a command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def code(self) -> int | None:
        """See `Run`."""
        return self._process.poll()


class CommandProgram(Program):
    """A command; `{servers}` and `{directory}` in its words are replaced.

    `python` is the Python that runs the test.
    """

    def __init__(self, words: Sequence[str]) -> None:
        name, *rest = words
        self._words = [sys.executable if name in PYTHONS else name, *rest]

    def start(self, servers: str, directory: Path, log: Path) -> Run:
        """See `Program`."""
        words = [
            word.replace("{servers}", servers).replace("{directory}", str(directory))
            for word in self._words
        ]
        with log.open("ab") as output:
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **environment(servers, directory)},
                    start_new_session=True,
                )
            except OSError as error:
                raise RejectedError(
                    f"cannot run {words[0]!r}: {error.strerror}. Give a program on the PATH, or "
                    "sys.executable and a script"
                ) from error
        return CommandRun(process)

    def close(self) -> None:
        """See `Program`."""


# ---------------------------------------------------------------- functions


class FunctionRun(Run):
    """A run of a function, in a fork of the host."""

    def __init__(self, pid: int, codes: dict[int, int]) -> None:
        self.pid = pid
        self._codes = codes

    def code(self) -> int | None:
        """See `Run`."""
        return self._codes.get(self.pid)


class FunctionProgram(Program):
    """A function at the top level of a module, called with servers, and with a directory if it has
    a second parameter.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        named = _named(function)
        ours, theirs = socket.socketpair()
        with theirs:
            self._host = subprocess.Popen(
                [sys.executable, "-m", "txn.testing.program_host", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, IN_HOST: "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self._channel = ours
        self._codes: dict[int, int] = {}
        self._running: set[int] = set()
        self._started: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="txn-program", daemon=True)
        self._reader.start()
        try:
            answer = self._ask(named)
            if "error" in answer:
                raise RejectedError(
                    f"the module of {function.__qualname__} cannot be loaded in a process of its "
                    f"own:\n{answer['error']}"
                )
        except BaseException:
            self.close()
            raise

    def start(self, servers: str, directory: Path, log: Path) -> Run:
        """See `Program`."""
        answer = self._ask(
            {
                "servers": servers,
                "directory": str(directory),
                "log": str(log),
                "environment": environment(servers, directory),
            }
        )
        return FunctionRun(answer["pid"], self._codes)

    def close(self) -> None:
        """See `Program`."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._channel.close()
        self._host.wait()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._channel.sendall(json.dumps(request).encode() + b"\n")
            try:
                answer = self._started.get(timeout=LOAD_S)
            except queue.Empty:
                raise TxnError(f"the program's host did not answer in {LOAD_S:g} s") from None
        if "gone" in answer:
            self._started.put(answer)  # for the next one that asks
            raise TxnError(
                "the process that starts the program's runs was killed. Run the test again"
            )
        return answer

    def _read(self) -> None:
        with self._channel.makefile("r") as lines, contextlib.suppress(OSError):
            for line in lines:
                told = json.loads(line)
                if "code" in told:
                    self._codes[told["pid"]] = told["code"]
                else:
                    if "pid" in told:
                        self._running.add(told["pid"])
                    self._started.put(told)
        self._started.put({"gone": True})
        for pid in self._running - set(self._codes):  # the host was killed
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self._codes[pid] = -signal.SIGKILL


def _named(function: Callable[..., object]) -> dict[str, Any]:
    """The place of a function. Raises RejectedError: another process cannot find it."""
    name = getattr(function, "__qualname__", "")
    file = getattr(inspect.getmodule(function), "__file__", None)
    if not name or "<" in name or file is None:
        raise RejectedError(
            f"{name or function!r} cannot be run in a process of its own, where it is killed. "
            "Give a function at the top level of a module, or a command"
        )
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if not 1 <= len(required) <= 2:
        raise RejectedError(
            f"{name} takes {len(required)} arguments; give a function of one, the bootstrap "
            "servers, or of two, with a directory for its files"
        )
    return {
        "module": function.__module__,
        "file": str(Path(file).resolve()),
        "function": name,
        "arguments": len(required),
        "sys_path": list(sys.path),
    }
