"""The topic of a table is compacted while it is written, read and left alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from api.table.programs import produce, program, read, table_on
from support.clients import create_topic, plain_producer
from support.compacted import ON_CALL, compact, compacted_topic, roll
from txn.errors import ConfigError


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn.Broker]:
    place = tmp_path_factory.mktemp("compacted") / "data"
    with txn.Broker(place, properties=ON_CALL) as broker:
        yield broker


@pytest.fixture
def totals(broker: txn.Broker, request: pytest.FixtureRequest) -> str:
    """A topic with one partition and small segments, compacted when the test says so."""
    name = f"totals-of-{request.node.name[:40]}"
    compacted_topic(broker, name)
    with txn.admin.connect(broker.bootstrap_servers) as cluster:
        cluster.configs.alter(txn.admin.ConfigKind.TOPIC, name, {"delete.retention.ms": "86400000"})
    create_topic(broker.bootstrap_servers, f"orders-{name}")
    return name


def churn(servers: str, topic: str) -> None:
    """Write many values of few keys, behind the table's back, and fill the segment."""
    producer = plain_producer(servers)
    for number in range(400):
        producer.produce(topic, str(number), f"key-{number % 7}", partition=0)
    roll(producer, topic)


def test_a_table_is_right_over_a_compaction_while_it_is_away(
    broker: txn.Broker, totals: str, tmp_path: Path
) -> None:
    servers, orders = broker.bootstrap_servers, f"orders-{totals}"
    path = tmp_path / "totals.db"
    produce(servers, orders, ("ann", 7), ("key-3", 1))
    with program(servers, orders, totals, name=f"id-{totals}", store=path) as adder:
        adder.run_block(2)
    churn(servers, totals)
    assert compact(broker) > 0
    produce(servers, orders, ("ann", 1))
    with (
        program(servers, orders, totals, name=f"id-{totals}", store=path) as adder,
        adder.producer.transaction(adder.consumer) as t,
    ):
        rows = adder.table.within(t)
        adder.take(1)
        seen = [rows["ann"], *(rows[f"key-{n}"] for n in range(7))]
    assert seen == [7, 399, 393, 394, 395, 396, 397, 398]


def test_a_reader_is_right_over_a_compaction_under_its_eyes(
    broker: txn.Broker, totals: str
) -> None:
    servers = broker.bootstrap_servers
    with table_on(servers, totals).reader() as early:
        churn(servers, totals)
        early.wait_until_current()
        compact(broker)
        producer = plain_producer(servers)
        producer.produce(totals, b"1000", b"key-1", partition=0)
        producer.produce(totals, None, b"key-2", partition=0)
        producer.flush()
        early.wait_until_current()
        assert (early["key-1"], early.get("key-2"), early["key-3"]) == (1000, None, 395)
    with table_on(servers, totals).reader() as late:
        assert (late["key-1"], late.get("key-2"), late["key-3"]) == (1000, None, 395)


def test_a_topic_that_forgets_deletions_at_once_is_refused(broker: txn.Broker) -> None:
    compacted_topic(broker, "hasty")
    with pytest.raises(ConfigError, match=r"delete\.retention\.ms=0.*at least 60000"):
        read(broker.bootstrap_servers, "hasty")
