"""A producer and a consumer of the module's own broker, for the tests of this folder.

A module that uses these two clients gives the fixture `broker` a topic "in". A module whose tests
need other clients defines its own.
"""

from collections.abc import Iterator

import pytest

import txn
from txn.client.engine import EngineName
from txn.testing import TestBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        yield made


@pytest.fixture
def producer(broker: TestBroker, engine: EngineName) -> Iterator[txn.Producer]:
    servers = broker.bootstrap_servers
    with txn.Producer(bootstrap_servers=servers, transactional_id="t", engine=engine) as made:
        yield made


@pytest.fixture
def consumer(
    broker: TestBroker, engine: EngineName, request: pytest.FixtureRequest
) -> Iterator[txn.Consumer]:
    made = txn.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=request.node.name,
        auto_offset_reset="earliest",
        engine=engine,
    )
    made.subscribe(["in"])
    yield made
    made.close()
