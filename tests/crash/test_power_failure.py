"""The power fails under a broker whose process noted its syncs (`harnesses.black_box.power`)."""

import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from harnesses.black_box.power import lose_power, note_reactors_syncs, only_what_is_sure
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.wire_producer import WireProducer, identity

pytestmark = pytest.mark.crash

BATCH_HEADER = struct.Struct(">qi")
"""Base offset, and how many bytes follow."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    yield from _broker(tmp_path, "commit")


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[BrokerProcess]:
    """With `durability=process`, which keeps nothing from a power failure."""
    yield from _broker(tmp_path, "process")


def _broker(tmp_path: Path, durability: str) -> Iterator[BrokerProcess]:
    program = ("-m", "harnesses.black_box.broken", "power")
    two_phase = "transaction.two.phase.commit.enable=true"
    broker = BrokerProcess(tmp_path / "data", two_phase, durability=durability, program=program)
    yield broker
    broker.stop()


def test_P2_what_a_young_broker_committed_survives_a_power_failure(broker: BrokerProcess) -> None:
    """The topic of the transactions was not synced, and synced records in it were lost with it.

    A power failure then left directories of a topic that nobody knew: no transaction could be
    finished, and none begun any more. The black box found it at its first power failures.
    """
    create_topic(broker.bootstrap_servers, "flights")
    producer = transactional_producer(broker.bootstrap_servers, "t")
    commit_values(producer, "flights", [b"kept"])

    broker.kill()
    lose_power(broker.data, only_what_is_sure)
    broker.restart()

    assert read_all(broker.bootstrap_servers, "flights") == [b"kept"]
    successor = transactional_producer(broker.bootstrap_servers, "t")
    commit_values(successor, "flights", [b"next"])
    assert read_all(broker.bootstrap_servers, "flights") == [b"kept", b"next"]


def test_P2_a_reader_passes_over_nothing_that_is_committed_after_a_power_failure(
    broker: BrokerProcess,
) -> None:
    """Offsets that were lost were given out again, to a reader that had passed them.

    It stood beyond the rest of the log, and went on there when the log had grown again. It never
    saw the records committed in between. A leader epoch more tells it that the log was cut. Found
    by the black box, whose follower skipped a record.
    """
    create_topic(broker.bootstrap_servers, "flights")
    commit_values(transactional_producer(broker.bootstrap_servers, "t"), "flights", [b"kept"])
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 100,
        }
    )
    reader.assign([TopicPartition("flights", 0, OFFSET_BEGINNING)])
    unsynced = [b"lost %d" % number for number in range(5)]
    send(plain_producer(broker.bootstrap_servers), "flights", unsynced)
    assert _read_until(reader, unsynced[-1]) == [b"kept", *unsynced]

    broker.kill()
    lose_power(broker.data, only_what_is_sure)
    broker.restart()
    fresh = [b"fresh %d" % number for number in range(6)]
    commit_values(transactional_producer(broker.bootstrap_servers, "t"), "flights", fresh)

    assert _read_until(reader, fresh[-1])[-len(fresh) :] == fresh
    reader.close()


def test_P2_what_a_two_phase_producer_was_told_survives_a_power_failure(
    broker: BrokerProcess,
) -> None:
    """A prepared transaction was in memory alone, and aborted, against a database's decision."""
    servers = broker.bootstrap_servers
    for topic in ("flights", "seats"):
        create_topic(servers, topic)
    with ExitStack() as connections:
        prepared, ordinary = (
            connections.enter_context(WireProducer(servers, transactional_id))
            for transactional_id in ("db", "t")
        )
        owner = identity(prepared.start())
        other = identity(ordinary.start(two_phase=False))
        for topic in ("flights", "seats"):
            assert prepared.produce(owner, 0, b"prepared", topic=topic) == 0
            assert ordinary.produce(other, 0, b"open", topic=topic) == 0
        assert prepared.commit_offset(owner, "readers", "flights", 7) == 0

    for _ in range(2):  # the power may fail again before the decision
        note_reactors_syncs(broker.data, broker.pid)
        broker.kill()
        lose_power(broker.data, only_what_is_sure)
        broker.restart()

    servers = broker.bootstrap_servers
    with WireProducer(servers, "db") as successor:
        answer = successor.start(keep=True)
        assert answer.ongoing_txn_producer_id == owner[0]
        identity(successor.end(identity(answer)))
    assert [read_all(servers, topic) for topic in ("flights", "seats")] == [[b"prepared"]] * 2
    assert committed_offset(servers, "readers", "flights") == 7


def test_a_broker_that_syncs_no_commits_goes_on_after_a_power_failure(
    careless: BrokerProcess,
) -> None:
    """Its topics were forgotten and their directories were not: no transaction began any more."""
    create_topic(careless.bootstrap_servers, "flights")
    commit_values(transactional_producer(careless.bootstrap_servers, "t"), "flights", [b"lost"])

    careless.kill()
    lose_power(careless.data, only_what_is_sure)
    careless.restart()

    commit_values(transactional_producer(careless.bootstrap_servers, "t"), "flights", [b"next"])
    assert read_all(careless.bootstrap_servers, "flights") == [b"next"]


@pytest.mark.parametrize("lost_from", [1, 4, 7])
def test_P6_who_writes_after_a_power_failure_is_not_taken_for_who_wrote_before(
    careless: BrokerProcess, lost_from: int
) -> None:
    """The transactions' log was older than their records: its epochs were given out again.

    The partition refused them as too old. At the same epoch it would have taken the next
    record for a repetition, and acknowledged a record that it did not store.
    """
    create_topic(careless.bootstrap_servers, "orders")
    written = [b"%d" % number for number in range(3)]
    with WireProducer(careless.bootstrap_servers) as wire:
        producer = identity(wire.start(two_phase=False))
        for value in written:
            assert wire.produce(producer, 0, value) == 0
            producer = identity(wire.end(producer))

    careless.kill()
    [log] = careless.data.glob("__transaction_state-*/*.log")
    _cut_to_batches(log, lost_from)
    lose_power(careless.data, lambda _, left: left)
    careless.restart()
    with WireProducer(careless.bootstrap_servers) as wire:
        producer = identity(wire.start(two_phase=False))
        assert wire.produce(producer, 0, b"next") == 0
        identity(wire.end(producer))

    assert read_all(careless.bootstrap_servers, "orders") == [*written, b"next"]


def _cut_to_batches(log: Path, count: int) -> None:
    """Leave the first batches of a log."""
    batches, end = log.read_bytes(), 0
    for _ in range(count):
        end += BATCH_HEADER.size + BATCH_HEADER.unpack_from(batches, end)[1]
    assert end < len(batches)
    os.truncate(log, end)


def committed_offset(servers: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    consumer.close()
    offset: int = found.offset
    return offset


def _read_until(reader: Consumer, last: bytes) -> list[bytes]:
    seen: list[bytes] = []
    while last not in seen:
        message = reader.poll(WAIT_S)
        assert message is not None, f"{last!r} does not come after {seen}"
        if message.error() is None:
            seen.append(message.value() or b"")
    return seen
