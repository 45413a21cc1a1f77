"""The instrumentor links a transaction to every record that a native consumer hands out."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import txn
from support.spans import provider_to
from txn.otel import TxnInstrumentor
from txn.testing import TestBroker

RECORDS = 5


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    spans = InMemorySpanExporter()
    instrumentor = TxnInstrumentor()
    instrumentor.instrument(tracer_provider=provider_to(spans))
    yield spans
    instrumentor.uninstrument()


def test_records_of_the_fast_path_are_linked(
    broker: TestBroker, spans: InMemorySpanExporter
) -> None:
    topic = broker.create_topic(partitions=1)
    servers = broker.bootstrap_servers
    with txn.Producer(bootstrap_servers=servers, transactional_id=f"in-{topic}") as producer:
        for number in range(RECORDS):
            with producer.transaction() as t:
                t.produce(topic, b"%d" % number)
    spans.clear()
    with (
        txn.Producer(
            bootstrap_servers=servers, transactional_id=f"out-{topic}", engine="native"
        ) as producer,
        txn.Consumer(
            bootstrap_servers=servers,
            group_id=topic,
            engine="native",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        consumer.subscribe([topic])
        with producer.transaction(consumer) as t:
            for _ in range(RECORDS):
                assert consumer.poll(30) is not None
            t.produce(topic, b"out")
    (transaction,) = [span for span in spans.get_finished_spans() if span.name == "transaction"]
    assert len(transaction.links) == RECORDS
