"""Log lines: an event and its facts, `broker.started address=127.0.0.1:9092`.

Inside a program they go to the standard library's logger "txn.broker", which is silent until the
program adds a handler, to it or to "txn"; `txn serve` sends them to standard error. A
fact whose text would be ambiguous is quoted. Events that a client can cause at will go to
`rare_log`.

A handler is called on the thread where the event happens, which may serve connections. So `txn
serve` passes its lines to `txn.line_writer`, and never waits for their reader.
"""

import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

from txn.printable import printable

_PRIORITIES: Final = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}  # of syslog
_PLAIN: Final = re.compile(r'[^\s"=]+')


class EventLog:
    """Writes events to a logger of the standard library, one line each."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, **facts: object) -> None:
        """A state an operator would name."""
        self._write(logging.INFO, event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Someone should look."""
        self._write(logging.WARNING, event, facts)

    def error(
        self, event: str, *, exc_info: BaseException | bool | None = None, **facts: object
    ) -> None:
        """A promise is at risk."""
        self._write(logging.ERROR, event, facts, exc_info)

    def exception(self, event: str, **facts: object) -> None:
        """An error, with the exception that is being handled."""
        self._write(logging.ERROR, event, facts, True)

    def _write(
        self,
        level: int,
        event: str,
        facts: dict[str, object],
        exc_info: BaseException | bool | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            line = " ".join([event, *(f"{name}={_shown(fact)}" for name, fact in facts.items())])
            self._logger.log(level, "%s", line, exc_info=exc_info)


class RareLog:
    """Events that a client can bring about at will: at most one line of each in an interval.

    The first line after a silence says how many were left out in it (`left_out`).
    """

    def __init__(
        self,
        events: EventLog,
        *,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events = events
        self._interval_s = interval_s
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        """When each event was last written."""
        self._left_out: dict[str, int] = {}

    def warning(self, event: str, **facts: object) -> None:
        """Someone should look."""
        if self._is_due(event):
            self._events.warning(event, **facts, **self._silence(event))

    def error(self, event: str, *, exc_info: BaseException | None = None, **facts: object) -> None:
        """A promise is at risk."""
        if self._is_due(event):
            self._events.error(event, exc_info=exc_info, **facts, **self._silence(event))

    def exception(self, event: str, **facts: object) -> None:
        """An error, with the exception that is being handled."""
        if self._is_due(event):
            self._events.exception(event, **facts, **self._silence(event))

    def _is_due(self, event: str) -> bool:
        now = self._clock()
        last_s = self._logged_at.get(event)
        if last_s is not None and now - last_s < self._interval_s:
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return False
        self._logged_at[event] = now
        return True

    def _silence(self, event: str) -> dict[str, object]:
        left_out = self._left_out.pop(event, 0)
        return {"left_out": left_out} if left_out else {}


def _shown(fact: object) -> str:
    text = str(fact)
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    return printable(json.dumps(text, ensure_ascii=False))


_all_of_txn = logging.getLogger("txn")
_logger = logging.getLogger("txn.broker")
_logger.addHandler(logging.NullHandler())  # at "txn" it would hide the warnings of txn.client, too

log: Final = EventLog(_logger)
rare_log: Final = RareLog(log)


class _Formatter(logging.Formatter):
    """Lines with their priority, `<4>`, where the journal of systemd reads standard error.

    The journal takes the prefix away and keeps it as the line's priority.
    """

    def __init__(self, form: str) -> None:
        super().__init__(form)
        self._is_for_journal = _is_journal(sys.stderr)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's lines; those of a traceback have the priority of the first."""
        text = super().format(record)
        if not self._is_for_journal:
            return text
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in text.splitlines())


def _is_journal(stream: TextIO) -> bool:
    """True if systemd has connected the stream to its journal: JOURNAL_STREAM names the inode."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def show_on_stderr(level: int = logging.INFO) -> None:
    """Send the log lines to standard error; for programs, not for libraries.

    From here on a thread writes the texts of `sys.stderr`, and no thread waits for their reader. A
    stream without a descriptor stays as it is. Lines that found no room are reported by
    `log.lines_dropped`, once standard error takes lines again.
    """
    from txn.line_writer import line_stream  # a broker within a program needs none

    formatter = _Formatter("%(asctime)s %(levelname)s %(message)s")

    def dropped_line(count: int) -> str:
        text = f"log.lines_dropped count={count}"
        record = _logger.makeRecord(_logger.name, logging.WARNING, "", 0, text, (), None)
        return f"{formatter.format(record)}\n"

    with suppress(io.UnsupportedOperation):  # a program may have put a stream in its place
        sys.stderr = line_stream(sys.stderr, dropped_line)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    _all_of_txn.addHandler(handler)
    _all_of_txn.setLevel(level)
