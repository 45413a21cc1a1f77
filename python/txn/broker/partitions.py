"""The partitions of one topic, each opened when it is first touched.

A partition that was never written has nothing on the disk, and here it has a place in a list: no
log, no rules, no lock. What touches it, a Produce, a Fetch or a coordinator, opens it.

Threads. Reactors open what Produce and Fetch name, beside the control loop, so a lock makes sure
that a partition is opened once. Nothing waits for a partition's lock under it.
"""

from collections.abc import Callable, Iterator
from threading import Lock

from txn.metadata.image import Topic
from txn.storage.base import PartitionStore


class Partitions:
    """Partition 0 first; `[index]` opens.

    Args:
        topic: Theirs.
        open_store: Opens one; raises CorruptLogError or StorageError.
    """

    def __init__(self, topic: Topic, open_store: Callable[[Topic, int], PartitionStore]) -> None:
        self._topic = topic
        self._open_store = open_store
        self._stores: list[PartitionStore | None] = [None] * topic.partition_count
        self._is_closed = False
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._stores)

    def __getitem__(self, index: int) -> PartitionStore:
        """A partition.

        Raises:
            IndexError: there is none of that number, or the topic was deleted.
            CorruptLogError, StorageError: as `open_store`.
        """
        store = self._stores[index]
        if store is not None:
            return store
        with self._lock:
            if self._is_closed:
                raise IndexError(f"topic {self._topic.name} was deleted")
            store = self._stores[index]
            if store is None:
                store = self._open_store(self._topic, index)
                self._take_in(index, store)
            return store

    def __iter__(self) -> Iterator[PartitionStore]:
        """All of them, opened one after the other."""
        return (self[index] for index in range(len(self)))

    def is_untouched(self, index: int) -> bool:
        """Say whether there is one of that number that nothing has opened yet."""
        return 0 <= index < len(self._stores) and self._stores[index] is None

    def take_in(self, index: int, store: PartitionStore) -> None:
        """Have one that was opened elsewhere."""
        with self._lock:
            self._take_in(index, store)

    def grow(self) -> None:
        """Have as many as the topic has by now."""
        with self._lock:
            self._stores += [None] * (self._topic.partition_count - len(self._stores))

    def opened(self) -> list[PartitionStore]:
        """Those that are open; whatever is opened later begins with the settings of now."""
        with self._lock:
            return [store for store in self._stores if store is not None]

    def close_for_good(self) -> list[PartitionStore]:
        """Open none any more; return those that are."""
        with self._lock:
            self._is_closed = True
        return self.opened()

    def leader_epoch(self, index: int) -> int:
        """The epoch in which one is led."""
        store = self._stores[index]
        return self._topic.leader_epoch(index) if store is None else store.leader_epoch

    def _take_in(self, index: int, store: PartitionStore) -> None:
        store.lead(self._topic.leader_epoch(index))
        self._stores[index] = store
