"""A producer's hold on its engine: fit for use, or refused with the reason.

Invariant: after the engine is given up (`give_up`), closed (`detach`) or inherited by a forked
child (`abandon`), `client` raises and `append` is None. So no call reaches an engine whose
transaction is in an unknown state. The first reason stays.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from txn.client.block_state import Blocks, OpenBlock
from txn.client.callbacks import Callbacks
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.engine import Append, ProducerEngine
from txn.client.failures import (
    ENDED,
    opened_elsewhere,
    reported_by,
    timed_out,
    timeout_refused,
    translate,
)
from txn.client.redaction import Redaction
from txn.errors import Action, FencedError, InDoubtError, RejectedError, TxnError

TIMEOUT_MS: Final = 60_000
"""transaction.timeout.ms where it is left out."""


class Handle:
    """The engine of one producer, and whether it may be used.

    Args:
        whose: Which producer, as a message begins.
        callbacks: Keeps exceptions of the program's callbacks.
        redaction: Removes secrets from errors.
    """

    def __init__(self, whose: str, callbacks: Callbacks, redaction: Redaction) -> None:
        self.whose = whose
        self.callbacks = callbacks
        self.redaction = redaction
        self.blocks = Blocks()
        self.engine: ProducerEngine | None = None
        self.append: Append | None = None
        """The engine's, while it is fit for use."""
        self.timeout_ms = TIMEOUT_MS
        self.broken: TxnError | None = None
        """Why it is of no use any more."""
        self.forked_from: int | None = None

    def attach(self, engine: ProducerEngine) -> None:
        """Use this engine."""
        self.engine, self.append = engine, engine.append

    def detach(self) -> ProducerEngine | None:
        """Use no engine any more. Return the one that was used, or None if there was none."""
        self.append = None
        engine, self.engine = self.engine, None
        return engine

    def abandon(self, parent: int) -> None:
        """Refuse every use in a forked child of the process `parent`."""
        self.append = None
        self.forked_from = parent

    def client(self) -> ProducerEngine:
        """Return the engine, if it is fit for use.

        Raises:
            ForkedError: the process that opened it is another one.
            FencedError, InDoubtError: it was given up.
            RejectedError: it is closed.
        """
        if self.forked_from is not None:
            raise opened_elsewhere(self.whose, self.forked_from)
        if self.broken is not None:
            kind = InDoubtError if isinstance(self.broken, InDoubtError) else FencedError
            is_over = self.broken.action is Action.GIVE_UP
            advice = "close it" if is_over else "open another"
            raise kind(
                f"{self.whose} can no longer be used; {advice}. {self.broken}",
                action=Action.GIVE_UP if is_over else Action.REOPEN,
            )
        if self.engine is None:
            raise RejectedError(f"{self.whose} is closed; open another")
        return self.engine

    def claim(self, place: OpenBlock) -> None:
        """Make this block the open one. Raises as `client`, or RejectedError if another one is."""
        self.client()
        if not self.blocks.claim(place):
            raise RejectedError(
                f"{self.whose} has a transaction open already: a producer has one at a time. "
                "Leave that block first, or open another producer; `close` aborts it"
            )

    def give_up(self, reason: TxnError) -> None:
        """Refuse every later use: the producer is fenced, or its state is unknown."""
        self.append = None
        if self.broken is None:
            self.broken = reason

    def failure(self, error: KafkaError, doing: str) -> TxnError:
        """Return the error to raise for a report, after noting its meaning for the producer."""
        error = self.redaction.error(error)
        failure = self.timed_out(error) or translate(error, whose=self.whose, doing=doing)
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            failure = timeout_refused(error, whose=self.whose, timeout_ms=self.timeout_ms)
        if error.fatal() or isinstance(failure, FencedError):
            self.give_up(failure)
        return failure

    def timed_out(self, error: KafkaError) -> TxnError | None:
        """Return the error to raise if the cluster aborted the open transaction for its age."""
        open_ms = self.blocks.open_ms
        if error.code() not in ENDED or open_ms < self.timeout_ms:
            return None
        return timed_out(error, whose=self.whose, open_ms=open_ms, timeout_ms=self.timeout_ms)

    def wait(self, seconds: float) -> int:
        """Wait until every record is stored or given up; return how many still are neither.

        Raises the exception of a callback, as `serve` does.
        """
        waiting = self.wait_only(seconds)
        self.callbacks.raise_kept()
        return waiting

    def wait_only(self, seconds: float) -> int:
        """Wait as `wait` does; an exception of a callback is kept for later."""
        client = self.client()
        return self._reporting(lambda: client.flush(seconds))

    def count_waiting(self) -> int:
        """Return how many records are neither stored nor given up.

        librdkafka's own number includes events, as of a broker that refuses a connection, until
        they are polled.
        """
        engine = self.engine
        if engine is None:
            return 0
        self._reporting(lambda: engine.poll(0))
        return len(engine)

    def serve(self, deadline: Deadline) -> None:
        """Pause, collecting reports of delivery meanwhile."""
        client = self.client()
        self._reporting(lambda: client.poll(min(PAUSE_SECONDS, deadline.remaining)))
        self.callbacks.raise_kept()

    def await_reports(self, seconds: float) -> None:
        """Wait for reports of delivery; an exception of a callback is kept for a later call."""
        client = self.client()
        self._reporting(lambda: client.poll(seconds))

    def _reporting(self, call: Callable[[], int]) -> int:
        try:
            return call()
        except (KafkaException, SystemError) as raised:
            error = reported_by(raised)
            if error is None:
                raise
            raise self.failure(error, "waiting for its records to be stored") from raised
