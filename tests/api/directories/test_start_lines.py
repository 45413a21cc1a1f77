"""The line of a start says how the broker before ended, and how many transactions are open."""

import logging
from pathlib import Path

import pytest

import txn
from support.at_work import copy_at_work
from support.clients import create_topic, send, transactional_producer


def started(data: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The last facts of the line that a start writes."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "txn"), txn.Broker(data, durability="process"):
        pass
    (line,) = [each for each in caplog.messages if each.startswith("broker.started ")]
    return line.split()[-2:]


def test_the_line_of_a_start_tells_a_stop_in_order_from_a_kill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, left = tmp_path / "data", tmp_path / "left"
    assert started(data, caplog) == ["last_stop=none", "open_transactions=0"]
    with txn.Broker(data, durability="process") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay-1")
        producer.begin_transaction()
        send(producer, "orders", [b"1"])
        copy_at_work(data, left)  # as a kill leaves it
        producer.commit_transaction()
    assert started(data, caplog) == ["last_stop=clean", "open_transactions=0"]
    assert started(left, caplog) == ["last_stop=kill", "open_transactions=1"]
