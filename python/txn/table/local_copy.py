"""A store that follows the topic of a table, partition by partition.

A store may be read on from its place only if the topic still has every change since:

- It is the same topic, by its id; a topic that was created anew has another.
- The place lies within the log. Behind the end, records were lost; before the start, deleted.
- The last complete read was less than `delete.retention.ms` ago. The cleaner removes deletions
  that are older, and a store that has not seen one would keep the row for ever.

Otherwise the partition is built again from its start.
"""

import threading
import time
from itertools import islice
from typing import Final

from txn.clock import now_ms
from txn.errors import ConfigError, RejectedError, RetriableError
from txn.table.changelog import Changelog, Ends, OutOfRangeError
from txn.table.partitioner import partition_of
from txn.table.stores import Place, Rows, Store

PAUSE_S: Final = 0.02
"""Between two looks for the end of an open transaction."""

LOOKED_AT: Final = 16
"""Keys of a piece of the topic whose partition is checked."""

NOTED_MS: Final = 15_000
"""An idle partition is noted as current so often."""

DELETE_RETENTION_MS: Final = 86_400_000
"""delete.retention.ms, where the user may not read it."""


class LocalCopy:
    """A store and the topic that it follows. One thread follows; others read under `lock`.

    Attributes:
        store: The rows.
        lock: Held for each use of the store, and never while a broker is asked.
        changelog: The topic.
        count: The number of its partitions.
        records_read: Rows read so far, of all partitions.

    With `is_keyed`, a record whose key belongs to another partition is refused, as far as a
    few records of each piece show it: another partitioner would put all of them elsewhere.
    """

    def __init__(
        self,
        store: Store,
        changelog: Changelog,
        *,
        delete_retention_ms: int = DELETE_RETENTION_MS,
        is_keyed: bool = False,
    ) -> None:
        self.store = store
        self.lock = threading.RLock()
        self.changelog = changelog
        self.records_read = 0
        self._delete_retention_ms = delete_retention_ms
        self._is_keyed = is_keyed
        self.count, topic_id = changelog.describe()
        store.belong_to(changelog.topic, topic_id)

    def check_topic(self) -> bool:
        """Look whether the topic is still the same; if not, forget all rows and return False.

        Raises ConfigError: its partitions have become more, so keys have moved.
        """
        count, topic_id = self.changelog.describe()
        if count != self.count:
            raise ConfigError(
                f"the topic {self.changelog.topic!r} has {count} partitions and had {self.count}: "
                "its keys have moved. Write the table to a new topic"
            )
        with self.lock:
            before = [self.store.place(each) for each in range(count)]
            self.store.belong_to(self.changelog.topic, topic_id)
            return before == [self.store.place(each) for each in range(count)]

    def catch_up(self, partition: int, *, await_s: float = 0.0) -> bool:
        """Read a partition up to its last stable offset.

        Args:
            partition: Its number.
            await_s: Seconds to wait for the end of transactions that are open when it begins.

        Returns:
            True if everything before the end of the log, as it was at the begin, is decided and
            read.

        Raises:
            RetriableError: the leader does not answer.
        """
        ends_s = time.monotonic() + await_s
        ends = self.changelog.ends(partition)
        self._begin(partition, ends)
        stable = ends.stable
        while True:
            self._read(partition, stable)
            if stable >= ends.end:
                return True
            if time.monotonic() >= ends_s:
                return False
            time.sleep(PAUSE_S)
            (stable,) = self.changelog.stable([partition])

    def follow(self, partition: int, stable: int) -> bool:
        """Read a partition up to a stable offset of it; return True if rows may have changed."""
        with self.lock:
            place = self.store.place(partition)
            age_ms = 0 if place is None else now_ms() - place.current_ms
            is_read = place is not None and place.next_offset == stable
            if is_read and age_ms < self._delete_retention_ms:
                if age_ms >= NOTED_MS:
                    self.store.apply(partition, {}, Place(stable, now_ms()))
                return False
        self._begin(partition, self.changelog.ends(partition))
        self._read(partition, stable)
        return True

    def _begin(self, partition: int, ends: Ends) -> None:
        with self.lock:
            place = self.store.place(partition)
            is_usable = (
                place is not None
                and ends.start <= place.next_offset <= ends.end
                and now_ms() - place.current_ms < self._delete_retention_ms
            )
            if not is_usable:
                self.store.clear(partition)
                self.store.apply(partition, {}, Place(ends.start, now_ms()))

    def _read(self, partition: int, stable: int) -> None:
        began_ms = now_ms()
        with self.lock:
            place = self.store.place(partition)
        assert place is not None, "it was begun"
        if place.next_offset > stable:
            return  # the leader has changed, and does not know yet what is decided
        try:
            for rows, next_offset in self.changelog.read(partition, place.next_offset, stable):
                if self._is_keyed:
                    self._require_partition(partition, rows)
                with self.lock:
                    self.records_read += len(rows)
                    self.store.apply(partition, rows, Place(next_offset, place.current_ms))
        except OutOfRangeError as error:
            with self.lock:
                self.store.clear(partition)
            raise RetriableError(
                f"records of {self.changelog.topic}-{partition} were deleted while they were read. "
                "Try again: the table is built anew"
            ) from error
        with self.lock:
            self.store.apply(partition, {}, Place(stable, began_ms))

    def _require_partition(self, partition: int, rows: Rows) -> None:
        for key in islice(rows, LOOKED_AT):
            other = partition_of(key, self.count)
            if other != partition:
                topic = self.changelog.topic
                raise RejectedError(
                    f"{topic}-{partition} has records whose keys belong to {topic}-{other}: "
                    "another partitioner wrote them. A table is written by txn.Table alone; other "
                    "producers need Java's partitioner (librdkafka's partitioner=murmur2_random)",
                    topic=topic,
                    partition=partition,
                )
