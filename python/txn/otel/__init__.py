"""OpenTelemetry spans of transactions and metrics of processors: the extra `otel`.

- `Producer`, `Consumer`: `txn.Producer` and `txn.Consumer` with spans.
- `TxnInstrumentor`: gives spans to every `txn.Producer` and `txn.Consumer` of the process, and
  exports the metrics of every `txn.Processor`.
- `observe`: exports the metrics of one `txn.Processor`.
- `context_of`, `links_of`: the trace of a record, for its consumer.

A transaction is one span, from the begin of its block to the end. Each topic of it is one span of
kind PRODUCER inside, whose context is in the headers of its records. The transaction's span is
linked to those of the records that its consumer handed out. `docs/tracing.md` lists the names.

Nothing else of txn imports OpenTelemetry. `Producer.make_transaction` is the seam.

Source: OpenTelemetry's semantic conventions for messaging spans and for Kafka, W3C Trace Context.
"""

try:
    import opentelemetry.instrumentation.utils
    import opentelemetry.trace  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"txn.otel needs OpenTelemetry ({missing}). Run `pip install '.[otel]'` in txn's "
        "repository and try again",
        name=missing.name,
    ) from missing

from txn.otel.clients import Consumer, Producer
from txn.otel.headers import context_of, links_of
from txn.otel.instrumentor import TxnInstrumentor
from txn.otel.processor_metrics import observe
from txn.otel.transaction import TracedTransaction

__all__ = [
    "Consumer",
    "Producer",
    "TracedTransaction",
    "TxnInstrumentor",
    "context_of",
    "links_of",
    "observe",
]
