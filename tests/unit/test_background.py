"""Chores beside requests, on a disk that is full for a while."""

import errno
import logging
import threading
from typing import Any

import pytest

from txn.config import BrokerSettings
from txn.server.lifecycle.background import Background


class FullDisk:
    """The storage of a data directory whose disk takes no checkpoint at first."""

    def __init__(self) -> None:
        self.upkeep = self
        self.is_written = threading.Event()
        self._failures = [OSError(errno.ENOSPC, "No space left on device")]

    def write_recovery_points(self) -> None:
        if self._failures:
            raise self._failures.pop()
        self.is_written.set()

    def write_log_starts(self) -> None:
        pass

    def is_in_place(self) -> bool:
        return True

    def retain(self, now_ms: int) -> None:
        pass

    def tick(self) -> None:
        pass


def test_recovery_points_that_find_no_room_are_told_in_a_line_and_written_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line had a traceback, as a bug has."""
    storage: Any = FullDisk()
    settings = BrokerSettings({"log.flush.offset.checkpoint.interval.ms": "1"})
    certificates: Any = ()
    background = Background(storage, settings, certificates, lambda: None)

    background.start()
    is_written = storage.is_written.wait(60)
    background.stop()

    assert is_written
    [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "background.failed" in record.getMessage()
    assert "recovery_points" in record.getMessage()
    assert "No space left on device" in record.getMessage()
    assert record.exc_info is None
