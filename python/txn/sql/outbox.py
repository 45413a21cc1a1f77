"""The outbox: records are rows first, and a relay publishes each of them once. For any cluster.

    with connection:  # the program's own transaction
        connection.execute("INSERT INTO orders VALUES (7, 'apples')")
        txn.sql.outbox.add(connection, "orders", b"7 apples")

    relay = txn.sql.outbox.Relay(producer, connection, consumer, position=("orders", 0))
    while relay.run_once():  # in another process, or another thread
        pass

The relay numbers rows before it publishes them:

1. *Claim*, in the database: some rows without a number get the next one, and the row of the
   transactional id in `txn_decisions` has to be the relay's own.
2. *Publish*, in one transaction of the cluster: the rows of that number as records, and the number
   as the committed offset of the relay's group in `position`.
3. *Delete*, in the database: the rows of that number.

So the cluster keeps the position, in the transaction that has the records. A start reads it. Rows
with a number up to it are published, and are deleted. Rows with the number behind it are not, and
are published under the same number. The numbers come from the relay and not from the rows: rows
get their ids before they are committed, so a row may appear behind one that is published already.

A relay that was thought dead cannot publish, since its producer is fenced. It cannot claim either,
since the next relay has taken over the row, after it had opened its producer.

Limits: records of one key keep their order if the transactions that write them do not overlap. The
position is an offset of a group without members: a relay that stops between 2 and 3, and comes back
after `offsets.retention.minutes` (seven days), publishes those rows again.
"""

from typing import Any, Final

import confluent_kafka
from confluent_kafka import TopicPartition

from txn.client import Producer
from txn.errors import ConfigError
from txn.sql.databases import Database, database_of
from txn.sql.decisions import in_transaction, require_owner, take_over

__all__ = ["Relay", "add", "create"]

LIMIT: Final = 500
"""Rows of a transaction, if the caller gives no number."""

ROWS: Final = "SELECT id, topic, record_key, record_value FROM txn_outbox"


def create(connection: object, timeout: float = 60.0) -> None:
    """Make the table `txn_outbox`, unless it is there. The connection has no open transaction.

    Raises:
        RejectedError: the connection has a transaction open.
    """
    database = database_of(connection)

    def write() -> None:
        if database.has_table("txn_outbox"):
            return
        if "nextval" in database.numbered:
            database.run("CREATE SEQUENCE IF NOT EXISTS txn_outbox_ids")
        database.run(
            f"CREATE TABLE IF NOT EXISTS txn_outbox ({database.numbered}, "
            f"topic VARCHAR(249) NOT NULL, record_key {database.blob}, "
            f"record_value {database.blob}, relayed_in BIGINT)"
        )

    in_transaction(database, write, timeout)


def add(
    connection: object, topic: str, value: str | bytes | None, key: str | bytes | None = None
) -> None:
    """Write a record into the outbox, in the open transaction of the connection.

    Args:
        connection: A connection of psycopg 3, sqlite3 or duckdb.
        topic: The topic of the record.
        value: Its value; None is a tombstone.
        key: Its key; records of one key go to one partition.

    Raises:
        The database's own error, if `create` was never called or the database refuses the row.
    """
    database_of(connection).run(
        "INSERT INTO txn_outbox (topic, record_key, record_value) VALUES (?, ?, ?)",
        (topic, _bytes(key), _bytes(value)),
    )


class Relay:
    """Publishes the rows of an outbox, each once. One relay at a time works for a transactional id.

    Args:
        producer: A producer with a transactional id, of any engine, opened for this relay.
        connection: A connection to the database, without an open transaction, for the
            relay alone.
        consumer: A consumer whose group keeps the position. It subscribes to nothing.
        position: The topic and partition under which the group keeps it. Any that exists will do,
            and it must stay the same.
        timeout: Seconds that each step may take.

    Raises:
        ConfigError: the producer has no transactional id.
        RejectedError: the connection has a transaction open.
        RetriableError: the database was locked, or the cluster did not answer.
    """

    def __init__(
        self,
        producer: Producer,
        connection: object,
        consumer: confluent_kafka.Consumer,
        *,
        position: tuple[str, int],
        timeout: float = 60.0,
    ) -> None:
        if producer.transactional_id is None:
            raise ConfigError("a relay needs a producer with a transactional_id")
        self._producer = producer
        self._name = producer.transactional_id
        self._database: Database = database_of(connection)
        self._consumer = consumer
        self._topic, self._partition = position
        self._timeout = timeout
        create(connection, timeout)
        self._owner, _ = take_over(self._database, self._name, timeout)
        # After both take-overs: what an earlier relay may have committed is committed by now.
        [place] = consumer.committed(
            [TopicPartition(self._topic, self._partition)], timeout=timeout
        )
        self._number = max(place.offset, 0)
        self._delete()

    def run_once(self, limit: int = LIMIT) -> int:
        """Publish up to `limit` rows in one transaction; return how many. 0: the outbox is empty.

        Raises:
            FencedError: another relay took over.
            TxnError: as `Producer.transaction`; after REOPEN open the producer and a relay again.
        """
        rows = in_transaction(self._database, lambda: self._claim(limit), self._timeout)
        if not rows:
            return 0
        number = self._number + 1
        with self._producer.transaction(timeout=self._timeout) as t:
            for _, topic, key, value in rows:
                t.produce(topic, _bytes(value), _bytes(key))
            place = TopicPartition(self._topic, self._partition, number)
            t.send_offsets([place], self._consumer)
        self._number = number
        self._delete()
        return len(rows)

    def _claim(self, limit: int) -> list[tuple[Any, ...]]:
        """Return the rows of the next number: those that have it, or else `limit` of the others."""
        require_owner(self._database, self._name, self._owner)
        claimed = f"{ROWS} WHERE relayed_in > ? ORDER BY id"
        rows = self._database.run(claimed, (self._number,))
        if rows:
            return rows
        self._database.run(
            "UPDATE txn_outbox SET relayed_in = ? WHERE id IN "
            f"(SELECT id FROM txn_outbox WHERE relayed_in IS NULL ORDER BY id LIMIT {int(limit)})",
            (self._number + 1,),
        )
        return self._database.run(claimed, (self._number,))

    def _delete(self) -> None:
        def delete() -> None:
            require_owner(self._database, self._name, self._owner)
            self._database.run("DELETE FROM txn_outbox WHERE relayed_in <= ?", (self._number,))

        in_transaction(self._database, delete, self._timeout)


def _bytes(content: str | bytes | memoryview | None) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    return content.encode() if isinstance(content, str) else bytes(content)
