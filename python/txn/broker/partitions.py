"""The partitions of one topic, each opened when it is first touched.

A partition that was never written has nothing on the disk. Here it has a place in a list: no log,
no rules, no lock. Its first user, a Produce, a Fetch or a coordinator, opens it.

If a disk prevents the opening of a partition, the next user tries again, but not more often than
once in a while. A damaged partition stays closed until the next start. Its requests are answered
with KAFKA_STORAGE_ERROR, the damage is logged (`log.damaged`), and all others are served.

Threads. Reactors open the partitions of Produce and Fetch, beside the control loop, so a lock makes
sure that a partition is opened once. Nothing waits for a partition's lock under it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from txn.errors import CorruptLogError, StorageError
from txn.logs import log
from txn.metadata.image import Topic
from txn.storage.base import PartitionLog

RETRY_MS: Final = 1000
"""Time that one that could not be opened is left alone."""


@dataclass(frozen=True, slots=True)
class PartitionFailure:
    """Why a partition cannot be used, and since when; `is_final`: until the next start."""

    reason: str
    at_ms: int
    is_final: bool


class TopicPartitions:
    """Partition 0 first; `[index]` opens.

    Args:
        topic: Theirs.
        open_store: Opens one; raises CorruptLogError or StorageError.
        now_ms: Tells the time, in milliseconds since the epoch.
    """

    def __init__(
        self,
        topic: Topic,
        open_store: Callable[[Topic, int], PartitionLog],
        now_ms: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._open_store = open_store
        self._now_ms = now_ms
        self.stores: list[PartitionLog | None] = [None] * topic.partition_count
        """Those that are open, None for the others; only this class changes it."""
        self._failures: dict[int, PartitionFailure] = {}
        self._withdrawn: list[PartitionLog] = []
        self._is_closed = False
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.stores)

    def has(self, index: int) -> bool:
        """Return True if there is one of that number; it is not opened."""
        return 0 <= index < len(self.stores)

    def __getitem__(self, index: int) -> PartitionLog:
        """A partition.

        Raises:
            IndexError: there is none of that number, or the topic was deleted.
            StorageError: it cannot be opened now.
        """
        store = self.stores[index]
        if store is not None:
            return store
        with self._lock:
            if self._is_closed:
                raise IndexError(f"topic {self._topic.name} was deleted")
            store = self.stores[index]
            return self._open(index) if store is None else store

    def __iter__(self) -> Iterator[PartitionLog]:
        """All of them, opened one after the other."""
        return (self[index] for index in range(len(self)))

    def is_untouched(self, index: int) -> bool:
        """Return True if there is one of that number that nothing has tried to open yet."""
        is_there = 0 <= index < len(self.stores) and self.stores[index] is None
        return is_there and index not in self._failures

    def register(self, index: int, store: PartitionLog) -> None:
        """Register a log that the caller opened."""
        with self._lock:
            self._register(index, store)

    def note_failure(self, index: int, error: CorruptLogError | StorageError) -> None:
        """Record that the caller could not open a log, and report it in the log lines."""
        with self._lock:
            self._note_failure(index, error)

    def withdraw(self, index: int, error: CorruptLogError) -> None:
        """Stop serving one until the next start; it need not be open."""
        with self._lock:
            store, self.stores[index] = self.stores[index], None
            if store is not None:
                self._withdrawn.append(store)
            self._note_failure(index, error)

    def grow(self) -> None:
        """Add places for the topic's new partitions."""
        with self._lock:
            self.stores += [None] * (self._topic.partition_count - len(self.stores))

    def opened(self) -> list[PartitionLog]:
        """Partitions that are in use; one that is opened later begins with the settings of now."""
        with self._lock:
            return [store for store in self.stores if store is not None]

    def opened_by_index(self) -> list[tuple[int, PartitionLog]]:
        """Those that are in use, with their numbers."""
        with self._lock:
            return [(at, store) for at, store in enumerate(self.stores) if store is not None]

    @property
    def failure_count(self) -> int:
        """Number of partitions that cannot be used."""
        return len(self._failures)

    def failures(self) -> list[tuple[int, str]]:
        """The numbers of partitions that cannot be used, with the reasons."""
        with self._lock:
            return [(index, failure.reason) for index, failure in self._failures.items()]

    def withdrawn(self) -> list[PartitionLog]:
        """Those that were opened and are out of service."""
        with self._lock:
            return self._withdrawn.copy()

    def has_failures(self, *, are_final: bool) -> bool:
        """Return True if one cannot be used: until the next start, or for now."""
        with self._lock:
            return any(failure.is_final is are_final for failure in self._failures.values())

    def close_for_good(self) -> list[PartitionLog]:
        """Open none any more; return those that are open."""
        with self._lock:
            self._is_closed = True
        return self.opened() + self.withdrawn()

    def leader_epoch(self, index: int) -> int:
        """The epoch in which one is led."""
        store = self.stores[index]
        return self._topic.leader_epoch(index) if store is None else store.leader_epoch

    def _open(self, index: int) -> PartitionLog:
        """Open one; the log reports the first failure, and the next success."""
        topic = self._topic.name
        failure = self._failures.get(index)
        if failure is not None and (
            failure.is_final or 0 <= self._now_ms() - failure.at_ms < RETRY_MS
        ):
            raise StorageError(failure.reason, topic=topic, partition=index)
        try:
            store = self._open_store(self._topic, index)
        except (CorruptLogError, StorageError) as error:
            self._note_failure(index, error)
            raise StorageError(error.message, topic=topic, partition=index) from error
        self._register(index, store)
        if self._failures.pop(index, None) is not None:
            log.warning("partition.opened_again", topic=topic, partition=index)
        return store

    def _note_failure(self, index: int, error: CorruptLogError | StorageError) -> None:
        is_damage = isinstance(error, CorruptLogError)
        known = self._failures.get(index)
        self._failures[index] = PartitionFailure(error.message, self._now_ms(), is_damage)
        if known is not None and known.is_final >= is_damage:
            return
        topic = self._topic.name
        if is_damage:
            known_place = {"path", "position"} & vars(error).keys()
            where: dict[str, Any] = {name: vars(error)[name] for name in sorted(known_place)}
            log.error("log.damaged", topic=topic, partition=index, **where, reason=error.message)
        else:
            log.error("partition.not_opened", topic=topic, partition=index, reason=error.message)

    def _register(self, index: int, store: PartitionLog) -> None:
        store.lead(self._topic.leader_epoch(index))
        self.stores[index] = store
