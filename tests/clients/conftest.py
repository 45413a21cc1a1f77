"""Brokers for other people's clients: txn in every run, and Apache Kafka in `make clients`."""

import uuid
from collections.abc import Iterator

import pytest

import txn
from clients.marks import long


@pytest.fixture(scope="session")
def txn_broker() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["txn", pytest.param("kafka", marks=[pytest.mark.peer, long])])
def servers(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers: of txn's broker, then of the control. Both last the whole run."""
    fixture = "txn_broker" if request.param == "txn" else "kafka_peer"
    found: str = request.getfixturevalue(fixture)
    return found


@pytest.fixture
def name() -> str:
    """A name that no other test uses on the same broker."""
    return f"c{uuid.uuid4().hex[:8]}"
