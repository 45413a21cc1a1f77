"""The state of a classic group, its legal moves, and the record that is written of it. Pure."""

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from txn.coordinator.group.members import Member, Members, text_bytes
from txn.coordinator.group.records import NEVER, GroupValue, MemberValue

PENDING_BYTES: Final = 512

GROUP_BYTES: Final = 2_048
"""Fixed cost of an id that is given out, and of a group with its timer."""


class GroupState(Enum):
    """The states of a group, by the names Kafka shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


S = GroupState

MOVES: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    S.EMPTY: frozenset({S.PREPARING_REBALANCE, S.DEAD}),
    S.PREPARING_REBALANCE: frozenset({S.COMPLETING_REBALANCE, S.EMPTY}),
    S.COMPLETING_REBALANCE: frozenset({S.STABLE, S.PREPARING_REBALANCE}),
    S.STABLE: frozenset({S.PREPARING_REBALANCE}),
    S.DEAD: frozenset(),
}
"""Every legal move. Dead is a group that was deleted; it is not kept."""


class InitialWait(NamedTuple):
    """An empty group waits for more members before its first round.

    The wait is prolonged by `step_ms` while members keep coming (`has_grown`), up to the rebalance
    timeout. Source: KIP-134.
    """

    step_ms: int
    waiting_ms: int
    left_ms: int
    has_grown: bool = False


class Group(NamedTuple):
    """A group.

    `members` are in the order they joined. `pending` are ids given out, with the time they lapse.
    `unsynced` are members of this generation that did not yet ask for their assignment.
    `join_deadline_ms` is set in PreparingRebalance, `sync_deadline_ms` while `unsynced` has any.
    `is_unled` if the leader does not know that it leads: a downgrade needed no round.
    """

    group_id: str
    state: GroupState = S.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Members = Members()
    pending: Mapping[str, int] = MappingProxyType({})
    unsynced: frozenset[str] = frozenset()
    state_timestamp_ms: int = NEVER
    initial: InitialWait | None = None
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    is_unled: bool = False

    @property
    def has_all_joined(self) -> bool:
        """Every member waits in JoinGroup, and no id that was given out is still to come."""
        waiting = all(member.awaiting_join is not None for member in self.members.values())
        return waiting and not self.pending

    @property
    def size_bytes(self) -> int:
        """Its own id, the ids that were given out, and all of its members."""
        pending_bytes = PENDING_BYTES * len(self.pending) + sum(map(text_bytes, self.pending))
        return GROUP_BYTES + text_bytes(self.group_id) + pending_bytes + self.members.size_bytes

    @property
    def rebalance_timeout_ms(self) -> int:
        """The patience of the most patient member."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def static_member(self, instance_id: str) -> Member | None:
        """The member that holds an instance id."""
        return self.members.of_instance(instance_id)


class Limits(NamedTuple):
    """The broker's settings for groups."""

    initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    group_bytes_max: int = 2**31 - 1
    """Size of a group's members, all together."""


def touch(group: Group, member_id: str, *, now_ms: int) -> Group:
    """Prolong a member's session, if there is such a member."""
    member = group.members.get(member_id)
    if member is None:
        return group
    prolonged = member._replace(session_deadline_ms=now_ms + member.session_timeout_ms)
    return group._replace(members=group.members.with_member(prolonged))


def group_value(group: Group) -> GroupValue:
    """The record of a group's generation; of a group that is Stable or Empty."""
    return GroupValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        state_timestamp_ms=group.state_timestamp_ms,
        members=tuple(
            MemberValue(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol),
                member.assignment,
            )
            for member in group.members.values()
        ),
    )


def restore(group_id: str, value: GroupValue, *, now_ms: int) -> Group:
    """The group a record describes; its members' sessions begin now."""
    members = Members(
        Member(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            ((value.protocol or "", stored.subscription),),
            now_ms + stored.session_timeout_ms,
            stored.assignment,
        )
        for stored in value.members
    )
    return Group(
        group_id,
        state=S.STABLE if members else S.EMPTY,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader if value.leader in members else next(iter(members), None),
        members=members,
        state_timestamp_ms=value.state_timestamp_ms,
    )


def select_protocol(group: Group) -> str:
    """The protocol most members prefer, among those all of them speak."""
    common = group.members.common_protocols()
    assert common, f"{group.group_id}: no protocol is common to {len(group.members)} members"
    votes = Counter(
        next(name for name, _ in member.protocols if name in common)
        for member in group.members.values()
    )
    return votes.most_common(1)[0][0]


def joined_leader(group: Group) -> str | None:
    """The leader if it joined, else the first member that did."""
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.awaiting_join is not None:
        return leader.member_id
    joined = (m.member_id for m in group.members.values() if m.awaiting_join is not None)
    return next(joined, None)
