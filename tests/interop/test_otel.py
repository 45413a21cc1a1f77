"""Spans of transactions, from the producer to the consumer, on txn's broker and on Apache Kafka."""

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from support import packed
from support.clients import WAIT_S, create_topic, plain_producer, read_messages, send
from support.spans import provider_to
from support.wire_client import RawConnection
from txn import otel
from txn.errors import FencedError
from txn.wire.error_codes import ErrorCode

Unique = Callable[[str], str]


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    return provider_to(spans)


@pytest.fixture
def producer(bootstrap: str, unique: Unique, provider: TracerProvider) -> Iterator[otel.Producer]:
    name = unique("traced")
    with otel.Producer(
        bootstrap_servers=bootstrap, transactional_id=name, tracer_provider=provider
    ) as made:
        yield made


@pytest.fixture
def topics(bootstrap: str, unique: Unique) -> tuple[str, str]:
    names = unique("orders"), unique("invoices")
    for name in names:
        create_topic(bootstrap, name)
    return names


def of(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)


def test_a_committed_transaction_is_one_trace_down_to_its_records(
    bootstrap: str,
    producer: otel.Producer,
    spans: InMemorySpanExporter,
    topics: tuple[str, str],
) -> None:
    orders, invoices = topics
    with producer.transaction() as t:
        t.produce(orders, b"1", headers=[("h", b"mine")])
        t.produce(orders, b"2")
        t.produce(invoices, b"3")

    (transaction,) = of(spans, "transaction")
    (to_orders,), (to_invoices,) = of(spans, f"send {orders}"), of(spans, f"send {invoices}")
    assert attribute(transaction, "txn.outcome") == "commit"
    assert attribute(transaction, "messaging.batch.message_count") == 3
    assert attribute(transaction, "txn.transactional_id") == producer.transactional_id
    read = read_messages(bootstrap, orders)
    assert ("h", b"mine") in (read[0].headers() or ())
    found = {
        get_current_span(otel.context_of(one)).get_span_context().span_id
        for one in read + read_messages(bootstrap, invoices)
    }
    assert found == {to_orders.context.span_id, to_invoices.context.span_id}
    assert {to_orders.context.trace_id, to_invoices.context.trace_id} == {
        transaction.context.trace_id
    }


def test_the_transaction_of_an_application_is_linked_to_those_that_it_read(
    bootstrap: str,
    producer: otel.Producer,
    spans: InMemorySpanExporter,
    topics: tuple[str, str],
    unique: Unique,
) -> None:
    orders, invoices = topics
    for value in (b"1", b"2"):
        with producer.transaction() as t:
            t.produce(orders, value)
            t.produce(orders, value)
    group = unique("shop")
    consumer = otel.Consumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    consumer.subscribe([orders])
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer) as t:
        assert len(consumer.consume(4, WAIT_S)) == 4
        raise ZeroDivisionError
    with producer.transaction(consumer) as t:
        for message in [consumer.poll(WAIT_S), *consumer.consume(3, WAIT_S)]:
            assert message is not None
            t.produce(invoices, message.value(), headers=message.headers())
    consumer.close()

    sent = {span.context.span_id for span in of(spans, f"send {orders}")}
    *_, aborted, shop = of(spans, "transaction")
    assert len(sent) == 2
    assert {link.context.span_id for link in aborted.links} == sent
    assert {link.context.span_id for link in shop.links} == sent
    assert len(shop.links) == 2
    assert attribute(shop, "messaging.consumer.group.name") == group
    assert (attribute(aborted, "txn.outcome"), attribute(shop, "txn.outcome")) == (
        "abort",
        "commit",
    )
    (to_invoices,) = of(spans, f"send {invoices}")
    linked = otel.links_of(read_messages(bootstrap, invoices))
    assert [link.context.span_id for link in linked] == [to_invoices.context.span_id]


def test_a_fenced_transaction_says_so(
    bootstrap: str,
    producer: otel.Producer,
    spans: InMemorySpanExporter,
    topics: tuple[str, str],
) -> None:
    orders, _ = topics
    with pytest.raises(FencedError), producer.transaction() as t:
        t.produce(orders, b"by the zombie")
        otel.Producer(
            bootstrap_servers=bootstrap, transactional_id=producer.transactional_id
        ).close()
    (transaction,) = of(spans, "transaction")
    assert attribute(transaction, "txn.outcome") == "fenced"
    assert transaction.status.status_code is StatusCode.ERROR
    assert [event.name for event in transaction.events] == ["txn.block.end", "exception"]
    assert read_messages(bootstrap, orders) == []


def test_a_block_with_a_plain_consumer_commits_and_is_a_span(
    bootstrap: str,
    producer: otel.Producer,
    spans: InMemorySpanExporter,
    topics: tuple[str, str],
    unique: Unique,
) -> None:
    """It raised TypeError behind its commit: confluent-kafka's has no weak references."""
    orders, invoices = topics
    send(plain_producer(bootstrap), orders, [b"1"])
    plain = {"bootstrap.servers": bootstrap, "group.id": unique("g")}
    consumer = confluent_kafka.Consumer(
        {**plain, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([orders])
    with producer.transaction(consumer) as t:
        for message in consumer.consume(1, WAIT_S):
            t.produce(invoices, message.value())
    consumer.close()
    (transaction,) = of(spans, "transaction")
    assert attribute(transaction, "txn.outcome") == "commit"
    assert [each.value() for each in read_messages(bootstrap, invoices)] == [b"1"]


def test_records_with_a_header_name_that_is_no_text_are_handed_out(
    bootstrap: str, topics: tuple[str, str], unique: Unique
) -> None:
    """confluent-kafka cannot give their headers: noting such a record lost it.

    It raises a SystemError at first. A call that Python has specialised gets a pair with a NULL
    instead, as every second call does: the process ended there.
    """
    orders, _ = topics
    with RawConnection(bootstrap) as wire:
        for _ in range(100):
            (stored,) = packed.produce(wire, packed.with_a_latin_1_header(), topic=orders)
            assert stored.error_code == ErrorCode.NONE
    consumer = otel.Consumer(
        bootstrap_servers=bootstrap, group_id=unique("g"), auto_offset_reset="earliest"
    )
    consumer.subscribe([orders])
    found = [consumer.poll(WAIT_S) for _ in range(100)]
    consumer.close()
    assert [each.headers() for each in found if each is not None] == [[("h", None)]] * 100
    assert otel.links_of(each for each in found if each is not None) == []
