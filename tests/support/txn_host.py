"""A host for the transaction coordinator: logs in memory, a clock, faults on demand.

It stands for a process and a machine. `Crash` kills the process in the middle of a write,
`after_crash` starts it again on the contents of the page cache, `after_power_failure` on the synced
part and perhaps a part of the rest. Timers run when the test moves the clock.
"""

import asyncio
import heapq
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import count
from typing import Any

from txn.broker.host import Durability
from txn.coordinator.transaction.states import Producer, TopicPartition
from txn.errors import StorageError
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.partition import ADMIT
from txn.storage.base import (
    BatchKind,
    Marker,
    PartitionLog,
    ProducerIdentity,
    Record,
    StoredBatch,
)
from txn.storage.memory import MemoryLog

TOPIC = "flights"
PRODUCER_IDS_PER_BLOCK = 4


class Crash(BaseException):
    """The process is gone."""


class FaultyLog(MemoryLog):
    """A log that fails when told, and knows its synced part."""

    def __init__(self, host: "MemoryHost", topic: str, index: int) -> None:
        super().__init__(topic, index)
        self._host = host
        self.synced = 0
        self.is_read_only = False
        self.is_unsyncable = False

    def append(
        self,
        records: Any,
        *,
        timestamp_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> int:
        self._about_to_write()
        offset = super().append(records, timestamp_ms=timestamp_ms, producer=producer)
        self._host.note_write(self)
        return offset

    def append_marker(self, marker: Marker) -> int:
        self._about_to_write()
        offset = super().append_marker(marker)
        self._host.note_write(self)
        return offset

    def client_append(
        self, producer: Producer, sequence: int, value: bytes, transaction_version: int
    ) -> tuple[int, int]:
        """Append one record as a Produce would; return the verdict's kind and value."""
        kind, verdict, _ = self.producer_state.admit(
            transaction_version,
            self.log_end_offset,
            producer.producer_id,
            producer.producer_epoch,
            sequence,
            1,
            self._host.now,
            True,
        )
        if kind == ADMIT:
            record = Record(self.log_end_offset, self._host.now, None, value)
            batch = StoredBatch(
                record.offset,
                producer.producer_id,
                producer.producer_epoch,
                BatchKind.TRANSACTIONAL,
                (record,),
            )
            self._store(batch, 1)
            self._host.sequences[self.topic, self.index, record.offset] = sequence
        return kind, verdict

    def load(
        self,
        batches: list[StoredBatch],
        sequences: dict[tuple[str, int, int], int],
        synced: int,
    ) -> None:
        """Take over the records of an earlier process, as recovery does."""
        for batch in batches:
            size = max(len(batch.records), 1)
            self._store(batch, size)
            if batch.kind is not BatchKind.PLAIN:
                sequence = sequences.get((self.topic, self.index, batch.base_offset), -1)
                self.producer_state.replay(
                    [
                        (
                            batch.base_offset,
                            batch.base_offset + size - 1,
                            batch.producer_id,
                            batch.producer_epoch,
                            sequence,
                            0,
                            batch.kind,
                            0 if batch.kind >= BatchKind.ABORT_MARKER else -1,
                        )
                    ]
                )
        self.synced = min(synced, len(self.stored))

    def sync(self) -> None:
        self.sync_first(len(self.stored))

    def sync_first(self, batches: int) -> None:
        """Force the first batches to the disk: those that were there when the sync began."""
        if self.is_unsyncable:
            raise StorageError(f"{self.topic}-{self.index} cannot be synced")
        self.synced = max(self.synced, batches)

    def committed(self) -> list[bytes | None]:
        """The values that a read_committed reader sees, in order; judged by markers alone."""
        seen: list[bytes | None] = []
        open_batches: dict[int, list[StoredBatch]] = {}
        for batch in self.stored:
            if batch.kind is BatchKind.TRANSACTIONAL:
                open_batches.setdefault(batch.producer_id, []).append(batch)
                continue
            ended = open_batches.pop(batch.producer_id, [])
            if batch.kind is BatchKind.COMMIT_MARKER:
                seen += [record.value for each in ended for record in each.records]
        return seen

    def markers(self) -> list[tuple[int, int, bool]]:
        """(producer_id, producer_epoch, is_commit) of every marker."""
        return [
            (batch.producer_id, batch.producer_epoch, batch.kind is BatchKind.COMMIT_MARKER)
            for batch in self.stored
            if batch.kind in (BatchKind.COMMIT_MARKER, BatchKind.ABORT_MARKER)
        ]

    def _about_to_write(self) -> None:
        self._host.note_write(self)
        if self.is_read_only:
            raise StorageError(f"{self.topic}-{self.index} cannot be written")


class MemoryTimer:
    """A call that is due on the host's clock."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class MemoryPartitions:
    """The partitions of a coordinator's topic."""

    def __init__(self, host: "MemoryHost", topic: str) -> None:
        self._host = host
        self._topic = topic

    def __len__(self) -> int:
        return len(self._host.topics[self._topic])

    def __getitem__(self, index: int) -> FaultyLog:
        store = self._host.topics[self._topic][index]
        self._host.partition(self._topic, index)
        return store

    def __iter__(self) -> Iterator[FaultyLog]:
        return (self[index] for index in range(len(self)))


class MemoryHost:
    """Implements `txn.broker.host.Host`, with everything in reach of the test."""

    def __init__(self, durability: Durability = Durability.PROCESS, partitions: int = 2) -> None:
        self.durability = durability
        self.now = 1_000_000
        """Time on the monotonic clock; the time of day is this plus the sum of its settings."""
        self.clock_step_ms = 0
        self.settings: dict[str, Any] = {
            "message.max.bytes": 1_048_588,
            "transaction.max.timeout.ms": 900_000,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
            "transaction.two.phase.commit.enable": False,
            "transactional.id.expiration.ms": 604_800_000,
        }
        self.topics: dict[str, list[FaultyLog]] = {}
        self.sequences: dict[tuple[str, int, int], int] = {}
        self.next_producer_id = 1_000
        self.unopenable: set[TopicPartition] = set()
        self.accepted: set[TopicPartition] = set()
        """Partitions whose loss an operator accepted."""
        self.refused: dict[TopicPartition, str] = {}
        """Partitions that were said to be damaged, and why."""
        self.forced: set[int] = set()
        """The producer ids whose batches are on the disk before they are acknowledged."""
        self.crash_at: int | None = None
        self.syncs: list[list[TopicPartition]] = []
        self.unfinished_syncs: list[asyncio.Future[None]] | None = None
        """A list: syncs wait for the test. None: they are done at once."""
        self.tasks: list[asyncio.Task[Any]] = []
        self._timers: list[tuple[int, int, MemoryTimer]] = []
        self._order = count()
        self.create_topic(TOPIC, partitions)
        self.create_topic(OFFSETS_TOPIC, 2)

    # ------------------------------------------------------------ Host

    def setting(self, name: str) -> Any:
        return self.settings[name]

    def now_ms(self) -> int:
        return self.now + self.clock_step_ms

    def monotonic_ms(self) -> int:
        return self.now

    def call_at(self, when_ms: int, call: Callable[[], object]) -> MemoryTimer:
        timer = MemoryTimer(call)
        heapq.heappush(self._timers, (when_ms, next(self._order), timer))
        return timer

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def partition(self, topic: str, index: int) -> FaultyLog | None:
        if (topic, index) in self.unopenable:
            raise StorageError(f"{topic}-{index} cannot be opened")
        return self.topics[topic][index] if self.has_partition(topic, index) else None

    def has_partition(self, topic: str, index: int) -> bool:
        return 0 <= index < len(self.topics.get(topic, []))

    def is_untouched(self, topic: str, index: int) -> bool:
        return False

    def refuse_partition(self, topic: str, index: int, reason: str) -> None:
        self.unopenable.add((topic, index))
        self.refused[topic, index] = reason

    def accepts_loss(self, topic: str, index: int) -> bool:
        return (topic, index) in self.accepted

    def coordinator_partitions(self, topic: str) -> "MemoryPartitions":
        if topic not in self.topics:
            self.create_topic(topic, 2)
        return MemoryPartitions(self, topic)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return uuid.uuid5(uuid.NAMESPACE_OID, topic) if topic in self.topics else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name in self.topics if self.topic_id(name) == topic_id), None)

    def allocate_producer_ids(self) -> range:
        start = self.next_producer_id
        self.next_producer_id += PRODUCER_IDS_PER_BLOCK
        return range(start, self.next_producer_id)

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        if is_forced:
            self.forced.add(producer_id)
        else:
            self.forced.discard(producer_id)

    def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self._sync(stores))

    async def _sync(self, stores: Iterable[PartitionLog]) -> None:
        wanted = [self.store(store.topic, store.index) for store in stores]
        lengths = [len(store.stored) for store in wanted]
        self.syncs.append([(store.topic, store.index) for store in wanted])
        if self.unfinished_syncs is not None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.unfinished_syncs.append(done)
            await done
        for store, length in zip(wanted, lengths, strict=True):
            store.sync_first(length)

    # ------------------------------------------------------------ the test's side

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = [FaultyLog(self, name, index) for index in range(partitions)]

    def store(self, topic: str, index: int) -> FaultyLog:
        return self.topics[topic][index]

    def stores(self) -> list[FaultyLog]:
        """Every partition that a transaction may write to."""
        return [
            store
            for topic, stores in self.topics.items()
            for store in stores
            if topic != TRANSACTIONS_TOPIC
        ]

    def note_write(self, store: FaultyLog) -> None:
        """Count a moment at which the process may die: before and after every write."""
        if self.crash_at is not None:
            self.crash_at -= 1
            if self.crash_at < 0:
                raise Crash

    def advance(self, by_ms: int) -> None:
        """Move the clock, making the calls that fall due on the way."""
        end = self.now + by_ms
        while self._timers and self._timers[0][0] <= end:
            due_ms, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, due_ms)
            if timer.call is not None:
                timer.call()
        self.now = end

    def after_crash(self) -> "MemoryHost":
        """The next process: it finds every byte that was written."""
        return self._reopened({id(s): len(s.stored) for s in self._all()})

    def after_power_failure(self, kept: Callable[[int, int], int]) -> "MemoryHost":
        """The next machine: it finds any beginning of the unsynced part.

        Args:
            kept: From how many batches are sure and how many were written, how many are left.
        """
        return self._reopened({id(s): kept(s.synced, len(s.stored)) for s in self._all()})

    def _all(self) -> list[FaultyLog]:
        return [store for stores in self.topics.values() for store in stores]

    def _reopened(self, kept: dict[int, int]) -> "MemoryHost":
        host = MemoryHost(self.durability, len(self.topics[TOPIC]))
        host.now, host.settings = self.now, self.settings
        host.clock_step_ms = self.clock_step_ms
        host.next_producer_id = self.next_producer_id
        host.sequences = self.sequences
        for topic, stores in self.topics.items():
            host.create_topic(topic, len(stores))
            for index, store in enumerate(stores):
                left = store.stored[: kept[id(store)]]
                host.store(topic, index).load(left, self.sequences, store.synced)
        return host
