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
from collections.abc import Awaitable, Generator, Iterable
from typing import Any, NamedTuple, TypeVar

from txn.broker.host import Host
from txn.errors import StorageError
from txn.storage.base import PartitionStore

T = TypeVar("T")


class Force(NamedTuple):
    """Go on when these are on the disk; StorageError is raised at the yield if they are not."""

    stores: tuple[PartitionStore, ...]


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


def _sync_all(stores: Iterable[PartitionStore]) -> StorageError | None:
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
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Key that is held → who waits for it."""

    def is_held(self, key: str) -> bool:
        """Say whether a flow for this key is under way."""
        return key in self._lines

    def run(self, key: str, flow: Flow[T]) -> T | Awaitable[T]:
        """Run a flow; return its answer, or what to await for it."""
        line = self._lines.get(key)
        if line is not None:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            line.append(turn)
            return self._spawn(key, flow, turn, None)
        force, reply = _advance(flow)
        if force is not None:
            self._lines[key] = deque()
            answer = self._spawn(key, flow, None, force)
            if reply is None:
                return answer
        assert reply is not None, "a flow that ended has answered"
        value: T = reply.value
        return value

    def _spawn(
        self, key: str, flow: Flow[T], turn: "asyncio.Future[None] | None", force: Force | None
    ) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._host.spawn(self._run_on(key, flow, turn, force, answer))
        return answer

    async def _run_on(
        self,
        key: str,
        flow: Flow[T],
        turn: "asyncio.Future[None] | None",
        force: Force | None,
        answer: "asyncio.Future[T]",
    ) -> None:
        """Take a flow to its end: from its start when its turn comes, or from a wait."""
        try:
            if turn is not None:
                await turn
                force, reply = _advance(flow)
                _deliver(answer, reply)
            while force is not None:
                force, reply = _advance(flow, await self._sync(force))
                _deliver(answer, reply)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        except Exception as error:
            if answer.done():
                raise
            answer.set_exception(error)
        finally:
            if turn is None or (turn.done() and not turn.cancelled()):
                self._release(key)
            flow.close()

    async def _sync(self, force: Force) -> StorageError | None:
        try:
            await self._host.sync(force.stores)
        except StorageError as error:
            return error
        return None

    def _release(self, key: str) -> None:
        """Hand the key to the next in line."""
        line = self._lines[key]
        while line:
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._lines[key]


def _deliver(answer: "asyncio.Future[T]", reply: Reply | None) -> None:
    if reply is not None and not answer.done():
        answer.set_result(reply.value)
