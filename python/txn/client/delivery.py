"""`send` gives a `Delivery`: the place of one record, or why it was not stored.

    delivery = t.send("out", value)
    delivery.result(10)                 # RecordMetadata(topic="out", partition=0, offset=17, …)
    await delivery                      # the same, in asyncio
    delivery.add_done_callback(print)   # called with the delivery

| a delivery ends | with |
|---|---|
| the leader has acknowledged the record | its `RecordMetadata` |
| the record is refused, or is older than `delivery.timeout.ms` | the error of `flush` |
| its transaction is aborted before it was sent | AbortableError |
| its producer is closed before it was stored | RetriableError |

A record of a transaction has its offset before the transaction ends. Readers of committed records
see it only after the commit.

After `flush` and at the end of a block every delivery is done. Before that, whoever waits for one,
or gives a callback, starts a thread of the producer that collects reports (`reports.py`). So no
call of the program's is needed for progress.

Source: Java's `KafkaProducer.send` (a future, and a callback per record).
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from txn.errors import RejectedError, RetriableError, TxnError

_logger: Final = logging.getLogger("txn.client")


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is stored.

    Source: Java's `RecordMetadata`.
    """

    topic: str
    partition: int
    offset: int
    """-1 if the leader has stored the record earlier and no longer knows where."""
    timestamp: int
    """Milliseconds since 1970: the record's, or the broker's with `message.timestamp.type=
    LogAppendTime`."""


Stored = tuple[str, int, int, int]
"""The fields of a `RecordMetadata`, which is made only when it is asked for."""

OnDelivery = Callable[[TxnError | None, RecordMetadata | None], object]
"""A callback per record: called with (None, its metadata) or (its error, None)."""


class Collects(Protocol):
    """The producer's collector of reports, as a delivery uses it."""

    whose: str
    calling: set[int]
    """Threads that are within a callback."""

    def collect_in_background(self) -> None:
        """Make sure that reports are collected. Raises ForkedError in a forked child."""


class Delivery:
    """The delivery of one record, which `send` returns. Every method may be called from any thread.

    `await delivery` waits as `result` does, without blocking the event loop.
    """

    __slots__ = ("__weakref__", "_callbacks", "_collector", "_is_told", "_outcome", "number")

    def __init__(self, collector: Collects, number: int) -> None:
        self.number = number
        self._collector = collector
        self._outcome: RecordMetadata | Stored | TxnError | None = None
        self._callbacks: list[Callable[[Delivery], object]] = []
        self._is_told = False

    def __repr__(self) -> str:
        return f"<Delivery {'on its way' if self._outcome is None else self._ended()!r}>"

    def done(self) -> bool:
        """Return True once the record is stored or given up."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is stored, and return where.

        Args:
            timeout: Seconds to wait; None: as long as it takes, at most `delivery.timeout.ms`.

        Raises:
            TxnError: the record was not stored; the class and `action` are those of the failure.
            RetriableError: nothing is known of it yet after `timeout`; ask again.
            RejectedError: a callback of a delivery waits for another one, which cannot end.
            ForkedError: the producer belongs to the parent of this process.
        """
        outcome = self._await(timeout)
        if isinstance(outcome, RecordMetadata):
            return outcome
        raise outcome

    def exception(self, timeout: float | None = None) -> TxnError | None:
        """Wait as `result` does, and return the error; None if the record is stored.

        Raises:
            RetriableError, RejectedError, ForkedError: as `result` raises them for the wait.
        """
        outcome = self._await(timeout)
        return None if isinstance(outcome, RecordMetadata) else outcome

    def add_done_callback(self, callback: Callable[["Delivery"], object]) -> None:
        """Call `callback` with this delivery once it is done; at once if it is done already.

        The thread that collects the report calls it, or one that calls `flush`, `close` or ends a
        block. So it must be quick, and must not wait for deliveries. Its exception is logged.

        Raises:
            ForkedError: the producer belongs to the parent of this process.
        """
        self._is_told = True
        self._callbacks.append(callback)
        if self._outcome is None:
            self._collector.collect_in_background()
        if self._outcome is not None:  # it may have ended before the callback was in the list
            self._call_back()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if self._outcome is None:
            loop = asyncio.get_running_loop()
            ended = loop.create_future()

            def end() -> None:
                if not ended.done():  # by a cancellation
                    ended.set_result(None)

            def report(_: Delivery) -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(end)

            self.add_done_callback(report)
            yield from ended
        return self.result()

    # ------------------------------------------------------------ for the producer

    def settle(self, outcome: Stored | TxnError) -> None:
        """End it, and call its callbacks; only the first call counts."""
        if self._outcome is None:
            self._outcome = outcome
        if self._callbacks:
            self._call_back()

    def _ended(self) -> RecordMetadata | TxnError:
        outcome = self._outcome
        assert outcome is not None
        if isinstance(outcome, tuple):
            outcome = self._outcome = RecordMetadata(*outcome)
        return outcome

    @property
    def is_told(self) -> bool:
        """True once somebody has asked for the result, or gave a callback."""
        return self._is_told

    def _await(self, timeout: float | None) -> RecordMetadata | TxnError:
        self._is_told = True
        if self._outcome is None:
            if threading.get_ident() in self._collector.calling:
                raise RejectedError(
                    f"a callback of a delivery of {self._collector.whose} waits for another "
                    "delivery, which cannot end meanwhile. Add a callback to that one instead"
                )
            gate = threading.Lock()  # no event: a signal might leave its own lock locked
            gate.acquire()
            self._callbacks.append(lambda _: gate.release())
            self._collector.collect_in_background()
            if self._outcome is not None:
                self._call_back()
            gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        if self._outcome is None:
            raise RetriableError(
                f"{self._collector.whose} has no answer for a record after {timeout:g} s. It is "
                "still on its way: wait for its delivery again, or raise the time-out"
            )
        return self._ended()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread was faster
                return
            thread = threading.get_ident()
            self._collector.calling.add(thread)
            try:
                callback(self)
            except Exception:
                _logger.exception("A callback of a delivery of %s raised", self._collector.whose)
            finally:
                self._collector.calling.discard(thread)
