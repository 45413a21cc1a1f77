"""`txn.admin` ends a transaction that no coordinator knows, by its place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.clients import create_topic, plain_producer, read_all, send
from support.late_batch import let_hang
from txn.errors import RejectedError

ORDERS = ("orders", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[txn.Broker]:
    with txn.Broker(tmp_path / "data", durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        yield broker


def test_what_hangs_is_found_planned_and_aborted(broker: txn.Broker) -> None:
    servers = broker.bootstrap_servers
    send(plain_producer(servers), "orders", [b"before"])
    offset = let_hang(broker, "orders", 1_000, b"late")
    send(plain_producer(servers), "orders", [b"after"])
    with txn.admin.connect(servers) as cluster:
        (found,) = cluster.transactions.find_hanging()
        assert (found.open.partition, found.open.first_offset) == (ORDERS, offset)
        plan = cluster.transactions.plan_abort_at(ORDERS, offset)
        assert cluster.transactions.abort(plan).startswith("aborted")
        assert cluster.transactions.find_hanging() == []
    assert read_all(servers, "orders") == [b"before", b"after"]


def test_no_plan_is_made_where_no_transaction_is_open(broker: txn.Broker) -> None:
    send(plain_producer(broker.bootstrap_servers), "orders", [b"before"])
    with (
        txn.admin.connect(broker.bootstrap_servers) as cluster,
        pytest.raises(RejectedError, match="orders-0"),
    ):
        cluster.transactions.plan_abort_at(ORDERS, 0)
