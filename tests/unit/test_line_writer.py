"""Lines for a reader that nobody waits for, see also `tests/api/operations/test_unread_logs.py`."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

from txn.line_writer import LineWriter

WAIT_S = 60


def run(program: str, errors: Path) -> list[str]:
    """Run a program; return the lines of its standard error."""
    with errors.open("wb") as file:
        command = [sys.executable, "-c", inspect.cleandoc(program)]
        subprocess.run(command, stderr=file, timeout=WAIT_S, check=True)
    return errors.read_text().splitlines()


def test_the_last_lines_of_a_program_are_written_in_order(tmp_path: Path) -> None:
    lines = run(
        """
        from txn.logs import log, show_on_stderr
        show_on_stderr()
        for number in range(1000):
            log.info("a.state", number=number)
        """,
        tmp_path / "log",
    )
    assert [line.rpartition("=")[2] for line in lines] == [str(number) for number in range(1000)]


def test_prints_and_log_lines_keep_their_order(tmp_path: Path) -> None:
    lines = run(
        """
        import sys
        from txn.logs import log, show_on_stderr
        show_on_stderr()
        for number in range(100):
            log.info("a.state", number=number)
            print(f"printed={number}", file=sys.stderr)
        """,
        tmp_path / "log",
    )
    assert [line.rpartition("=")[2] for line in lines] == [str(n // 2) for n in range(200)]


def test_a_forked_child_writes_its_own_lines_alone(tmp_path: Path) -> None:
    """The child has no thread of its parent, and a copy of the lines that wait."""
    lines = run(
        """
        import os, sys
        from txn.logs import log, show_on_stderr
        show_on_stderr()
        for number in range(1000):
            log.info("of.parent", number=number)
        child = os.fork()
        log.info("of.child" if child == 0 else "of.parent", number=1000)
        if child:
            assert os.waitpid(child, 0)[1] == 0
        """,
        tmp_path / "log",
    )
    events = [line.split()[-2] for line in lines]
    assert (events.count("of.parent"), events.count("of.child")) == (1001, 1)


def test_lines_that_a_descriptor_refuses_are_counted_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        writer = LineWriter(descriptor, lambda count: f"{count} lost\n")
        writer.put(b"one\n")
        writer.put(b"two\nthree\n")
        writer.flush()
        assert writer.failure is not None
        writable = os.open(path, os.O_WRONLY)
        os.dup2(writable, descriptor)
        os.close(writable)
        writer.put(b"four\n")
        writer.flush()
    finally:
        os.close(descriptor)
    assert writer.failure is None
    assert path.read_text() == "3 lost\nfour\n"


def test_a_descriptor_that_does_not_block_gets_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    writer = LineWriter(writing)
    content = [b"%07d\n" % number for number in range(20_000)]
    for line in content:
        writer.put(line)
    with open(reading, "rb") as pipe:
        assert pipe.read(8 * len(content)) == b"".join(content)
    writer.flush()
    os.close(writing)
