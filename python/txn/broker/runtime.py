"""The runtime of the coordinators: requests, their lines, and their waits.

A request is a generator of `txn.coordinator.operations`. The runtime carries them out; of the
coordinators it alone knows asyncio.

Invariant: one request at a time runs for a key. While one waits, others for the key wait in line.
So nothing is decided on a state that is about to change, and no client is sent away to try again.
A request that waits for nothing runs at once, and costs no task. It goes on to its end without its
client: a connection that is gone leaves no transaction half ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from txn.broker.host import Host
from txn.broker.members import PROCESS
from txn.broker.syncs import not_synced
from txn.coordinator.operations import (
    Committed,
    GiveWay,
    Later,
    Performed,
    Reply,
    Request,
    Synced,
    Until,
)
from txn.errors import StorageError
from txn.storage.base import PartitionLog
from txn.wire.error_codes import ErrorCode

T = TypeVar("T")

Refused = Callable[[ErrorCode], T]
"""Makes a request's answer from a refusal."""

Perform = Callable[[Performed], Request[Any]]

Wait = Collection[PartitionLog] | Until
"""The logs that have to be forced to the disk, or an event. No log: a turn of others."""

_NOT_YET: Final = object()


class Requests:
    """Requests that run, wait or stand in line."""

    def __init__(self, host: Host, perform: Perform | None = None) -> None:
        """Serve no request yet; `perform` gives the requests that carry out a `Performed`."""
        self._host = host
        self._perform = perform
        self._lines: dict[str, deque[_Running]] = {}
        """Key that is held → requests that wait for it."""
        self._waiting: set[_Running] = set()
        """Requests that wait for the disk, an event, or their next turn."""
        self._promises: dict[int, tuple[asyncio.Future[Any], Refused[Any]]] = {}
        """Ticket → the answer that another request gives, and the one of an unloaded shard."""

    def is_held(self, key: str) -> bool:
        """Return True if a request for this key is under way."""
        return key in self._lines

    async def run(self, key: str | None, request: Request[T], refused: "Refused[T]") -> T:
        """Run a request once its key is free, and return its answer.

        Args:
            key: Requests for it run one after the other; None: at once, beside others.
            request: Its operations.
            refused: Makes its answer from the refusal of a shard that is unloaded meanwhile.
        """
        running = _Running(key, request, refused)
        self._enter(running)
        answer: T = running.answer
        return await running.promise() if answer is _NOT_YET else answer

    async def run_or_wait(self, request: Request[T | Later], refused: "Refused[T]") -> T:
        """Run a request without a key; wait for the answer if another request gives it."""
        running = _Running(None, request, refused)
        self._enter(running)
        del request  # the wait may be long
        answer: Any = running.answer
        assert answer is not _NOT_YET, "it waits for another request, and for no disk"
        if isinstance(answer, Later):
            promise = asyncio.get_running_loop().create_future()
            self._promises[answer.ticket] = promise, refused
            del running
            answer = await promise
        given: T = answer
        return given

    def start(self, key: str | None, request: Request[Any]) -> None:
        """Run a request without a waiter once its key is free."""
        self._enter(_Running(key, request, _no_answer))

    def run_blocking(self, request: Request[T]) -> T:
        """Run a request to its end on this thread, and sync there; for a start."""
        running = _Running(None, request, _no_answer)
        failure: StorageError | None = None
        while (wait := self._advance(running, failure)) is not None:
            assert not isinstance(wait, Until), "a start waits for no event"
            failure = self._host.sync_now(wait) if wait else None
        answer: T = running.answer
        return answer

    def abandon(self, code: ErrorCode) -> None:
        """End all requests where they are, and answer them with a refusal."""
        left = [*self._waiting, *(each for line in self._lines.values() for each in line)]
        self._waiting.clear()
        self._lines.clear()
        promises, self._promises = self._promises, {}
        for running in left:
            running.abandon(code)
        for promise, refused in promises.values():
            if not promise.done():
                promise.set_result(refused(code))

    # ------------------------------------------------------------ one request

    def logs_of(self, step: Committed | Synced) -> Sequence[PartitionLog]:
        """The logs that have to be forced to the disk before a request goes on.

        Raises StorageError: one cannot be opened.
        """
        logs = []
        touched = self._host.touched
        for topic, index in step.partitions:
            log = touched(topic, index)
            if log is not None:  # None: its topic was deleted, or it holds nothing
                logs.append(log)
        if len(logs) > 1:
            logs.sort(key=_place_of)
        return logs

    def _enter(self, running: "_Running") -> None:
        key = running.key
        line = self._lines.get(key) if key is not None else None
        if line is not None:
            line.append(running)
            return
        wait = self._advance(running)
        if wait is not None:
            if key is not None:
                self._lines[key] = deque()
            self._wait(running, wait)

    def _advance(self, running: "_Running", failure: StorageError | None = None) -> Wait | None:
        """Run to the next wait and return it; None at the end."""
        request, value = running.request, None
        while True:
            try:
                step = request.send(value) if failure is None else request.throw(failure)
                value = failure = None
            except StopIteration as end:
                if running.outer is None:
                    running.deliver(end.value)
                    return None
                request, value, failure = running.leave(), end.value, None
            except StorageError as error:
                if running.outer is None:
                    raise
                request, value, failure = running.leave(), None, error
            else:
                if isinstance(step, Performed):
                    assert self._perform is not None, f"nothing performs {step}"
                    try:
                        request = running.enter(self._perform(step))
                    except StorageError as error:
                        failure = error
                elif isinstance(step, Reply):
                    self._reply(running, *step)
                elif isinstance(step, GiveWay):
                    return ()
                elif isinstance(step, Until):
                    return step
                elif self._host.durability is not PROCESS:
                    try:
                        logs = self.logs_of(step)
                    except StorageError as error:
                        failure = error
                    else:
                        if logs:
                            return logs

    def _reply(self, running: "_Running", value: object, ticket: int | None) -> None:
        if ticket is None:
            running.deliver(value)
            return
        promise, _ = self._promises.pop(ticket, (None, None))
        if promise is not None and not promise.done():  # done: the broker stops
            promise.set_result(value)

    def _wait(self, running: "_Running", wait: Wait) -> None:
        self._waiting.add(running)
        if isinstance(wait, Until):
            wait.begin(partial(self._step, running))
            return
        if not wait:
            asyncio.get_running_loop().call_soon(self._step, running)
            return
        try:
            synced = self._host.sync(wait)
        except Exception as error:
            asyncio.get_running_loop().call_soon(self._step, running, not_synced(error))
            return
        synced.add_done_callback(partial(self._on_sync, running))

    def _on_sync(self, running: "_Running", synced: "asyncio.Future[None]") -> None:
        if synced.cancelled():  # the broker stops; the next start goes on from the log
            running.close()
            return
        error = synced.exception()
        if error is not None and not isinstance(error, StorageError):
            error = not_synced(error)
        self._step(running, error)

    def _step(self, running: "_Running", failure: StorageError | None = None) -> None:
        """Run a request that waited to its next wait or its end."""
        if running not in self._waiting:  # the shard was unloaded meanwhile
            return
        self._waiting.discard(running)
        wait: Wait | None = None
        try:
            wait = self._advance(running, failure)
        except Exception as error:
            running.fail(error)
        finally:
            if wait is None and running.key is not None:
                self._release(running.key)
        if wait is not None:
            self._wait(running, wait)

    def _release(self, key: str) -> None:
        """Hand the key to the next in line."""
        line = self._lines[key]
        if line:
            following = line.popleft()
            self._waiting.add(following)
            asyncio.get_running_loop().call_soon(self._step, following)
        else:
            del self._lines[key]


class _Running:
    """A request that has begun, and the promise of its answer."""

    __slots__ = ("_promise", "_refused", "answer", "key", "outer", "request")

    def __init__(self, key: str | None, request: Request[Any], refused: "Refused[Any]") -> None:
        self.key = key
        self.request = request
        self.outer: Request[Any] | None = None
        """The request that goes on when this one has performed its operation."""
        self._refused = refused
        self.answer: Any = _NOT_YET
        self._promise: asyncio.Future[Any] | None = None

    def promise(self) -> "asyncio.Future[Any]":
        self._promise = asyncio.get_running_loop().create_future()
        return self._promise

    def deliver(self, answer: object) -> None:
        """Answer, unless it is answered."""
        if self.answer is _NOT_YET:
            self.answer = answer
            if self._promise is not None and not self._promise.done():  # done: the broker stops
                self._promise.set_result(answer)

    def enter(self, performing: Request[Any]) -> Request[Any]:
        """Continue the request that performs an operation of this one."""
        assert self.outer is None, "it is performed in turn"
        self.outer, self.request = self.request, performing
        return performing

    def leave(self) -> Request[Any]:
        """Continue the request whose operation was performed."""
        assert self.outer is not None, "it performs nothing"
        self.request, self.outer = self.outer, None
        return self.request

    def close(self) -> None:
        """End it where it is."""
        self.request.close()
        if self.outer is not None:
            self.outer.close()

    def abandon(self, code: ErrorCode) -> None:
        """End it where it is, and answer with a refusal, unless it is answered."""
        self.close()
        self.deliver(self._refused(code))

    def fail(self, error: Exception) -> None:
        """Give a bug to the caller that waits for the answer; raise it if there is none."""
        if self._promise is None or self._promise.done():
            raise error
        self._promise.set_exception(error)


def _place_of(log: PartitionLog) -> tuple[str, int]:
    return log.topic, log.index


def _no_answer(_: ErrorCode) -> None:
    """The answer of a request without a waiter."""
