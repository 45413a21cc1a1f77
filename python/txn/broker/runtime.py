"""The runtime of the coordinators: shards, and the requests that wait in them.

A shard is one partition of `__transaction_state` or `__consumer_offsets`: its log, the state that
its records fold to, and the keys in line. A request is a generator of `txn.coordinator.operations`.
The runtime carries them out; of the coordinators it alone knows asyncio.

    LOADING ──► ACTIVE ──► UNLOADED ──► LOADING …
       └──────► FAILED

Active: its log was replayed. Failed: it cannot be read, until the next start. Unloaded: another
broker leads its partition. Requests that wait or stand in line are answered with NOT_COORDINATOR,
nothing is appended any more, and state and timers are dropped; the log has all of it.

State changes only when a record that is in the log is replayed, at a start and live alike.

One request at a time runs for a key: while one waits, others for the key wait in line. So nothing
is decided on a state that is about to change, and nobody is sent away to try again. A request that
waits for nothing runs at once, and costs no task. It goes on to its end without its client: a
connection that is gone leaves no transaction half ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar

from txn.broker.host import CoordinatorPartitions, Durability, Host
from txn.broker.syncs import not_synced
from txn.coordinator.operations import Committed, GiveWay, Later, Reply, Request, Synced
from txn.errors import CorruptLogError, StorageError
from txn.storage.base import PartitionLog, ProducerIdentity
from txn.wire.error_codes import ErrorCode

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class ShardPhase(Enum):
    """Where a shard stands."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    UNLOADED = "unloaded"


Refused = Callable[[ErrorCode], T]
"""Makes a request's answer from a refusal."""

_NOT_YET: Final = object()

# Asked for several times in each transaction. By its class, a member takes CPython 3.11 0.1 us.
_PROCESS: Final = Durability.PROCESS
_UNLOADED: Final = ShardPhase.UNLOADED

LOADS_MAX: Final = 2
"""Number of times that a start reads a shard's log, while a disk keeps it from being read."""


class Shard(Generic[S, R]):
    """One partition of a coordinator's topic."""

    def __init__(
        self,
        host: Host,
        logs: CoordinatorPartitions,
        index: int,
        state: S,
        *,
        encode: Callable[["Shard[S, R]", R], tuple[bytes, bytes | None]],
        replay: Callable[["Shard[S, R]", R, int], None],
        batch_bytes_max: Callable[[], int] | None = None,
    ) -> None:
        """Make a shard that is loading.

        Args:
            host: The broker.
            logs: All partitions of its topic.
            index: The number of its own.
            state: The fold of no record.
            encode: A record's key and value; None is a tombstone.
            replay: Fold a record that was just appended into the state; gets its offset too.
            batch_bytes_max: The largest keys and values of one batch together; None: any.
        """
        self.index = index
        self.state = state
        self.phase = ShardPhase.LOADING
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """The answer to a request for this shard; NONE: it is served."""
        self.fault = ""
        """Why it failed."""
        self._host = host
        self._logs = logs
        self._encode = encode
        self._replay = replay
        self._batch_bytes_max = batch_bytes_max
        self._lines: dict[str, deque[_Running]] = {}
        """Key that is held → requests that wait for it."""
        self._waiting: set[_Running] = set()
        """Requests that wait for the disk, or for their next turn."""
        self._promises: dict[int, tuple[asyncio.Future[Any], Refused[Any]]] = {}
        """Ticket → the answer that another request gives, and the one of an unloaded shard."""

    @property
    def log(self) -> PartitionLog:
        """Its partition, opened when it is first used. Raises StorageError."""
        return self._logs[self.index]

    @property
    def waits_for_disk(self) -> bool:
        """True if its requests wait for the disk; else each wait is over at once."""
        return self._host.durability is not _PROCESS

    def load(self, replay: Callable[[], object], empty: Callable[[], S]) -> Exception | None:
        """Replay the log into the state; return the error if that fails, None if it does not.

        An error of the disk may pass, and nothing reads the log again before the next start: so a
        failed replay is repeated at once.

        Args:
            replay: Folds the whole log into the state. Raises CorruptLogError, StorageError,
                OSError.
            empty: Makes the state of no record.
        """
        failure: Exception | None = None
        for _ in range(LOADS_MAX):
            try:
                replay()
            except CorruptLogError as error:
                return error
            except (StorageError, OSError) as error:
                failure, self.state = error, empty()
            else:
                return None
        return failure

    @staticmethod
    def advice_on(failure: Exception) -> str:
        """The failure of a load, with the next step of an operator."""
        if isinstance(failure, CorruptLogError):  # it has its own
            return str(failure)
        return (
            f"{failure}. Restart the broker once the disk can be read: nothing is lost until then"
        )

    def activate(self) -> None:
        """Serve requests: the log was replayed."""
        self.phase, self.refusal = ShardPhase.ACTIVE, ErrorCode.NONE

    def fail(self, fault: str, state: S) -> None:
        """Serve nothing of this shard until the next start."""
        self.phase, self.refusal = ShardPhase.FAILED, ErrorCode.NOT_COORDINATOR
        self.fault, self.state = fault, state

    def unload(self, state: S) -> None:
        """Resign: another broker coordinates this shard from now on.

        The caller cancels the timers of the state. The result of a request that waited for the
        disk is left to the next coordinator, which finds its records or does not.

        Args:
            state: The fold of no record.
        """
        self.phase, self.refusal = ShardPhase.UNLOADED, ErrorCode.NOT_COORDINATOR
        self.state = state
        left = [*self._waiting, *(each for line in self._lines.values() for each in line)]
        self._waiting.clear()
        self._lines.clear()
        promises, self._promises = self._promises, {}
        for running in left:
            running.abandon(self.refusal)
        for promise, refused in promises.values():
            if not promise.done():
                promise.set_result(refused(self.refusal))

    def begin_load(self) -> None:
        """Load an unloaded shard: this broker coordinates it again."""
        assert self.phase is ShardPhase.UNLOADED, f"shard {self.index} is {self.phase.value}"
        self.phase, self.refusal = ShardPhase.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def is_held(self, key: str) -> bool:
        """Say whether a request for this key is under way."""
        return key in self._lines

    def append(self, records: Sequence[R], producer: tuple[int, int] | None = None) -> int:
        """Append records as one batch and replay them; return the first one's offset.

        Raises StorageError: nothing changed.
        """
        if self.phase is _UNLOADED:
            raise self._unloaded()
        encode, replay = self._encode, self._replay
        encoded = []
        for record in records:  # mostly one; a comprehension would be a call
            encoded.append(encode(self, record))
        if self._batch_bytes_max is not None:
            self._require_size(encoded, self._batch_bytes_max())
        identity = None if producer is None else ProducerIdentity(*producer)
        log = self._logs[self.index]
        offset = log.append(encoded, timestamp_ms=self._host.now_ms(), producer=identity)
        for at, record in enumerate(records, offset):
            replay(self, record, at)
        return offset

    def _require_size(self, records: Sequence[tuple[bytes, bytes | None]], largest: int) -> None:
        size = sum(len(key) + len(value or b"") for key, value in records)
        if size > largest:
            log = self.log
            raise StorageError(
                f"{log.topic}-{self.index} takes no batch of {size} bytes: message.max.bytes is "
                f"{largest}",
                topic=log.topic,
                partition=self.index,
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )

    def _unloaded(self) -> StorageError:
        log = self.log
        return StorageError(
            f"{log.topic}-{self.index} is coordinated by another broker",
            topic=log.topic,
            partition=self.index,
            code=ErrorCode.NOT_COORDINATOR,
        )

    # ------------------------------------------------------------ requests

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
        """Run a request that nobody waits for once its key is free; none of an unloaded shard."""
        running = _Running(key, request, _nobody)
        if self.phase is ShardPhase.UNLOADED:
            running.abandon(self.refusal)
        else:
            self._enter(running)

    def run_blocking(self, request: Request[T]) -> T:
        """Run a request to its end on this thread, and sync there; for a start."""
        running = _Running(None, request, _nobody)
        failure: StorageError | None = None
        while (logs := self._advance(running, failure)) is not None:
            failure = self._host.sync_now(logs) if logs else None
        answer: T = running.answer
        return answer

    def _enter(self, running: "_Running") -> None:
        key = running.key
        line = self._lines.get(key) if key is not None else None
        if line is not None:
            line.append(running)
            return
        logs = self._advance(running)
        if logs is not None:
            if key is not None:
                self._lines[key] = deque()
            self._wait(running, logs)

    def _advance(
        self, running: "_Running", failure: StorageError | None = None
    ) -> Collection[PartitionLog] | None:
        """Go on to the next wait, and return the logs to wait for; None at the end.

        Without a log the wait is a turn of others.
        """
        request = running.request
        try:
            while True:
                step = request.send(None) if failure is None else request.throw(failure)
                failure = None
                if isinstance(step, Reply):
                    self._reply(running, *step)
                elif isinstance(step, GiveWay):
                    return ()
                elif self._host.durability is not _PROCESS:
                    try:
                        logs = self._logs_of(step)
                    except StorageError as error:
                        failure = error
                    else:
                        if logs:
                            return logs
        except StopIteration as end:
            running.deliver(end.value)
            return None

    def _reply(self, running: "_Running", value: object, ticket: int | None) -> None:
        if ticket is None:
            running.deliver(value)
            return
        promise, _ = self._promises.pop(ticket, (None, None))
        if promise is not None and not promise.done():  # done: the broker stops
            promise.set_result(value)

    def _logs_of(self, step: Committed | Synced) -> Sequence[PartitionLog]:
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
        if isinstance(step, Committed):
            logs.append(self.log)
        return logs

    def _wait(self, running: "_Running", logs: Collection[PartitionLog]) -> None:
        self._waiting.add(running)
        if not logs:
            asyncio.get_running_loop().call_soon(self._step, running)
            return
        try:
            synced = self._host.sync(logs)
        except Exception as error:
            asyncio.get_running_loop().call_soon(self._step, running, not_synced(error))
            return
        synced.add_done_callback(partial(self._on_sync, running))

    def _on_sync(self, running: "_Running", synced: "asyncio.Future[None]") -> None:
        if synced.cancelled():  # the broker stops; the next start goes on from the log
            running.request.close()
            return
        error = synced.exception()
        if error is not None and not isinstance(error, StorageError):
            error = not_synced(error)
        self._step(running, error)

    def _step(self, running: "_Running", failure: StorageError | None = None) -> None:
        """Take a request that waited to its next wait or its end."""
        if running not in self._waiting:  # the shard was unloaded meanwhile
            return
        self._waiting.discard(running)
        logs: Collection[PartitionLog] | None = None
        try:
            logs = self._advance(running, failure)
        except Exception as error:
            running.fail(error)
        finally:
            if logs is None and running.key is not None:
                self._release(running.key)
        if logs is not None:
            self._wait(running, logs)

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

    __slots__ = ("_promise", "_refused", "answer", "key", "request")

    def __init__(self, key: str | None, request: Request[Any], refused: "Refused[Any]") -> None:
        self.key = key
        self.request = request
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

    def abandon(self, code: ErrorCode) -> None:
        """End it where it is, and answer with a refusal, unless it is answered."""
        self.request.close()
        self.deliver(self._refused(code))

    def fail(self, error: Exception) -> None:
        """Give a bug to the caller that waits for the answer; raise it if there is none."""
        if self._promise is None or self._promise.done():
            raise error
        self._promise.set_exception(error)


def _place_of(log: PartitionLog) -> tuple[str, int]:
    return log.topic, log.index


def _nobody(_: ErrorCode) -> None:
    """The answer of a request that nobody waits for."""
