"""`TracedTransaction`: a block whose transaction is a span, with one span inside for each topic.

The transaction's span is the current one within the block, so spans of the program lie inside.
It ends with the block, and has the outcome by then: `commit`, `abort`, `fenced` or `unknown`.
Tracing never changes the result of a block: see `txn.otel.faults`.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import Token
from threading import Lock
from types import TracebackType
from typing import Final, Never, Self

import confluent_kafka
from confluent_kafka import Message
from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_tracer,
    set_span_in_context,
)

from txn.client.delivery import Delivery, OnDelivery
from txn.client.producer import Headers, Producer
from txn.client.transaction import BlockResult, Transaction
from txn.errors import FencedError, TxnError
from txn.otel import records_read
from txn.otel.faults import log_faults
from txn.otel.headers import Stamp, links_of

SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"

COMMON: Final = {"messaging.system": "kafka"}


def tracer_of(provider: TracerProvider | None) -> Tracer:
    """The tracer of a provider; None: of the process's."""
    return get_tracer("txn.otel", tracer_provider=provider, schema_url=SCHEMA)


class _TopicSend:
    """The span of a topic's records in one transaction."""

    def __init__(self, tracer: Tracer, topic: str, context: Context) -> None:
        self.topic = topic
        self.produced = 0
        self.span = tracer.start_span(
            f"send {topic}",
            context,
            SpanKind.PRODUCER,
            attributes={
                **COMMON,
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": topic,
            },
        )
        self.stamp: Final = Stamp(set_span_in_context(self.span, context))

    def end(self, result: BlockResult, error: BaseException | None) -> None:
        """End the span; the error is its own if it names the topic."""
        self.span.set_attribute("messaging.batch.message_count", self.produced)
        self.span.set_attribute("txn.outcome", result.value)
        if isinstance(error, TxnError) and error.topic == self.topic:
            _fail(self.span, error)
        self.span.end()


class TracedTransaction(Transaction):
    """A `txn.client.transaction.Transaction` with spans; the value of `producer.transaction()`.

    Args:
        producer: Its producer.
        consumer: Whose offsets to commit with it.
        timeout: Seconds that ending may take.
        tracer: Where spans go.
    """

    def __init__(
        self,
        producer: Producer,
        consumer: confluent_kafka.Consumer | None,
        timeout: float,
        tracer: Tracer,
    ) -> None:
        super().__init__(producer, consumer, timeout)
        self._tracer = tracer
        self._attributes: dict[str, str] = {
            **COMMON,
            "messaging.operation.name": "transaction",
        }
        if producer.transactional_id is not None:  # a block without it cannot begin
            self._attributes["txn.transactional_id"] = producer.transactional_id
        group = getattr(consumer, "group_id", None)
        if group is not None:
            self._attributes["messaging.consumer.group.name"] = group
        self._span: Span | None = None  # while the block is open
        self._token: Token[Context] | None = None
        self._context = Context()
        self._sends: dict[str, _TopicSend | None] = {}  # None: its span could not begin
        self._sends_lock = Lock()

    def __enter__(self) -> Self:
        begun_ns = time.time_ns()
        try:
            super().__enter__()
        except BaseException as error:
            is_fenced = isinstance(error, FencedError)
            result = BlockResult.FENCED if is_fenced else BlockResult.ABORTED
            with log_faults("the span of a transaction that could not begin"):
                _end(self._start(begun_ns), result, 0, error)
            raise
        try:
            with log_faults("beginning the span of a transaction"):
                span = self._start(begun_ns)
                self._context = set_span_in_context(span)
                self._token = contexts.attach(self._context)
                self._span = span
        except BaseException as signal:  # Python calls no __exit__, and the transaction is open
            self.__exit__(type(signal), signal, signal.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        body_ended_ns = time.time_ns()
        raised = error
        try:
            super().__exit__(kind, error, traceback)
        except BaseException as failure:
            raised = failure
            raise
        finally:
            self._end_spans(raised, body_ended_ns)

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        **others: Never,
    ) -> None:
        """Add a record, as `Transaction.produce` does, with the trace context in its headers.

        A context that the headers have already is replaced.
        """
        send = self._send_to(topic)
        if send is not None:
            headers = send.stamp.on(headers)
        with self._counted(send):
            super().produce(
                topic,
                value,
                key,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                **others,
            )

    def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Add a record, as `Transaction.send` does, with the trace context in its headers.

        A context that the headers have already is replaced.
        """
        send = self._send_to(topic)
        if send is not None:
            headers = send.stamp.on(headers)
        with self._counted(send):
            return super().send(
                topic,
                value,
                key,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                on_delivery=on_delivery,
            )

    @contextmanager
    def _counted(self, send: _TopicSend | None) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if send is not None:
                with log_faults("the error of a record"):
                    send.span.record_exception(error)
            raise
        if send is not None:
            with self._sends_lock:
                send.produced += 1

    def link(self, messages: Iterable[Message]) -> None:
        """Link the transaction to the spans that sent these records.

        For records of a plain `confluent_kafka.Consumer`, or of a group that commits elsewhere.
        Records of a `txn.otel.Consumer` that is the block's are linked without it.
        """
        if self._span is not None:
            for link in links_of(messages):
                with log_faults("linking records"):
                    self._span.add_link(link.context)

    def _start(self, begun_ns: int) -> Span:
        return self._tracer.start_span(
            "transaction", kind=SpanKind.CLIENT, attributes=self._attributes, start_time=begun_ns
        )

    def _send_to(self, topic: str) -> _TopicSend | None:
        """The span of a topic, begun at its first record; None outside the block or without."""
        with self._sends_lock:
            if self._span is None:
                return None
            if topic not in self._sends:
                self._sends[topic] = None
                with log_faults("beginning the span of a topic"):
                    self._sends[topic] = _TopicSend(self._tracer, topic, self._context)
            return self._sends[topic]

    def _end_spans(self, error: BaseException | None, body_ended_ns: int) -> None:
        result = self.result or BlockResult.IN_DOUBT  # None: a second signal cut the end short
        with self._sends_lock:
            span, self._span = self._span, None
        if self._token is not None:
            contexts.detach(self._token)
            self._token = None
        if span is None:
            return
        sends = [send for send in self._sends.values() if send is not None]
        for send in sends:
            with log_faults("ending the span of a topic"):
                send.end(result, error)
        with log_faults("linking the records of its consumer"):
            span.add_event("txn.block.end", timestamp=body_ended_ns)
            for read in records_read.take(self._consumer) if self._consumer is not None else ():
                span.add_link(read)
        with log_faults("ending the span of a transaction"):
            _end(span, result, sum(send.produced for send in sends), error)


def _end(span: Span, result: BlockResult, produced: int, error: BaseException | None) -> None:
    span.set_attribute("messaging.batch.message_count", produced)
    span.set_attribute("txn.outcome", result.value)
    if error is not None:
        if result is BlockResult.COMMITTED:  # a signal that waited for the commit
            span.record_exception(error)
        else:
            _fail(span, error)
    span.end()


def _fail(span: Span, error: BaseException) -> None:
    """Record the error that ended a span, and its kind: Kafka's name for it, else its class."""
    name = error.name if isinstance(error, TxnError) and error.name else type(error).__qualname__
    span.set_attribute("error.type", name)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))
