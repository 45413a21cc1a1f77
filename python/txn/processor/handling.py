"""Runs a handler on a thread of its own, so that the consumer's thread can go on polling.

- A *handler of one record* is called for each record, `attempts` times before it counts as failed.
- A *coroutine function* runs in an event loop of this thread, for `concurrency` records at a time.
- A *handler of a batch* is called once. If it fails on several records, nothing says which one is
  the cause: `BatchFailedError` asks the worker for a smaller batch. One record has `attempts`.
- An exception of the types `outage` says nothing about the record. The handler is called again,
  with back-off, until it succeeds or the processor stops.

The results of records stay known until their offsets are committed: if a transaction is aborted or
a rebalance takes partitions away and returns them, their handler does not run again.
"""

import asyncio
import math
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Final

from txn.processor.letters import Failure
from txn.processor.metrics import Counters
from txn.processor.pauses import Backoff
from txn.processor.records import Output, Record, outputs_of

SLICE_S: Final = 0.1

NOT_LISTS: Final = (str, bytes, bytearray, memoryview, Mapping)
"""Iterables that are no lists of outputs."""

Result = Sequence[Output] | Failure
"""The outputs of a record, or its last error."""


class StoppedError(Exception):
    """The processor stops, and the handler has not succeeded."""


class BatchFailedError(Exception):
    """The handler of a batch failed on several records; `error` is its exception."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Handling:
    """The handler and its rules.

    Attributes:
        handle: Called with a record; None if `handle_batch` is given.
        handle_batch: Called with a sequence of records.
        output: The topic of plain values.
        attempts: Calls before a record counts as failed.
        retried: Exceptions after which a record is handled again at once; others fail it.
        outage: Exceptions that are no fault of the record.
        backoff: The pauses between calls.
        concurrency: Records that a coroutine function handles at a time.
    """

    handle: Callable[[Record], Any] | None
    handle_batch: Callable[[Sequence[Record]], Any] | None
    output: str | None
    attempts: int
    retried: tuple[type[Exception], ...]
    outage: tuple[type[Exception], ...]
    backoff: Backoff
    concurrency: int

    @property
    def is_async(self) -> bool:
        """True if its function is a coroutine function."""
        called = self.handle or self.handle_batch
        return iscoroutinefunction(called) or iscoroutinefunction(type(called).__call__)


class Runner:
    """Calls the handler, with its attempts and pauses.

    Args:
        handling: The handler and its rules.
        counters: Counts failures and seconds.
        is_stopping: Ends pauses; what has not succeeded then raises StoppedError.
    """

    def __init__(
        self, handling: Handling, counters: Counters, is_stopping: threading.Event
    ) -> None:
        self._handling = handling
        self._counters = counters
        self._is_stopping = is_stopping

    def run(self, records: Sequence[Record], loop: asyncio.Runner) -> list[Result]:
        """Return the results, as `results` does. Plain functions run outside of any event loop."""
        coroutine = self.results(records)
        if self._handling.is_async:
            return loop.run(coroutine)
        try:
            coroutine.send(None)
        except StopIteration as done:
            results: list[Result] = done.value
            return results
        raise AssertionError("a plain function awaits nothing")

    async def results(self, records: Sequence[Record]) -> list[Result]:
        """Return the result of each record; of a batch handler, all outputs at its first record.

        Raises:
            BatchFailedError: a handler of a batch failed on several records.
            RejectedError: the handler returned a value that cannot be produced.
            StoppedError: the processor stops before it has succeeded.
        """
        begun_s = time.monotonic()
        try:
            if self._handling.handle_batch is not None:
                return await self._of_batch(records)
            if not self._handling.is_async:
                return [await self._of_record(each) for each in records]
            places = asyncio.Semaphore(self._handling.concurrency)
            return await _all([self._in_turn(each, places) for each in records])
        finally:
            self._counters.add(handler_seconds=time.monotonic() - begun_s)

    async def _in_turn(self, record: Record, places: asyncio.Semaphore) -> Result:
        async with places:
            return await self._of_record(record)

    async def _of_record(self, record: Record) -> Result:
        handle = self._handling.handle
        assert handle is not None
        return await self._tried(lambda: handle(record), record)

    async def _of_batch(self, records: Sequence[Record]) -> list[Result]:
        handle = self._handling.handle_batch
        assert handle is not None
        alone = records[0] if len(records) == 1 else None
        whole = await self._tried(lambda: handle(records), alone)
        return [whole, *([] for _ in records[1:])]

    async def _tried(self, call: Callable[[], Any], record: Record | None) -> Result:
        """Call until it succeeds or the attempts are used up; None for `record`: of a batch."""
        handling = self._handling
        failures = outages = 0
        while True:
            if self._is_stopping.is_set() and failures + outages:
                raise StoppedError
            try:
                returned = call()
                if handling.is_async and isinstance(returned, Awaitable):
                    returned = await returned
                if isinstance(returned, Iterable) and not isinstance(returned, NOT_LISTS):
                    returned = list(returned)  # a generator runs here
            except handling.outage:
                outages += 1
                self._counters.add(failed=1)
                await self._pause(handling.backoff.seconds(outages))
                continue
            except Exception as error:
                failures += 1
                self._counters.add(failed=1)
                if record is None:
                    raise BatchFailedError(error) from error
                if failures >= handling.attempts or not isinstance(error, handling.retried):
                    return Failure(error, record.attempts + failures)
                await self._pause(handling.backoff.seconds(failures))
                continue
            return outputs_of(returned, None if handling.handle_batch else record, handling.output)

    async def _pause(self, seconds: float) -> None:
        if not self._handling.is_async:
            self._is_stopping.wait(seconds)
            return
        for _ in range(math.ceil(seconds / SLICE_S)):
            if self._is_stopping.is_set():
                return
            await asyncio.sleep(min(seconds, SLICE_S))


async def _all(tasks: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Gather results; if one raises, cancel the others and wait for them."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(each) for each in tasks]
    return [each.result() for each in running]


class HandlerThread:
    """A daemon thread with an event loop: it runs one batch after the other.

    A handler cannot be interrupted. So a processor that stops waits for it no longer than its
    `stop_timeout`, and then leaves the thread behind.
    """

    def __init__(self, name: str, runner: Runner) -> None:
        self._runner = runner
        self._tasks: queue.SimpleQueue[tuple[Sequence[Record], Future[list[Result]]] | None]
        self._tasks = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, records: Sequence[Record]) -> "Future[list[Result]]":
        """Handle records; the future has their results."""
        future: Future[list[Result]] = Future()
        self._tasks.put((records, future))
        return future

    def close(self) -> None:
        """End the thread once it is idle."""
        self._tasks.put(None)

    def _run(self) -> None:
        with asyncio.Runner() as loop:
            while (task := self._tasks.get()) is not None:
                records, future = task
                try:
                    results = self._runner.run(records, loop)
                except BaseExceptionGroup as raised:
                    future.set_exception(raised.exceptions[0])
                except BaseException as raised:
                    future.set_exception(raised)
                else:
                    future.set_result(results)


def require_handler(handle: object, handle_batch: object) -> None:
    """Raise TypeError unless exactly one of both is callable."""
    given = [each for each in (handle, handle_batch) if each is not None]
    if len(given) != 1 or not callable(given[0]):
        raise TypeError(
            "Processor() takes one function: handle(record), or handle_batch=… for a function of "
            "a list of records"
        )
