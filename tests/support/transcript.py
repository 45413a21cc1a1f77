"""A reader of a page who types each of its blocks, in one directory and with a few terminals.

- Python below a paragraph that ends in "`NAME.py`:" is saved as that file. Other Python is run.
- A line of a block `sh` is run, and ends with exit code 0.
- In a block `console`, lines behind `$ ` are commands, and the lines below are their output.
  A line `…` stands for any lines, and `…` in a line for any text. `^C` is Ctrl-C for the command
  once it has printed the lines above. Times, durations and process ids may differ.
- `<!-- goes on -->` above a block: its last command keeps running, in a terminal of its own.
- `<!-- ends: COMMAND -->`: the reader stops that command with Ctrl-C.
- `kill -9 N` is for the last command that goes on.
- A command that only looks is repeated until the cluster is as the page shows it.
- 127.0.0.1:9092 is a port that is free, because other tests run beside.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

from harnesses.peers.kafka import free_port

DOCS: Final = Path(__file__).parents[2] / "docs"
TUTORIAL: Final = sorted((DOCS / "tutorial").glob("[1-9]-*.md"))
"""They are typed one after the other, in one directory."""
PYTHON_TUTORIAL: Final = DOCS / "tutorial" / "python-client.md"
HOW_TOS: Final = sorted((DOCS / "how-to").glob("*.md"))
"""Each is typed in a directory of its own."""
PAGES: Final = [*TUTORIAL, PYTHON_TUTORIAL, *HOW_TOS]
"""All pages that are typed."""

WAIT_S: Final = 900.0
"""For a command to end; a Spark job beside other work needs minutes."""
LOOK_S: Final = 200.0
"""For a cluster to be as the page shows it."""
PORT: Final = "9092"

LOOKS: Final = re.compile(
    r"txn (consume(?!.*--group)|explain|groups describe|transactions list)\b.*"
)
CONNECTS: Final = re.compile(
    r"(.*\| )?txn (?!serve|log|settings|console)(?!.*--(bootstrap|data|help|command-config)).*"
)
SAVED: Final = re.compile(r"[Ss]ave this as `([\w.-]+)`")
GOES_ON: Final = "<!-- goes on -->"
ENDS: Final = re.compile(r"<!-- ends: (.*) -->")


@dataclass(frozen=True)
class Step:
    """A block of a page: its language, its text, and what stands right above it."""

    language: str
    text: str
    saved_as: str | None = None
    goes_on: bool = False
    ends: str | None = None


def steps_of(page: str) -> Iterator[Step]:
    """The blocks of a page, from top to bottom."""
    paragraph, comments = "", ""
    for token in MarkdownIt().parse(page):
        if token.type == "inline":
            paragraph, comments = token.content, ""
        elif token.type == "html_block":
            comments += token.content
        elif token.type == "fence":
            saved = SAVED.search(paragraph)
            ends = ENDS.search(comments)
            yield Step(
                token.info.strip(),
                token.content,
                saved[1] if saved else None,
                GOES_ON in comments,
                ends[1] if ends else None,
            )
            paragraph, comments = "", ""


class Command:
    """A command in a terminal: its output so far, and Ctrl-C."""

    def __init__(self, line: str, place: Path, environment: Mapping[str, str]) -> None:
        self.line = line
        self._process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=place,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C and the end are for all of its processes
        )
        self._pieces: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while piece := os.read(self._process.stdout.fileno(), 1 << 16):
            self._pieces.append(piece.decode())

    @property
    def output(self) -> str:
        return "".join(self._pieces)

    def await_output(self, shown: str) -> None:
        """Wait for output like that of the page."""
        ends_s = time.monotonic() + WAIT_S
        while not is_like(self.output, shown, to_its_end=False):
            goes_on = self._reading.is_alive() and time.monotonic() < ends_s
            assert goes_on, difference(self, shown)
            time.sleep(0.02)

    def interrupt(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> int:
        """Send SIGKILL to it, and return the process id that it had."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.await_end()
        return self._process.pid

    def await_end(self) -> int:
        try:
            code = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(difference(self, "an end")) from None
        self._reading.join(WAIT_S)
        return code

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def difference(command: Command, shown: str) -> str:
    return f"$ {command.line}\n--- it printed\n{command.output}\n--- the page shows\n{shown}"


def masked(text: str) -> str:
    """Output without the parts that differ from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", "TIME", text)
    text = re.sub(r"(\d+ min )?[\d.]+ m?s\b", "AGE", text)
    text = re.sub(r"\bkill -9 \d+", "kill -9 PID", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return re.sub(r"[ \t]+", " ", re.sub(r" +[+-]AGE", " AGE", text))


def in_line(part: str) -> str:
    return ".*".join(re.escape(piece.rstrip()) for piece in part.split("…"))


def is_like(output: str, shown: str, *, to_its_end: bool = True) -> bool:
    """Say whether output is that of the page."""
    parts = masked(shown).splitlines()
    pattern = "".join(
        r"(?:.*\n)*?" if part.strip() == "…" else in_line(part.rstrip()) + r" *\n" for part in parts
    )
    printed = masked(output.rstrip("\n") + "\n" if output else "")
    matches = re.fullmatch if to_its_end else re.match
    return matches(pattern, printed) is not None


@dataclass
class Reader:
    """Types the blocks of pages; close it at the end."""

    place: Path
    skipped: Mapping[str, Callable[[str, Path], None]] = field(default_factory=dict)
    """Lines by their pattern that another test runs, and what holds for them here."""
    port: str = field(default_factory=lambda: str(free_port()))
    running: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._home = self.place
        self._exported: dict[str, str] = {}

    def read(self, page: str) -> None:
        """Do all that the page says. Raises AssertionError where something else happens."""
        for step in steps_of(page.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{self.port}")):
            self._do(step)

    def _do(self, step: Step) -> None:
        if step.ends is not None:
            (ended,) = (each for each in self.running if each.line.startswith(step.ends))
            ended.interrupt()
            assert ended.await_end() == 0, ended.output
            self.running.remove(ended)
            ended.close()
        if step.language == "python":
            name = step.saved_as or "program.py"
            (self.place / name).write_text(step.text)
            if step.saved_as is None:
                self._run("python program.py", None)
        elif step.saved_as is not None:
            (self.place / step.saved_as).write_text(step.text)
        elif step.language == "sh":
            for line in step.text.splitlines():
                self._run(re.sub(r"\s+# .*", "", line), None)
        else:
            assert step.language == "console", f"what is a {step.language}?"
            self._type(step)

    def _type(self, step: Step) -> None:
        before, *typed = re.split(r"^\$ ", step.text, flags=re.MULTILINE)
        assert before == ""
        for number, each in enumerate(typed, 1):
            line, _, shown = each.partition("\n")
            self._run(line, shown, goes_on=step.goes_on and number == len(typed))

    def _run(self, line: str, shown: str | None, *, goes_on: bool = False) -> None:
        for pattern, attempt in self.skipped.items():
            if re.fullmatch(pattern, line):
                attempt(line, self.place)
                return
        if line.startswith("cd "):
            there = line.removeprefix("cd ").replace("~", str(self._home))
            self.place = (self.place / there).resolve()
            assert self.place.is_dir(), line
        elif line.startswith("export "):
            settings = shlex.split(line)[1:]
            self._exported |= dict(setting.split("=", 1) for setting in settings)
        elif line.startswith("kill -9 "):
            self.running.pop().close()
        else:
            is_sent_here = CONNECTS.fullmatch(line) and "TXN_COMMAND_CONFIG" not in self._exported
            at = f" --bootstrap 127.0.0.1:{self.port}" if is_sent_here else ""
            if shown is not None and LOOKS.fullmatch(line):
                self._look(line + at, shown)
                return
            command = self._start(line + at)
            self._compare(command, shown, goes_on=goes_on)

    def _start(self, line: str) -> Command:
        command = Command(line, self.place, self._environment())
        self.running.append(command)
        return command

    def _look(self, line: str, shown: str) -> None:
        ends_s = time.monotonic() + LOOK_S
        pause_s = 0.05
        while True:
            command = self._start(line)
            command.await_end()
            self.running.remove(command)
            command.close()
            if is_like(command.output, shown):
                return
            assert time.monotonic() < ends_s, difference(command, shown)
            time.sleep(pause_s)  # what it waits for needs the CPU more than it does
            pause_s = min(2 * pause_s, 2.0)

    def _compare(self, command: Command, shown: str | None, *, goes_on: bool) -> None:
        if shown is not None and "^C\n" in shown:
            above, _, below = shown.partition("^C\n")
            command.await_output(above)
            command.interrupt()
            shown = above + below
        if goes_on:
            command.await_output(shown or "")
            return
        code = command.await_end()
        if shown is None:
            assert code == 0, difference(command, "")
        else:
            assert is_like(command.output, shown), difference(command, shown)
        self.running.remove(command)
        command.close()

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = str(self._home)
        own = {"PATH": path, "HOME": home, "PYTHONUNBUFFERED": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
        return {**os.environ, **own, **self._exported}

    def close(self) -> None:
        for command in self.running:
            command.close()
