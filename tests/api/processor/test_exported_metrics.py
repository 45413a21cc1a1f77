"""The metrics of a processor, as a reader of OpenTelemetry exports them."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from support.processors import MakeProcessor
from txn.otel import TxnInstrumentor, observe
from txn.testing import TestBroker

Values = dict[tuple[str, str | None], float]


class Exported:
    """A provider of meters, and what its reader exports."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def values(self, group: str) -> Values:
        """The values of a group, by instrument and outcome."""
        found: Values = {}
        data = self._reader.get_metrics_data()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics if data else ():
            for point in metric.data.data_points:
                attributes: dict[str, Any] = dict(point.attributes or {})
                if attributes["messaging.consumer.group.name"] == group:
                    found[metric.name, attributes.get("txn.outcome")] = point.value
        return found


@pytest.fixture
def exported() -> Iterator[Exported]:
    exported = Exported()
    yield exported
    exported.provider.shutdown()


def fail_on_bad(record: Any) -> bytes:
    if record.value == b"bad":
        raise ValueError("bad")
    return b"done"


def test_every_count_and_time_of_a_processor_is_exported(
    shared: TestBroker, topics: dict[str, str], make: MakeProcessor, exported: Exported
) -> None:
    shared.produce(topics["in"], b"1", b"bad", b"2")
    processor = make(fail_on_bad, attempts=2)
    observe(processor, meter_provider=exported.provider)
    observe(processor, meter_provider=exported.provider)
    processor.run_until_caught_up(timeout=30)

    values = exported.values(processor.group_id)
    now = processor.metrics()
    assert (now.handled, now.dead_lettered, now.failed) == (3, 1, 2)
    assert values == {
        ("txn.processor.records", None): 3,
        ("txn.processor.retries", None): 0,
        ("txn.processor.dead_letters", None): 1,
        ("txn.processor.failures", None): 2,
        ("txn.processor.transactions", "commit"): now.transactions,
        ("txn.processor.transactions", "abort"): now.aborted,
        ("txn.processor.handler.time", None): now.handler_seconds,
        ("txn.processor.transaction.time", None): now.transaction_seconds,
        ("txn.processor.lag", None): 0,
    }


def test_two_processors_of_a_group_are_added_up(
    shared: TestBroker, topics: dict[str, str], make: MakeProcessor, exported: Exported
) -> None:
    shared.produce(topics["in"], b"1")
    processors = [make(lambda _: None), make(lambda _: None)]
    for processor in processors:
        observe(processor, meter_provider=exported.provider)
        processor.run_until_caught_up(timeout=30)
        shared.produce(topics["in"], b"2", b"3")
    values = exported.values(processors[0].group_id)
    assert values["txn.processor.records", None] == 3


def test_a_processor_that_is_gone_reports_nothing(make: MakeProcessor, exported: Exported) -> None:
    processor = make(lambda _: None)
    group = processor.group_id
    observe(processor, meter_provider=exported.provider)
    assert exported.values(group)
    del processor
    gc.collect()
    assert exported.values(group) == {}


def test_the_instrumentor_exports_the_metrics_of_each_processor(
    make: MakeProcessor, exported: Exported
) -> None:
    instrumentor = TxnInstrumentor()
    instrumentor.instrument(meter_provider=exported.provider)
    processor = make(lambda _: None)
    instrumentor.uninstrument()
    later = make(lambda _: None, group_id="made-later")
    assert exported.values(processor.group_id)
    assert exported.values(later.group_id) == {}
