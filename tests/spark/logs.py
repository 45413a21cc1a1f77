"""Spark's logs in the message of a failed test."""

import re
from pathlib import Path
from typing import Final

LINES: Final = 100

_FRAME: Final = re.compile(r"^\s+(?:at |\.\.\. \d+ more)")


def tail(log: Path | str) -> str:
    """The last lines of a log, or of a text, without the frames of Java's stack traces.

    One trace has some hundred frames, which would leave no room for its reason.
    """
    text = log.read_text(errors="replace") if isinstance(log, Path) else log
    return "\n".join([line for line in text.splitlines() if not _FRAME.match(line)][-LINES:])
