"""Runs a function of a test again and again, each run in a process of its own.

`python -m txn.testing.program_host FD` loads the function's module once and forks for each run. It
has one thread and no client, so a fork is safe here; in the test's process it would not be.

Requests are lines of JSON over the socket FD: the first names the function, the others are runs.
Answers are lines too: `{"pid": …}` for each run, `{"pid": …, "code": …}` at its end. When the
socket closes, the runs are killed.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

IN_HOST: Final = "TXN_TESTING_PROGRAM_HOST"
"""Set in the environment of runs and of this process."""

TAKE_BYTES: Final = 65536


def main(descriptor: int) -> None:
    """Serve runs until the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which closes the socket
    with socket.socket(fileno=descriptor) as channel:
        lines = channel.makefile("r")
        named = json.loads(lines.readline())
        try:
            function = load(named)
        except BaseException:
            _send_line(channel, {"error": traceback.format_exc()})
            return
        _send_line(channel, {"loaded": True})
        _serve(channel, function, named["arguments"])


def load(named: dict[str, Any]) -> Callable[..., object]:
    """Load a function by its module, or by the module's file."""
    sys.path[:] = named["sys_path"]
    found: Any = None
    if named["module"] != "__main__":
        with contextlib.suppress(ImportError):
            module = importlib.import_module(named["module"])
            if os.path.realpath(module.__file__ or "") == os.path.realpath(named["file"]):
                found = module
    if found is None:
        name = "_txn_testing_program"
        spec = importlib.util.spec_from_file_location(name, named["file"])
        assert spec is not None, f"{named['file']} is no Python file"
        assert spec.loader is not None, f"{named['file']} is no Python file"
        found = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    for part in named["function"].split("."):
        found = getattr(found, part)
    function: Callable[..., object] = getattr(found, "__wrapped__", found)
    return function


def _serve(channel: socket.socket, function: Callable[..., object], count: int) -> None:
    ended, end = socket.socketpair()
    for each in (ended, end):
        each.setblocking(False)
    signal.set_wakeup_fd(end.fileno())
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    running: set[int] = set()
    buffer = b""
    poll = select.poll()  # `select` takes no descriptor above 1023, and the caller may have more
    for each in (channel, ended):
        poll.register(each, select.POLLIN)
    try:
        while True:
            readable = {descriptor for descriptor, _ in poll.poll()}
            if ended.fileno() in readable:
                with contextlib.suppress(BlockingIOError):
                    ended.recv(TAKE_BYTES)
                _reap(channel, running)
            if channel.fileno() in readable:
                received = channel.recv(TAKE_BYTES)
                if not received:
                    return
                *lines, buffer = (buffer + received).split(b"\n")
                for line in lines:
                    pid = _fork(function, count, json.loads(line), (channel, ended, end))
                    running.add(pid)
                    _send_line(channel, {"pid": pid})
    finally:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _reap(channel: socket.socket, running: set[int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        running.discard(pid)
        _send_line(channel, {"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _fork(
    function: Callable[..., object],
    count: int,
    run: dict[str, Any],
    inherited: tuple[socket.socket, ...],
) -> int:
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # here too: it may be killed at once
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for each in inherited:
            each.close()
        log = os.open(run["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(run["environment"])
        function(*[run["servers"], run["directory"]][:count])
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _send_line(channel: socket.socket, told: dict[str, object]) -> None:
    channel.sendall(json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
