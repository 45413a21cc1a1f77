"""The spans that sent the records of a consumer, until a transaction is linked to them.

A consumer's records belong to the next block with it, also those read before the block began. So
each consumer has its own spans here, of the records handed out since its last block.

The records are taken already when they are noted. So a fault of tracing costs their links alone,
and a signal meanwhile makes the consumer lose its place, as one within `poll` does.
"""

import os
from collections.abc import Iterable
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

import confluent_kafka
from confluent_kafka import Message
from opentelemetry.trace import SpanContext

import txn.client
from txn.otel.faults import log_fault
from txn.otel.headers import Carrier, fields_of, span_context_of

LINKS_MAX: Final = 128
"""Spans kept for one transaction: as many as OpenTelemetry's SDK links by default."""

_lock = Lock()
_fields: Final[WeakKeyDictionary[confluent_kafka.Consumer, dict[frozenset[object], Carrier]]] = (
    WeakKeyDictionary()
)
"""Consumer → the distinct contexts of its records, as their headers."""


def _begin_in_child() -> None:
    """Replace the lock in a forked child, which a thread of the parent may hold."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_begin_in_child)


def note(consumer: txn.client.Consumer, messages: Iterable[Message]) -> None:
    """Remember the spans of records that a consumer hands out; the first `LINKS_MAX` of them."""
    try:
        _note(consumer, messages)
    except Exception:
        log_fault("noting the records of a consumer")
    except BaseException:  # the records do not reach the program
        consumer._positions.note_interrupt()
        raise


def _note(consumer: txn.client.Consumer, messages: Iterable[Message]) -> None:
    found = [fields for message in messages if (fields := fields_of(message))]
    if not found:
        return
    with _lock:
        known = _fields.setdefault(consumer, {})
        for fields in found:
            if len(known) < LINKS_MAX:
                known.setdefault(frozenset(fields.items()), fields)


def take(consumer: confluent_kafka.Consumer) -> list[SpanContext]:
    """Return the spans noted for a consumer, and forget them."""
    try:
        with _lock:
            known = _fields.pop(consumer, {})
    except TypeError:  # confluent-kafka's own has no weak references, and nobody notes its records
        return []
    contexts = (span_context_of(fields) for fields in known.values())
    return [context for context in contexts if context is not None]
