"""Members of the classic protocol in consumer groups: decisions, written, replayed and answered.

The rules are in `coordinator/group/consumer/classic_members.py`. No request waits: a consumer group
has no rounds. The part in memory alone is a deadline for each next step of a member.

Source: Apache Kafka's group coordinator.
"""

from collections.abc import Callable, Sequence

from txn.broker.consumer_groups import ConsumerGroups
from txn.broker.group_shards import GroupShards
from txn.broker.host import Host
from txn.coordinator.group.classic.requests import Join, JoinAnswer, Leaver, Sync, SyncAnswer
from txn.coordinator.group.consumer import classic_members as rules
from txn.coordinator.group.consumer.group import ConsumerGroup
from txn.errors import StorageError
from txn.wire.error_codes import ErrorCode


class ClassicMembers:
    """The requests of classic members of this node's consumer groups."""

    def __init__(
        self,
        host: Host,
        shards: GroupShards,
        groups: ConsumerGroups,
        error_code: Callable[[StorageError], ErrorCode],
    ) -> None:
        """Serve members of `groups`; `error_code` is the answer where records are not written."""
        self._host = host
        self._shards = shards
        self._groups = groups
        self._error_code = error_code

    def join(
        self, group: ConsumerGroup, request: Join, *, room_bytes: int, owner: str
    ) -> JoinAnswer:
        """Let a member into a group that has members, and may grow by some bytes.

        A large assignment takes the turns of `owner` on the side thread.
        """
        group_id, groups = group.group_id, self._groups
        joined = rules.join(
            group,
            request,
            at=groups.now(),
            topics=self._host,
            limits=groups.limits(group_id),
            rules=groups.rules,
            room_bytes=room_bytes,
        )
        shard = self._shards.of(group_id)
        try:
            if joined.downgrade is not None:
                groups.carry_out_removal(shard, group_id, joined.downgrade)
            elif joined.outcome is not None:
                groups.carry_out(shard, group_id, [*joined.outcome.records])
        except StorageError as error:
            return JoinAnswer(self._error_code(error))
        if joined.outcome is not None:
            group = groups.get(group_id) or group
            member_id = joined.answer.member_id
            due_ms = self._host.monotonic_ms() + request.rebalance_timeout_ms
            group.step_deadlines[member_id] = due_ms  # it has to ask for its assignment
            groups.note_heartbeat(group_id, joined.outcome)
            groups.begin_task(group_id, joined.outcome, owner)
        return joined.answer

    def sync(self, group: ConsumerGroup, request: Sync) -> SyncAnswer:
        """Give a member its partitions."""
        answer = rules.sync(
            group,
            request,
            now_ms=self._host.now_ms(),
            topics=self._host,
            limits=self._groups.limits(group.group_id),
        )
        if answer.error is ErrorCode.NONE:
            group.step_deadlines.pop(request.member_id, None)
            group.hear(request.member_id, self._host.monotonic_ms())
            self._groups.ensure_timer(group, request.member_id)
        elif answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._expect_join(group, request.member_id)
        return answer

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Prolong a member's session; the code says if it has to join again."""
        code = rules.heartbeat_code(
            group,
            member_id,
            instance_id,
            generation,
            now_ms=self._host.now_ms(),
            topics=self._host,
            limits=self._groups.limits(group.group_id),
        )
        if code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            return code
        group.hear(member_id, self._host.monotonic_ms())
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._expect_join(group, member_id)
        elif group.is_outdated and rules.lacks_consumers(group):
            group.is_outdated = False
        self._groups.ensure_timer(group, member_id)
        return code

    def _expect_join(self, group: ConsumerGroup, member_id: str) -> None:
        """Give a member up if it does not join again within its rebalance timeout."""
        timeout_ms = group.members[member_id].subscription.rebalance_timeout_ms
        due_ms = self._host.monotonic_ms() + max(timeout_ms, 0)
        group.step_deadlines.setdefault(member_id, due_ms)
        self._groups.ensure_timer(group, member_id)

    def leave(self, group: ConsumerGroup, leavers: Sequence[Leaver]) -> tuple[ErrorCode, ...]:
        """Remove members of any protocol; one code for each. Raises StorageError: none was."""
        gone, codes = rules.leavers(group, leavers)
        if gone:
            self._groups.remove(self._shards.of(group.group_id), group, gone)
        return codes
