"""A host for the group coordinator: logs in memory, a clock that is set, transactions that obey."""

import asyncio
import atexit
import heapq
import itertools
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from support.eager_calls import EagerCalls
from txn.broker.group_coordinator import Committer, GroupCoordinator
from txn.broker.group_shards import GroupShards
from txn.broker.host import Durability
from txn.config import BrokerSettings
from txn.coordinator.group.classic import Join, JoinAnswer, Sync, SyncAnswer
from txn.coordinator.group.records import OffsetKey, OffsetValue
from txn.coordinator.transaction.connections import Role
from txn.coordinator.transaction.states import Producer
from txn.errors import StorageError
from txn.metadata.image import OFFSETS_TOPIC
from txn.storage.base import Marker, PartitionLog, ProducerIdentity
from txn.storage.memory import MemoryLog
from txn.wire.error_codes import ErrorCode

TOPICS = {"orders": uuid.UUID(int=11), "payments": uuid.UUID(int=12)}
PARTITIONS_PER_TOPIC = 3

_LOOP = asyncio.new_event_loop()
"""Where requests wait of tests that have no loop."""
atexit.register(_LOOP.close)


class BreakableLog(MemoryLog):
    """A log in memory whose disk can be taken away."""

    fault: StorageError | None = None

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        timestamp_ms: int,
        producer: ProducerIdentity | None = None,
    ) -> int:
        if self.fault is not None:
            raise self.fault
        return super().append(records, timestamp_ms=timestamp_ms, producer=producer)


class FakeTimer:
    """A timer that may be cancelled."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class FakeHost:
    """A node with two topics; time passes when `pass_time` says so."""

    def __init__(self, **settings: object) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = BrokerSettings({"offsets.topic.num.partitions": 5, **named})
        self.durability = Durability.PROCESS
        self.time_ms = 1_000_000
        self.clock_step_ms = 0
        self.refused: dict[int, str] = {}
        """Partitions of `__consumer_offsets` that were said to be damaged, and why."""
        self.topics = dict(TOPICS)
        self.offsets = tuple(
            BreakableLog(OFFSETS_TOPIC, index)
            for index in range(self.setting("offsets.topic.num.partitions"))
        )
        self.sync_fault: StorageError | None = None
        self.synced: list[PartitionLog] = []
        self._data = MemoryLog("data", 0)
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._order = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []

    def setting(self, name: str) -> Any:
        return self.settings[name]

    def now_ms(self) -> int:
        return self.time_ms + self.clock_step_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def call_at(self, when_ms: int, call: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(call)
        heapq.heappush(self._timers, (when_ms, next(self._order), timer))
        return timer

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        raise AssertionError("groups start no work of their own")

    def partition(self, topic: str, index: int) -> PartitionLog | None:
        return self._data if topic in self.topics and index in range(PARTITIONS_PER_TOPIC) else None

    def has_partition(self, topic: str, index: int) -> bool:
        return self.partition(topic, index) is not None

    def is_untouched(self, topic: str, index: int) -> bool:
        return False

    def refuse_partition(self, topic: str, index: int, reason: str) -> None:
        assert topic == OFFSETS_TOPIC, "groups find no damage in partitions of topics"
        self.refused[index] = reason

    def accepts_loss(self, topic: str, index: int) -> bool:
        return False

    def coordinator_partitions(self, topic: str) -> tuple[PartitionLog, ...]:
        assert topic == OFFSETS_TOPIC
        return self.offsets

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self.topics.get(topic)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, known in self.topics.items() if known == topic_id), None)

    def allocate_producer_ids(self) -> range:
        raise AssertionError("groups need no producer ids")

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        raise AssertionError("groups leave that to the transactions")

    def sync(self, stores: Iterable[PartitionLog]) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.sync_fault is not None:
            done.set_exception(self.sync_fault)
        else:
            self.synced += stores
            done.set_result(None)
        return done

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; calls due on the way are made at their time."""
        end_ms = self.time_ms + duration_ms
        while self._timers and self._timers[0][0] <= end_ms:
            when_ms, _, timer = heapq.heappop(self._timers)
            self.time_ms = max(self.time_ms, when_ms)
            if timer.call is not None:
                timer.call()
        self.time_ms = end_ms
        self._settle()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work until it waits; it goes on while time passes."""
        self._tasks.append(_LOOP.create_task(work))
        self._settle()

    def _settle(self) -> None:
        if self._tasks and asyncio._get_running_loop() is None:  # else the test's own loop goes on
            for _ in range(5):
                _LOOP.run_until_complete(asyncio.sleep(0))

    def break_disk(self, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        for store in self.offsets:
            store.fault = StorageError("the disk is gone", code=int(code))

    def mend_disk(self) -> None:
        for store in self.offsets:
            store.fault = None

    def restart(self) -> None:
        """A crash takes away every timer beside memory."""
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        self._settle()
        self._tasks.clear()


class ObedientTransactions:
    """Lets every partition join, unless it is told what to answer."""

    def __init__(self) -> None:
        self.answer = ErrorCode.NONE
        self.joined: list[tuple[str, int, int, int, tuple[str, int]]] = []
        self.two_phase: set[str] = set()
        """The transactional ids whose transactions another system decides on."""

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        partitions: Sequence[tuple[str, int]],
    ) -> dict[tuple[str, int], int]:
        (place,) = partitions
        self.joined.append(
            (transactional_id, producer_id, producer_epoch, transaction_version, place)
        )
        return {place: int(self.answer)}

    def forces_answers_of(self, transactional_id: str) -> bool:
        return transactional_id in self.two_phase

    def is_joined(
        self, transactional_id: str, producer: Producer, partition: tuple[str, int]
    ) -> bool:
        return self.answer is ErrorCode.NONE

    def hang_up_if_late(
        self, transactional_id: str, producer: Producer, connection: int, role: Role
    ) -> None:
        """Every connection is the producer's latest."""


class GroupNode:
    """A coordinator on its host, with words for the actions of tests."""

    def __init__(self, **settings: object) -> None:
        self.host = FakeHost(**settings)
        self.transactions = ObedientTransactions()
        self.ids = itertools.count(1)
        self.coordinator = self._recovered()

    def _recovered(self) -> GroupCoordinator:
        self.shards = GroupShards.load(self.host)
        return GroupCoordinator(
            self.host,
            self.shards,
            self.transactions,
            self.transactions,
            make_id=lambda: str(next(self.ids)),
        )

    def restart(self) -> None:
        """Crash, and start again on the written records."""
        self.host.restart()
        self.coordinator = self._recovered()

    @property
    def groups(self) -> Any:
        """The coordinator for calls that wait for nothing."""
        return EagerCalls(self.coordinator)

    # ---- offsets

    def value(self, offset: int, topic: str = "orders", metadata: str = "") -> OffsetValue:
        return OffsetValue(
            offset, -1, metadata, self.host.now_ms(), topic_id=self.host.topic_id(topic)
        )

    def commit(
        self, group_id: str, offset: int, *, topic: str = "orders", partition: int = 0
    ) -> ErrorCode:
        """Commit as a consumer outside any group."""
        key = OffsetKey(group_id, topic, partition)
        code: ErrorCode = self.groups.commit(
            Committer(group_id), {key: self.value(offset, topic)}, knows_group_not_found=True
        )
        return code

    def commit_in_transaction(
        self,
        group_id: str,
        offset: int,
        *,
        producer_id: int = 7,
        topic: str = "orders",
        partition: int = 0,
        committer: Committer | None = None,
    ) -> ErrorCode:
        key = OffsetKey(group_id, topic, partition)
        code: ErrorCode = self.groups.commit_in_transaction(
            committer or Committer(group_id),
            {key: self.value(offset, topic)},
            transactional_id="t",
            producer=ProducerIdentity(producer_id, 0),
            transaction_version=2,
        )
        return code

    def end_transaction(self, group_id: str, *, is_commit: bool, producer_id: int = 7) -> None:
        """Append the marker to the group's partition, and tell the coordinator."""
        index = self.groups.group_partition(group_id)
        marker = Marker(producer_id, 0, 0, is_commit, self.host.now_ms())
        self.host.offsets[index].append_marker(marker)
        self.shards.on_offsets_marker(index, producer_id, is_commit)

    def offset(self, group_id: str, *, topic: str = "orders", partition: int = 0) -> int | None:
        stored = self.groups.committed_offset(OffsetKey(group_id, topic, partition))
        return None if stored is None else stored.value.offset

    def is_pending(self, group_id: str, *, topic: str = "orders", partition: int = 0) -> bool:
        return self.coordinator.is_pending(OffsetKey(group_id, topic, partition))

    def log_of(self, group_id: str) -> BreakableLog:
        return self.host.offsets[self.coordinator.group_partition(group_id)]

    # ---- members

    def join(self, group_id: str, member_id: str = "", *, version: int = 3) -> list[JoinAnswer]:
        """Send a JoinGroup; the list gets the answer when there is one."""
        request = Join(
            api_version=version,
            member_id=member_id,
            fresh_member_id=f"m{next(self.ids)}",
            instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b"\x00\x00\x00\x00\x00\x01\x00\x06orders"),),
        )
        return self._answers(self.coordinator.join(group_id, request))

    def sync(self, group_id: str, member_id: str, generation: int) -> list[SyncAnswer]:
        request = Sync(generation, member_id, assignments={member_id: b"all"})
        return self._answers(self.coordinator.sync(group_id, request))

    def _answers(self, call: Coroutine[Any, Any, Any]) -> list[Any]:
        """A list that gets the answer of a call, now or while time passes."""
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await call)

        self.host.start(ask())
        return answers

    def form(self, group_id: str) -> Committer:
        """Make a Stable group of one member."""
        joined = self.join(group_id)
        self.host.pass_time(0)
        (answer,) = joined
        self.sync(group_id, answer.member_id, answer.generation)
        return Committer(group_id, answer.generation, answer.member_id)

    def stay_alive(self, member: Committer, duration_ms: int) -> None:
        """Let time pass with a heartbeat every 5 seconds."""
        for _ in range(0, duration_ms, 5_000):
            self.host.pass_time(5_000)
            code = self.groups.heartbeat(member.group_id, member.member_id, None, member.generation)
            assert code is ErrorCode.NONE
