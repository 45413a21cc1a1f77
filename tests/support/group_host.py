"""A host for the group coordinator: logs in memory, a clock that is set, transactions that obey."""

import asyncio
import atexit
import itertools
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any

from typing_extensions import override

from support.eager_calls import EagerCalls
from txn.broker.committed_offsets import Committer
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.group_shards import GroupShards
from txn.coordinator.group.classic.requests import Join, JoinAnswer, Sync, SyncAnswer
from txn.coordinator.group.records import OffsetKey, OffsetValue
from txn.coordinator.transaction.connections import ConnectionUse
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import OFFSETS_TOPIC
from txn.security.sessions import Peer
from txn.storage.base import Marker
from txn.testing import FakeHost, MemoryLog
from txn.wire.error_codes import ErrorCode

TOPICS = {"orders": uuid.UUID(int=11), "payments": uuid.UUID(int=12)}
PARTITIONS_PER_TOPIC = 3

_LOOP = asyncio.new_event_loop()
"""Where requests wait of tests that have no loop."""
atexit.register(_LOOP.close)


class GroupHost(FakeHost):
    """A host with two topics, on which requests wait while time passes."""

    def __init__(self, **settings: object) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        super().__init__(
            topics=dict.fromkeys(TOPICS, PARTITIONS_PER_TOPIC),
            coordinator_partitions=5,
            settings=named,
        )
        self.topic_ids |= TOPICS
        self._work: list[asyncio.Task[None]] = []
        self.failures: list[Exception] = []
        """The failures of work beside requests, which a broker logs."""

    @property
    def offsets(self) -> list[MemoryLog]:
        """The partitions of `__consumer_offsets`."""
        return self.topics[OFFSETS_TOPIC]

    @override
    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.failures.append(error)

        self.start(guarded())

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; work that waited for it goes on."""
        self.advance(duration_ms)
        self._settle()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work until it waits; it goes on while time passes."""
        self._work.append(_LOOP.create_task(work))
        self._settle()

    def _settle(self) -> None:
        if self._work and asyncio._get_running_loop() is None:  # else the test's own loop goes on
            for _ in range(5):
                _LOOP.run_until_complete(asyncio.sleep(0))

    def break_disk(self, code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        for log in self.offsets:
            log.is_read_only, log.error_code = True, int(code)

    def mend_disk(self) -> None:
        for log in self.offsets:
            log.is_read_only = False

    def restart(self) -> None:
        """A crash takes away every timer beside memory."""
        self.forget_timers()
        for task in self._work:
            task.cancel()
        self._settle()
        self._work.clear()


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

    def must_sync_before_answer_of(self, transactional_id: str) -> bool:
        return transactional_id in self.two_phase

    def is_joined(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: tuple[str, int]
    ) -> bool:
        return self.answer is ErrorCode.NONE

    async def hang_up_if_late(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client: Peer,
        use: ConnectionUse,
    ) -> None:
        """Every connection is the producer's latest."""


class GroupNode:
    """A coordinator on its host, with words for the actions of tests."""

    def __init__(self, **settings: object) -> None:
        self.host = GroupHost(**settings)
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

    @property
    def offsets(self) -> Any:
        """The committed offsets, for calls that wait for nothing."""
        return EagerCalls(self.coordinator.offsets)

    def value(self, offset: int, topic: str = "orders", metadata: str = "") -> OffsetValue:
        return OffsetValue(
            offset, -1, metadata, self.host.now_ms(), topic_id=self.host.topic_id(topic)
        )

    def commit(
        self, group_id: str, offset: int, *, topic: str = "orders", partition: int = 0
    ) -> ErrorCode:
        """Commit as a consumer outside any group."""
        key = OffsetKey(group_id, topic, partition)
        code: ErrorCode = self.offsets.commit(
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
        code: ErrorCode = self.offsets.commit_in_transaction(
            committer or Committer(group_id),
            {key: self.value(offset, topic)},
            transactional_id="t",
            producer=ProducerIdAndEpoch(producer_id, 0),
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
        stored = self.offsets.committed(group_id).get((topic, partition))
        return None if stored is None else stored.value.offset

    def is_pending(self, group_id: str, *, topic: str = "orders", partition: int = 0) -> bool:
        return (topic, partition) in self.coordinator.offsets.of_group(group_id).pending

    def place_of(self, group_id: str) -> tuple[str, int]:
        return OFFSETS_TOPIC, self.coordinator.group_partition(group_id)

    def log_of(self, group_id: str) -> MemoryLog:
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
        return self.answers_to(self.coordinator.join(group_id, request))

    def sync(self, group_id: str, member_id: str, generation: int) -> list[SyncAnswer]:
        request = Sync(generation, member_id, assignments={member_id: b"all"})
        return self.answers_to(self.coordinator.sync(group_id, request))

    def answers_to(self, call: Coroutine[Any, Any, Any]) -> list[Any]:
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
