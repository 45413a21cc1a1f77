"""The CPU time that `make test` prints for each folder."""

import os
import subprocess
import sys
import time

from support.clients import WAIT_S
from support.file_times import cpu_seconds

BURNS_S = 0.3
PROGRAM = f"""\
import sys, time
while time.process_time() < {BURNS_S}:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


def test_cpu_time_of_a_child_counts_while_it_runs_and_when_it_has_ended() -> None:
    before = cpu_seconds(os.getpid())
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"burnt\n"
        ends_s = time.monotonic() + WAIT_S
        while (running := cpu_seconds(os.getpid()) - before) < BURNS_S - 0.05:
            assert time.monotonic() < ends_s, running
    assert cpu_seconds(os.getpid()) - before >= running


def test_a_process_that_is_gone_has_no_cpu_time() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert cpu_seconds(child.pid) == 0
