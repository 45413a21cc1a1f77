"""The threads that decide on a transaction: reactors stand in for the loop where that gains."""

import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import txn
from support import clients
from support.wire_producer import WireProducer, identity
from txn.broker.transactions.coordinator import TransactionCoordinator

LOOP = "txn-control"


@pytest.mark.parametrize("durability", ["process", "commit", "always"])
def test_reactors_decide_on_a_first_batch_unless_that_waits_for_the_disk(
    tmp_path: Path, durability: str
) -> None:
    """With `always` they began requests that the loop had to finish."""
    threads: set[str] = set()
    join = TransactionCoordinator.join

    async def noted(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name)
        return await join(*arguments)

    with (
        patch.object(TransactionCoordinator, "join", noted),
        txn.Broker(tmp_path / "data", durability=durability) as broker,
    ):
        clients.create_topic(broker.bootstrap_servers, "orders", 1)
        with WireProducer(broker.bootstrap_servers) as producer:
            following = identity(producer.start(two_phase=False))
            for _ in range(20):
                assert producer.produce(following, 0, b"apples") == 0
                following = identity(producer.end(following))
    assert threads, "nobody was asked"
    assert (threads == {LOOP}) is (durability == "always"), threads
