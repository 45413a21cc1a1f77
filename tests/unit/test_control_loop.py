"""The control loop and its scheduler: stops at bad moments, and a bug that hangs nobody."""

import asyncio
import gc
import itertools
import os
import struct
import uuid
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from support.sessions import LISTENER, session
from txn import _core
from txn.broker.apis.table import Answerer, BoundApi
from txn.broker.host import Context, Durability
from txn.broker.syncs import synced
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.logs import RareLog, log
from txn.metadata.image import Topic
from txn.security.sessions import Connection
from txn.server.loop import control_loop
from txn.server.loop.control_lock import ControlLockLoop
from txn.server.loop.control_loop import ControlLoop
from txn.server.loop.scheduler import LoopScheduler
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog
from txn.wire.bodies.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from txn.wire.bodies.offsets import DeleteRecordsRequest, DeleteRecordsResponse
from txn.wire.error_codes import ErrorCode

DELETE_RECORDS = 21
NO_TOPICS = struct.pack(">ii", 0, 1000)
NEW = Mock(spec=_core.ClientPresence)
"""Comes with the first request of a connection."""
DESCRIBE_CONFIGS = 32
LARGE = struct.pack(">i", 2_000) + b"\2\0\1t\0\0\0\0" * 2_000 + b"\0"
RESULT = DescribeConfigsResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, 2, "t")
ATTACKER, NEIGHBOUR = "10.0.0.2", "10.0.0.3"
WAIT_S = 60

Decide = Callable[[list[Any], list[Any]], bool]

NODE: Any = SimpleNamespace(
    durability=Durability.PROCESS,
    transactions=None,
    authorizer=None,
    quotas=SimpleNamespace(takes_toll=False),
)
"""A broker in which every decision is a bug."""


class StoppedServer:
    """A server whose only request comes with the stop; a `txn._core.Server`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wakeup_fd = os.eventfd(1)
        self.decide: Decide = lambda requests, joins: True
        self.settle: Callable[[], object] = lambda: None
        self.disconnected: list[int] = []
        self.holders = 0

    def let_reactors_decide(self, api_keys: list[int], decide: Decide) -> None:
        self.decide = decide

    def let_reactors_settle(
        self, durability: _core.Durability, settle: Callable[[], object]
    ) -> None:
        self.settle = settle

    def take_control_lock(self) -> None:
        self.holders += 1

    def release_control_lock(self) -> None:
        self.holders -= 1

    def disconnect(self, token: int) -> None:
        self.disconnected.append(token)

    def attach(self, token: int, attachment: object) -> None:
        pass

    def take(self) -> list[Any]:
        self._loop.stop()
        return [(7, DELETE_RECORDS, 0, 1, None, NO_TOPICS, "127.0.0.1", 0, None, 1, NEW)]

    def take_room(self) -> bool:
        return False

    def take_joins(self) -> list[Any]:
        return []

    def take_failed_handshakes(self) -> list[tuple[int, str, str]]:
        return []

    def take_refused(self) -> list[tuple[int, str, str]]:
        return []

    def take_fatal_requests(self) -> list[Any]:
        return []

    def take_failures(self) -> list[str]:
        return []


def test_a_request_that_a_stop_overtakes_is_closed_where_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its task is cancelled before the first step, and never awaits the handler's rest."""
    went: list[str] = []

    async def answer() -> bytes:
        went.append("begun")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            went.append("closed")
        return b""

    answerer = Answerer(
        DeleteRecordsRequest, DeleteRecordsResponse, lambda request, context: answer()
    )
    api = BoundApi(DELETE_RECORDS, (0, 0), lambda _: answerer)
    monkeypatch.setattr(control_loop, "build_table", lambda node: {DELETE_RECORDS: api})
    loop = ControlLockLoop()
    server: Any = StoppedServer(loop)
    control = ControlLoop(loop, LoopScheduler(loop, _core.Durability(1)), server, NODE, [LISTENER])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        control.start()
        control.thread.join(timeout=10)
        assert went == ["begun", "closed"]
        gc.collect()
    os.close(server.wakeup_fd)

    assert loop.is_closed()
    assert [str(warning.message) for warning in told] == []
    assert server.holders == 0


def test_a_handler_that_waits_for_nothing_is_answered_without_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each had a task: the loop was woken for it where a reactor stood in."""

    async def answer() -> bytes:
        return b"at once"

    answerer = Answerer(
        DeleteRecordsRequest, DeleteRecordsResponse, lambda request, context: answer()
    )
    api = BoundApi(DELETE_RECORDS, (0, 0), lambda _: answerer)
    monkeypatch.setattr(control_loop, "build_table", lambda node: {DELETE_RECORDS: api})
    loop = ControlLockLoop()
    server = Mock()
    control = ControlLoop(loop, LoopScheduler(loop, _core.Durability(1)), server, NODE, [LISTENER])
    control.serve([(7, DELETE_RECORDS, 0, 1, None, NO_TOPICS, "127.0.0.1", 0, None, 1, NEW)], [])
    server.reply.assert_called_once_with(7, False, b"at once")
    loop.close()


class Crowd:
    """A broker whose handler waits for `gate`, but answers a neighbour at once; to be closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, node: Any = NODE) -> None:
        self.loop = ControlLockLoop()
        self.gate = asyncio.Event()
        self.begun: list[str] = []
        self._begins = asyncio.Semaphore(0)
        self.server = Mock(attach=lambda token, attachment: None, throttle_ms=Mock(return_value=0))
        self.answered: dict[int, asyncio.Event] = {}
        self.server.reply = lambda token, flexible, body: self.answered[token].set()
        answerer = Answerer(DescribeConfigsRequest, DescribeConfigsResponse, self._answer)
        api = BoundApi(DESCRIBE_CONFIGS, (1, 1), lambda _: answerer)
        monkeypatch.setattr(control_loop, "build_table", lambda node: {DESCRIBE_CONFIGS: api})
        scheduler = LoopScheduler(self.loop, _core.Durability(1))
        self._control = ControlLoop(self.loop, scheduler, self.server, node, [LISTENER])

    async def _answer(self, request: object, context: Context) -> DescribeConfigsResponse:
        self.begun.append(context.client_host)
        self._begins.release()
        if context.client_host != NEIGHBOUR:
            await self.gate.wait()
            await asyncio.sleep(0)
        return DescribeConfigsResponse([RESULT] * 500)

    def ask(self, token: int, host: str) -> Connection:
        """Send a large request; return its connection, which is closed when nobody has it."""
        self.answered[token] = asyncio.Event()
        connection = Connection(session(host, token))
        request = (token, DESCRIBE_CONFIGS, 1, 1, None, LARGE, host, 0, None, token, connection)
        self.loop.run_for_loop(lambda: self._control.serve([request], []))
        return connection

    def wait(self, token: int) -> None:
        """Return when a request is answered."""
        self.loop.run_until_complete(asyncio.wait_for(self.answered[token].wait(), WAIT_S))

    def wait_for_handlers(self, count: int) -> None:
        """Return when so many handlers have begun; threads read the requests in any order."""

        self.loop.run_until_complete(asyncio.wait_for(self._handlers(count), WAIT_S))

    async def _handlers(self, count: int) -> None:
        for _ in range(count):
            await self._begins.acquire()

    def close(self) -> None:
        waiting = asyncio.all_tasks(self.loop)
        for task in waiting:
            task.cancel()
        if waiting:
            self.loop.run_until_complete(asyncio.wait(waiting))
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def test_large_requests_of_one_client_keep_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All waited in one line: 20 of a client without rights held a neighbour up for 24 s."""
    with closing(Crowd(monkeypatch)) as crowd:
        kept = [crowd.ask(token, ATTACKER) for token in range(20)]
        kept.append(crowd.ask(99, NEIGHBOUR))
        crowd.wait(99)
        crowd.wait_for_handlers(3)
        assert sorted(crowd.begun) == [ATTACKER, ATTACKER, NEIGHBOUR]


def test_large_requests_of_clients_that_have_left_are_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client could send as many as it liked and leave: each was read and answered."""
    with closing(Crowd(monkeypatch)) as crowd:
        kept = [crowd.ask(0, ATTACKER)]
        gone = [crowd.ask(1, ATTACKER)]  # it leaves while it is answered
        for token in range(2, 20):
            crowd.ask(token, ATTACKER)  # and these while they wait
        kept += [crowd.ask(20, ATTACKER), crowd.ask(99, NEIGHBOUR)]
        crowd.wait(99)
        crowd.wait_for_handlers(3)
        gone.clear()
        crowd.gate.set()
        crowd.wait(20)
        assert sorted(crowd.begun[:3]) == [ATTACKER, ATTACKER, NEIGHBOUR]
        assert crowd.begun[3:] == [ATTACKER]
        answered = [token for token, event in crowd.answered.items() if event.is_set()]
        assert answered == [0, 20, 99]


def test_the_time_of_worker_threads_counts_for_the_quota_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large requests are read, and large answers made, on other threads: both were free."""
    seconds = itertools.count()
    monkeypatch.setattr("txn.broker.host.thread_time", lambda: next(seconds))
    quotas = SimpleNamespace(takes_toll=True, counts_time=True)
    with closing(Crowd(monkeypatch, SimpleNamespace(**{**vars(NODE), "quotas": quotas}))) as crowd:
        kept = crowd.ask(99, NEIGHBOUR)
        crowd.wait(99)
        (_, host, _, spent_s), _ = crowd.server.throttle_ms.call_args
        assert (host, spent_s) == (NEIGHBOUR, 3)  # to read it, a step of its handler, the answer
        del kept


def test_what_reactors_ask_of_a_broker_that_is_gone_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server holds the decider weakly: both would stay for good, in a cycle through Rust."""
    monkeypatch.setattr(control_loop, "build_table", lambda node: {})
    loop = ControlLockLoop()
    server: Any = StoppedServer(loop)
    control = ControlLoop(loop, LoopScheduler(loop, _core.Durability(1)), server, NODE, [LISTENER])
    control.start()
    control.thread.join(timeout=10)
    del control
    gc.collect()
    os.close(server.wakeup_fd)
    assert not server.decide([], [])
    server.settle()


def test_a_bug_in_joining_costs_the_connection_and_one_log_line_a_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its Produce was parked, and would wait for good. A client could fill the log with it."""
    monkeypatch.setattr(control_loop, "rare_log", RareLog(log, clock=lambda: 0.0))
    monkeypatch.setattr(control_loop, "build_table", lambda node: {})
    loop = ControlLockLoop()
    server: Any = StoppedServer(loop)
    control = ControlLoop(loop, LoopScheduler(loop, _core.Durability(1)), server, NODE, [LISTENER])
    control.serve([], [(token, "pay", 1, 0, 2, [("orders", 0)]) for token in (8, 9, 10)])
    control.start()
    control.thread.join(timeout=10)
    os.close(server.wakeup_fd)
    assert server.disconnected[:3] == [8, 9, 10]
    assert [each.getMessage() for each in caplog.records].count("request.failed") == 1


def test_P2_a_sync_that_a_stop_overtakes_does_not_look_like_a_disk_that_fails(
    tmp_path: Path,
) -> None:
    """It was refused by the threads that had stopped, and a commit that waited was aborted."""
    storage = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=True)
    store = storage.open(Topic("orders", uuid.uuid4(), 1), 0)
    loop = asyncio.new_event_loop()
    scheduler = LoopScheduler(loop, _core.Durability(1))
    asked: list[asyncio.Future[None]] = []

    async def wait() -> None:
        asked.append(synced(scheduler.sync_each, [store]))
        loop.stop()

    task = loop.create_task(wait())
    loop.run_forever()
    scheduler.close()
    loop.run_until_complete(asyncio.sleep(0.01))  # as tasks that are cancelled are waited for
    loop.close()

    assert task.done()
    assert [future.done() for future in asked] == [False]


def test_P2_callers_in_one_turn_of_the_loop_share_their_syncs(tmp_path: Path) -> None:
    """A sync that began with the first would not cover the records of the second."""
    storage = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=True)
    store = storage.open(Topic("orders", uuid.uuid4(), 1), 0)
    store.append([(None, b"directory and epochs")], timestamp_ms=0)
    store.sync()
    loop = asyncio.new_event_loop()
    scheduler = LoopScheduler(loop, _core.Durability(6))

    def append_and_sync(value: bytes) -> "asyncio.Future[None]":
        store.append([(None, value)], timestamp_ms=0)
        return synced(scheduler.sync_each, [store])

    async def commit_all() -> int:
        before = _core.sync_count()
        await asyncio.gather(*(append_and_sync(b"%d" % number) for number in range(10)))
        return _core.sync_count() - before

    assert loop.run_until_complete(commit_all()) == 1
    scheduler.close()
    loop.close()
    store.close()


def test_a_bug_in_telling_of_a_sync_fails_who_waits_for_it(tmp_path: Path) -> None:
    """Nobody was told, and every later commit waited for that sync to end."""
    storage = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=True)
    store = storage.open(Topic("orders", uuid.uuid4(), 1), 0)
    loop = asyncio.new_event_loop()
    failed = Mock(wakeup_fd=os.eventfd(1), take=Mock(return_value=[(0, [(0, "the disk refuses")])]))
    scheduler = LoopScheduler(loop, failed)
    bug = patch.object(NativeLog, "sync_failure", side_effect=RuntimeError("a bug"))

    async def wait() -> None:
        with bug, pytest.raises(StorageError, match="a bug"):
            await asyncio.wait_for(synced(scheduler.sync_each, [store]), 10)

    loop.run_until_complete(wait())
    scheduler.close()
    os.close(failed.wakeup_fd)
    loop.close()
    store.close()
