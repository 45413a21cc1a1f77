"""`txn.Producer` and `txn.Consumer` with spans, one by one; see `TxnInstrumentor` for all."""

from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import Message
from opentelemetry.trace import TracerProvider

import txn.client
from txn.otel import records_read
from txn.otel.transaction import TracedTransaction, tracer_of


class Producer(txn.client.Producer):
    """A `txn.Producer` whose transactions are spans.

    Records of a producer without a transactional id have none.

    Args:
        config: Properties by their Kafka names.
        tracer_provider: Where spans go; None: to the process's provider.
        more: Everything else that `txn.Producer` takes.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        tracer_provider: TracerProvider | None = None,
        **more: Any,
    ) -> None:
        self._tracer = tracer_of(tracer_provider)
        super().__init__(config, **more)

    def make_transaction(
        self, consumer: confluent_kafka.Consumer | None, timeout: float
    ) -> TracedTransaction:
        """Return the block of `transaction`, not begun."""
        return TracedTransaction(self, consumer, timeout, self._tracer)

    def transaction(
        self, consumer: confluent_kafka.Consumer | None = None, timeout: float = 60.0
    ) -> TracedTransaction:
        """Return a transaction for a `with` statement, as `txn.Producer.transaction` does."""
        transaction = super().transaction(consumer, timeout)
        assert isinstance(transaction, TracedTransaction)
        return transaction


class Consumer(txn.client.Consumer):
    """A `txn.Consumer` whose records the transaction that commits them is linked to."""

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record, as `txn.Consumer.poll` does."""
        message = super().poll(timeout)
        if message is not None:
            records_read.note(self, (message,))
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records, as `txn.Consumer.consume` does."""
        messages = super().consume(num_messages, timeout)
        records_read.note(self, messages)
        return messages
