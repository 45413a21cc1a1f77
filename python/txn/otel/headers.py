"""Trace contexts in the headers of records, by the process's propagator: W3C's by default.

A record has one context at most: that of the transaction that makes it visible. A program may copy
headers from a record that it has read. The context among them is replaced, and the transaction is
linked to it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Message
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanContext, get_current_span

from txn.client.headers import headers_of
from txn.client.producer import Headers
from txn.otel.faults import log_fault

Carrier = Mapping[str, str]
"""Header → value."""


class _Fields(Getter[Carrier]):  # type: ignore[misc] # Any: see pyproject.toml
    def get(self, carrier: Carrier, key: str) -> list[str] | None:
        value = carrier.get(key.lower())
        return None if value is None else [value]

    def keys(self, carrier: Carrier) -> list[str]:
        return list(carrier)


_FIELDS: Final = _Fields()


def carrier_of(context: Context) -> dict[str, str | bytes | None]:
    """The headers that carry a context; none if it has no span of a real tracer."""
    carrier: dict[str, str | bytes | None] = {}
    if get_current_span(context).get_span_context().is_valid:
        propagate.inject(carrier, context)
    return carrier


class Stamp:
    """Puts one context into the headers of records, in place of an older one."""

    def __init__(self, context: Context) -> None:
        self._carrier: Final = carrier_of(context)
        self._pairs: Final = list(self._carrier.items())
        self._fields: Final = propagate.get_global_textmap().fields

    def on(self, headers: Headers | None) -> Headers | None:
        """The headers with the context; as they are if it has no span of a real tracer."""
        if not self._pairs:
            return headers
        if headers is None:
            return self._pairs
        if isinstance(headers, dict):
            kept = {name: value for name, value in headers.items() if not self._carries(name)}
            return {**kept, **self._carrier}
        return [*(pair for pair in headers if not self._carries(pair[0])), *self._pairs]

    def _carries(self, name: str) -> bool:
        return name.lower() in self._fields


def fields_of(message: Message) -> Carrier:
    """The headers of a record that carry a context; the last of each name, as text."""
    fields = propagate.get_global_textmap().fields
    try:
        return {
            name.lower(): value.decode(errors="replace") if isinstance(value, bytes) else value
            for name, value in headers_of(message)[0]
            if value is not None and name.lower() in fields
        }
    except Exception:
        log_fault("reading the headers of a record")
        return {}


def span_context_of(fields: Carrier) -> SpanContext | None:
    """The span that headers name; None without one."""
    try:
        context = get_current_span(_extracted(fields)).get_span_context()
    except Exception:
        log_fault("reading the context of a record")
        return None
    return context if context.is_valid else None


def context_of(message: Message) -> Context:
    """Return the context in a record's headers, as parent or link of the consumer's own span.

    Returns:
        The context of the span that sent the record, with its baggage; an empty one without.
    """
    return _extracted(fields_of(message))


def links_of(messages: Iterable[Message]) -> list[Link]:
    """Return one link for each span that sent some of the records, in their order."""
    seen: dict[frozenset[tuple[str, str]], SpanContext | None] = {}
    for message in messages:
        fields = fields_of(message)
        key = frozenset(fields.items())
        if key not in seen:
            seen[key] = span_context_of(fields)
    spans = {(c.trace_id, c.span_id): c for c in seen.values() if c is not None}
    return [Link(context) for context in spans.values()]


def _extracted(fields: Carrier) -> Context:
    return propagate.extract(fields, context=Context(), getter=_FIELDS)
