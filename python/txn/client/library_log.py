"""Sends librdkafka's log lines to the standard library's logger "txn.client".

librdkafka itself prints them to standard error, the same line ten times a second while a broker is
down. Lines that differ only in numbers count as the same line. After one is logged, the next one
follows after `QUIET_SECONDS` at the earliest, with the number of lines left out.
`txn.client.redaction` removes secrets from the lines before.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

QUIET_SECONDS: Final = 30.0
KINDS_MAX: Final = 1_000

_logger: Final = logging.getLogger("txn.client")


@dataclass(slots=True)
class _Told:
    """When a kind of line last went out, and how many were left out since."""

    at: float
    left_out: int = 0


def silence_unless_handled() -> None:
    """Keep the lines from standard error if the program has no handler for them.

    A command says itself what its user has to know.
    """
    if not _logger.handlers:
        _logger.addHandler(logging.NullHandler())


class LibraryLog:
    """Takes lines as confluent-kafka gives them to a logger; one per client."""

    def __init__(
        self, *, logger: logging.Logger = _logger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def log(self, level: int, _: str, facility: str, client: str, text: str) -> None:
        """Pass a line on, unless one of its kind went out a moment ago."""
        now = self._clock()
        kind = f"{facility} {re.sub(r'[0-9]+', '0', text)}"
        before = self._told.get(kind)
        if before is not None and now < before.at + QUIET_SECONDS:
            before.left_out += 1
            return
        if len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[kind] = _Told(now)
        more = f" (and {before.left_out} more like this)" if before and before.left_out else ""
        self._logger.log(level, "%s [%s] %s%s", facility, client, text, more)
