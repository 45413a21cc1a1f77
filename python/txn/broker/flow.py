"""Work on one key that may have to wait for the disk, one at a time for each key.

A *flow* is a generator. It yields `Force` when partitions must be on the disk before it
goes on, and may yield `Reply` when its answer is known though something is left to do. A
flow that never yields `Force` runs at once and its answer is simply returned; else its key
is held until it has ended, and whoever comes for that key waits in line. So nothing is
decided on a state that is about to change, and nobody is sent away to try again.

A flow goes on to its end whatever becomes of the one who asked: a connection that is gone
leaves no transaction half ended.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from txn.broker.host import Host
from txn.broker.shared_sync import not_synced
from txn.errors import StorageError
from txn.storage.base import PartitionLog

T = TypeVar("T")


class Force(NamedTuple):
    """Go on when these are on the disk; StorageError is raised at the yield if they are not."""

    stores: tuple[PartitionLog, ...]


class Reply(NamedTuple):
    """Answer now; the flow goes on behind it."""

    value: Any


Flow = Generator[Force | Reply, None, T]


def _advance(
    flow: Flow[T], failure: StorageError | None = None
) -> tuple[Force | None, Reply | None]:
    """Go on to the next wait or the end; return what to wait for, and the answer if it came."""
    reply: Reply | None = None
    try:
        step = next(flow) if failure is None else flow.throw(failure)
        while isinstance(step, Reply):
            reply = step
            step = next(flow)
    except StopIteration as end:
        return None, reply or Reply(end.value)
    return step, reply


def run_blocking(flow: Flow[T]) -> T:
    """Run a flow to its end on the calling thread, syncing what it asks for; for recovery."""
    answer: Reply | None = None
    force, reply = _advance(flow)
    while True:
        answer = answer or reply
        if force is None:
            assert answer is not None, "a flow that ended has answered"
            value: T = answer.value
            return value
        force, reply = _advance(flow, _sync_all(force.stores))


def _sync_all(stores: Iterable[PartitionLog]) -> StorageError | None:
    try:
        for store in stores:
            store.sync()
    except StorageError as error:
        return error
    return None


class Flows:
    """Runs flows, and keeps those for one key in line."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lines: dict[str, deque[_Running]] = {}
        """Key that is held → those that wait for it."""

    def is_held(self, key: str) -> bool:
        """Say whether a flow for this key is under way."""
        return key in self._lines

    async def run(self, key: str, flow: Flow[T]) -> T:
        """Run a flow and return its answer."""
        answer = self.start(key, flow)
        return await answer if isinstance(answer, asyncio.Future) else answer

    def start(self, key: str, flow: Flow[T]) -> "T | asyncio.Future[T]":
        """Run a flow at once; return its answer, or a promise of it if it has to wait."""
        line = self._lines.get(key)
        if line is not None:
            waiting = _Running(key, flow)
            line.append(waiting)
            return waiting.promise()
        force, reply = _advance(flow)
        if force is None:
            assert reply is not None, "a flow that ended has answered"
            value: T = reply.value
            return value
        self._lines[key] = deque()
        running = _Running(key, flow)
        answer = running.promise() if reply is None else reply.value
        self._wait(running, force)
        return answer

    def _wait(self, running: "_Running", force: Force) -> None:
        try:
            synced = self._host.sync(force.stores)
        except Exception as error:
            asyncio.get_running_loop().call_soon(self._step, running, not_synced(error))
            return
        synced.add_done_callback(partial(self._on_sync, running))

    def _on_sync(self, running: "_Running", synced: "asyncio.Future[None]") -> None:
        if synced.cancelled():  # the broker stops; recovery goes on from what is stored
            running.flow.close()
            return
        error = synced.exception()
        if error is not None and not isinstance(error, StorageError):
            error = not_synced(error)
        self._step(running, error)

    def _step(self, running: "_Running", failure: StorageError | None = None) -> None:
        """Take a flow to its next wait or its end."""
        force: Force | None = None
        try:
            force, reply = _advance(running.flow, failure)
            running.deliver(reply)
        except Exception as error:
            running.fail(error)
        finally:
            if force is None:
                self._release(running.key)
        if force is not None:
            self._wait(running, force)

    def _release(self, key: str) -> None:
        """Hand the key to the next in line."""
        line = self._lines[key]
        if line:
            asyncio.get_running_loop().call_soon(self._step, line.popleft())
        else:
            del self._lines[key]


class _Running:
    """A flow that has begun to wait, and who waits for its answer."""

    __slots__ = ("_answer", "flow", "key")

    def __init__(self, key: str, flow: Flow[Any]) -> None:
        self.key = key
        self.flow = flow
        self._answer: asyncio.Future[Any] | None = None

    def promise(self) -> "asyncio.Future[Any]":
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def deliver(self, reply: Reply | None) -> None:
        if reply is not None and self._is_awaited():
            assert self._answer is not None
            self._answer.set_result(reply.value)

    def fail(self, error: Exception) -> None:
        """Give a bug to who waits for the answer; raise it if nobody does."""
        if not self._is_awaited():
            raise error
        assert self._answer is not None
        self._answer.set_exception(error)

    def _is_awaited(self) -> bool:
        return self._answer is not None and not self._answer.done()
