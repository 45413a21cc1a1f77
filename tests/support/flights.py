"""The host of a transaction coordinator under test: one topic, two partitions."""

from typing import Final

from txn.broker.host import Durability
from txn.broker.marker_sender import LocalMarkerSender
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.testing import FakeHost

TOPIC: Final = "flights"


def flights_host(durability: Durability = Durability.PROCESS, partitions: int = 2) -> FakeHost:
    """A host with the topic `flights`."""
    return FakeHost(durability, topics={TOPIC: partitions})


def coordinator_on(host: FakeHost) -> TransactionCoordinator:
    """A transaction coordinator whose markers go to the partitions of its host."""
    return TransactionCoordinator(
        host, LocalMarkerSender(host.partition, lambda *_: None, lambda *_: None)
    )
