"""Work in a forked child."""

import os
import signal
import sys
import warnings
from collections.abc import Callable

from support.clients import commit_values, transactional_producer

WAIT_S = 30.0
PROGRAM_S = 120.0
"""Time for a program that starts brokers and clients of its own, on a machine that has others."""
CHILD_S = 50


def produce_committed(servers: str, value: bytes) -> None:
    commit_values(transactional_producer(servers, "writer"), "orders", [value])


def in_child(work: Callable[[], object]) -> int:
    """Do work in a forked child; return its exit code: 0, 1 if the work raised, -14 if it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads
        pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_S)
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
