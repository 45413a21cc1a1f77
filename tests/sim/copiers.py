"""Members of a consumer group that copy `source` to `sink`, with their offsets, exactly once.

Each round reads committed records of its assigned partitions. It writes a copy of every record and
the offsets behind them in one transaction, and ends that. When the group rebalances, or the
transaction is aborted, it goes on from the offsets the group has.

A copy names its original, so the output can be compared with the input.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sim.agenda import US_PER_MS
from sim.clients import (
    ADD_OFFSETS,
    TXN_OFFSET_COMMIT,
    AbortableError,
    ClientsWorld,
    FencedError,
    Script,
    ScriptedTransaction,
    SimClient,
    TransactionalProducer,
)
from sim.history import Attempt, Fate, Place
from sim.readers import records_of
from txn.coordinator.group.records import OffsetKey, decode_key, decode_offset_value
from txn.storage.base import StoredBatch
from txn.wire.bodies.groups import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    OffsetCommitPartition,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchTopic,
    SyncGroupAssignment,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from txn.wire.bodies.txn import AddOffsetsToTxnRequest
from txn.wire.error_codes import ErrorCode

GROUP: Final = "copiers"
SOURCES: Final[tuple[Place, ...]] = (("source", 0), ("source", 1))
OFFSETS_PLACE: Final[Place] = ("__consumer_offsets", 0)
SESSION_MS: Final = 1_500
OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 9, 11, 12, 14


def copy_of(value: bytes, attempt: Attempt, number: int) -> bytes:
    """The copy of a record; another value in every attempt."""
    return value + f">{attempt.name}.{number}".encode()


def original_of(copy: bytes) -> bytes:
    """The copied record."""
    return copy.partition(b">")[0]


class RejoinError(Exception):
    """The group has moved on; its member has to join again."""


class Member(SimClient):
    """One member of the group: the consumer's half of a copier."""

    def __init__(self, world: ClientsWorld, name: str, chance: random.Random) -> None:
        super().__init__(world, name, chance)
        self.member_id = ""
        self.generation = -1
        self.positions: dict[Place, int] = {}
        """Assigned partition → the next offset to read."""

    async def join(self) -> None:
        """Become part of a generation, and go to the group's committed offsets."""
        self.generation = -1
        while self.generation < 0:
            answer = await self._ask_to_join()
            code = ErrorCode(answer.error_code)
            if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = answer.member_id
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            if code is not ErrorCode.NONE:
                await self._pause_unless(code is ErrorCode.MEMBER_ID_REQUIRED)
                continue
            members = sorted(member.member_id for member in answer.members)
            is_leader = answer.leader == self.member_id
            await self._sync(answer.generation_id, members if is_leader else [])
        self.say(f"  generation {self.generation}: {sorted(self.positions)}")
        await self.rewind()

    async def _ask_to_join(self) -> Any:
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=b""),),
        )
        return await self.ask(JOIN_GROUP, 5, request)

    async def _pause_unless(self, is_at_once: bool) -> None:
        if not is_at_once:
            await self.back_off()

    async def _sync(self, generation: int, members: list[str]) -> None:
        assignments = tuple(
            SyncGroupAssignment(
                member_id=member,
                assignment=bytes(index for _, index in SOURCES if index % len(members) == position),
            )
            for position, member in enumerate(members)
        )
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=self.member_id,
            assignments=assignments,
        )
        answer = await self.ask(SYNC_GROUP, 3, request)
        if answer.error_code is not ErrorCode.NONE:
            await self.back_off()
            return
        self.generation = generation
        self.positions = {("source", index): 0 for index in answer.assignment}

    async def rewind(self) -> None:
        """Go back to the offsets the group has; wait while a transaction holds one."""
        indexes = tuple(index for _, index in self.positions)
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=(OffsetFetchTopic(name="source", partition_indexes=indexes),),
            require_stable=True,
        )
        while self.positions:
            asked_us = self.world.agenda.now_us
            answer = await self.ask(OFFSET_FETCH, 7, request)
            partitions = [each for topic in answer.topics for each in topic.partitions]
            if answer.error_code is ErrorCode.NONE and all(
                partition.error_code is ErrorCode.NONE for partition in partitions
            ):
                break
            await self.back_off()
            await self.heartbeat()
        for place in self.positions:
            offset = next(p.committed_offset for p in partitions if p.partition_index == place[1])
            self.say(f"  {place[0]}-{place[1]} from {offset}")
            self.history.told_offset(place, offset, asked_us)
            self.positions[place] = max(offset, 0)

    async def heartbeat(self) -> None:
        """Stay a member. Raises RejoinError."""
        request = HeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, generation_id=self.generation
        )
        answer = await self.ask(HEARTBEAT, 3, request)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code not in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            raise RejoinError

    def poll(self, batches_max: int) -> dict[Place, list[bytes]]:
        """Read on; nothing while the broker is away."""
        broker = self.world.broker
        read: dict[Place, list[bytes]] = {}
        if broker is None or broker.is_dead or broker.node is None:
            return read
        for place, position in self.positions.items():
            fetched = broker.fetch(place, position, batches_max, is_committed=True)
            seen = records_of(fetched, is_committed=True, start=position)
            read[place] = [value for _, value in seen]
            self.positions[place] = fetched.next_offset
        return read


class Copier(TransactionalProducer):
    """Consume, transform, produce."""

    def __init__(self, world: ClientsWorld, script: Script, chance: random.Random) -> None:
        super().__init__(world, script, chance)
        self.member = Member(world, f"{script.name}-consumer", chance)

    async def run(self) -> None:
        await self.world.loop.sleep(self.script.start_us)
        is_ready = False
        for number, step in enumerate(self.script.transactions):
            try:
                if not is_ready:
                    await self.initialize(None)
                    await self._join()
                    is_ready = True
                await self._round(f"{self.name}.{number}", step)
                await self.member.heartbeat()
            except FencedError:
                is_ready = False
            except RejoinError:
                await self._join()
            if step.end == "restart":
                is_ready = False
                self.member.member_id = ""  # the old one is gone after its session
            if not is_ready:
                self.give_up()
            if step.end == "leave":
                break
        self.give_up()

    async def _join(self) -> None:
        while True:
            try:
                await self.member.join()
                return
            except RejoinError:
                continue

    async def _round(self, name: str, step: ScriptedTransaction) -> None:
        read: dict[Place, list[bytes]] = {}
        for _ in range(10):
            read = self.member.poll(batches_max=3)
            if any(read.values()):
                break
            await self.world.loop.sleep(100 * US_PER_MS)
            await self.member.heartbeat()
        if not any(read.values()):
            return
        self.read = read
        attempt = await self.transaction(name, step)
        if attempt.fate is not Fate.COMMITTED:
            await self.member.rewind()

    async def write(self, attempt: Attempt, step: ScriptedTransaction) -> None:
        number = 0
        batches = []
        for (_, index), values in self.read.items():
            place = ("sink", index)
            if not values:
                continue
            if self.version == 1 and place not in self.added:
                await self.add_partitions(place)
            copies = []
            for value in values:
                copies.append(copy_of(value, attempt, number))
                number += 1
            for copy in copies:
                attempt.values[copy] = place
                self.history.owner[copy] = attempt
            batches.append(self.number(place, tuple(copies)))
        await self.send(batches)
        await self._send_offsets(attempt)

    async def _send_offsets(self, attempt: Attempt) -> None:
        await add_offsets(self)
        await self._pause()
        for place in self.read:
            attempt.offsets[place] = self.member.positions[place]
        request = request_to_commit(
            self, attempt.offsets, generation=self.member.generation, member=self.member.member_id
        )
        await commit_offsets(self, request)
        await self._pause()

    async def _pause(self) -> None:
        """Now and then a copier is slow, and the group goes on without it."""
        if self.chance.random() < 0.15:
            await self.world.loop.sleep(2 * SESSION_MS * US_PER_MS)

    def accept(self, code: ErrorCode) -> None:
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self.say(f"  {code.name}")
            raise AbortableError(code.name)
        super().accept(code)


async def add_offsets(producer: TransactionalProducer) -> None:
    """Have the group's offsets in a transaction, if they are not with the first of them."""
    if producer.version == 1:
        request = AddOffsetsToTxnRequest(**_identity_of(producer))
        answer = await producer.decided(ADD_OFFSETS, request, lambda a: a.error_code)
        producer.accept(answer.error_code)
        producer.added.add(OFFSETS_PLACE)


def request_to_commit(
    producer: TransactionalProducer,
    offsets: Mapping[Place, int],
    *,
    generation: int = -1,
    member: str = "",
) -> TxnOffsetCommitRequest:
    """A TxnOffsetCommit of a member of the group, or of somebody who is none."""
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for (topic, index), offset in offsets.items():
        partition = OffsetCommitPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, []).append(partition)
    return TxnOffsetCommitRequest(
        **_identity_of(producer),
        generation_id=generation,
        member_id=member,
        topics=tuple(
            TxnOffsetCommitTopic(name=topic, partitions=tuple(each))
            for topic, each in topics.items()
        ),
    )


async def commit_offsets(producer: TransactionalProducer, request: Any) -> None:
    """Have offsets stored that count when the transaction commits."""
    answer = await producer.decided(TXN_OFFSET_COMMIT, request, _code_of_commit)
    producer.accept(_code_of_commit(answer))


def offsets_in(batch: StoredBatch) -> Iterator[tuple[Place, int, int]]:
    """The contents of a batch of `__consumer_offsets`: partition, offset of the record, and it."""
    for record in batch.records:
        key = decode_key(record.key or b"")
        if isinstance(key, OffsetKey) and record.value is not None:
            place = key.topic, key.partition
            yield place, record.offset, decode_offset_value(record.value).offset


def _identity_of(producer: TransactionalProducer) -> dict[str, Any]:
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer.producer_id,
        "producer_epoch": producer.producer.producer_epoch,
        "group_id": GROUP,
    }


def _code_of_commit(answer: OffsetCommitResponse) -> ErrorCode:
    codes = [
        ErrorCode(partition.error_code) for topic in answer.topics for partition in topic.partitions
    ]
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
