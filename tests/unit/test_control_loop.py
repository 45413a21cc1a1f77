"""The control loop and a stop that comes at a bad moment."""

import asyncio
import gc
import os
import struct
import warnings
from typing import Any

import pytest

from txn.broker.apis.table import Api
from txn.broker.host import Answer
from txn.server import control_loop
from txn.server.control_loop import ControlLoop
from txn.server.scheduler import LoopScheduler

DELETE_RECORDS = 21
NO_TOPICS = struct.pack(">ii", 0, 1000)


class StoppedServer:
    """A server whose only request comes with the stop; a `txn._core.Server`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wakeup_fd = os.eventfd(1)

    def take(self) -> list[Any]:
        self._loop.stop()
        return [(7, DELETE_RECORDS, 0, 1, None, NO_TOPICS, "127.0.0.1", 1)]

    def take_joins(self) -> list[Any]:
        return []

    def take_failures(self) -> list[str]:
        return []


def test_a_request_that_a_stop_overtakes_is_closed_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its task was cancelled before the first step, and the handler inside was never awaited."""
    begun: list[str] = []

    async def answer() -> Answer:
        begun.append("begun")
        return None

    api = Api((0, 0), lambda request, context: answer())
    monkeypatch.setattr(control_loop, "build_table", lambda node: {DELETE_RECORDS: api})
    loop = asyncio.new_event_loop()
    server: Any = StoppedServer(loop)
    node: Any = None
    control = ControlLoop(loop, LoopScheduler(loop), server, node)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        control.start()
        control._thread.join(timeout=10)
        gc.collect()
    os.close(server.wakeup_fd)

    assert loop.is_closed()
    assert begun == []
    assert [str(warning.message) for warning in told] == []
