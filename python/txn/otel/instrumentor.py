"""`TxnInstrumentor`: spans for every `txn.Producer` and `txn.Consumer`, metrics of every processor.

The entry point `opentelemetry_instrumentor` names it, so `opentelemetry-instrument python app.py`
finds it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Message
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.instrumentation.utils import unwrap
from wrapt import wrap_function_wrapper

import txn.client
import txn.processor
from txn.client.native_consumer import NativeConsumer
from txn.otel import records_read
from txn.otel.faults import log_faults
from txn.otel.processor_metrics import observe
from txn.otel.transaction import TracedTransaction, tracer_of

_READS: Final = (
    (txn.client.Consumer, "poll"),
    (txn.client.Consumer, "consume"),
    (NativeConsumer, "poll"),  # its fast path does not call the other
)
"""Methods that hand out records. A record that passes through two of them is noted once."""


class TxnInstrumentor(BaseInstrumentor):  # type: ignore[misc] # Any: see pyproject.toml
    """Spans of transactions and metrics of processors for the whole process.

    `TxnInstrumentor().instrument(tracer_provider=None, meter_provider=None)` begins. After
    `uninstrument()` a transaction keeps the spans it began with, and a processor its metrics.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """The packages that are instrumented."""
        return ("txn",)

    def _instrument(self, **given: Any) -> None:
        tracer = tracer_of(given.get("tracer_provider"))

        def traced(
            _: Callable[..., Any],
            producer: txn.client.Producer,
            args: tuple[confluent_kafka.Consumer | None, float],
            _named: Mapping[str, Any],
        ) -> TracedTransaction:
            return TracedTransaction(producer, *args, tracer)

        def observed(
            made: Callable[..., None],
            processor: txn.processor.Processor,
            args: tuple[Any, ...],
            named: Mapping[str, Any],
        ) -> None:
            made(*args, **named)
            with log_faults("the metrics of a processor"):
                observe(processor, meter_provider=given.get("meter_provider"))

        wrap_function_wrapper(txn.processor.Processor, "__init__", observed)
        wrap_function_wrapper(txn.client.Producer, "make_transaction", traced)
        for reader, method in _READS:
            wrap_function_wrapper(reader, method, _noted)

    def _uninstrument(self, **_: Any) -> None:
        unwrap(txn.processor.Processor, "__init__")
        unwrap(txn.client.Producer, "make_transaction")
        for reader, method in _READS:
            unwrap(reader, method)


def _noted(
    wrapped: Callable[..., Message | list[Message] | None],
    consumer: txn.client.Consumer,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Message | list[Message] | None:
    result = wrapped(*args, **named)
    messages = result if isinstance(result, list) else [result] if result is not None else []
    records_read.note(consumer, messages)
    return result
