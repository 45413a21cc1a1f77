"""The latest connection of each producer, by which late requests are recognised.

Under transaction version 1 (TV1) every transaction of a producer carries the same producer
id and epoch. A client that gives up on a connection closes it and continues over another one. It
leaves requests behind on the closed connection. If they arrive after all, nothing in them shows
that they belong to an earlier transaction. A late EndTxn then decides the next transaction. A late
AddPartitionsToTxn begins a transaction that no client will end. A late TxnOffsetCommit puts its
offsets into the next transaction.

One node sees every connection. So a request to the transaction coordinator is late if two facts
hold: its client has closed the connection, and the producer has sent a request over another
connection since. The second fact holds before the next transaction begins, because the producer
ended the earlier one over that other connection.

A change of connections alone is no proof. A client with a pool of connections returns to earlier
connections, and waits there for its answer. The close alone is no proof either: a client may ask
for a commit and leave.

A TxnOffsetCommit is late by the close alone. The group coordinator gets no EndTxn, so the next
transaction may begin without a request to it over another connection. And nothing is lost: a client
that has left gets no answer, so it cannot rely on these offsets.

The close travels behind the request, so it may arrive a moment later. The first request over an
earlier connection waits for that moment. A producer that is still connected then has a pool, and
its later requests do not wait. A TxnOffsetCommit waits over a later connection too, because its
client may have left that one as well. It also waits if an earlier TxnOffsetCommit is missing: each
AddOffsetsToTxn announces one, and two were announced since the last.

The connection of a late request is closed, because no client waits for the answer.

Under transaction version 2 the epoch distinguishes transactions, and nothing is noted.

`tests/model/test_coordinator_search.py` shows that these rules suffice.

Sources: KIP-890 (late requests), and the anomaly named late-end in the design.
"""

from enum import Enum
from typing import Final, NamedTuple

from txn.identifiers import ProducerIdAndEpoch

CLOSE_MS: Final = 200
"""Time in which the close of a connection follows the last request over it: a few round trips."""


class ConnectionUse(Enum):
    """The use of a connection."""

    TRANSACTION = "the transaction coordinator"
    OFFSETS = "the group coordinator"

    __hash__ = object.__hash__  # Enum's own is a call of Python, twice in every request


class _Latest(NamedTuple):
    """The connection over which a producer spoke last, and whether it goes back to earlier ones."""

    producer: ProducerIdAndEpoch
    connection: int
    is_pooled: bool


class LatestConnections:
    """The latest connections over which the producer of each transactional id spoke."""

    __slots__ = ("_announced", "_latest")

    def __init__(self) -> None:
        self._latest: dict[tuple[str, ConnectionUse], _Latest] = {}
        self._announced: dict[str, int] = {}
        """Numbers of AddOffsetsToTxn since the last TxnOffsetCommit."""

    def may_be_late(
        self,
        transactional_id: str,
        use: ConnectionUse,
        producer: ProducerIdAndEpoch,
        connection: int,
    ) -> bool:
        """Return True if a request is late if its client has closed the connection.

        True of every TxnOffsetCommit, and where the producer spoke over another connection last.

        Args:
            transactional_id: Whose transaction.
            use: The use of the connection.
            producer: The identity in use now, which the request shows. Its first connection is
                noted at once.
            connection: Number of the request's connection; later ones have higher numbers.
        """
        latest = self._latest.get((transactional_id, use))
        if latest is None or latest.producer != producer:
            is_pooled = latest is not None and latest.is_pooled
            self._latest[transactional_id, use] = _Latest(producer, connection, is_pooled)
            return use is ConnectionUse.OFFSETS
        return use is ConnectionUse.OFFSETS or latest.connection != connection

    def is_doubtful(self, transactional_id: str, use: ConnectionUse, connection: int) -> bool:
        """Return True if the close of a request that may be late may be under way."""
        latest = self._latest[transactional_id, use]
        if use is ConnectionUse.TRANSACTION:
            return connection < latest.connection and not latest.is_pooled
        if self._announced.get(transactional_id, 0) > 1:
            return True
        return connection != latest.connection and not latest.is_pooled

    def announce_offsets(self, transactional_id: str) -> None:
        """An AddOffsetsToTxn is answered, so its client sends a TxnOffsetCommit next."""
        self._announced[transactional_id] = self._announced.get(transactional_id, 0) + 1

    def note(
        self,
        transactional_id: str,
        use: ConnectionUse,
        producer: ProducerIdAndEpoch,
        connection: int,
    ) -> None:
        """A producer speaks over this connection now. It may have another identity meanwhile."""
        if use is ConnectionUse.OFFSETS:
            self._announced.pop(transactional_id, None)
        latest = self._latest.get((transactional_id, use))
        if latest is not None and latest.producer == producer:
            is_pooled = latest.is_pooled or connection < latest.connection
            self._latest[transactional_id, use] = _Latest(producer, connection, is_pooled)

    def forget(self, transactional_id: str) -> None:
        """The id has expired."""
        for use in ConnectionUse:
            self._latest.pop((transactional_id, use), None)
        self._announced.pop(transactional_id, None)
