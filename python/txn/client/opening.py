"""The opening of a producer: its engine, and the take-over of its transactional id.

Invariant: `take_over` returns only once the cluster has fenced every older producer of the id and
has ended its transaction. Every other outcome raises the reason: the cluster refuses, no broker is
to be reached, or the time is over.
"""

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message

from txn.client.callbacks import keeping_fatal_errors
from txn.client.deadline import PAUSE_SECONDS, Deadline
from txn.client.delivery import Delivery
from txn.client.engine import EngineName, ProducerEngine
from txn.client.failures import error_of, is_refusal
from txn.client.handle import Handle
from txn.client.librdkafka import Librdkafka
from txn.client.reach import Reach
from txn.client.redaction import Redaction
from txn.client.reports import Reports
from txn.client.settings import refused
from txn.client.two_phase import refused_two_phase
from txn.errors import TxnError


def connect(
    settings: dict[str, object],
    engine: EngineName,
    *,
    whose: str,
    reports: Reports,
    on_report: Callable[[Delivery, KafkaError | None, Message], None],
    on_failure: Callable[[str, int, KafkaError, int, Delivery | None], None],
    on_refusal: Callable[[str], None],
) -> ProducerEngine:
    """Make the engine of a producer; it does not wait for the cluster.

    Args:
        settings: The producer's configuration.
        engine: Which engine.
        whose: Which producer, as a message begins.
        reports: The deliveries of its records.
        on_report: Is called with librdkafka's report of a record that has a delivery.
        on_failure: Is called for each record that the native engine gives up.
        on_refusal: Is called if a node does not let the native engine in.

    Raises:
        ConfigError: a setting does not fit.
    """
    if engine == "native":
        from txn.client.native import NativeProducer

        for name in ("on_delivery", "error_cb", "delivery.report.only.error"):
            settings.pop(name, None)
        return NativeProducer(
            settings, whose, reports=reports, on_failure=on_failure, on_refusal=on_refusal
        )
    try:
        return Librdkafka(keeping_fatal_errors(settings), on_report)
    except KafkaException as raised:
        raise refused(whose, raised, settings) from None  # its text may have a secret


class ConnectionErrors:
    """Listens to librdkafka's reports about connections.

    Args:
        redaction: Removes secrets from them.
        reach: Is told of a log-in or certificate that is refused.
        on_error: The program's `error_cb`.
    """

    def __init__(
        self, redaction: Redaction, reach: Reach, on_error: Callable[..., object] | None
    ) -> None:
        self._redaction = redaction
        self._reach = reach
        self._on_error = on_error
        self.last = ""
        """The last report, but for "all brokers are down"."""

    def note(self, error: KafkaError) -> None:
        """Note a report, and call the program's callback."""
        error = self._redaction.error(error)
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error.str()
        if is_refusal(error):
            self._reach.refuse(error.str())
        if self._on_error is not None:
            self._on_error(error)


def take_over(
    handle: Handle,
    deadline: Deadline,
    *,
    reach: Reach,
    errors: ConnectionErrors,
    is_two_phase: bool,
) -> None:
    """Take over the transactional id.

    Args:
        handle: The engine, just opened.
        deadline: Of the cluster's answer.
        reach: Says whether a broker is there.
        errors: The connections' errors, for the message.
        is_two_phase: Whether the producer has two-phase commit.

    Raises:
        TxnError: the id was not taken over; the engine has to be closed.
    """
    client = handle.client()
    while True:
        try:
            client.init_transactions(deadline.slice() or PAUSE_SECONDS)
            reach.prove()
            return
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() > 0:  # a number of Kafka's: a broker has answered
                reach.prove()
            is_over = not error.retriable() or error.fatal()
            try:
                if not is_over:
                    handle.serve(deadline)
                    reach.check(is_over=deadline.has_passed)
            except TxnError as told:
                raise told from None  # the time-out before it says nothing
            if is_over or deadline.has_passed:
                failure = handle.failure(error, "taking over its id")
                if is_two_phase:
                    failure = refused_two_phase(error, handle.whose) or failure
                if errors.last:
                    failure.add_note(f"librdkafka said last: {errors.last}")
                raise failure from raised
