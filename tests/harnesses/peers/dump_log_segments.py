"""Apache Kafka's DumpLogSegments, run over files, and its output."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from harnesses.peers.jars import CONTROL, NODE_4_2, class_path, java_executable

SECONDS_MAX = 120.0
TOOL = (
    "kafka.tools.DumpLogSegments"
    if CONTROL is NODE_4_2
    else "org.apache.kafka.tools.DumpLogSegments"
)

WRONG_COMPLAINT = re.compile(r"Non-consecutive offsets in \S+\n  -1 is followed by \d+\n")
"""Kafka 4.4 says it of each segment that does not begin at offset 0, of its own logs too."""


@dataclass
class DumpOutput:
    """Output of DumpLogSegments for some files: its lines, file by file, as fields."""

    lines: dict[Path, list[str]] = field(default_factory=dict)
    complaints: str = ""

    def of(self, files: Iterable[Path], start: str) -> list[str]:
        return [line for file in files for line in self.lines[file] if line.startswith(start)]


def kafka_dump(files: list[Path], *options: str) -> DumpOutput:
    """Run the tool once over many files."""
    assert files, "there is nothing to dump"
    command = [
        java_executable(),
        *("-Xmx256m", "-cp", class_path(CONTROL)),
        TOOL,
        *options,
        *("--files", ",".join(map(str, files))),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, errors="replace"
    )
    assert done.returncode == 0, done.stderr
    told = DumpOutput(complaints=WRONG_COMPLAINT.sub("", done.stderr))
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            current = told.lines.setdefault(Path(line.removeprefix("Dumping ")), [])
        else:
            current.append(line)
    assert list(told.lines) == files
    return told


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))
