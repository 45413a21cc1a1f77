"""The broker below a coordinator, in memory: a `txn.broker.host.Host` that does as a test says.

It replaces a process and a machine. `Crash` ends the process in the middle of a write, and
`after_crash` starts it again with everything that was written. `after_power_failure` starts it with
the synced part and perhaps a part of the rest. Timers run when the test moves the clock.
"""

import asyncio
import heapq
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from txn.broker.host import Durability
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.storage.base import PartitionLog
from txn.testing.memory_log import MemoryLog

PRODUCER_IDS_PER_BLOCK = 4
DEFAULTS = BrokerSettings({})


class Crash(BaseException):
    """The process is gone."""


class FakeTimer:
    """A call that is due on the host's clock."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Make the call no more."""
        self.call = None


class FakePartitions:
    """The partitions of a coordinator's topic."""

    def __init__(self, host: "FakeHost", topic: str) -> None:
        self._host = host
        self._topic = topic

    def __len__(self) -> int:
        return len(self._host.topics[self._topic])

    def __getitem__(self, index: int) -> MemoryLog:
        log = self._host.topics[self._topic][index]
        self._host.partition(self._topic, index)
        return log

    def __iter__(self) -> Iterator[MemoryLog]:
        return (self[index] for index in range(len(self)))


class FakeHost:
    """Implements `txn.broker.host.Host`, with everything in reach of the test."""

    def __init__(
        self,
        durability: Durability = Durability.PROCESS,
        *,
        topics: Mapping[str, int] = {},
        coordinator_partitions: int = 2,
        settings: Mapping[str, Any] = {},
    ) -> None:
        """Begin with empty logs.

        Args:
            durability: The promise of a commit.
            topics: Names and partition counts; `__consumer_offsets` is there in any case.
            coordinator_partitions: The partition count of a coordinator's topic.
            settings: Broker properties by Kafka's names; the others have their defaults.
        """
        self.durability = durability
        self.now = 1_000_000
        """Time on the monotonic clock; the time of day is this plus `clock_step_ms`."""
        self.clock_step_ms = 0
        self.settings: dict[str, Any] = dict(settings)
        self.topics: dict[str, list[MemoryLog]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.unopenable: set[TopicPartition] = set()
        """Partitions that cannot be opened."""
        self.untouched: set[TopicPartition] = set()
        """Partitions that hold nothing and were not opened yet."""
        self.accepted: set[TopicPartition] = set()
        """Partitions whose loss an operator accepted."""
        self.refused: dict[TopicPartition, str] = {}
        """Partitions that were said to be damaged, and why."""
        self.forced: set[int] = set()
        """The producer ids whose batches are on the disk before they are acknowledged."""
        self.crash_at: int | None = None
        """Number of moments before and after writes until `Crash` is raised; None: never."""
        self.syncs: list[list[TopicPartition]] = []
        """The partitions of every sync so far."""
        self.unfinished_syncs: list[asyncio.Future[None]] | None = None
        """A list: syncs wait for the test. None: they are done at once."""
        self.unfinished_allocations: list[Callable[[range | StorageError], object]] | None = None
        """A list: blocks of producer ids wait for the test. None: they come at once."""
        self.tasks: list[asyncio.Task[Any]] = []
        self._coordinator_partitions = coordinator_partitions
        self._next_producer_id = 1_000
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._order = count()
        for name, partitions in topics.items():
            self.create_topic(name, partitions)
        self.create_topic(OFFSETS_TOPIC, coordinator_partitions)

    # ------------------------------------------------------------ Host

    def setting(self, name: str) -> Any:
        """The value of a broker property."""
        return self.settings[name] if name in self.settings else DEFAULTS[name]

    def group_setting(self, group_id: str, name: str) -> Any:
        """The value of a group's setting; all groups have those of the broker."""
        return self.setting(f"group.{name}")

    def now_ms(self) -> int:
        """The time of day."""
        return self.now + self.clock_step_ms

    def monotonic_ms(self) -> int:
        """The time on the clock that never steps."""
        return self.now

    def call_at(self, when_ms: int, call: Callable[[], object]) -> FakeTimer:
        """Make a call when the test has moved the clock so far."""
        timer = FakeTimer(call)
        heapq.heappush(self._timers, (when_ms, next(self._order), timer))
        return timer

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work as a task; `tasks` has it."""
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def partition(self, topic: str, index: int) -> MemoryLog | None:
        """The partition, or None."""
        if (topic, index) in self.unopenable:
            raise StorageError(f"{topic}-{index} cannot be opened")
        self.untouched.discard((topic, index))
        return self.topics[topic][index] if self.has_partition(topic, index) else None

    def has_partition(self, topic: str, index: int) -> bool:
        """Return True if there is such a partition."""
        return 0 <= index < self.partition_count(topic)

    def partition_count(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if it is unknown."""
        return len(self.topics.get(topic, []))

    def touched(self, topic: str, index: int) -> MemoryLog | None:
        """The partition, or None if it is unknown or untouched."""
        return None if self.is_untouched(topic, index) else self.partition(topic, index)

    def is_untouched(self, topic: str, index: int) -> bool:
        """Return True if `untouched` has a partition."""
        return (topic, index) in self.untouched

    def refuse_partition(self, topic: str, index: int, reason: str) -> None:
        """Make a partition unopenable; `refused` has the reason."""
        self.unopenable.add((topic, index))
        self.refused[topic, index] = reason

    def accepts_loss(self, topic: str, index: int) -> bool:
        """Return True if `accepted` has a partition."""
        return (topic, index) in self.accepted

    def coordinator_partitions(self, topic: str) -> FakePartitions:
        """The partitions of a coordinator's topic."""
        return FakePartitions(self, topic)

    async def create_coordinator_topic(self, topic: str) -> None:
        """Make a coordinator's topic, unless it is there."""
        if topic not in self.topics:
            self.create_topic(topic, self._coordinator_partitions)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic."""
        return self.topic_ids.get(topic)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic by its id."""
        return next((name for name, known in self.topic_ids.items() if known == topic_id), None)

    def topic_names(self) -> Iterable[str]:
        """The names of all topics."""
        return self.topic_ids

    def feature_level(self, name: str) -> int:
        """Every feature is at level 1."""
        return 1

    async def in_side_thread(self, owner: str, call: Callable[[Callable[[], bool]], None]) -> None:
        """Make the call here."""
        call(lambda: False)

    def allocate_producer_ids(self, done: Callable[[range | StorageError], object]) -> None:
        """Allocate a block of producer ids, at once or when the test says."""
        if self.unfinished_allocations is None:
            done(self.allocate_producer_ids_now())
        else:
            self.unfinished_allocations.append(done)

    def allocate_producer_ids_now(self) -> range:
        """A fresh block of producer ids."""
        start = self._next_producer_id
        self._next_producer_id += PRODUCER_IDS_PER_BLOCK
        return range(start, self._next_producer_id)

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Note it in `forced`."""
        if is_forced:
            self.forced.add(producer_id)
        else:
            self.forced.discard(producer_id)

    def sync_now(self, stores: Iterable[PartitionLog]) -> StorageError | None:
        """Force partitions to the disk, one after the other; return the failure that ended it."""
        try:
            for store in stores:
                store.sync()
        except StorageError as error:
            return error
        return None

    def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        """Sync logs, at once or when the test says."""
        return asyncio.ensure_future(self._sync(stores))

    async def _sync(self, stores: Iterable[PartitionLog]) -> None:
        logs = [self.store(store.topic, store.index) for store in stores]
        lengths = [len(store.stored) for store in logs]
        self.syncs.append([(store.topic, store.index) for store in logs])
        if self.unfinished_syncs is not None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.unfinished_syncs.append(done)
            await done
        for store, length in zip(logs, lengths, strict=True):
            store.sync_first(length)

    # ------------------------------------------------------------ the test's side

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic of empty logs."""
        self.topic_ids[name] = uuid.uuid5(uuid.NAMESPACE_OID, name)
        self.topics[name] = [
            MemoryLog(name, index, now_ms=self.now_ms, at_write=self._at_write)
            for index in range(partitions)
        ]

    def delete_topic(self, name: str) -> None:
        """Remove a topic."""
        del self.topics[name], self.topic_ids[name]

    def store(self, topic: str, index: int) -> MemoryLog:
        """The log of a partition, whether it can be opened or not."""
        return self.topics[topic][index]

    def stores(self) -> list[MemoryLog]:
        """Every partition that a transaction may write to."""
        return [
            store
            for topic, stores in self.topics.items()
            for store in stores
            if topic != TRANSACTIONS_TOPIC
        ]

    def advance(self, by_ms: int) -> None:
        """Move the clock, making the calls that fall due on the way."""
        end = self.now + by_ms
        while self._timers and self._timers[0][0] <= end:
            due_ms, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, due_ms)
            if timer.call is not None:
                timer.call()
        self.now = end

    def after_crash(self) -> "FakeHost":
        """The next process: it finds every batch that was written."""
        return self._reopened(lambda synced, written: written)

    def after_power_failure(self, kept: Callable[[int, int], int]) -> "FakeHost":
        """The next machine: it finds any beginning of the unsynced part.

        Args:
            kept: From how many batches are sure and how many were written, how many are left.
        """
        return self._reopened(kept)

    def forget_timers(self) -> None:
        """Make none of the calls that are due later."""
        self._timers.clear()

    def _at_write(self) -> None:
        if self.crash_at is not None:
            self.crash_at -= 1
            if self.crash_at < 0:
                raise Crash

    def _reopened(self, kept: Callable[[int, int], int]) -> "FakeHost":
        host = FakeHost(
            self.durability,
            coordinator_partitions=self._coordinator_partitions,
            settings=self.settings,
        )
        host.now = self.now
        host.clock_step_ms = self.clock_step_ms
        host._next_producer_id = self._next_producer_id
        for topic, stores in self.topics.items():
            host.create_topic(topic, len(stores))
            host.topic_ids[topic] = self.topic_ids[topic]
            for index, store in enumerate(stores):
                left = kept(store.synced, len(store.stored))
                host.store(topic, index).recover(store, left)
        return host
