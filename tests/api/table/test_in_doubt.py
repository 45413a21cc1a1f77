"""A table does not guess how a transaction ended: the topic tells."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from api.table.programs import produce, program, table_on
from txn.errors import FencedError, InDoubtError
from txn.testing import TestBroker


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("totals", partitions=2, cleanup_policy="compact")
        yield broker


@pytest.mark.parametrize("store", ["memory", "file"])
def test_rows_of_a_commit_in_doubt_are_read_from_the_topic(
    broker: TestBroker, store: str, tmp_path: Path
) -> None:
    """The commit was carried out, and its answer was lost."""
    servers = broker.bootstrap_servers
    produce(servers, "orders", ("ann", 7), ("ben", 3))
    path = store if store == "memory" else str(tmp_path / "totals.db")
    with program(servers, "orders", "totals", name="adder", store=path) as adder:
        adder.run_block(2)
        produce(servers, "orders", ("ann", 1))
        answers = broker.hold_answer("EndTxn")
        with (
            pytest.raises(InDoubtError),
            adder.producer.transaction(adder.consumer, timeout=3) as t,
        ):
            rows = adder.table.within(t)
            adder.take(1)
            rows["ann"] = rows["ann"] + 1
        answers.release()
        with txn.Producer(bootstrap_servers=servers, transactional_id="adder") as again:
            adder.producer = again
            produce(servers, "orders", ("ann", 1))
            assert adder.run_block(1) == {"ann": 9, "ben": 3}


def test_rows_of_a_fenced_producer_are_forgotten(broker: TestBroker) -> None:
    servers = broker.bootstrap_servers
    produce(servers, "orders", ("ann", 7))
    with program(servers, "orders", "totals", name="adder") as adder:
        with (
            pytest.raises(FencedError),
            adder.producer.transaction(adder.consumer) as t,
        ):
            adder.table.within(t)["ann"] = sum(int(each.value()) for each in adder.take(1))
            broker.fence("adder")
        with txn.Producer(bootstrap_servers=servers, transactional_id="adder") as again:
            adder.producer = again
            assert adder.run_block(1) == {"ann": 7}


def test_a_row_of_another_table_is_not_mixed_in(broker: TestBroker) -> None:
    """Two tables in one transaction, each with its own topic."""
    servers = broker.bootstrap_servers
    broker.create_topic("counts", partitions=2, cleanup_policy="compact")
    produce(servers, "orders", ("ann", 7), ("ann", 1))
    with (
        program(servers, "orders", "totals", name="adder") as adder,
        table_on(servers, "counts") as counts,
    ):
        counts.subscribe(adder.consumer, ["orders"], adder.table.on_assign, adder.table.on_revoke)
        with adder.producer.transaction(adder.consumer) as t:
            totals, numbers = adder.table.within(t), counts.within(t)
            for record in adder.take(2):
                name = record.key().decode()
                totals[name] = totals.get(name, 0) + int(record.value())
                numbers[name] = numbers.get(name, 0) + 1
        assert (adder.table.get("ann"), counts.get("ann")) == (8, 2)
