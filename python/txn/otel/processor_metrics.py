"""Metrics of a `txn.Processor` as instruments of OpenTelemetry.

The instruments are observable: OpenTelemetry's reader asks for their values when it exports, so a
record costs nothing more. They refer to their processor weakly. After it is gone, they report
nothing.

Source: OpenTelemetry's semantic conventions for messaging metrics; names without a convention
begin with `txn.`.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

import txn
from txn.processor import Metrics, Processor

Values = Callable[[Metrics], Sequence[tuple[str | None, float]]]
"""The values of one moment, each with its attribute `txn.outcome`, or without one."""


class _Instrument(NamedTuple):
    name: str
    unit: str
    description: str
    values: Values
    falls: bool = False


_INSTRUMENTS: Final = (
    _Instrument(
        "txn.processor.records",
        "{record}",
        "Records whose results are committed, retries and dead letters included",
        lambda now: ((None, now.handled),),
    ),
    _Instrument(
        "txn.processor.retries",
        "{record}",
        "Records that were written to a retry topic",
        lambda now: ((None, now.retried),),
    ),
    _Instrument(
        "txn.processor.dead_letters",
        "{record}",
        "Records that were written to the topic of dead letters",
        lambda now: ((None, now.dead_lettered),),
    ),
    _Instrument(
        "txn.processor.failures",
        "{failure}",
        "Failed calls of the handler",
        lambda now: ((None, now.failed),),
    ),
    _Instrument(
        "txn.processor.transactions",
        "{transaction}",
        "Ended transactions",
        lambda now: (("commit", now.transactions), ("abort", now.aborted)),
    ),
    _Instrument(
        "txn.processor.handler.time",
        "s",
        "Time in the handler, its back-off included",
        lambda now: ((None, now.handler_seconds),),
    ),
    _Instrument(
        "txn.processor.transaction.time",
        "s",
        "Time from the beginning of transactions to their end",
        lambda now: ((None, now.transaction_seconds),),
    ),
    _Instrument(
        "txn.processor.lag",
        "{record}",
        "Records of the assigned partitions that are not committed yet",
        lambda now: ((None, now.lag),),
        falls=True,
    ),
)
_observed: Final[WeakKeyDictionary[MeterProvider, WeakSet[Processor]]] = WeakKeyDictionary()
"""A provider → the processors whose metrics it exports."""
_lock: Final = threading.Lock()


def observe(processor: Processor, *, meter_provider: MeterProvider | None = None) -> None:
    """Export the metrics of a processor.

    Each value has the attributes `messaging.consumer.group.name` and `txn.transactional_id`.

    Args:
        processor: The processor; it may run already.
        meter_provider: Where the metrics go; None: to the process's provider.
    """
    provider = meter_provider or get_meter_provider()
    with _lock:
        processors = _observed.get(provider)
        if processors is None:
            processors = _observed[provider] = WeakSet()
            _create_instruments(provider, processors)
        processors.add(processor)


def _create_instruments(provider: MeterProvider, processors: WeakSet[Processor]) -> None:
    meter = provider.get_meter("txn.otel", txn.__version__)
    for instrument in _INSTRUMENTS:
        create = (
            meter.create_observable_up_down_counter
            if instrument.falls
            else meter.create_observable_counter
        )
        callback = partial(_observations, instrument.values, processors)
        create(instrument.name, [callback], instrument.unit, instrument.description)


def _observations(
    values: Values, processors: WeakSet[Processor], _: CallbackOptions
) -> list[Observation]:
    # A reader takes one value for each set of attributes, so equal sets are added up here.
    sums: defaultdict[tuple[tuple[str, str], ...], float] = defaultdict(int)
    for processor in list(processors):
        common = (
            ("messaging.system", "kafka"),
            ("messaging.consumer.group.name", processor.group_id),
            ("txn.transactional_id", processor.transactional_id),
        )
        for outcome, value in values(processor.metrics()):
            sums[(*common, ("txn.outcome", outcome)) if outcome else common] += value
    return [Observation(value, dict(attributes)) for attributes, value in sums.items()]
