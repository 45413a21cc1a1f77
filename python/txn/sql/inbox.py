"""The inbox: topics are read into a database, and the offsets are rows of the same transaction.

    inbox = txn.sql.Inbox(consumer, connection, ["orders"])
    while True:
        with inbox.batch(500, timeout=1) as messages:
            for message in messages:
                connection.execute("INSERT INTO orders VALUES (?)", (message.value(),))

The table `txn_offsets` has the next offset of each partition by group. When the consumer gets a
partition, it begins at that offset. The group's committed offsets are not used.

The end of a batch moves each offset from where *this* consumer began, not only to where it ended. A
consumer that lost a partition in a rebalance without knowing finds another value there. It is
refused, and its batch is rolled back. So each record is in the database once, whoever reads it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Message, TopicPartition

from txn.client import Consumer
from txn.errors import AbortableError
from txn.sql.databases import Database, database_of
from txn.sql.decisions import in_transaction, roll_back_or_note

TABLE: Final = """CREATE TABLE IF NOT EXISTS txn_offsets (
    group_id VARCHAR(255) NOT NULL,
    topic VARCHAR(249) NOT NULL,
    topic_partition INTEGER NOT NULL,
    next_offset BIGINT NOT NULL,
    PRIMARY KEY (group_id, topic, topic_partition)
)"""
"""The statement that makes the table, where a program may not make it at its first start."""

WHERE: Final = "WHERE group_id = ? AND topic = ? AND topic_partition = ?"

Place = tuple[str, int]
"""Topic and partition."""


class Inbox:
    """Reads topics into a database, each record once.

    Args:
        consumer: A `txn.Consumer` of the group, which subscribes to nothing yet. Where it finds no
            row, `auto.offset.reset` says where a partition begins.
        connection: A connection of psycopg 3, sqlite3 or duckdb, without an open transaction.
        topics: The topics to read.
        timeout: Seconds to wait for other transactions of the database.

    Raises:
        RejectedError: the connection has a transaction open.
        RetriableError: the database was locked.
        TypeError: the connection is of another driver.
    """

    def __init__(
        self, consumer: Consumer, connection: object, topics: list[str], *, timeout: float = 60.0
    ) -> None:
        self._consumer = consumer
        self._database: Database = database_of(connection)
        self._timeout = timeout
        self._stored: dict[Place, int] = {}
        in_transaction(self._database, self._make_table, timeout)
        consumer.subscribe(topics, on_assign=lambda _, places: self._assign(places))

    @contextmanager
    def batch(self, limit: int = 500, timeout: float = 1.0) -> Iterator[list[Message]]:
        """Read records, for a `with` statement whose end commits rows and offsets together.

        An exception in the block rolls back, and the consumer reads the records again.

        Args:
            limit: The largest number of records.
            timeout: Seconds to wait for them.

        Raises:
            AbortableError: another consumer has read these records. Nothing was stored; go on.
            RejectedError: the connection has a transaction open, or the block committed it.
            TxnError: as `Consumer.consume`; and the database's own errors. After one of COMMIT open
                the connection and an inbox again: the stored offsets say what was committed.
        """
        messages = self._consumer.consume(limit, timeout=timeout)
        first: dict[Place, int] = {}
        reached: dict[Place, int] = {}
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            first.setdefault((topic, partition), offset)
            reached[topic, partition] = offset + 1
        try:
            self._database.begin()
            yield messages
            self._database.require_unbroken()
            for place, offset in reached.items():
                self._move(place, offset)
            self._database.commit()
        except BaseException as reason:
            roll_back_or_note(self._database, reason)
            self._rewind(first, reason)
            raise
        self._stored.update(reached)

    def _make_table(self) -> None:
        if not self._database.has_table("txn_offsets"):
            self._database.run(TABLE)

    def _assign(self, places: list[TopicPartition]) -> None:
        """Begin at the stored offsets. It runs inside `consume`, where no transaction is open."""
        in_transaction(self._database, lambda: self._read(places), self._timeout)
        self._consumer.assign(places)

    def _read(self, places: list[TopicPartition]) -> None:
        for place in places:
            key = (self._consumer.group_id, place.topic, place.partition)
            rows = self._database.run(f"SELECT next_offset FROM txn_offsets {WHERE}", key)
            self._stored.pop((place.topic, place.partition), None)
            if rows:
                place.offset = rows[0][0]
                self._stored[place.topic, place.partition] = place.offset

    def _move(self, place: Place, offset: int) -> None:
        key = (self._consumer.group_id, *place)
        before = self._stored.get(place)
        if before is None:
            moved = self._database.change(
                "INSERT INTO txn_offsets VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*key, offset),
            )
        else:
            moved = self._database.change(
                f"UPDATE txn_offsets SET next_offset = ? {WHERE} AND next_offset = ?",
                (offset, *key, before),
            )
        if not moved:
            raise AbortableError(
                f"group {self._consumer.group_id!r} has read {place[0]}-{place[1]} elsewhere since "
                "this consumer got it. Nothing of this batch is stored; go on with the next",
                topic=place[0],
                partition=place[1],
            )

    def _rewind(self, first: dict[Place, int], reason: BaseException) -> None:
        """Go back to the stored offsets, or to where the batch began without one.

        Of partitions that are still the consumer's: another consumer may have stored more.
        """
        try:
            owned = {(p.topic, p.partition) for p in self._consumer.assignment()}
            back = [TopicPartition(*place, offset) for place, offset in first.items()]
            back = [place for place in back if (place.topic, place.partition) in owned]
            in_transaction(self._database, lambda: self._read(back), self._timeout)
            for place in back:
                self._consumer.seek(place)
        except Exception as failure:
            reason.add_note(f"The consumer could not be rewound ({failure}): open it again")
