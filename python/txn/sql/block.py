"""One transaction over topics and a database: `transaction` and `recover`.

    begin ── body ── flush, offsets ── prepare ── decide ── COMMIT ── commit topics
               │            │             │          │        │            │
               └────────────┴─────────────┴──────────┘        │            └─ next start commits
                any exception: roll back, abort topics        └─ no answer: next start looks

Invariants:

1. The topics commit only after a commit of the database that wrote their state into the row.
2. The topics abort only if no such commit has happened, and none can happen any more.
3. No two transactions with records have one state (`txn.client.two_phase`), and a state stays in
   the row until its topics are committed: only the next transaction of the id overwrites it, and
   that begins after the end of the one before.

Crashes and failures, by the step that they follow:

- *Before `prepare`*: the row has an older state. The next start finds the transaction open, with
  another state, and aborts it. The database rolls back by itself.
- *After `prepare`, before COMMIT*: the same. The cluster keeps the transaction without a time-out.
- *In COMMIT*, the connection is lost: the block neither commits nor aborts (`leave_prepared`). The
  next start takes over the row. That write waits for the COMMIT, if the server is still at it, and
  then reads which it was.
- *After COMMIT*: the row has the state. The next start commits. Nothing aborts any more, also if
  the cluster does not answer or a signal comes.
- *In the next start*, anywhere: it changes nothing but the owner before it ends the transaction,
  and the cluster still keeps that one. So another start repeats it.
- *An instance that was thought dead* goes on. The cluster refuses its records and its ends since
  the next start. The row refuses its decision, since the take-over changed the owner. If its COMMIT
  was there before the take-over, that start has read its decision, and commits.

One thing breaks this, as KIP-939 has it: a producer without two-phase commit that opens under the
same transactional id. The cluster aborts the prepared transaction for it, decided or not.

The order of a start matters for the last case: the cluster first (opening the producer), the row
then. The other way round, an instance could prepare a transaction that nobody looks for.
"""

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import confluent_kafka
from confluent_kafka import TopicPartition

from txn.client import Producer, Transaction
from txn.errors import ConfigError, InDoubtError
from txn.sql.databases import Database, database_of
from txn.sql.decisions import decide, roll_back_or_note, take_over

if TYPE_CHECKING:
    from txn.client.producer import Headers

_owners: "Final[weakref.WeakKeyDictionary[Producer, str]]" = weakref.WeakKeyDictionary()
"""The token of each producer that has taken over its row."""


def recover(producer: Producer, connection: object, timeout: float = 60.0) -> bool:
    """Finish the transaction of the run before, as the database has decided.

    The first `transaction` of a producer does this by itself. Call it at a start to finish the last
    run before anything else happens.

    Args:
        producer: A producer with `two_phase_commit`, just opened.
        connection: A connection to the database, without an open transaction.
        timeout: Seconds to wait for other transactions of the database, and for the cluster.

    Returns:
        Whether topics were committed; False if they were aborted, or nothing was open.

    Raises:
        ConfigError: the producer has no two-phase commit, or the database may lose a commit.
        RejectedError: the connection has a transaction open.
        RetriableError: the database was locked, or the cluster did not answer.
        FencedError: another instance took over the transactional id.
        TypeError: the connection is of another driver.
    """
    database, name = database_of(connection), _name_of(producer)
    owner, decided = take_over(database, name, timeout)
    has_committed = producer.complete_transaction(decided, timeout)
    _owners[producer] = owner
    return has_committed


def transaction(
    producer: Producer,
    connection: object,
    consumer: confluent_kafka.Consumer | None = None,
    timeout: float = 60.0,
) -> "SqlTransaction":
    """Return one transaction over topics and a database, for a `with` statement.

    Leaving the block commits the rows, the records and the consumer's offsets, or none of them. An
    exception in the block rolls the database back, aborts the topics, rewinds the consumer, and
    propagates.

    Args:
        producer: A producer with `engine="native"` and `two_phase_commit=True`.
        connection: A connection of psycopg 3, sqlite3 or duckdb, without an open transaction.
        consumer: The consumer whose offsets to commit, as for `Producer.transaction`.
        timeout: Seconds that ending may take at the cluster.

    Raises (from the `with` statement):
        InDoubtError: the database did not answer COMMIT, or the cluster its commit afterwards.
            Close both, and open them again: `recover` finishes the transaction.
        FencedError: another instance took over the transactional id.
        RejectedError: the connection has a transaction open, or the block committed it.
        TxnError: others as for `Producer.transaction`; and the database's own errors.
    """
    return SqlTransaction(producer, connection, consumer, timeout)


class SqlTransaction:
    """An open transaction over topics and a database; the value of `txn.sql.transaction`."""

    def __init__(
        self,
        producer: Producer,
        connection: object,
        consumer: confluent_kafka.Consumer | None,
        timeout: float,
    ) -> None:
        self._name = _name_of(producer)
        self._producer = producer
        self._database: Database = database_of(connection)
        self._timeout = timeout
        self._topics: Transaction = producer.transaction(consumer, timeout)
        self._is_deciding = False

    @property
    def connection(self) -> Any:
        """The connection to the database. Leave commit() and rollback() to the end of the block."""
        return self._database.connection

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        headers: "Headers | None" = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Add a record, as `Transaction.produce` does."""
        self._topics.produce(
            topic, value, key, headers=headers, partition=partition, timestamp=timestamp
        )

    def send_offsets(
        self, offsets: Sequence[TopicPartition], consumer: confluent_kafka.Consumer
    ) -> None:
        """Commit offsets of your own choice, as `Transaction.send_offsets` does."""
        self._topics.send_offsets(offsets, consumer)

    def __enter__(self) -> Self:
        if self._producer not in _owners:
            recover(self._producer, self.connection, self._timeout)
        self._topics.__enter__()
        try:
            self._database.begin()
        except BaseException as error:
            self._topics.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._undo(error)
            return
        try:
            self._decide()
        except BaseException as raised:
            if not self._is_deciding or self._database.has_rolled_back(raised):
                self._undo(raised)
                raise
            self._leave(raised)
        try:
            self._topics.__exit__(None, None, None)
        except BaseException as raised:
            raised.add_note(
                "The database has committed. The next producer of this transactional id commits "
                "the topics, too."
            )
            raise

    def _decide(self) -> None:
        self._database.require_unbroken()
        state = self._topics.prepare()
        decide(self._database, self._name, _owners[self._producer], state)
        self._is_deciding = True
        self._database.commit()

    def _undo(self, reason: BaseException) -> None:
        roll_back_or_note(self._database, reason)
        self._topics.__exit__(type(reason), reason, reason.__traceback__)

    def _leave(self, raised: BaseException) -> None:
        """Leave the topics prepared, since the database may or may not have committed."""
        self._topics.leave_prepared()
        doubt = InDoubtError(
            f"producer {self._name!r} asked the database for a commit and had no answer: {raised}. "
            "The rows and the topics will be committed, or none of them. Open the producer and the "
            "connection again: txn.sql.recover reads the decision and finishes the transaction"
        )
        if isinstance(raised, Exception):
            raise doubt from raised
        raised.add_note(str(doubt))
        raise raised


def _name_of(producer: Producer) -> str:
    if not isinstance(producer, Producer):
        raise TypeError(f"txn.sql takes a txn.Producer, not {producer!r}")
    if producer.transactional_id is None or not producer.two_phase_commit:
        raise ConfigError(
            "txn.sql.transaction needs a producer that can prepare: open it with transactional_id, "
            "engine='native' and two_phase_commit=True. On a cluster without two-phase commit use "
            "txn.sql.outbox and txn.sql.Inbox"
        )
    return producer.transactional_id
