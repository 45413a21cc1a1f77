"""The host of a transaction coordinator under test: one topic, two partitions."""

from typing import Final

from txn.broker.host import Durability
from txn.testing import FakeHost

TOPIC: Final = "flights"


def flights_host(durability: Durability = Durability.PROCESS, partitions: int = 2) -> FakeHost:
    """A host with the topic `flights`."""
    return FakeHost(durability, topics={TOPIC: partitions})
