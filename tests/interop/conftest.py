"""The same test against txn's broker and against a real Apache Kafka."""

import uuid
from collections.abc import Callable, Iterator

import pytest

import txn


@pytest.fixture(scope="session")
def txn_broker() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["txn", pytest.param("kafka", marks=pytest.mark.peer)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers: of txn's broker, then of Apache Kafka 4.2. Both last the whole run."""
    fixture = "txn_broker" if request.param == "txn" else "kafka_peer"
    servers: str = request.getfixturevalue(fixture)
    return servers


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Make a name that no other test has used on the same broker."""
    suffix = uuid.uuid4().hex[:8]
    return lambda name: f"{name}-{suffix}"
