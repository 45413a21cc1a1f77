"""Programs of other people in processes of their own, and Kafka's tools by the names of classes."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from harnesses.peers.jars import NODE_4_4, JarSet, class_path, java_executable

SECONDS_MAX: Final = 240.0


class Program:
    """A process whose output goes to a file; killed at the end of the context.

    Args:
        command: Program and arguments.
        log: File for its output, which is added to what is there.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> "Program":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for an effect of the program, while it runs."""
        ends_s = time.monotonic() + SECONDS_MAX
        while not holds():
            assert self._process.poll() is None, f"it ended:\n{self.output()[-4000:]}"
            assert time.monotonic() < ends_s, f"in vain:\n{self.output()[-4000:]}"
            time.sleep(0.1)

    def until_reached(self, goal: int, count: Callable[[], int]) -> None:
        """Wait until a number that the program raises reaches a goal.

        The time limit counts from the last rise: on a busy machine a program that restores its
        state and goes on is slow, and does not hang.
        """
        reached = -1
        while (now := count()) < goal:
            if now > reached:
                reached, ends_s = now, time.monotonic() + SECONDS_MAX
            assert self._process.poll() is None, f"it ended at {now}:\n{self.output()[-4000:]}"
            assert time.monotonic() < ends_s, f"it stays at {now}:\n{self.output()[-4000:]}"
            time.sleep(0.1)

    def output(self) -> str:
        """All that it has printed."""
        return self._log.read_text()

    def stop(self) -> int:
        """Send SIGTERM and wait for its end; return the exit code."""
        self._process.terminate()
        return self._process.wait(SECONDS_MAX)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._process.wait()


def java_command(
    program: str, *arguments: str, jars: JarSet = NODE_4_4, level: str = "OFF"
) -> list[str]:
    """Return the command of a class of Kafka."""
    return [
        *(java_executable(), "-Xmx128m", f"-Dlog4j2.level={level}"),
        *("-cp", class_path(jars), program, *arguments),
    ]


def kafka_tool(tool: str, *arguments: str, text: str = "", exit_code: int = 0) -> str:
    """Run a tool of Kafka 4.4 with some text as its input; return its output."""
    done = subprocess.run(
        java_command(tool, *arguments),
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == exit_code, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
