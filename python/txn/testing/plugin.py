"""Fixtures for pytest, loaded with every session of an environment that has txn.

| fixture | its broker |
|---|---|
| `txn_broker` | one for the session, or for a pytest-xdist worker; faults end with each test |
| `txn_topic` | the name of a new topic on it |
| `txn_fresh_broker` | one for this test alone |
| `txn_schema_registry` | a registry on `txn_broker`: its schemas stay for the session |

For a registry without schemas of other tests call `txn_fresh_broker.schema_registry()`.

A test that closes `txn_broker` fails. Later tests that use it fail with the name of that test.

A session that uses none of these fixtures loads only this module of txn.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from txn.testing.broker import TestBroker
    from txn.testing.registry import SchemaRegistry

ADVICE: Final = "a test that closes its broker asks for txn_fresh_broker"

_BROKER: Final = pytest.StashKey["TestBroker"]()
_CLOSED_BY: Final = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def txn_broker(request: pytest.FixtureRequest) -> "Iterator[TestBroker]":
    """A broker that the tests of a session share: a `txn.testing.TestBroker`."""
    from txn.testing.broker import TestBroker

    with TestBroker() as broker:
        request.config.stash[_BROKER] = broker
        yield broker
        del request.config.stash[_BROKER]


@pytest.fixture
def txn_topic(txn_broker: "TestBroker") -> str:
    """The name of a new topic with one partition on `txn_broker`."""
    return txn_broker.create_topic()


@pytest.fixture
def txn_fresh_broker() -> "Iterator[TestBroker]":
    """A broker of its own for a test: a `txn.testing.TestBroker`."""
    from txn.testing.broker import TestBroker

    with TestBroker() as broker:
        yield broker


@pytest.fixture
def txn_schema_registry(txn_broker: "TestBroker") -> "Iterator[SchemaRegistry]":
    """A schema registry beside `txn_broker`: a `txn.testing.SchemaRegistry`.

    Its schemas are in the topic `_schemas` of `txn_broker`, so later tests see them, too.
    """
    with txn_broker.schema_registry() as registry:
        yield registry


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that asks for the session's broker after another has closed it."""
    closed_by = item.config.stash.get(_CLOSED_BY, None)
    if closed_by is not None and "txn_broker" in getattr(item, "fixturenames", ()):
        pytest.fail(f"txn_broker was closed by {closed_by}; {ADVICE}", pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the faults that a test left behind on the session's broker."""
    broker = item.config.stash.get(_BROKER, None)
    if broker is None or _CLOSED_BY in item.config.stash:
        return
    if broker.is_open:
        broker.heal()
        return
    item.config.stash[_CLOSED_BY] = item.nodeid
    pytest.fail(f"this test closed txn_broker, which the session shares; {ADVICE}", pytrace=False)
