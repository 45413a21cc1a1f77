"""One broker for all tests of tables; each test has topics, groups and ids of its own."""

import uuid
from collections.abc import Callable, Iterator

import pytest

import txn
from support.clients import create_topic


@pytest.fixture(scope="session")
def broker_of_tables() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def servers(broker_of_tables: str) -> str:
    return broker_of_tables


@pytest.fixture
def unique() -> Callable[[str], str]:
    suffix = uuid.uuid4().hex[:8]
    return lambda name: f"{name}-{suffix}"


@pytest.fixture
def orders(servers: str, unique: Callable[[str], str]) -> str:
    """The input: two partitions, with `ann` and `cat` in partition 0, `ben` in 1."""
    create_topic(servers, unique("orders"), partitions=2)
    return unique("orders")


@pytest.fixture
def totals(servers: str, unique: Callable[[str], str]) -> str:
    """The topic of the table."""
    create_topic(servers, unique("totals"), partitions=2, cleanup_policy="compact")
    return unique("totals")
