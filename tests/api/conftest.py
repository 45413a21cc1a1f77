"""A promise is tested with the broker in this process and as a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.brokers import BrokerProcess


@pytest.fixture(params=["embedded", "process"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "embedded":
        with txn.Broker(tmp_path / "data", durability="process") as broker:
            yield broker.bootstrap_servers
        return
    process = BrokerProcess(tmp_path / "data")
    try:
        yield process.bootstrap_servers
    finally:
        assert process.stop() == 0
