"""Starting and killing whole families of processes.

PySpark's worker daemon leaves its parent's process group, so a family is identified by its
session: each family is started as the leader of a session, and killed by it.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from txn.storage.private import open_private

SESSION_FIELD = 3
"""Position of the session id behind the command name in /proc/PID/stat."""


def start_family(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process as leader of a session of its own; its output is added to `log`."""
    descriptor = open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with os.fdopen(descriptor, "ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def kill_family(leader: subprocess.Popen[bytes]) -> None:
    """SIGKILL every process of a session, and wait for its leader."""
    for pid in family(leader.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    leader.wait()


def family(session: int) -> list[int]:
    """The process ids of a session, its leader first."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # it ended meanwhile
            continue
        if int(stat.rpartition(")")[2].split()[SESSION_FIELD]) == session:
            members.append(int(entry.name))
    return sorted(members, key=lambda pid: (pid != session, pid))
