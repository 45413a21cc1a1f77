"""The rows of a table inside of one transaction, as a mapping."""

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from txn.errors import RejectedError
from txn.table.changes import Changes

if TYPE_CHECKING:
    from txn.client.transaction import Transaction
    from txn.table.table import Table


class TableView(MutableMapping[Any, Any]):
    """The rows of the consumer's partitions, with the writes of one transaction.

    A write is produced to the table's topic in the transaction, and visible here at once. It is
    kept if the transaction commits, and forgotten if it aborts. A key belongs to the partition
    that its hash names; the consumer has to own that partition of its input.

    Every use may raise:
        RejectedError: the consumer does not own the partition of the key, or the block is over.
        AbortableError: a rebalance took a partition away that this transaction has written to.
        RetriableError: a partition cannot be read now, or a transaction is open in it for long.
    """

    def __init__(self, table: "Table", block: "Transaction", changes: Changes) -> None:
        self._table = table
        self._block = block
        self._changes = changes

    def __getitem__(self, key: Any) -> Any:
        data, partition = self._place_of(key)
        value = self._value(partition, data)
        if value is None:
            raise KeyError(key)
        return self._table.settings.value.loads(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        data, partition = self._place_of(key)
        self._write(partition, data, self._table.settings.value.to_bytes(value, "value"))

    def __delitem__(self, key: Any) -> None:
        data, partition = self._place_of(key)
        if self._value(partition, data) is None:
            raise KeyError(key)
        self._write(partition, data, None)

    def __iter__(self) -> Iterator[Any]:
        loads = self._table.settings.key.loads
        for partition in self._own_partitions():
            written = self._changes.rows.get(partition, {})
            for key in self._table.copy.store.keys(partition):
                if key not in written:
                    yield loads(key)
            for key, value in list(written.items()):
                if value is not None:
                    yield loads(key)

    def __len__(self) -> int:
        store = self._table.copy.store
        length = 0
        for partition in self._own_partitions():
            length += store.count(partition)
            for key, value in self._changes.rows.get(partition, {}).items():
                length += (value is not None) - (store.get(partition, key) is not None)
        return length

    def _place_of(self, key: Any) -> tuple[bytes, int]:
        self._require_open()
        data = self._table.settings.key.to_bytes(key, "key")
        partition = self._table.partition_of(data)
        self._table.make_ready(partition, self._changes)
        return data, partition

    def _own_partitions(self) -> list[int]:
        self._require_open()
        own = self._table.partitions
        for partition in own:
            self._table.make_ready(partition, self._changes)
        return own

    def _value(self, partition: int, key: bytes) -> bytes | None:
        written = self._changes.rows.get(partition, {})
        return written[key] if key in written else self._table.copy.store.get(partition, key)

    def _write(self, partition: int, key: bytes, value: bytes | None) -> None:
        self._block.produce(self._table.topic, value, key, partition=partition)
        self._changes.rows.setdefault(partition, {})[key] = value

    def _require_open(self) -> None:
        if not self._changes.is_open:
            raise RejectedError(
                f"the transaction that the table {self._table.topic!r} was used in is over. Call "
                "`within` in each block: `with producer.transaction(consumer) as t: rows = "
                "table.within(t)`"
            )
