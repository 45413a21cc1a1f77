"""Deliveries that have no report yet, and the thread that collects reports for them.

A producer collects reports whenever it polls: in `flush`, at the end of a block, and when its
queue is full. A delivery that is awaited in between needs somebody else. So the first wait or
callback starts a thread, which ends after `IDLE_SECONDS` without a delivery on its way, and with
its producer. A program that only flushes has no such thread.

The thread is a daemon, and is stopped before the interpreter goes: one that comes back from native
code later than that would be ended in the middle of it.
"""

import atexit
import itertools
import logging
import threading
import time
from functools import partial
from typing import Final, Protocol
from weakref import WeakSet

from txn.client.delivery import Delivery, OnDelivery, Stored
from txn.client.failures import PURGED, DeliveryFailure, opened_elsewhere, undelivered
from txn.errors import AbortableError, RetriableError, TxnError

IDLE_SECONDS: Final = 1.0

SLICE_SECONDS: Final = 0.1
"""Longest wait of the thread before it looks whether it should end."""

_logger: Final = logging.getLogger("txn.client")


class Source(Protocol):
    """The engine that has the reports."""

    def collect(self, timeout: float, /) -> int:
        """Wait for reports, hand them out, and return how many there were."""


class Reports:
    """The deliveries of one producer.

    Args:
        whose: Their producer, as a message begins.
        in_transaction: Whether its records belong to transactions.
    """

    def __init__(self, whose: str, *, in_transaction: bool) -> None:
        self.whose = whose
        self.waiting: dict[int, Delivery] = {}
        """Deliveries that are not done, by number."""
        self.calling: set[int] = set()
        self._in_transaction = in_transaction
        self._numbers = itertools.count(1)
        self._source: Source | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_over = False
        self._forked_from: int | None = None

    def begin(self, source: Source) -> None:
        """Collect from this engine."""
        self._source = source

    def add(self, on_delivery: OnDelivery | None) -> Delivery:
        """Return a delivery for a record that is about to be sent."""
        delivery = Delivery(self, next(self._numbers))
        self.waiting[delivery.number] = delivery
        if on_delivery is not None:
            delivery.add_done_callback(partial(_call, on_delivery))
        return delivery

    def remove(self, delivery: Delivery) -> None:
        """Forget a delivery whose record was not taken."""
        self.waiting.pop(delivery.number, None)

    def stored(
        self, delivery: Delivery, topic: str, partition: int, offset: int, timestamp: int
    ) -> None:
        """End a delivery: the record is stored there."""
        self._settle(delivery, (topic, partition, offset, timestamp))

    def failed(self, delivery: Delivery, failure: DeliveryFailure) -> None:
        """End a delivery: the record is given up."""
        self._settle(delivery, self._error(failure))

    def close(self) -> None:
        """End every delivery that is left: its producer sends nothing more."""
        self._is_over = True
        self._source = None  # librdkafka's threads end with the last reference to it
        for delivery in list(self.waiting.values()):
            error = RetriableError(
                f"{self.whose} was closed before a record was known to be stored. It may be "
                "stored all the same; look before you send it again"
            )
            self._settle(delivery, error)

    def abandon(self, parent: int) -> None:
        """Be of no use in a forked child, where the thread is not."""
        self._forked_from = parent

    def collect_in_background(self) -> None:
        """Make sure that the thread runs; see `Collects`."""
        if self._forked_from is not None:
            raise opened_elsewhere(self.whose, self._forked_from)
        with self._starting:
            if self._thread is None and not self._is_over:
                _stop_at_exit(self)
                self._thread = threading.Thread(
                    target=self._run, name="txn-deliveries", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._is_over = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(IDLE_SECONDS)

    # ------------------------------------------------------------ inside

    def _settle(self, delivery: Delivery, outcome: Stored | TxnError) -> None:
        self.waiting.pop(delivery.number, None)
        delivery.settle(outcome)

    def _error(self, failure: DeliveryFailure) -> TxnError:
        if failure.error.code() in PURGED:
            kind, why = (
                (AbortableError, "its transaction was aborted. Begin another")
                if self._in_transaction
                else (RetriableError, "its producer was closed. Send it with another one")
            )
            return kind(
                f"{self.whose} dropped a record of {failure.topic!r} before it was sent: {why}",
                topic=failure.topic,
                partition=failure.partition,
                code=failure.error.code(),
                name=failure.error.name(),
            )
        return undelivered([failure], whose=self.whose, in_transaction=self._in_transaction)

    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            if self._collect() or self.waiting:
                idle_since = time.monotonic()
            with self._starting:
                is_idle = time.monotonic() - idle_since > IDLE_SECONDS and not self.waiting
                if self._is_over or is_idle:
                    self._thread = None
                    return

    def _collect(self) -> int:
        source = self._source
        if source is None:
            return 0
        try:
            return source.collect(SLICE_SECONDS)
        except Exception:
            # A fatal error, which the producer's next call raises; the thread only hands out.
            _logger.debug("%s could not collect reports", self.whose, exc_info=True)
            time.sleep(SLICE_SECONDS)
            return 0


def _call(on_delivery: OnDelivery, delivery: Delivery) -> None:
    error = delivery.exception()
    on_delivery(error, None if error is not None else delivery.result())


_collecting: Final[WeakSet[Reports]] = WeakSet()


def _stop_at_exit(reports: Reports) -> None:
    _collecting.add(reports)
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)


def _stop_all() -> None:
    for reports in list(_collecting):
        reports.stop()
