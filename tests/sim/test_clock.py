"""A time of day that is set under a broker does not change its promises for durations."""

import random
from collections.abc import Iterator

import pytest

from sim.agenda import US_PER_S, Agenda
from sim.broker import Failures, SimBroker
from sim.disk import Disk, SimLog
from txn.broker.host import Durability
from txn.identifiers import ProducerIdAndEpoch
from txn.storage.base import Marker

DAY_US = 86_400 * US_PER_S


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    """A broker of which partition 0 of `source` knows producer 7, which is idle."""
    disk = Disk(random.Random(2))
    broker = SimBroker(
        Agenda(),
        disk,
        random.Random(1),
        durability=Durability.PROCESS,
        power_failed=False,
        failures=Failures(),
    )
    assert broker.start()
    log = source_of(broker)
    producer = ProducerIdAndEpoch(7, 0)
    log.append([(None, b"x")], timestamp_ms=broker.now_ms(), producer=producer)
    log.append_marker(Marker(*producer, 0, is_commit=True, timestamp_ms=broker.now_ms()))
    yield broker
    disk.release()


def source_of(broker: SimBroker) -> SimLog:
    return broker.storage.logs["source", 0]


def swept(broker: SimBroker) -> list[int]:
    """The producers that are known after a sweep for idle ones."""
    assert broker.node is not None
    broker.node.replicas.forget_idle_producers()
    source_of(broker).producer_state.snapshot()
    return [active.producer_id for active in source_of(broker).producer_state.describe()]


def test_P6_a_clock_set_forward_forgets_no_producer(broker: SimBroker) -> None:
    """All idle producers were forgotten at once, and their retries were stored twice."""
    assert swept(broker) == [7]
    broker.agenda.clock_step_us = 30 * DAY_US
    assert swept(broker) == [7]


def test_a_clock_set_back_keeps_no_producer(broker: SimBroker) -> None:
    assert swept(broker) == [7]
    broker.agenda.clock_step_us = -30 * DAY_US
    broker.agenda.now_us += 2 * DAY_US
    assert swept(broker) == []
