"""Members of both group protocols. A member runs until it leaves, or falls silent as if killed."""

import asyncio
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from harnesses.group_load.connection import Connection
from harnesses.group_load.holders import Holders
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000
BEAT_S: Final = 3.0
PROTOCOL_TYPE: Final = "load"
"""Not Kafka's own, so that the assignments may be any bytes."""

LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
AGAIN_S: Final = 0.2
LOST_OR_FENCED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Member:
    """What both kinds share: a connection, the partitions that it holds, its end."""

    def __init__(self, servers: str, group: str, topics: Sequence[str], holders: Holders) -> None:
        self.group = group
        self.held: frozenset[Any] = frozenset()
        self.is_in_group = False
        self._servers = servers
        self._topics = topics
        self._holders = holders
        self._task = asyncio.create_task(self._live())
        self._connection: Connection | None = None

    async def leave(self) -> None:
        """End, and say so to the broker."""
        await self.die(is_silent=False)

    async def die(self, *, is_silent: bool = True) -> None:
        """End; a silent member's session has to run out."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._hold(())
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        connection.close()
        if not is_silent and self.is_in_group:
            connection = await Connection.open(self._servers)
            await self._say_goodbye(connection)
            connection.close()

    def failure(self) -> str | None:
        """The error that ended it, if one did."""
        if not self._task.done() or self._task.cancelled():
            return None
        return f"{self.group}: a member ended: {self._task.exception()!r}"

    def _hold(self, places: Collection[Any]) -> None:
        now = frozenset(places)
        self._holders.drop(self.group, self, self.held - now)
        self._holders.take(self.group, self, now - self.held)
        self.held = now

    async def _live(self) -> None:
        self._connection = await Connection.open(self._servers)
        await self._run(self._connection)

    async def _run(self, connection: Connection) -> None:
        raise NotImplementedError

    async def _say_goodbye(self, connection: Connection) -> None:
        raise NotImplementedError


class ClassicMember(Member):
    """A member of the classic protocol that gives up all partitions before it joins again."""

    _id = ""

    async def _run(self, connection: Connection) -> None:
        while True:
            self._hold(())
            generation = await self._join(connection)
            if generation is None:
                continue
            while True:
                await asyncio.sleep(BEAT_S)
                answer = await connection.ask(
                    ApiKey.HEARTBEAT,
                    4,
                    group_id=self.group,
                    generation_id=generation,
                    member_id=self._id,
                    group_instance_id=None,
                )
                if answer.error_code != ErrorCode.NONE:
                    if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                        self._id = ""
                    break

    async def _join(self, connection: Connection) -> int | None:
        """Join and get partitions; return the generation, or nothing if it has to join again."""
        joined = await connection.ask(
            ApiKey.JOIN_GROUP,
            7,
            group_id=self.group,
            session_timeout=SESSION_MS,
            rebalance_timeout=REBALANCE_MS,
            member_id=self._id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[{"name": "even", "metadata": b""}],
        )
        self._id = joined.member_id
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return None
        if joined.error_code != ErrorCode.NONE:
            self._id = ""
            await asyncio.sleep(AGAIN_S)
            return None
        self.is_in_group = True
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(each.member_id for each in joined.members)
            assignments = [
                {
                    "member_id": each,
                    "assignment": json.dumps(self._topics[n :: len(members)]).encode(),
                }
                for n, each in enumerate(members)
            ]
        synced = await connection.ask(
            ApiKey.SYNC_GROUP,
            5,
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self._id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name="even",
            assignments=assignments,
        )
        if synced.error_code != ErrorCode.NONE:
            if synced.error_code in LOST:
                self._id = ""
            return None
        self._hold(json.loads(synced.assignment))
        return int(joined.generation_id)

    async def _say_goodbye(self, connection: Connection) -> None:
        left = {"member_id": self._id, "group_instance_id": None}
        await connection.ask(ApiKey.LEAVE_GROUP, 4, group_id=self.group, members=[left])


class ConsumerMember(Member):
    """A member of the consumer protocol (KIP-848)."""

    def __init__(self, *arguments: Any) -> None:
        self._id = str(uuid.uuid4())
        super().__init__(*arguments)

    async def _run(self, connection: Connection) -> None:
        epoch, changed = 0, True
        while True:
            answer = await self._beat(connection, epoch, says_all=changed)
            if answer.error_code in NOT_YET:
                await asyncio.sleep(AGAIN_S)
                continue
            if answer.error_code in LOST_OR_FENCED:
                self._hold(())
                epoch, changed = 0, True
                continue
            if answer.error_code != ErrorCode.NONE:
                raise AssertionError(f"{answer.error_code.name}: {answer.error_message}")
            self.is_in_group = True
            epoch = answer.member_epoch
            changed = False
            if answer.assignment is not None:
                given = {
                    (topic.topic_id, partition)
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                }
                changed = given != self.held
                self._hold(given)
            if not changed:
                await asyncio.sleep(answer.heartbeat_interval.total_seconds())

    async def _beat(self, connection: Connection, epoch: int, *, says_all: bool) -> Any:
        owned: dict[Any, list[int]] = {}
        for topic, partition in self.held:
            owned.setdefault(topic, []).append(partition)
        places = [{"topic_id": topic, "partitions": owned[topic]} for topic in owned]
        return await connection.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self._id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=REBALANCE_MS if says_all else -1,
            subscribed_topic_names=list(self._topics) if says_all else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=places if says_all else None,
        )

    async def _say_goodbye(self, connection: Connection) -> None:
        await self._beat(connection, -1, says_all=False)


KINDS: Final[Mapping[str, type[Member]]] = {"classic": ClassicMember, "consumer": ConsumerMember}
