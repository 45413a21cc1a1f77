"""Spans of transactions over a script of librdkafka's answers: outcomes, headers, links."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

import txn.client
from support.client_script import (
    NO_SUCH_STATE,
    TIMED_OUT,
    FakeConsumer,
    ScriptedProducer,
    fatal,
    requires_abort,
    scripted,
)
from support.spans import provider_to
from txn.client.block_consumer import lost_partitions_text
from txn.client.transaction import BlockResult
from txn.errors import AbortableError, FencedError, InDoubtError, RejectedError
from txn.otel import (
    Consumer,
    TracedTransaction,
    TxnInstrumentor,
    context_of,
    links_of,
    records_read,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    return provider_to(spans)


@pytest.fixture
def tracer(provider: TracerProvider) -> trace.Tracer:
    return provider.get_tracer("test")


def traced(
    producer: ScriptedProducer, tracer: trace.Tracer, member: FakeConsumer | None = None
) -> TracedTransaction:
    return TracedTransaction(producer, member, 0, tracer)  # type: ignore[arg-type]


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


class Record:
    """A message with headers."""

    def __init__(self, *headers: tuple[str, bytes | None]) -> None:
        self._headers = list(headers)

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers or None


def record(*headers: tuple[str, bytes | None]) -> Message:
    return Record(*headers)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answers", "raised", "outcome", "status", "kind"),
    [
        ({}, None, "commit", StatusCode.UNSET, None),
        ({"commit_transaction": [TIMED_OUT]}, InDoubtError, "unknown", StatusCode.ERROR, ...),
        (
            {"commit_transaction": [KeyboardInterrupt(), NO_SUCH_STATE]},
            KeyboardInterrupt,
            "commit",
            StatusCode.UNSET,
            None,
        ),
        (
            {"commit_transaction": [requires_abort(KafkaError._INCONSISTENT)]},
            AbortableError,
            "abort",
            StatusCode.ERROR,
            "_INCONSISTENT",
        ),
        (
            {"commit_transaction": [fatal(KafkaError.PRODUCER_FENCED)]},
            FencedError,
            "fenced",
            StatusCode.ERROR,
            "PRODUCER_FENCED",
        ),
    ],
)
def test_the_span_of_a_transaction_has_its_outcome_and_error(
    tracer: trace.Tracer,
    spans: InMemorySpanExporter,
    answers: dict[str, list[Any]],
    raised: type[BaseException] | None,
    outcome: str,
    status: StatusCode,
    kind: Any,
) -> None:
    producer, _ = scripted(**answers)

    with pytest.raises(raised) if raised else nullcontext(), traced(producer, tracer) as t:
        t.produce("orders", b"1")
        t.produce("orders", b"2")
        t.produce("returns", b"3")

    transaction, send = named(spans, "transaction"), named(spans, "send orders")
    assert attributes(transaction) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "transaction",
        "messaging.batch.message_count": 3,
        "txn.transactional_id": "p",
        "txn.outcome": outcome,
    } | ({"error.type": "InDoubtError" if kind is ... else kind} if kind else {})
    assert attributes(send) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 2,
        "txn.outcome": outcome,
    }
    assert (transaction.kind, send.kind) == (SpanKind.CLIENT, SpanKind.PRODUCER)
    assert transaction.status.status_code is status
    assert send.parent is not None
    assert send.parent.span_id == transaction.context.span_id
    recorded = [event.name for event in transaction.events]
    assert recorded == ["txn.block.end"] + ["exception"] * (raised is not None)
    assert len(spans.get_finished_spans()) == 3


def test_the_programs_own_exception_is_the_error_of_an_aborted_transaction(
    tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    producer, script = scripted()
    with pytest.raises(ZeroDivisionError), traced(producer, tracer):
        raise ZeroDivisionError("a reason")
    span = named(spans, "transaction")
    told = attributes(span)
    assert script.calls[-1] == "abort_transaction"
    assert (told["txn.outcome"], told["error.type"]) == ("abort", "ZeroDivisionError")
    assert span.status.description == "a reason"


def test_a_transaction_that_cannot_begin_is_a_failed_span(
    tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    producer, _ = scripted(begin_transaction=[fatal(KafkaError._FENCED)])
    with pytest.raises(FencedError, match="_FENCED"), traced(producer, tracer):
        pass
    span = named(spans, "transaction")
    assert attributes(span)["txn.outcome"] == "fenced"
    assert span.status.status_code is StatusCode.ERROR


def test_a_block_entered_twice_ends_the_span_of_the_first_alone(
    tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    producer, _ = scripted()
    with traced(producer, tracer) as t:
        with pytest.raises(RejectedError, match="begun before"), t:
            pass
        t.produce("orders", b"1")
    ended = [attributes(s)["txn.outcome"] for s in spans.get_finished_spans()]
    assert ended == ["abort", "commit", "commit"]  # the second entry, the topic, the transaction


def test_a_record_behind_the_block_is_refused_and_begins_no_span(
    provider: TracerProvider,
) -> None:
    begun: list[str] = []
    watch = SpanProcessor()
    watch.on_start = lambda span, parent_context=None: begun.append(span.name)
    provider.add_span_processor(watch)
    tracer = provider.get_tracer("test")
    producer, _ = scripted()
    with traced(producer, tracer) as t:
        pass
    with pytest.raises(RejectedError, match="transaction is over"):
        t.produce("orders", b"late")
    assert begun == ["transaction"]


def test_spans_of_the_program_lie_inside_and_the_context_is_put_back(
    tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    producer, _ = scripted()
    with tracer.start_as_current_span("request") as request:
        with traced(producer, tracer), tracer.start_as_current_span("work"):
            pass
        assert get_current_span() is request
    work, transaction = named(spans, "work"), named(spans, "transaction")
    assert work.parent is not None
    assert work.parent.span_id == transaction.context.span_id
    assert transaction.parent is not None
    assert transaction.parent.span_id == request.get_span_context().span_id


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, []),
        ([("h", b"1")], [("h", b"1")]),
        ({"h": b"1"}, [("h", b"1")]),
        ([("traceparent", PARENT.encode()), ("h", None)], [("h", None)]),
        ({"Traceparent": PARENT, "tracestate": "a=b", "h": "1"}, [("h", "1")]),
    ],
)
def test_headers_carry_the_span_of_the_topic_and_replace_an_older_one(
    tracer: trace.Tracer,
    spans: InMemorySpanExporter,
    given: Any,
    kept: list[tuple[str, Any]],
) -> None:
    producer, script = scripted()
    with traced(producer, tracer) as t:
        t.produce("orders", b"1", headers=given)
    sent = named(spans, "send orders").context
    headers = script.headers[0]
    context = f"00-{sent.trace_id:032x}-{sent.span_id:016x}-{sent.trace_flags:02x}"
    pairs = list(headers.items() if isinstance(headers, dict) else headers)
    assert pairs == [*kept, ("traceparent", context)]


def test_baggage_of_the_blocks_begin_goes_along(tracer: trace.Tracer) -> None:
    producer, script = scripted()
    token = context.attach(baggage.set_baggage("tenant", "7"))
    try:
        with traced(producer, tracer) as t:
            t.produce("orders", b"1")
    finally:
        context.detach(token)
    assert ("baggage", "tenant=7") in script.headers[0]


def test_without_the_sdk_headers_stay_as_they_were() -> None:
    producer, script = scripted()
    with traced(producer, trace.NoOpTracer()) as t:
        t.produce("orders", b"1", headers=[("traceparent", b"mine")])
        t.produce("orders", b"2")
    assert script.headers == [[("traceparent", b"mine")], None]


def test_records_of_many_threads_are_counted_in_one_span(
    tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    producer, _ = scripted()
    with traced(producer, tracer) as t:

        def produce_many() -> None:
            for _ in range(200):
                t.produce("orders", b"1")

        threads = [threading.Thread(target=produce_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert attributes(named(spans, "send orders"))["messaging.batch.message_count"] == 800


# ---------------------------------------------------------------- consumers


def test_a_record_gives_its_context() -> None:
    found = get_current_span(context_of(record(("traceparent", PARENT.encode()))))
    given = found.get_span_context()
    assert (f"{given.trace_id:032x}", f"{given.span_id:016x}") == (TRACE, SPAN)
    assert given.is_remote


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("traceparent", None),),
        (("traceparent", b"\xff\xfe"),),
        (("traceparent", b"00-0-0-01"),),
        (("other", PARENT.encode()),),
    ],
)
def test_a_record_without_a_sound_context_gives_an_empty_one(
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    assert not get_current_span(context_of(record(*headers))).get_span_context().is_valid
    assert links_of([record(*headers)]) == []


def test_the_last_of_two_headers_counts() -> None:
    other = PARENT.replace(SPAN, "1" * 16).encode()
    found = links_of([record(("traceparent", other), ("traceparent", PARENT.encode()))])
    assert [f"{link.context.span_id:016x}" for link in found] == [SPAN]


def test_records_of_one_span_are_one_link() -> None:
    other = PARENT.replace(SPAN, "1" * 16).encode()
    records = [record(("traceparent", value)) for value in (PARENT.encode(), other) * 3]
    assert [f"{link.context.span_id:016x}" for link in links_of(records)] == [SPAN, "1" * 16]


def test_a_transaction_is_linked_to_the_records_of_its_consumer_once(
    tracer: trace.Tracer, spans: InMemorySpanExporter
) -> None:
    producer, _ = scripted()
    member = FakeConsumer()
    read = [record(("traceparent", PARENT.encode()))] * 3
    records_read.note(member, read[:1])  # type: ignore[arg-type]
    with traced(producer, tracer, member):
        records_read.note(member, read[1:])  # type: ignore[arg-type]
    with traced(producer, tracer, member):
        pass
    linked = [
        [f"{link.context.span_id:016x}" for link in span.links]
        for span in spans.get_finished_spans()
    ]
    assert linked == [[SPAN], []]


def test_a_consumer_that_is_in_no_transaction_keeps_a_bounded_number_of_spans() -> None:
    member = FakeConsumer()
    values = [f"00-{TRACE}-{n:016x}-01".encode() for n in range(1, 1000)]
    records_read.note(member, [record(("traceparent", value)) for value in values])  # type: ignore[arg-type]
    assert len(records_read.take(member)) == records_read.LINKS_MAX  # type: ignore[arg-type]


def test_records_can_be_linked_by_hand(tracer: trace.Tracer, spans: InMemorySpanExporter) -> None:
    producer, _ = scripted()
    with traced(producer, tracer) as t:
        t.link([record(("traceparent", PARENT.encode()))])
    (link,) = named(spans, "transaction").links
    assert f"{link.context.span_id:016x}" == SPAN


# ---------------------------------------------------------------- faults of tracing


class Faulted:
    """A message whose headers cannot be read."""

    def headers(self) -> None:
        raise ValueError("a fault of the message")


FAULTED: Message = Faulted()  # type: ignore[assignment]


def test_a_record_whose_headers_cannot_be_read_has_no_link_and_the_next_one_has() -> None:
    """Noting it raised behind `poll`: the record was handed out, and lost with the exception."""
    member = FakeConsumer()
    sound = record(("traceparent", PARENT.encode()))
    records_read.note(member, [FAULTED, sound])  # type: ignore[arg-type]
    assert [f"{c.span_id:016x}" for c in records_read.take(member)] == [SPAN]  # type: ignore[arg-type]
    assert [f"{link.context.span_id:016x}" for link in links_of([FAULTED, sound])] == [SPAN]
    assert not get_current_span(context_of(FAULTED)).get_span_context().is_valid


class Signalled:
    """A message at whose headers Ctrl-C comes."""

    def headers(self) -> None:
        raise KeyboardInterrupt


def handing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn.client.Consumer, "poll", lambda *_: Signalled())
    monkeypatch.setattr(txn.client.Consumer, "consume", lambda *_: [Signalled()])


def polled(consumer: txn.client.Consumer) -> None:
    consumer.poll(0)


def consumed(consumer: txn.client.Consumer) -> None:
    consumer.consume(1, 0)


@pytest.mark.parametrize("read", [polled, consumed])
def test_ctrl_c_while_a_record_is_noted_makes_the_consumer_lose_its_place(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[txn.client.Consumer], None]
) -> None:
    """The record was taken and did not reach the program; the next block committed past it."""
    handing_out(monkeypatch)
    consumer = Consumer(bootstrap_servers="h:1", group_id="g")
    with pytest.raises(KeyboardInterrupt):
        read(consumer)
    lost = lost_partitions_text(consumer, None, produced=False)
    consumer.close()
    assert lost is not None
    assert "interrupted" in lost


@pytest.mark.parametrize("read", [polled, consumed])
def test_ctrl_c_while_the_instrumentor_notes_a_record_makes_the_consumer_lose_its_place(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[txn.client.Consumer], None]
) -> None:
    handing_out(monkeypatch)
    instrumentor = TxnInstrumentor()
    instrumentor.instrument()
    consumer = txn.client.Consumer(bootstrap_servers="h:1", group_id="g")
    with pytest.raises(KeyboardInterrupt):
        read(consumer)
    lost = lost_partitions_text(consumer, None, produced=False)
    consumer.close()
    instrumentor.uninstrument()
    assert lost is not None
    assert "interrupted" in lost


def test_a_consumer_that_takes_no_weak_references_has_no_links() -> None:
    """confluent-kafka's own is such a one: every block with it raised TypeError when committed."""
    plain = confluent_kafka.Consumer({"bootstrap.servers": "h:1", "group.id": "g"})
    assert records_read.take(plain) == []
    plain.close()


class Faulty(SpanProcessor):  # type: ignore[misc] # Any: see pyproject.toml
    """A processor that fails at one name of spans, at their begin or their end."""

    def __init__(self, moment: str, name: str) -> None:
        self._moment, self._name = moment, name

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        if (self._moment, self._name) == ("start", span.name):
            raise RuntimeError("a fault of tracing")

    def on_end(self, span: ReadableSpan) -> None:
        if (self._moment, self._name) == ("end", span.name):
            raise RuntimeError("a fault of tracing")


@pytest.mark.parametrize("moment", ["start", "end"])
@pytest.mark.parametrize("name", ["transaction", "send orders"])
def test_a_fault_of_tracing_is_logged_and_the_block_commits(
    provider: TracerProvider, caplog: pytest.LogCaptureFixture, moment: str, name: str
) -> None:
    provider.add_span_processor(Faulty(moment, name))
    producer, script = scripted()
    with traced(producer, provider.get_tracer("test")) as t:
        t.produce("orders", b"1")
        t.produce("orders", b"2")
    assert script.calls[-1] == "commit_transaction"
    assert script.calls.count("produce") == 2
    assert t.result is BlockResult.COMMITTED
    assert [each.name for each in caplog.records] == ["txn.otel"]
    assert not get_current_span().get_span_context().is_valid


def test_a_fault_of_tracing_does_not_hide_the_reason_of_a_block_that_cannot_begin(
    provider: TracerProvider,
) -> None:
    provider.add_span_processor(Faulty("start", "transaction"))
    producer, _ = scripted(begin_transaction=[fatal(KafkaError._FENCED)])
    with pytest.raises(FencedError), traced(producer, provider.get_tracer("test")):
        pass


def test_ctrl_c_while_its_span_begins_aborts_the_transaction(provider: TracerProvider) -> None:
    """Python calls no `__exit__` then: the transaction stayed open, and its producer in it."""
    signalled = SpanProcessor()

    def on_start(span: Span, parent_context: Any = None) -> None:
        raise KeyboardInterrupt

    signalled.on_start = on_start
    provider.add_span_processor(signalled)
    producer, script = scripted()
    with pytest.raises(KeyboardInterrupt), traced(producer, provider.get_tracer("test")) as t:
        t.produce("orders", b"1")
    assert script.calls[-1] == "abort_transaction"
    with producer.transaction():
        pass
    assert script.calls[-1] == "commit_transaction"


# ---------------------------------------------------------------- the instrumentor, the extra


@pytest.fixture
def instrumented(provider: TracerProvider) -> Iterator[TxnInstrumentor]:
    instrumentor = TxnInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield instrumentor
    if instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.uninstrument()


def test_the_instrumentor_gives_spans_to_every_producer_and_takes_them_back(
    instrumented: TxnInstrumentor, spans: InMemorySpanExporter
) -> None:
    producer, _ = scripted()
    with producer.transaction() as t:
        t.produce("orders", b"1")
    assert [span.name for span in spans.get_finished_spans()] == ["send orders", "transaction"]
    instrumented.uninstrument()
    with producer.transaction() as t:
        t.produce("orders", b"1")
    assert len(spans.get_finished_spans()) == 2
    assert not isinstance(t, TracedTransaction)


def test_without_the_extra_the_import_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import txn.client\n"
        "try:\n    import txn.otel\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Run `pip install '.[otel]'` in txn's repository and try again" in done.stdout, (
        done.stderr
    )


def test_clients_alone_import_no_opentelemetry() -> None:
    program = (
        "import sys, txn, txn.client, txn.server.lifecycle.broker, txn.cli\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
