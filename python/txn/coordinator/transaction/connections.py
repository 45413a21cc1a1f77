"""The last connection of each producer, so that late requests are known as late.

Under transaction version 1 (TV1) every transaction of a producer carries the same producer
id and epoch. A client that gives up on a connection and goes on over a new one leaves requests
behind on the old one. If they arrive after all, nothing in them tells that they belong to an
earlier transaction. A late EndTxn then decides the next transaction, a late AddPartitionsToTxn
begins one that nobody will end. On one node every connection is seen, so the order in which they
were opened tells the facts that the requests lack. Once a producer has spoken over a connection, a
request over an earlier one is late.

A refused client has its connection closed. The client may be alive after all, as one that ends
another process's transaction. It then connects again and is the latest; nobody waits for the answer
to a late request.

Under transaction version 2 the epoch tells transactions apart, and nothing is noted.

That closes it is shown by `tests/model/test_coordinator_search.py`.

Sources: KIP-890 (late requests), and the anomaly named late-end in the design.
"""

from enum import Enum

from txn.coordinator.transaction.states import ProducerIdAndEpoch


class ConnectionUse(Enum):
    """The use of a connection; clients have one connection for each at a time."""

    TRANSACTION = "the transaction coordinator"
    OFFSETS = "the group coordinator"

    __hash__ = object.__hash__  # Enum's own is a call of Python, twice in every request


class LatestConnections:
    """The latest connections over which the producer of each transactional id spoke."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[tuple[str, ConnectionUse], tuple[ProducerIdAndEpoch, int]] = {}

    def is_superseded(
        self,
        transactional_id: str,
        role: ConnectionUse,
        producer: ProducerIdAndEpoch,
        connection: int,
    ) -> bool:
        """Say whether a request came over a connection that its producer has left; note it if not.

        Args:
            transactional_id: Whose transaction.
            role: The use of the connection.
            producer: The identity in use now, which the request shows.
            connection: Number of the request's connection; later ones have higher numbers.
        """
        latest = self._latest.get((transactional_id, role))
        if latest is not None and latest[0] == producer and connection <= latest[1]:
            return connection < latest[1]
        self._latest[transactional_id, role] = (producer, connection)
        return False

    def forget(self, transactional_id: str) -> None:
        """The id has expired."""
        for role in ConnectionUse:
            self._latest.pop((transactional_id, role), None)
