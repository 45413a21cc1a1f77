"""The classic group protocol: how consumers share partitions among themselves.

Pure: no clock, no log, no socket, no randomness. A function takes a group, the event and the time.
It returns a `GroupTransition`: the group as it will be, the answers to give, and the record to
write first. Nobody may act on an outcome whose record is not written; if the write fails the old
group stays, as if nothing had happened.

    Empty ──join──► PreparingRebalance ──all joined──► CompletingRebalance ──leader synced──► Stable
      ▲                 │ ▲   ▲                              │                                 │
      └── nobody left ──┘ │   └─── someone came or went ─────┘                                 │
                          └────────────── someone came, went, or asks for it ──────────────────┘

A round: every member sends JoinGroup and waits. When all have, or the rebalance timeout is over,
the generation grows by one and each is answered; the leader gets the list of members. It computes
the assignment with the assignor all have in common, as range or cooperative sticky; to the broker
the assignment is opaque bytes. It hands the assignment in with SyncGroup, where the others wait for
theirs.

Durable parts. Only a finished generation is written, as `GroupValue`: when a group is created,
becomes Stable or Empty, or when a static member is replaced without a rebalance. After a restart
`restore` gives the members of the last generation back with fresh session timers. An unfinished
round begins again, for its clients lost their connections. So in the states Stable
and Empty `group_value(group)` is the last record written, after any history (P8).

Waiting. JoinGroup and SyncGroup carry a ticket, a number of the caller's; each ticket is answered
exactly once, at once or later. Deadlines are part of the group: `next_deadline` says when `expire`
has to be called, and a call that comes too early changes nothing.

The members. A dynamic member has to know its id first (KIP-394): it is only *pending* until it
comes back with the id it was given. A static member (KIP-345) is known by its instance id. A new
one with that id takes the place of the old, which is fenced from then on.

Where Kafka differs. Here no ticket is ever dropped. When a member asks again on another connection,
or leaves while it waits for its assignment, the older request is answered too. A refused first join
makes no group. A pending member that leaves starts no rebalance. A SyncGroup that a replaced static
member still owes passes to its new id. If nobody rejoined, the next try comes after the rebalance
timeout but at least a second. A tie of votes goes to the protocol of the member that joined first.

Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389
(group size), KIP-394 (member id), KIP-447 (fenced offsets), KIP-559 (protocol in SyncGroup),
KIP-800 (reasons) and KIP-814 (skipped assignment); Apache Kafka's behaviour where these are silent.
"""

import struct
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from txn.coordinator.group.records import NEVER, GroupValue, MemberValue
from txn.wire.error_codes import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Time that a member may wait in its first JoinGroup. It has no id yet and cannot send heartbeats,
so a client that went away would hold the group for ever. Source: Kafka."""

EMPTY_REBALANCE_RETRY_MS: Final = 1_000

PENDING_MAX: Final = 10_000
"""Ids of a group that are given out and not used; each lapses with its session timeout."""

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

NO_GENERATION: Final = -1

MEMBER_ID_REQUIRED_FROM: Final = 4
SKIP_ASSIGNMENT_FROM: Final = 9
GROUP_NOT_FOUND_FROM: Final = 9
"""First versions of JoinGroup, JoinGroup and OffsetCommit that know these."""


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

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of the assignors a member can use, the preferred one first."""


def protocols_bytes(protocols: Protocols) -> int:
    """The size of a member's own data."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Member(NamedTuple):
    """One member of a group.

    `awaiting_join` and `awaiting_sync` are the tickets of requests that wait. `is_new` until its
    first generation.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    session_deadline_ms: int
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: int | None = None
    awaiting_sync: int | None = None

    @property
    def size_bytes(self) -> int:
        """Its own data and its assignment."""
        return protocols_bytes(self.protocols) + len(self.assignment)

    @property
    def deadline_ms(self) -> int | None:
        """When the member is given up; None while it waits for us."""
        is_waiting = self.awaiting_join is not None or self.awaiting_sync is not None
        return None if is_waiting and not self.is_new else self.session_deadline_ms

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol; empty if it does not know it."""
        return next((data for name, data in self.protocols if name == protocol), b"")


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
    """

    group_id: str
    state: GroupState = S.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = MappingProxyType({})
    pending: Mapping[str, int] = MappingProxyType({})
    unsynced: frozenset[str] = frozenset()
    state_timestamp_ms: int = NEVER
    initial: InitialWait | None = None
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None

    @property
    def has_all_joined(self) -> bool:
        """Every member waits in JoinGroup, and no id that was given out is still to come."""
        waiting = all(member.awaiting_join is not None for member in self.members.values())
        return waiting and not self.pending

    @property
    def size_bytes(self) -> int:
        """The data and assignments of its members."""
        return sum(member.size_bytes for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The patience of the most patient member."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def static_member(self, instance_id: str) -> Member | None:
        """The member that holds an instance id."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)


class Limits(NamedTuple):
    """The broker's settings for groups."""

    initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    group_bytes_max: int = 2**31 - 1
    """Size of the data of a group's members, all together."""


class Join(NamedTuple):
    """A JoinGroup request. `fresh_member_id` is used if the member has none yet.

    `ticket` is the number under which it is answered.
    """

    api_version: int
    member_id: str
    fresh_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    ticket: int = 0


class Sync(NamedTuple):
    """A SyncGroup request; only the leader's has assignments (member id → bytes)."""

    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = MappingProxyType({})
    ticket: int = 0


class Leaver(NamedTuple):
    """One member named in a LeaveGroup request; an empty member id stands for its instance id."""

    member_id: str
    instance_id: str | None = None


class JoinAnswer(NamedTuple):
    """The answer to a JoinGroup; only the leader learns the members (id, instance id, metadata)."""

    error: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncAnswer(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


Answer = tuple[int, JoinAnswer | SyncAnswer]
"""(ticket, answer)."""


class GroupTransition(NamedTuple):
    """The next steps: write `record` if there is one, then take `group`, then give `answers`.

    `group` is None when there was none and none was made.
    """

    group: Group | None
    answers: tuple[Answer, ...] = ()
    record: GroupValue | None = None


# ---------------------------------------------------------------- what members ask


def join(
    group: Group | None, request: Join, *, group_id: str, now_ms: int, limits: Limits
) -> GroupTransition:
    """Let a member into the next generation, or say why not.

    A member that is let in is answered when the round is complete. A follower that comes back to a
    Stable group unchanged is answered at once with its missing assignment.
    """
    if group is not None:
        return _join(_Draft(group), request, now_ms, limits).outcome()
    if request.member_id:
        return _refused_join(request, ErrorCode.UNKNOWN_MEMBER_ID)
    made = Group(group_id, state_timestamp_ms=now_ms)
    draft = _join(_Draft(made), request, now_ms, limits)
    if draft.group is made:
        return GroupTransition(None, tuple(draft.answers))
    if draft.record is None:
        draft.record = group_value(made)
    return draft.outcome()


def sync(group: Group | None, request: Sync, *, now_ms: int) -> GroupTransition:
    """Hand a member its assignment, now or once the leader has handed all of them in."""
    draft = _Draft(group) if group is not None else None
    error = _sync_refusal(group, request)
    if draft is None or error is not ErrorCode.NONE:
        return GroupTransition(group, ((request.ticket, SyncAnswer(error)),))
    draft.mark_synced(request.member_id)
    if draft.group.state is S.STABLE:
        draft.answer(request.ticket, _assignment(draft.group, request.member_id))
        return draft.outcome()
    draft.await_sync(request.member_id, request.ticket)
    if request.member_id == draft.group.leader:
        draft.become_stable(request.assignments, now_ms)
    return draft.outcome()


def heartbeat(
    group: Group | None, member_id: str, instance_id: str | None, generation: int, *, now_ms: int
) -> tuple[Group | None, ErrorCode]:
    """Prolong a member's session; REBALANCE_IN_PROGRESS tells it to join again."""
    error = _generation_refusal(group, member_id, instance_id, generation)
    if group is None or error is not ErrorCode.NONE:
        return group, error
    is_rebalancing = group.state is S.PREPARING_REBALANCE
    code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
    return touch(group, member_id, now_ms=now_ms), code


def leave(
    group: Group | None, leavers: tuple[Leaver, ...], *, now_ms: int
) -> tuple[GroupTransition, tuple[ErrorCode, ...]]:
    """Remove members at once, all of them before the others are told to rebalance.

    Returns:
        The outcome, and one code for each leaver, in order.
    """
    if group is None:
        return GroupTransition(None), (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leavers)
    draft = _Draft(group)
    codes = tuple(_leave_one(draft, leaver) for leaver in leavers)
    if len(draft.group.members) < len(group.members):
        draft.rebalance_or_complete(now_ms)
    else:
        draft.complete_if_all_joined(now_ms)
    return draft.outcome(), codes


def expire(group: Group, *, now_ms: int) -> GroupTransition:
    """Do due work: give up members that went silent, end rounds that took too long."""
    draft = _Draft(group)
    for member_id, lapses_ms in group.pending.items():
        if lapses_ms <= now_ms:
            draft.forget_pending(member_id)
            draft.complete_if_all_joined(now_ms)
    for member_id in group.members:
        member = draft.group.members.get(member_id)
        if member is not None and _is_due(member.deadline_ms, now_ms):
            draft.remove(member_id)
            draft.rebalance_or_complete(now_ms)
    if _is_due(draft.group.join_deadline_ms, now_ms):
        draft.end_wait_for_joins(now_ms)
    if _is_due(draft.group.sync_deadline_ms, now_ms):
        for member_id in sorted(draft.group.unsynced):
            draft.remove(member_id)
        draft.prepare_rebalance(now_ms)
    return draft.outcome()


def next_deadline(group: Group) -> int | None:
    """When `expire` has something to do next, in milliseconds since the epoch; None for never."""
    deadlines = [member.deadline_ms for member in group.members.values()]
    deadlines += [*group.pending.values(), group.join_deadline_ms, group.sync_deadline_ms]
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


# ---------------------------------------------------------------- what offset commits ask


def commit_refusal(
    group: Group | None,
    member_id: str,
    instance_id: str | None,
    generation: int,
    *,
    is_transactional: bool,
    knows_group_not_found: bool,
) -> ErrorCode:
    """Say why this member may not commit offsets for the group; NONE if it may.

    A consumer outside any group (generation -1) may, as long as the group has no members. A
    transactional commit without a member (before version 3) always may: its transactional id
    fences it. Source: KIP-447.
    """
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        is_old = is_transactional or not knows_group_not_found
        return ErrorCode.ILLEGAL_GENERATION if is_old else ErrorCode.GROUP_ID_NOT_FOUND
    if generation < 0 and group.state is S.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = _generation_refusal(group, member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
    elif not is_transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not is_transactional and group.state is S.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def touch(group: Group, member_id: str, *, now_ms: int) -> Group:
    """Prolong a member's session, if there is such a member."""
    member = group.members.get(member_id)
    if member is None:
        return group
    prolonged = member._replace(session_deadline_ms=now_ms + member.session_timeout_ms)
    return group._replace(members={**group.members, member_id: prolonged})


def is_subscribed(group: Group, topic: str) -> bool:
    """Say whether members consume a topic, as far as their subscriptions can be read.

    A consumer group whose subscriptions cannot be read counts as subscribed to everything.
    """
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    try:
        return any(
            topic in _subscribed_topics(member.metadata(group.protocol))
            for member in group.members.values()
        )
    except ValueError:
        return True


# ---------------------------------------------------------------- what is written and read back


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
    members = {
        stored.member_id: Member(
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
    }
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


# ---------------------------------------------------------------- one transition in the making


class _Draft:
    """A group on its way to the next one, with the answers and the record that came up.

    Only the functions of this module see one; groups and members stay immutable.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.answers: list[Answer] = []
        self.record: GroupValue | None = None

    def outcome(self) -> GroupTransition:
        """The transition so far."""
        return GroupTransition(self.group, tuple(self.answers), self.record)

    def answer(self, ticket: int, answer: JoinAnswer | SyncAnswer) -> None:
        """Answer a request."""
        self.answers.append((ticket, answer))

    def write(self) -> None:
        """Have the group recorded as it is now."""
        assert self.record is None, "one transition wrote two generations"
        self.record = group_value(self.group)

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state; anything not in `MOVES` is a bug."""
        before = self.group.state
        assert state in MOVES[before], f"{self.group.group_id}: {before.value} -> {state.value}"
        self.group = self.group._replace(state=state, state_timestamp_ms=now_ms)

    def put(self, member: Member) -> None:
        """Add or change a member."""
        members = {**self.group.members, member.member_id: member}
        self.group = self.group._replace(members=members)

    # ---- members

    def add(self, request: Join, member_id: str, now_ms: int) -> None:
        """Take in a new member, which waits for its first generation."""
        group = self.group
        self.group = group._replace(
            protocol_type=group.protocol_type if group.members else request.protocol_type,
            leader=group.leader or member_id,
            pending={name: ms for name, ms in group.pending.items() if name != member_id},
            initial=group.initial and group.initial._replace(has_grown=True),
        )
        self.put(_new_member(request, member_id, now_ms))

    def update(self, member: Member, request: Join) -> None:
        """Take over a member's new data; it waits for the next generation."""
        if member.awaiting_join is not None:
            # The client asked again, on another connection.
            self.answer(
                member.awaiting_join, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            )
        self.put(
            member._replace(
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                protocols=request.protocols,
                awaiting_join=request.ticket,
            )
        )

    def remove(self, member_id: str) -> None:
        """Drop a member; its waiting requests are answered, and the next in line leads."""
        members = dict(self.group.members)
        removed = members.pop(member_id)
        self._answer_waiting(removed, ErrorCode.UNKNOWN_MEMBER_ID)
        is_leader = self.group.leader == member_id
        self.group = self.group._replace(
            members=members,
            leader=next(iter(members), None) if is_leader else self.group.leader,
        )
        self.mark_synced(member_id)

    def replace_static(self, old: Member, request: Join, now_ms: int) -> Member:
        """Give a static member's place, assignment and leadership to its new id."""
        self._answer_waiting(old, ErrorCode.FENCED_INSTANCE_ID)
        fresh = _new_member(request, request.fresh_member_id, now_ms)
        new = fresh._replace(
            assignment=old.assignment,
            is_new=False,
            session_deadline_ms=now_ms + request.session_timeout_ms,
        )
        group = self.group
        in_line = (new if m is old else m for m in group.members.values())
        unsynced = group.unsynced
        if old.member_id in unsynced:
            unsynced = unsynced - {old.member_id} | {new.member_id}
        self.group = group._replace(
            members={member.member_id: member for member in in_line},
            leader=new.member_id if group.leader == old.member_id else group.leader,
            unsynced=unsynced,
        )
        return new

    def add_pending(self, member_id: str, lapses_ms: int) -> None:
        """Remember an id that was given out."""
        self.group = self.group._replace(pending={**self.group.pending, member_id: lapses_ms})

    def forget_pending(self, member_id: str) -> None:
        """Forget an id that was given out."""
        pending = {name: ms for name, ms in self.group.pending.items() if name != member_id}
        self.group = self.group._replace(pending=pending)

    def _answer_waiting(self, member: Member, error: ErrorCode) -> None:
        if member.awaiting_join is not None:
            is_fenced = error is ErrorCode.FENCED_INSTANCE_ID
            named = member.member_id if is_fenced else ""
            self.answer(member.awaiting_join, JoinAnswer(error, named))
        if member.awaiting_sync is not None:
            self.answer(member.awaiting_sync, SyncAnswer(error))

    # ---- the round

    def rebalance_or_complete(self, now_ms: int) -> None:
        """Begin a round, or end the one under way if that was the last member it waited for."""
        if S.PREPARING_REBALANCE in MOVES[self.group.state] and (
            self.group.state is not S.EMPTY or self.group.members
        ):
            self.prepare_rebalance(now_ms)
        else:
            self.complete_if_all_joined(now_ms)

    def prepare_rebalance(self, now_ms: int) -> None:
        """Begin a round; members that wait for an assignment have to join again."""
        if self.group.state is S.COMPLETING_REBALANCE:
            self._withdraw_assignments(now_ms)
        self.group = self.group._replace(unsynced=frozenset(), sync_deadline_ms=None)
        was_empty = self.group.state is S.EMPTY
        self.move_to(S.PREPARING_REBALANCE, now_ms)
        if was_empty:
            return
        if self.group.has_all_joined:
            self._complete_round(now_ms)
        else:
            self._wait_for_joins(now_ms + self.group.rebalance_timeout_ms)

    def wait_for_first_members(self, delay_ms: int, now_ms: int) -> None:
        """Let an empty group's first round wait for more members."""
        left_ms = max(self.group.rebalance_timeout_ms - delay_ms, 0)
        initial = InitialWait(delay_ms, delay_ms, left_ms)
        self.group = self.group._replace(initial=initial)
        self._wait_for_joins(now_ms + delay_ms)

    def complete_if_all_joined(self, now_ms: int) -> None:
        """End the round if everybody is there; the first round of all waits for its delay."""
        group = self.group
        is_open = group.state is S.PREPARING_REBALANCE and group.initial is None
        if is_open and group.has_all_joined:
            self._complete_round(now_ms)

    def end_wait_for_joins(self, now_ms: int) -> None:
        """The time to join is over: prolong the first wait, or go on without the missing."""
        initial = self.group.initial
        if initial is not None and initial.has_grown and initial.left_ms > 0:
            waiting_ms = min(initial.step_ms, initial.left_ms)
            left_ms = max(initial.left_ms - initial.waiting_ms, 0)
            prolonged = InitialWait(initial.step_ms, waiting_ms, left_ms)
            self.group = self.group._replace(initial=prolonged)
            self._wait_for_joins(now_ms + waiting_ms)
        else:
            self._complete_round(now_ms)

    def _wait_for_joins(self, deadline_ms: int) -> None:
        self.group = self.group._replace(join_deadline_ms=deadline_ms)

    def _complete_round(self, now_ms: int) -> None:
        """Begin the next generation with the present members.

        Dynamic members that did not join are dropped; static ones stay until their session ends. If
        only such are left, there is nobody to lead, and the wait goes on.
        """
        for member in tuple(self.group.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self.remove(member.member_id)
        leader = _joined_leader(self.group)
        if leader is None and self.group.members:
            wait_ms = max(self.group.rebalance_timeout_ms, EMPTY_REBALANCE_RETRY_MS)
            self._wait_for_joins(now_ms + wait_ms)
            return
        self.group = self.group._replace(
            generation=self.group.generation + 1,
            leader=leader,
            protocol=_select_protocol(self.group) if leader is not None else None,
            initial=None,
            join_deadline_ms=None,
            unsynced=frozenset(),
        )
        if leader is None:
            self.move_to(S.EMPTY, now_ms)
            self.write()
        else:
            self.move_to(S.COMPLETING_REBALANCE, now_ms)
            self._answer_joins(now_ms)

    def _answer_joins(self, now_ms: int) -> None:
        group = self.group
        members = {}
        for member in group.members.values():
            if member.awaiting_join is not None:
                self.answer(member.awaiting_join, _generation_answer(group, member.member_id))
            members[member.member_id] = member._replace(
                awaiting_join=None,
                is_new=False,
                session_deadline_ms=now_ms + member.session_timeout_ms,
            )
        self.group = group._replace(
            members=members,
            unsynced=frozenset(members),
            sync_deadline_ms=now_ms + group.rebalance_timeout_ms,
        )

    # ---- assignments

    def mark_synced(self, member_id: str) -> None:
        """A member asked for its assignment, or will not ask any more."""
        unsynced = self.group.unsynced - {member_id}
        deadline_ms = self.group.sync_deadline_ms if unsynced else None
        self.group = self.group._replace(unsynced=unsynced, sync_deadline_ms=deadline_ms)

    def await_sync(self, member_id: str, ticket: int) -> None:
        """Let a member wait for the leader's assignments."""
        member = self.group.members[member_id]
        if member.awaiting_sync is not None:
            # The client asked again, on another connection.
            self.answer(member.awaiting_sync, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        self.put(member._replace(awaiting_sync=ticket))

    def become_stable(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Hand out the leader's assignments; members it left out get an empty one."""
        members = {
            member.member_id: member._replace(assignment=assignments.get(member.member_id, b""))
            for member in self.group.members.values()
        }
        self.group = self.group._replace(members=members)
        self.move_to(S.STABLE, now_ms)
        self.write()
        self._answer_syncs(now_ms)

    def _withdraw_assignments(self, now_ms: int) -> None:
        members = {
            member.member_id: member._replace(assignment=b"")
            for member in self.group.members.values()
        }
        self.group = self.group._replace(members=members)
        self._answer_syncs(now_ms)

    def _answer_syncs(self, now_ms: int) -> None:
        group = self.group
        members = dict(group.members)
        for member in group.members.values():
            if member.awaiting_sync is not None:
                self.answer(member.awaiting_sync, _assignment(group, member.member_id))
                members[member.member_id] = member._replace(
                    awaiting_sync=None,
                    session_deadline_ms=now_ms + member.session_timeout_ms,
                )
        self.group = group._replace(members=members)


# ---------------------------------------------------------------- joining, case by case


def _join(draft: _Draft, request: Join, now_ms: int, limits: Limits) -> _Draft:
    group = draft.group
    if not (
        _has_room(group, request.member_id, limits.group_max_size)
        and _has_room_for_bytes(group, request, limits.group_bytes_max)
    ):
        if request.member_id in group.members:
            draft.remove(request.member_id)
            draft.complete_if_all_joined(now_ms)
        draft.answer(request.ticket, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not _supports(group, request.protocol_type, request.protocols):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        draft.answer(request.ticket, JoinAnswer(code, request.member_id))
    elif not request.member_id:
        _join_without_id(draft, request, now_ms)
    elif request.member_id in group.pending and request.instance_id is None:
        draft.add(request, request.member_id, now_ms)
        draft.rebalance_or_complete(now_ms)
    else:
        error = _member_refusal(group, request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            draft.answer(request.ticket, JoinAnswer(error, request.member_id))
        else:
            _join_again(draft, request, now_ms)
    if group.state is S.EMPTY and draft.group.state is S.PREPARING_REBALANCE:
        draft.wait_for_first_members(limits.initial_rebalance_delay_ms, now_ms)
    return draft


def _join_without_id(draft: _Draft, request: Join, now_ms: int) -> None:
    if request.instance_id is not None:
        known = draft.group.static_member(request.instance_id)
        if known is not None:
            _replace_static(draft, known, request, now_ms)
            return
    elif request.api_version >= MEMBER_ID_REQUIRED_FROM:
        draft.add_pending(request.fresh_member_id, now_ms + request.session_timeout_ms)
        code = ErrorCode.MEMBER_ID_REQUIRED
        draft.answer(request.ticket, JoinAnswer(code, request.fresh_member_id))
        return
    draft.add(request, request.fresh_member_id, now_ms)
    draft.rebalance_or_complete(now_ms)


def _join_again(draft: _Draft, request: Join, now_ms: int) -> None:
    """A member of this generation joins: it missed an answer, changed, or wants a rebalance."""
    group = draft.group
    member = group.members[request.member_id]
    is_unchanged = member.protocols == request.protocols
    is_leader = group.leader == member.member_id
    missed_answer = is_unchanged and (
        group.state is S.COMPLETING_REBALANCE or (group.state is S.STABLE and not is_leader)
    )
    if missed_answer:
        draft.answer(request.ticket, _generation_answer(group, member.member_id))
    else:
        draft.update(member, request)
        draft.rebalance_or_complete(now_ms)


def _replace_static(draft: _Draft, known: Member, request: Join, now_ms: int) -> None:
    """A static member came back under a new id; a Stable group need not rebalance for it."""
    leader_before = draft.group.leader
    member = draft.replace_static(known, request, now_ms)
    group = draft.group
    if group.state is not S.STABLE or _select_protocol(group) != group.protocol:
        draft.rebalance_or_complete(now_ms)
        return
    draft.put(member._replace(awaiting_join=None))
    draft.write()
    answer = _generation_answer(group, member.member_id)
    if request.api_version >= SKIP_ASSIGNMENT_FROM:
        is_leader = group.leader == member.member_id
        draft.answer(request.ticket, answer._replace(skip_assignment=is_leader))
    else:
        # It must not take itself for the leader: a Stable group takes no assignment.
        draft.answer(request.ticket, answer._replace(leader=leader_before or "", members=()))


def _refused_join(request: Join, error: ErrorCode) -> GroupTransition:
    return GroupTransition(None, ((request.ticket, JoinAnswer(error, request.member_id)),))


def _new_member(request: Join, member_id: str, now_ms: int) -> Member:
    return Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
        now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        is_new=True,
        awaiting_join=request.ticket,
    )


def _leave_one(draft: _Draft, leaver: Leaver) -> ErrorCode:
    group = draft.group
    member_id = leaver.member_id
    if not member_id:
        known = group.static_member(leaver.instance_id) if leaver.instance_id is not None else None
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known.member_id
    elif member_id in group.pending:
        draft.forget_pending(member_id)
        return ErrorCode.NONE
    else:
        error = _member_refusal(group, member_id, leaver.instance_id)
        if error is not ErrorCode.NONE:
            return error
    draft.remove(member_id)
    return ErrorCode.NONE


# ---------------------------------------------------------------- questions


def _has_room(group: Group, member_id: str, group_max_size: int) -> bool:
    """Say whether one more may join; in a round, those who are first in it have the places."""
    member = group.members.get(member_id)
    if group.state is S.EMPTY:
        return True
    if group.state is S.PREPARING_REBALANCE:
        waiting = sum(m.awaiting_join is not None for m in group.members.values())
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or waiting < group_max_size
    return member is not None or len(group.members) < group_max_size


def _has_room_for_bytes(group: Group, request: Join, bytes_max: int) -> bool:
    """Return True if the group can keep a member's data, and one more id that is given out."""
    before = group.members.get(request.member_id)
    others = group.size_bytes - (0 if before is None else before.size_bytes)
    fits = others + protocols_bytes(request.protocols) <= bytes_max
    return fits and (bool(request.member_id) or len(group.pending) < PENDING_MAX)


def _supports(group: Group, protocol_type: str, protocols: Protocols) -> bool:
    """Say whether a member speaks a protocol that every member of the group speaks."""
    if group.state is S.EMPTY:
        return bool(protocol_type) and bool(protocols)
    common = _common_protocols(group)
    speaks = not group.members or any(name in common for name, _ in protocols)
    return bool(protocols) and speaks and protocol_type == group.protocol_type


def _common_protocols(group: Group) -> set[str]:
    names = [{name for name, _ in member.protocols} for member in group.members.values()]
    return set.intersection(*names) if names else set()


def _select_protocol(group: Group) -> str:
    """The protocol most members prefer, among those all of them speak."""
    common = _common_protocols(group)
    assert common, f"{group.group_id}: no protocol is common to {len(group.members)} members"
    votes = Counter(
        next(name for name, _ in member.protocols if name in common)
        for member in group.members.values()
    )
    return votes.most_common(1)[0][0]


def _joined_leader(group: Group) -> str | None:
    """The leader if it joined, else the first member that did."""
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.awaiting_join is not None:
        return leader.member_id
    joined = (m.member_id for m in group.members.values() if m.awaiting_join is not None)
    return next(joined, None)


def _generation_answer(group: Group, member_id: str) -> JoinAnswer:
    """A member's view of the current generation; the leader gets the list of members."""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    if group.leader == member_id:
        members = tuple(
            (member.member_id, member.instance_id, member.metadata(group.protocol))
            for member in group.members.values()
        )
    return JoinAnswer(
        ErrorCode.NONE,
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        members=members,
    )


def _assignment(group: Group, member_id: str) -> SyncAnswer:
    """A member's assignment; before it is known, the news that there will be none."""
    if group.state is not S.STABLE:
        return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncAnswer(
        ErrorCode.NONE, group.protocol_type, group.protocol, group.members[member_id].assignment
    )


def _sync_refusal(group: Group | None, request: Sync) -> ErrorCode:
    error = _generation_refusal(group, request.member_id, request.instance_id, request.generation)
    if group is None or error is not ErrorCode.NONE:
        return error
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol, group.protocol
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is S.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def _generation_refusal(
    group: Group | None, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _member_refusal(group, member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _member_refusal(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Say why this is not a member: unknown, or its instance id belongs to a newer one."""
    if instance_id is not None:
        known = group.static_member(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _subscribed_topics(subscription: bytes) -> set[str]:
    """The topics of a consumer's subscription.

    Every version begins with the version (int16) and the topics (an array of strings); the rest
    is of no interest here. Raises ValueError. Source: ConsumerProtocolSubscription.
    """
    try:
        _, count = struct.unpack_from(">hi", subscription)
        position, topics = 6, set()
        for _ in range(count):
            (size,) = struct.unpack_from(">h", subscription, position)
            start, position = position + 2, position + 2 + size
            if size < 0 or position > len(subscription):
                raise ValueError(f"a topic name of {size} bytes does not fit the subscription")
            topics.add(subscription[start:position].decode())
    except struct.error as error:
        raise ValueError(f"a subscription of {len(subscription)} bytes ends early") from error
    return topics
