"""Runs a program under ptrace, and stops it at one of its changes to the files of a directory.

The program itself is not changed. A library that comes before libc (LD_PRELOAD) would not do:
`rustix` asks the kernel without it, so it would miss every fdatasync.

A filter of the kernel (seccomp) stops the program at system calls that can change a file, and at no
others. So it is hardly slower. Each of those on a file of the directory is written down before it
begins. The one that the plan names does not begin, or only with the first half of its bytes. Then
every thread of the program is killed (SIGKILL), and its written data stays, as the kernel keeps it.
`Sure` notes synced data meanwhile: the contents of a file when the sync began, once it has
returned.
"""

import ctypes
import json
import os
import platform
import re
import runpy
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Self

from harnesses.stops.sure import Sure, SureState

# ---------------------------------------------------------------- system calls of Linux on x86_64

MACHINE: Final = "x86_64"
AUDIT_ARCH: Final = 0xC000003E
BY_DESCRIPTOR: Final = {
    1: "write",
    18: "pwrite",
    20: "writev",
    296: "pwritev",
    328: "pwritev2",
    77: "truncate",
    285: "fallocate",
    74: "sync",
    75: "sync",
    91: "chmod",
    93: "chown",
    190: "setxattr",
}
"""The file is the first argument, an open one."""
INTO_DESCRIPTOR: Final = {326: ("copy", 2), 275: ("splice", 2), 9: ("mmap", 4)}
"""Which argument is the open file that is written."""
BY_NAME: Final = {
    76: ("truncate", 0),
    82: ("rename", 0),
    83: ("mkdir", 0),
    84: ("rmdir", 0),
    85: ("open", 0),
    86: ("link", 1),
    87: ("remove", 0),
    88: ("symlink", 1),
    2: ("open", 0),
}
"""Which argument is the name."""
BY_NAME_AT: Final = {
    257: ("open", 0),
    258: ("mkdir", 0),
    263: ("remove", 0),
    264: ("rename", 0),
    265: ("link", 2),
    266: ("symlink", 1),
    316: ("rename", 0),
    437: ("open", 0),
}
"""Which argument is the directory that the name, the argument behind it, begins at."""
NOT_SEEN_THROUGH: Final = {162: "sync of all", 306: "syncfs", 425: "io_uring"}
"""Calls that would change or sync files behind the tracer's back: a program that makes one, or maps
a file of the directory to write to it, is killed."""

OPEN, OPEN_AT, MMAP = 2, 257, 9
AT_FDCWD: Final = 0xFFFFFF9C
MAP_SHARED, MAP_ANONYMOUS, PROT_WRITE = 1, 0x20, 2

# ---------------------------------------------------------------- ptrace and seccomp

TRACEME, CONT, SYSCALL, SETOPTIONS, GET_SYSCALL_INFO = 0, 7, 24, 0x4200, 0x420E
TRACESYSGOOD, TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC = 1, 2, 4, 8, 16
TRACESECCOMP, EXITKILL = 0x80, 0x100000
EVENT_SECCOMP: Final = 7
AT_SYSCALL: Final = signal.SIGTRAP | 0x80
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
WALL: Final = 0x40000000
INFO: Final = struct.Struct("=B3xIQQ7Q8x")
"""struct ptrace_syscall_info: kind, architecture, two pointers; then number and arguments of a
call, or its result."""

LOAD, EQUAL, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
ALLOW, TRACE = 0x7FFF0000, 0x7FF00000
NUMBER_AT, ARCH_AT, ARGUMENTS_AT = 0, 4, 16

libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """Why nothing can be traced on this machine; None if it can."""
    if platform.machine() != MACHINE:
        return f"system calls are known by their numbers on {MACHINE}"
    ask = f"import ctypes; raise SystemExit(ctypes.CDLL(None).ptrace({TRACEME}, 0, 0, 0) != 0)"
    if subprocess.run([sys.executable, "-c", ask], check=False).returncode:
        return "this machine lets nobody trace its own processes (ptrace)"
    return None


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    result = libc.ptrace(
        ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(address), ctypes.c_void_p(data)
    )
    if result < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {pid}")
    return int(result)


def _filter() -> bytes:
    """The program by which the kernel decides which calls the tracer sees."""
    steps: list[tuple[int, int, int, int]] = []

    def add(code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        steps.append((code, if_true, if_false, value))

    add(LOAD, ARCH_AT)
    add(EQUAL, AUDIT_ARCH, 1)
    add(RETURN, TRACE)
    add(LOAD, NUMBER_AT)
    watched = {*BY_DESCRIPTOR, *INTO_DESCRIPTOR, *BY_NAME, *BY_NAME_AT, *NOT_SEEN_THROUGH}
    for number in sorted(watched - {OPEN, OPEN_AT, MMAP}):
        add(EQUAL, number, 0, 1)
        add(RETURN, TRACE)
    for number, flags in ((OPEN, 1), (OPEN_AT, 2)):  # only flags that make or empty a file
        add(EQUAL, number, 0, 4)
        add(LOAD, ARGUMENTS_AT + 8 * flags)
        add(ANY_BIT, os.O_CREAT | os.O_TRUNC, 0, 1)
        add(RETURN, TRACE)
        add(RETURN, ALLOW)
    add(EQUAL, MMAP, 0, 7)  # only flags that write through to a file
    add(LOAD, ARGUMENTS_AT + 8 * 2)
    add(ANY_BIT, PROT_WRITE, 0, 4)
    add(LOAD, ARGUMENTS_AT + 8 * 3)
    add(AND, MAP_SHARED | MAP_ANONYMOUS)
    add(EQUAL, MAP_SHARED, 0, 1)
    add(RETURN, TRACE)
    add(RETURN, ALLOW)
    add(RETURN, ALLOW)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _be_traced() -> None:
    """Have the parent, which is to wait for the SIGSTOP, see every call of the filter."""
    program = ctypes.create_string_buffer(code := _filter())
    header = struct.pack("@HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    pointer = ctypes.create_string_buffer(header)
    _ptrace(TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    for option, value, more in (
        (PR_SET_NO_NEW_PRIVS, 1, 0),
        (PR_SET_SECCOMP, FILTER, ctypes.addressof(pointer)),
    ):
        arguments = (ctypes.c_ulong(each) for each in (value, more, 0, 0))
        if libc.prctl(option, *arguments) < 0:
            raise OSError(ctypes.get_errno(), f"prctl {option}")


# ---------------------------------------------------------------- what is watched


@dataclass(frozen=True, slots=True)
class Boundary:
    """The moment before a change: the n-th of its kind to that file since the client began.

    By that it is found again in another run, under any order of other threads.
    """

    operation: str
    path: str
    number: int

    @property
    def is_write(self) -> bool:
        return self.operation in ("write", "pwrite")

    def __str__(self) -> str:
        return f"{self.operation} {self.path} #{self.number}"


@dataclass(frozen=True, slots=True)
class TracePlan:
    """What to watch, and where to stop."""

    directory: str
    """The directory, with nothing symbolic in its path."""
    armed: str
    """Boundaries count from the moment this file is there."""
    report: str
    """The file that gets a `Report` at the end."""
    is_sure: bool
    """True if all of the directory is on the disk; else the report is there and has the sure part.
    """
    stop: Boundary | None = None
    half: bool = False
    """Let the write have its first half, rather than nothing of it."""


@dataclass(frozen=True, slots=True)
class Report:
    """A tracer's observations until its program ended."""

    boundaries: list[Boundary]
    stopped: bool
    """True if the boundary of the plan was met."""
    sure: Sure

    def write(self, path: Path) -> None:
        seen = [[each.operation, each.path, each.number] for each in self.boundaries]
        path.write_text(json.dumps([seen, self.stopped, self.sure.to_json()]))

    @classmethod
    def read(cls, path: Path) -> Self:
        seen, stopped, sure = json.loads(path.read_text())
        return cls([Boundary(*each) for each in seen], stopped, Sure.from_json(sure))


@dataclass(frozen=True, slots=True)
class _Call:
    """A system call that has not begun."""

    thread: int
    number: int
    arguments: tuple[int, ...]

    def text(self, index: int) -> str:
        """The text that an argument points at."""
        with open(f"/proc/{self.thread}/mem", "rb", buffering=0) as memory:
            found = b""
            while b"\0" not in found:
                address = self.arguments[index] + len(found)
                found += os.pread(memory.fileno(), 4096 - address % 4096, address)
        return os.fsdecode(found.partition(b"\0")[0])

    def bytes(self, index: int, size: int) -> bytes:
        with open(f"/proc/{self.thread}/mem", "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), size, self.arguments[index])

    def open_file(self, index: int) -> str:
        """The path of an open file, under any later name."""
        return f"/proc/{self.thread}/fd/{self.arguments[index] & 0xFFFFFFFF}"

    def file(self) -> tuple[str, str]:
        """The operation, and the path of its file."""
        if operation := BY_DESCRIPTOR.get(self.number):
            return operation, os.readlink(self.open_file(0))
        if self.number in INTO_DESCRIPTOR:
            operation, index = INTO_DESCRIPTOR[self.number]
            return operation, os.readlink(self.open_file(index))
        if self.number in BY_NAME:
            operation, index = BY_NAME[self.number]
            return operation, os.path.join(
                os.readlink(f"/proc/{self.thread}/cwd"), self.text(index)
            )
        operation, index = BY_NAME_AT[self.number]
        is_here = self.arguments[index] & 0xFFFFFFFF == AT_FDCWD
        start = f"/proc/{self.thread}/cwd" if is_here else self.open_file(index)
        return operation, os.path.join(os.readlink(start), self.text(index + 1))


class Tracer:
    """Watches a traced process until it has ended."""

    def __init__(self, plan: TracePlan, process: int) -> None:
        self._plan = plan
        self._process = process
        self._root = plan.directory
        self._armed = False
        self._stopped = False
        self._threads: set[int] = set()
        self._syncing: dict[int, SureState] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._boundaries: list[Boundary] = []
        root = Path(self._root)
        self._sure = Sure() if plan.is_sure else Report.read(Path(plan.report)).sure
        if plan.is_sure:
            self._sure.take_all(root)
        else:
            self._sure.keep(root)

    def watch(self) -> int:
        """Let it run; return its wait status once it has ended, and write the report."""
        os.waitpid(self._process, WALL)
        options = TRACESYSGOOD | TRACEFORK | TRACEVFORK | TRACECLONE | TRACEEXEC | TRACESECCOMP
        _ptrace(SETOPTIONS, self._process, data=options | EXITKILL)
        self._threads.add(self._process)
        _ptrace(CONT, self._process)
        while True:
            thread, status = os.waitpid(-1, WALL)
            if os.WIFSTOPPED(status):
                try:
                    self._pass_on(thread, status)
                except (ProcessLookupError, FileNotFoundError):
                    continue  # the process was killed meanwhile, and has no open files any more
            elif thread == self._process:
                report = Path(self._plan.report)
                Report(self._boundaries, self._stopped, self._sure).write(report)
                return status

    def _pass_on(self, thread: int, status: int) -> None:
        number, event = os.WSTOPSIG(status), status >> 16
        if self._stopped:  # a call that was about to begin does not begin any more
            _ptrace(CONT, thread)
        elif event == EVENT_SECCOMP:
            self._before(thread)
        elif number == AT_SYSCALL:
            self._after_sync(thread)
        elif event or (thread not in self._threads and number == signal.SIGSTOP):
            _ptrace(CONT, thread)
        else:
            _ptrace(CONT, thread, data=number)
        self._threads.add(thread)

    def _info(self, thread: int) -> tuple[int, ...]:
        buffer = ctypes.create_string_buffer(INFO.size)
        _ptrace(GET_SYSCALL_INFO, thread, INFO.size, ctypes.addressof(buffer))
        return INFO.unpack(buffer.raw)[4:]

    def _before(self, thread: int) -> None:
        number, *arguments = self._info(thread)
        call = _Call(thread, number, tuple(arguments))
        if number in NOT_SEEN_THROUGH:
            raise SystemExit(f"{NOT_SEEN_THROUGH[number]}: what it does to files is not seen")
        operation, path = call.file()
        path = os.path.normpath(path)
        if path != self._root and not path.startswith(self._root + "/"):
            _ptrace(CONT, thread)
        elif operation == "mmap":
            raise SystemExit(f"{path} is mapped: what is done to it is not seen")
        elif self._is_here(operation, os.path.relpath(path, self._root)):
            self._stop(call)
        elif operation == "sync":
            self._syncing[thread] = self._sure.begin(call.open_file(0))
            _ptrace(SYSCALL, thread)
        else:
            _ptrace(CONT, thread)

    def _after_sync(self, thread: int) -> None:
        result, *_ = self._info(thread)
        synced = self._syncing.pop(thread)
        if result == 0:
            self._sure.end(synced)
        _ptrace(CONT, thread)

    def _is_here(self, operation: str, path: str) -> bool:
        """Count the boundary, and say whether it is the one to stop at."""
        self._armed = self._armed or os.path.exists(self._plan.armed)
        if not self._armed or self._stopped:
            return False
        path = re.sub(r"\d{20}\.snapshot", "….snapshot", path)  # not every run has as many records
        number = self._counts[operation, path] = self._counts.get((operation, path), 0) + 1
        boundary = Boundary(operation, path, number)
        self._boundaries.append(boundary)
        return boundary == self._plan.stop

    def _stop(self, call: _Call) -> None:
        if self._plan.half:
            self._write_half(call)
        self._stopped = True
        os.kill(self._process, signal.SIGKILL)

    def _write_half(self, call: _Call) -> None:
        """Make the effect of the first half of its write in the program's place."""
        size = call.arguments[2] // 2
        descriptor = os.open(call.open_file(0), os.O_WRONLY)
        position = call.arguments[3]
        operation, _ = call.file()
        if operation == "write":
            fields = Path(f"/proc/{call.thread}/fdinfo/{call.arguments[0]}").read_text().split()
            position = int(fields[fields.index("pos:") + 1])
        else:
            assert operation == "pwrite", operation
        os.pwrite(descriptor, call.bytes(1, size), position)
        os.close(descriptor)


def run(
    plan: TracePlan, module: str, arguments: Sequence[str], output: int, errors: int
) -> NoReturn:
    """Be the program, and beside it the one who watches it; end with its exit code.

    Args:
        plan: What to watch, and where to stop. SIGUSR1 kills the program wherever it is.
        module: Run as `python -m`.
        arguments: Of the program.
        output: A descriptor for the program's output. It is closed when the program ends.
        errors: A descriptor for the complaints of program and tracer.
    """
    assert platform.machine() == MACHINE, f"system calls are known by their numbers on {MACHINE}"
    os.dup2(errors, sys.stderr.fileno())
    process = os.fork()
    if process == 0:
        os.dup2(output, sys.stdout.fileno())
        os.close(output)
        _be_traced()
        sys.argv = [module, *arguments]
        _end_with(module)
    os.close(output)
    whole = os.pidfd_open(process)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _frame: _pass_on(number, whole))
    status = Tracer(plan, process).watch()
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _end_with(module: str) -> NoReturn:
    """Run a module, and end as a process that does nothing else ends."""
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def _pass_on(number: int, process: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL if number == signal.SIGUSR1 else number)
