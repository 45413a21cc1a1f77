"""The outcomes of a producer's records: what the engine reports, and who learns of it.

Invariant: the failure of a record is raised once: by its block, or by the next `flush` or `close`
of a producer without transactions. `flush` leaves out failures that the program has learned from
the record's delivery. A delivery ends with the same outcome.
"""

from collections import deque
from collections.abc import Callable
from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException, Message

from txn.client.arguments import size_of
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.delivery import Delivery, OnDelivery
from txn.client.failures import PURGED, DeliveryFailure, error_of, undelivered
from txn.client.handle import Handle
from txn.client.reports import Reports
from txn.errors import AbortableError, ConfigError, FencedError


class Outcomes:
    """The outcomes of the records of one producer.

    Args:
        handle: Its engine.
        is_transactional: Whether its records belong to transactions.
        on_delivery: The program's callback for every record.
        only_errors: The setting `delivery.report.only.error`.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        is_transactional: bool,
        on_delivery: Callable[..., object] | None,
        only_errors: object,
    ) -> None:
        self._handle = handle
        self._is_transactional = is_transactional
        self._on_delivery = on_delivery
        self._only_errors = str(only_errors).lower() in ("true", "t", "1")
        self._failures: deque[DeliveryFailure] = deque()
        self.reports = Reports(handle.whose, in_transaction=is_transactional)

    def new_delivery(self, on_delivery: OnDelivery | None) -> Delivery:
        """Return a delivery for a record that is about to be sent. Raises ConfigError."""
        if self._only_errors:
            raise ConfigError(
                f"{self._handle.whose} has delivery.report.only.error=true, so nothing tells it "
                "what is stored: leave that out, or use produce()",
                property="delivery.report.only.error",
            )
        return self.reports.add(on_delivery)

    def forget(self) -> None:
        """Forget failures of the transaction before."""
        self._failures.clear()

    def untold(self) -> list[DeliveryFailure]:
        """Return the failures that the program has not learned from a delivery."""
        return [failure for failure in self._failures if not failure.is_told]

    # ------------------------------------------------------------ from the engine

    def note_delivery(
        self, error: KafkaError | None, message: Message, delivery: Delivery | None = None
    ) -> None:
        """Note librdkafka's report about a record, and call the program's callback."""
        if error is not None:
            error = self._handle.redaction.error(error)
            partition = message.partition()
            self.note_failure(
                message.topic() or "",
                -1 if partition is None else partition,
                error,
                size_of(message.value(), message.key()),
                delivery,
            )
        if self._on_delivery is not None:
            self._on_delivery(error, message)

    def note_report(self, delivery: Delivery, error: KafkaError | None, message: Message) -> None:
        """Note librdkafka's report about a record that has a delivery."""
        if error is None:
            offset = message.offset()
            self.reports.stored(
                delivery,
                message.topic() or "",
                message.partition() or 0,
                -1 if offset is None or offset < 0 else offset,
                message.timestamp()[1],
            )
            if self._on_delivery is not None:
                self._on_delivery(error, message)
            return
        self.note_delivery(error, message, delivery)

    def note_failure(
        self,
        topic: str,
        partition: int,
        error: KafkaError,
        size: int,
        delivery: Delivery | None = None,
    ) -> None:
        """Note that a record of `size` bytes was given up."""
        failure = DeliveryFailure(topic, partition, error, size, delivery)
        while self._failures and self._failures[0].is_told and not self._is_transactional:
            self._failures.popleft()  # of a program that never flushes
        self._failures.append(failure)
        if delivery is not None:
            self.reports.failed(delivery, failure)

    # ------------------------------------------------------------ to the program

    def raise_undelivered_behind(self, error: KafkaError) -> None:
        """Raise for records that were not stored, if they are why a call is refused.

        librdkafka says no more than that the state does not allow the call. The report of the
        record comes a moment later.
        """
        if error.code() == KafkaError._STATE and not self._failures:
            self._handle.serve(Deadline(PAUSE_SECONDS))
        self.raise_undelivered()

    def raise_undelivered(self) -> None:
        """Raise for the records that were not stored, if any were not."""
        failures = []
        while self._failures:
            failures.append(self._failures.popleft())
        if not failures:
            return
        if not self._is_transactional:
            failures = [failure for failure in failures if not failure.is_told]
            if not failures:
                return
        if self._is_transactional and all(f.error.code() in PURGED for f in failures):
            self.raise_cause()
        causes = (self._handle.timed_out(failed.error) for failed in failures)
        failure = next(filter(None, causes), None) or undelivered(
            failures, whose=self._handle.whose, in_transaction=self._is_transactional
        )
        if isinstance(failure, FencedError):
            self._handle.give_up(failure)
        raise failure

    def raise_cause(self) -> NoReturn:
        """Raise the error by which the open transaction failed in the background.

        librdkafka gives it when it refuses a transition. It refuses `begin_transaction` in every
        state in which a transaction is open. If another thread has ended it meanwhile, this begins
        one, which is empty, and ended at once.
        """
        client = self._handle.client()
        try:
            client.begin_transaction()
            client.abort_transaction(PAUSE_SECONDS)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() != KafkaError._STATE:
                raise self._handle.failure(error, "producing") from raised
        raise AbortableError(
            f"{self._handle.whose} is not in a transaction that can take records. Begin another"
        )
