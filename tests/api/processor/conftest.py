"""A broker for the tests of `txn.Processor`, and the options that they share."""

from collections.abc import Iterator
from typing import Any

import pytest

import txn
from support.processors import MakeProcessor
from txn.client.engine import EngineName
from txn.testing import TestBroker


@pytest.fixture(scope="module")
def shared() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


@pytest.fixture
def topics(shared: TestBroker) -> dict[str, str]:
    """Names of topics that no other test has."""
    return {"in": shared.create_topic(partitions=2), "out": shared.create_topic()}


@pytest.fixture
def make(shared: TestBroker, topics: dict[str, str], engine: EngineName) -> MakeProcessor:
    """Makes a processor of a group of its own, from the topic `in` to `out` and `dead`.

    So each test runs with both engines.
    """

    def processor(handle: Any = None, **options: Any) -> txn.Processor:
        name = topics["in"]
        given: dict[str, Any] = {
            "output": topics["out"],
            "dead_letter": f"{name}-dead",
            "group_id": f"group-{name}",
            "transactional_id": f"id-{name}",
            "bootstrap_servers": shared.bootstrap_servers,
            "backoff": (0.01, 0.1),
            "engine": engine,
        }
        return txn.Processor(name, handle, **(given | options))

    return processor
