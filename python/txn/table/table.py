"""`Table`: a compacted topic as a mapping by partition, written in transactions."""

import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import confluent_kafka
from confluent_kafka import TopicPartition

from txn.admin.way_in import SERVERS, merged, security_of, servers_of
from txn.client.consumer import Consumer
from txn.client.failures import opened_elsewhere
from txn.client.transaction import BlockResult, Transaction
from txn.errors import AbortableError, ConfigError, RejectedError, RetriableError, TxnError
from txn.table.changes import Changes
from txn.table.local_copy import LocalCopy
from txn.table.opening import MEMORY, TableSettings
from txn.table.partitioner import partition_of
from txn.table.reader import TableReader
from txn.table.serdes import BYTES, Serde
from txn.table.view import TableView

OnRebalance = Callable[[confluent_kafka.Consumer, list[TopicPartition]], None]

CHECKPOINT_S: Final = 5.0
"""A file of SQLite reads its topic at least so often, so that a restart has little to read."""

CLOSE_S: Final = 1.0
"""Time that closing waits for the markers of the last transaction."""


class Table:
    """A compacted topic as a mapping: state of a program that transactions keep.

    To write it, subscribe the consumer by the table, and use `within` in each block:

        with txn.Table("totals", bootstrap_servers=servers) as totals:
            totals.subscribe(consumer, ["orders"])
            with producer.transaction(consumer) as t:
                rows = totals.within(t)
                for record in consumer.consume(500, 1.0):
                    rows[record.key()] = add(rows.get(record.key()), record.value())

    To read it only, use `reader`. One program writes a table, in any number of instances; each
    partition has the owner of the same partition of the input. `txn.table` has the invariants.

    Args:
        topic: The topic, with `cleanup.policy=compact`, and as many partitions as the input.
        config: Properties of the connection by Kafka's names: `bootstrap.servers`, `sasl.*`.
        bootstrap_servers: HOST:PORT[,HOST:PORT…], or a list.
        store: `memory`, or the path of a file of SQLite, which a restart reads on from. Each
            process needs a file of its own.
        key: How keys become bytes; `txn.table.BYTES`, `TEXT` or `JSON`, or a Serde.
        value: How values become bytes.
        timeout: Seconds to wait for an answer, and for a transaction that another instance has
            open in a partition that comes.
        more: Further properties, with `_` for `.`.

    It belongs to one thread, that of the consumer, and to one process.

    Raises:
        ConfigError: a setting is missing, unknown or does not fit; before any I/O.
    """

    def __init__(
        self,
        topic: str,
        config: Mapping[str, object] | None = None,
        /,
        *,
        bootstrap_servers: str | Iterable[str] | None = None,
        store: str | Path = MEMORY,
        key: Serde = BYTES,
        value: Serde = BYTES,
        timeout: float = 60.0,
        **more: object,
    ) -> None:
        properties = merged(config, more)
        given = [
            each for each in (bootstrap_servers, properties.pop(SERVERS, None)) if each is not None
        ]
        if len(given) != 1:
            raise ConfigError(f"give {SERVERS} of the table {topic!r} once", property=SERVERS)
        servers, security = servers_of(given[0]), security_of(properties)
        self.settings = TableSettings(topic, servers, security, store, key, value, timeout)
        self.topic = topic
        self._opened: LocalCopy | None = None
        self._changes: Changes | None = None
        self._inputs: dict[str, set[int]] = {}  # topic → partitions that the consumer owns
        self._ready: set[int] = set()  # read since they came
        self._checked_s = time.monotonic()
        self._pid = os.getpid()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def reader(self, *, poll_interval: float = 0.1) -> TableReader:
        """Return all partitions of the table, read-only; a thread follows the topic.

        Args:
            poll_interval: Seconds between two looks for new records.

        Raises:
            ConfigError: the topic does not exist or is not compacted.
            DirectoryError: the store is in use.
            UnreachableError: none of the servers answers.
        """
        return TableReader(self.settings, poll_interval=poll_interval)

    def subscribe(
        self,
        consumer: Consumer,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe the consumer of the input; its partitions are those of the table.

        A partition that comes is read from the topic when it is first used. One that goes is
        dropped; a file of SQLite keeps it, and reads on from there when it comes back.

        Args:
            consumer: It is subscribed, as by `txn.Consumer.subscribe`.
            topics: The input. Several topics need an assignor that gives partitions of one number
                to one member, as `range` does.
            on_assign: Called as by `txn.Consumer.subscribe`; so are the others.
            on_revoke: See there.
            on_lost: See there.

        Raises:
            ConfigError: a topic does not exist, or has another number of partitions.
            DirectoryError: the store is in use.
            UnreachableError: none of the servers answers.
        """
        self._require_partitions(topics)

        def assigned(member: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
            self.on_assign(member, partitions)
            if on_assign is not None:
                on_assign(member, partitions)

        def revoked(member: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
            self.on_revoke(member, partitions)
            if on_revoke is not None:
                on_revoke(member, partitions)

        def lost(member: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
            self.on_revoke(member, partitions)
            callback = on_lost or on_revoke
            if callback is not None:
                callback(member, partitions)

        self._inputs = {topic: set() for topic in topics}
        consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Assign partitions of the input by hand, as `txn.Consumer.assign` does.

        Nothing but the transactional id then keeps two instances from one partition: name it by
        the partitions. Raises as `subscribe`.
        """
        topics = sorted({each.topic for each in partitions})
        self._require_partitions(topics)
        for partition in self.partitions:
            self._drop(partition)
        self._inputs = {topic: set() for topic in topics}
        self.on_assign(consumer, partitions)
        consumer.assign(partitions)

    def within(self, transaction: Transaction) -> TableView:
        """Return the rows as a mapping for the block of a transaction.

        Writes are produced in the transaction, and are kept or forgotten with it.

        Raises:
            RejectedError: the block is not open, or another block uses the table.
            ConfigError: the consumer was not subscribed by `subscribe` or `assign`.
            StorageError: the store refused the rows of the last transaction.
        """
        changes = self._changes
        if changes is not None and changes.is_open and changes.block() is transaction:
            return TableView(self, transaction, changes)
        if changes is not None and changes.is_open:
            raise RejectedError(
                f"another open transaction uses the table {self.topic!r}. Leave its block first"
            )
        if not self._inputs:
            raise ConfigError(
                f"the table {self.topic!r} has no partitions yet. Subscribe the consumer by "
                "table.subscribe(consumer, ['topic'])"
            )
        self._settle()
        self._checkpoint()
        changes = Changes(weakref.ref(transaction))
        transaction.call_at_end(changes.end)
        self._changes = changes
        return TableView(self, transaction, changes)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the committed value of a key outside of transactions.

        Raises RejectedError: the consumer does not own the partition of the key, or a block that
        uses the table is open.
        """
        if self._changes is not None and self._changes.is_open:
            raise RejectedError("a transaction uses the table: ask the mapping of `within`")
        self._settle()
        data = self.settings.key.to_bytes(key, "key")
        partition = self.partition_of(data)
        self.make_ready(partition, None)
        value = self.copy.store.get(partition, data)
        return default if value is None else self.settings.value.loads(value)

    @property
    def partitions(self) -> list[int]:
        """The partitions that the consumer owns now, sorted."""
        return sorted({each for owned in self._inputs.values() for each in owned})

    @property
    def rows_read(self) -> int:
        """The number of records read from the topic so far, as after an assignment."""
        return 0 if self._opened is None else self._opened.records_read

    def close(self) -> None:
        """Keep the rows of the last transaction, and let go of the store. Can be repeated.

        Raises StorageError: the store refused. The topic has the rows all the same.
        """
        if self._is_closed or os.getpid() != self._pid:
            return
        copy = self._opened
        if copy is None:
            self._is_closed = True
            return
        try:
            self._settle()
            if copy.store.is_kept:
                with suppress(TxnError):  # a restart reads what is missing
                    for partition in sorted(self._ready):
                        copy.catch_up(partition, await_s=CLOSE_S)
        finally:
            self._is_closed = True
            copy.changelog.close()
            copy.store.close()

    # ------------------------------------------------------------ for TableView

    @property
    def copy(self) -> LocalCopy:
        """The store and the topic, opened when first used. Raises as `subscribe`."""
        if os.getpid() != self._pid:
            raise opened_elsewhere(f"the table {self.topic!r}", self._pid)
        if self._is_closed:
            raise RejectedError(f"the table {self.topic!r} is closed; open another")
        if self._opened is None:
            self._opened = self.settings.open(is_keyed=True)
        return self._opened

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key."""
        return partition_of(key, self.copy.count)

    def make_ready(self, partition: int, changes: Changes | None) -> None:
        """Read a partition from the topic, if it has come since it was last read.

        `changes` are the rows of the open transaction. `TableView` has the errors.
        """
        owned = [partition in own for own in self._inputs.values()]
        has_written = changes is not None and partition in changes.rows
        if partition in self._ready:
            return
        if has_written:
            raise AbortableError(
                f"a rebalance took partition {partition} of the table {self.topic!r} away in this "
                "transaction. It cannot commit; begin another"
            )
        if not all(owned) or not owned:
            raise RejectedError(self._not_owned(partition, is_partly=any(owned)))
        if not self.copy.check_topic():
            self._ready.clear()
        if not self.copy.catch_up(partition, await_s=self.settings.timeout_s):
            raise RetriableError(
                f"a transaction is open in {self.topic}-{partition} for more than "
                f"{self.settings.timeout_s:g} s, and the table waits for its end. See "
                f"`txn explain {self.topic}-{partition}`"
            )
        self._ready.add(partition)

    def _not_owned(self, partition: int, *, is_partly: bool) -> str:
        if is_partly:
            return (
                f"the consumer owns partition {partition} of some of its topics and not of all: "
                f"{', '.join(self._inputs)}. Give it partition.assignment.strategy=range"
            )
        owned = ", ".join(map(str, self.partitions)) or "none"
        return (
            f"the key belongs to partition {partition} of the table {self.topic!r}, and the "
            f"consumer does not own this partition of its input. It owns: {owned}. Use the keys of "
            "its records, or read all rows by `reader()`"
        )

    # ------------------------------------------------------------ partitions come and go

    def _require_partitions(self, topics: list[str]) -> None:
        if not topics:
            raise ConfigError(f"name the topics whose records the table {self.topic!r} is made of")
        for topic in topics:
            if topic.startswith("^"):
                raise ConfigError(
                    f"a table cannot follow the pattern {topic!r}: its topics have to have as many "
                    "partitions as the table. Name the topics"
                )
            count, _ = self.copy.changelog.describe(topic)
            if count != self.copy.count:
                raise ConfigError(
                    f"the topic {topic!r} has {count} partitions and the table {self.topic!r} has "
                    f"{self.copy.count}, so a key would be in other partitions. Create the topic "
                    f"of the table with {count} partitions"
                )

    def on_assign(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Take partitions, as they come to the consumer of a table that shares it.

        For a second table in the same transactions: `second.subscribe(consumer, topics,
        on_assign=first.on_assign, on_revoke=first.on_revoke)`, after `first.subscribe`.
        """
        for each in partitions:
            self._inputs.setdefault(each.topic, set()).add(each.partition)

    def on_revoke(
        self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]
    ) -> None:
        """Let go of partitions; see `on_assign`."""
        for each in partitions:
            self._inputs.get(each.topic, set()).discard(each.partition)
            self._drop(each.partition)

    def _drop(self, partition: int) -> None:
        """Forget rows in memory. Those of a file stay, and are read on from their place."""
        self._ready.discard(partition)
        if self._opened is not None and not self._opened.store.is_kept:
            self._opened.store.clear(partition)

    # ------------------------------------------------------------ after a transaction

    def _settle(self) -> None:
        """Keep or forget the rows of the transaction that has ended."""
        changes = self._changes
        if changes is None:
            return
        if changes.result is BlockResult.COMMITTED:
            for partition, rows in sorted(changes.rows.items()):
                if partition in self._ready:
                    self.copy.store.apply(partition, rows, None)
        elif changes.result is not BlockResult.ABORTED:  # it may be committed: the topic knows
            self._ready -= changes.rows.keys()
        self._changes = None

    def _checkpoint(self) -> None:
        """Read on in the topic from time to time, so that a restart has little to read."""
        if not self._ready or not self.copy.store.is_kept:
            return
        if time.monotonic() - self._checked_s < CHECKPOINT_S:
            return
        self._checked_s = time.monotonic()
        if not self.copy.check_topic():
            self._ready.clear()
        for partition in sorted(self._ready):
            self.copy.catch_up(partition)
