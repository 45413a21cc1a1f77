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
If a group has no place for a member that joins again, the others no longer wait for that member.

Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389
(group size), KIP-394 (member id). KIP-447 (fenced offsets), KIP-559 (protocol in SyncGroup),
KIP-800 (reasons) and KIP-814 (skipped assignment). Apache Kafka's behaviour where these are silent.
"""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from txn.coordinator.group.members import (
    Member,
    Members,
    Protocols,
    member_bytes,
    protocols_bytes,
    text_bytes,
)
from txn.coordinator.group.records import NEVER, GroupValue, MemberValue
from txn.wire.error_codes import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Time that a member may wait in its first JoinGroup. It has no id yet and cannot send heartbeats,
so a client that went away would hold the group for ever. Source: Kafka."""

EMPTY_REBALANCE_RETRY_MS: Final = 1_000

PENDING_MAX: Final = 10_000
"""Ids of a group that are given out and not used; each lapses with its session timeout."""

PENDING_BYTES: Final = 512
GROUP_BYTES: Final = 2_048
"""Fixed cost of an id that is given out, and of a group with its timer."""

SUBSCRIBED_MAX: Final = 100_000
"""Topic names that are read in the different subscriptions of a group."""

VERSION_BYTES: Final = 2
COUNT_BYTES: Final = 4
"""Beginning of a subscription: its version, and the number of topics."""

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

    @property
    def size_bytes(self) -> int:
        """The size of the member that it makes."""
        member_id = self.member_id or self.fresh_member_id
        names = (member_id, self.instance_id, self.client_id, self.client_host)
        return member_bytes(*names) + protocols_bytes(self.protocols)


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
    draft.mark_synced((request.member_id,))
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
    going: dict[str, None] = {}
    lapsing: set[str] = set()
    codes = tuple(_leave_one(group, leaver, going, lapsing) for leaver in leavers)
    draft.forget_pending(lapsing)
    draft.remove(going)
    if going:
        draft.rebalance_or_complete(now_ms)
    else:
        draft.complete_if_all_joined(now_ms)
    return draft.outcome(), codes


def leave_refusal(group: Group | None, leaver: Leaver) -> ErrorCode:
    """Say why nobody leaves by this name now; NONE: a member does, or an id that was given out."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaver.member_id:
        is_pending = leaver.member_id in group.pending
        named = group, leaver.member_id, leaver.instance_id
        return ErrorCode.NONE if is_pending else _member_refusal(*named)
    is_known = leaver.instance_id is not None and group.static_member(leaver.instance_id)
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def expire(group: Group, *, now_ms: int) -> GroupTransition:
    """Do due work: give up members that went silent, end rounds that took too long.

    All that is due at once goes in one step.
    """
    draft = _Draft(group)
    lapsed = {member_id for member_id, lapses_ms in group.pending.items() if lapses_ms <= now_ms}
    if lapsed:
        draft.forget_pending(lapsed)
        draft.complete_if_all_joined(now_ms)
    silent = [m.member_id for m in draft.group.members.values() if _is_due(m.deadline_ms, now_ms)]
    if silent:
        draft.remove(silent)
        draft.rebalance_or_complete(now_ms)
    if _is_due(draft.group.join_deadline_ms, now_ms):
        draft.end_wait_for_joins(now_ms)
    if _is_due(draft.group.sync_deadline_ms, now_ms):
        draft.remove(sorted(draft.group.unsynced))
        draft.prepare_rebalance(now_ms)
    return draft.outcome()


def begin_round(group: Group, *, now_ms: int) -> Group:
    """Let the members of a Stable group, none of which waits for an answer, join again.

    The time at which it came to its state stays as it is: it is a time of day.
    """
    draft = _Draft(group)
    draft.prepare_rebalance(now_ms)
    return draft.group._replace(state_timestamp_ms=group.state_timestamp_ms)


def dismissed(group: Group, error: ErrorCode) -> tuple[Answer, ...]:
    """The answers to all requests that wait in a group that ends."""
    answers: list[Answer] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            answers.append((member.awaiting_join, JoinAnswer(error, member.member_id)))
        if member.awaiting_sync is not None:
            answers.append((member.awaiting_sync, SyncAnswer(error)))
    return tuple(answers)


def next_deadline(group: Group) -> int | None:
    """When `expire` has something to do next, in milliseconds since the epoch; None for never."""
    deadlines = [
        member.session_deadline_ms
        for member in group.members.values()
        if member.is_new or (member.awaiting_join is None and member.awaiting_sync is None)
    ]  # those of `deadline_ms`, without a call for each of thousands
    deadlines += group.pending.values()
    deadlines += [ms for ms in (group.join_deadline_ms, group.sync_deadline_ms) if ms is not None]
    return min(deadlines, default=None)


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
        is_known = knows_group_not_found
        return ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
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
    return group._replace(members=group.members.with_member(prolonged))


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that members consume, as far as their subscriptions can be read.

    None stands for every topic: a subscription cannot be read, or they name too many. Equal lists
    of topics count once, as most groups have one. Cost: that of `SUBSCRIBED_MAX` names.
    """
    topics: set[str] = set()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return frozenset()
    left, known = SUBSCRIBED_MAX, b""
    for member in group.members.values():
        subscription = member.metadata(group.protocol)
        if known and subscription.startswith(known, VERSION_BYTES):
            continue
        try:
            names, end = _subscribed_topics(subscription, left)
        except ValueError:
            return None
        known = subscription[VERSION_BYTES:end]
        left -= len(names)
        topics.update(names)
    return frozenset(topics)


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
        """Record the group's current state."""
        assert self.record is None, "one transition wrote two generations"
        self.record = group_value(self.group)

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state; anything not in `MOVES` is a bug."""
        before = self.group.state
        assert state in MOVES[before], f"{self.group.group_id}: {before.value} -> {state.value}"
        self.group = self.group._replace(state=state, state_timestamp_ms=now_ms)

    def put(self, member: Member) -> None:
        """Add or change a member."""
        self.group = self.group._replace(members=self.group.members.with_member(member))

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

    def remove(self, member_ids: Collection[str]) -> None:
        """Drop members; their waiting requests are answered, and the next in line leads."""
        if not member_ids:
            return
        before = self.group
        for member_id in member_ids:
            self._answer_waiting(before.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        members = before.members.without(member_ids)
        is_led = before.leader in members
        leader = before.leader if is_led else next(iter(members), None)
        self.group = before._replace(members=members, leader=leader)
        self.mark_synced(member_ids)

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
            members=Members(in_line),
            leader=new.member_id if group.leader == old.member_id else group.leader,
            unsynced=unsynced,
        )
        return new

    def add_pending(self, member_id: str, lapses_ms: int) -> None:
        """Remember an id that was given out."""
        self.group = self.group._replace(pending={**self.group.pending, member_id: lapses_ms})

    def forget_pending(self, member_ids: Collection[str]) -> None:
        """Forget ids that were given out."""
        pending = {name: ms for name, ms in self.group.pending.items() if name not in member_ids}
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
        self.group = self.group._replace(
            unsynced=frozenset(), sync_deadline_ms=None, is_unled=False
        )
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
        members = self.group.members.values()
        self.remove(
            [m.member_id for m in members if m.awaiting_join is None and m.instance_id is None]
        )
        leader = _joined_leader(self.group)
        if leader is None and self.group.members:
            wait_ms = max(self.group.rebalance_timeout_ms, EMPTY_REBALANCE_RETRY_MS)
            self._wait_for_joins(now_ms + wait_ms)
            return
        self.group = self.group._replace(
            generation=self.group.generation + 1,
            leader=leader,
            protocol=select_protocol(self.group) if leader is not None else None,
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
        members = []
        for member in group.members.values():
            if member.awaiting_join is not None:
                self.answer(member.awaiting_join, _generation_answer(group, member.member_id))
            joined = member._replace(
                awaiting_join=None,
                is_new=False,
                session_deadline_ms=now_ms + member.session_timeout_ms,
            )
            members.append(joined)
        self.group = group._replace(
            members=Members(members),
            unsynced=frozenset(group.members),
            sync_deadline_ms=now_ms + group.rebalance_timeout_ms,
        )

    # ---- assignments

    def mark_synced(self, member_ids: Iterable[str]) -> None:
        """Members asked for their assignment, or will not ask any more."""
        unsynced = self.group.unsynced.difference(member_ids)
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
        members = Members(
            member._replace(assignment=assignments.get(member.member_id, b""))
            for member in self.group.members.values()
        )
        self.group = self.group._replace(members=members)
        self.move_to(S.STABLE, now_ms)
        self.write()
        self._answer_syncs(now_ms)

    def _withdraw_assignments(self, now_ms: int) -> None:
        members = Members(member._replace(assignment=b"") for member in self.group.members.values())
        self.group = self.group._replace(members=members)
        self._answer_syncs(now_ms)

    def _answer_syncs(self, now_ms: int) -> None:
        group = self.group
        members = []
        for member in group.members.values():
            answered = member
            if member.awaiting_sync is not None:
                self.answer(member.awaiting_sync, _assignment(group, member.member_id))
                answered = member._replace(
                    awaiting_sync=None,
                    session_deadline_ms=now_ms + member.session_timeout_ms,
                )
            members.append(answered)
        self.group = group._replace(members=Members(members))


# ---------------------------------------------------------------- joining, case by case


def _join(draft: _Draft, request: Join, now_ms: int, limits: Limits) -> _Draft:
    group = draft.group
    if not (
        _has_room(group, request.member_id, limits.group_max_size)
        and _has_room_for_bytes(group, request, limits.group_bytes_max)
    ):
        if request.member_id in group.members:
            draft.remove((request.member_id,))
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
    if group.state is not S.STABLE or select_protocol(group) != group.protocol:
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


def _leave_one(
    group: Group, leaver: Leaver, going: dict[str, None], lapsing: set[str]
) -> ErrorCode:
    """Note the member, or the id that was given out, and say why not if it is neither any more.

    `going` and `lapsing` are noted already.
    """
    member_id = leaver.member_id
    if not member_id:
        known = group.static_member(leaver.instance_id) if leaver.instance_id is not None else None
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known.member_id
    elif member_id in group.pending and member_id not in lapsing:
        lapsing.add(member_id)
        return ErrorCode.NONE
    elif (error := _member_refusal(group, member_id, leaver.instance_id)) is not ErrorCode.NONE:
        is_gone = error is ErrorCode.FENCED_INSTANCE_ID and _holder(group, leaver) in going
        return ErrorCode.UNKNOWN_MEMBER_ID if is_gone else error
    if member_id in going:
        return ErrorCode.UNKNOWN_MEMBER_ID
    going[member_id] = None
    return ErrorCode.NONE


def _holder(group: Group, leaver: Leaver) -> str | None:
    """The member id that belongs to a leaver's instance id."""
    known = group.static_member(leaver.instance_id or "")
    return None if known is None else known.member_id


# ---------------------------------------------------------------- questions


def _has_room(group: Group, member_id: str, group_max_size: int) -> bool:
    """Say whether one more may join; in a round, those who are first in it have the places."""
    member = group.members.get(member_id)
    if group.state is S.EMPTY or len(group.members) < group_max_size:
        return True
    if group.state is S.PREPARING_REBALANCE:
        waiting = sum(m.awaiting_join is not None for m in group.members.values())
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or waiting < group_max_size
    return member is not None


def _has_room_for_bytes(group: Group, request: Join, bytes_max: int) -> bool:
    """Return True if the group can keep a member's data, and one more id that is given out."""
    before = group.members.get(request.member_id)
    if before is None and request.instance_id is not None:
        before = group.static_member(request.instance_id)
    others = group.members.size_bytes - (0 if before is None else before.size_bytes)
    fits = others + request.size_bytes <= bytes_max
    return fits and (bool(request.member_id) or len(group.pending) < PENDING_MAX)


def _supports(group: Group, protocol_type: str, protocols: Protocols) -> bool:
    """Say whether a member speaks a protocol that every member of the group speaks."""
    if group.state is S.EMPTY:
        return bool(protocol_type) and bool(protocols)
    speaks = not group.members or any(group.members.all_speak(name) for name, _ in protocols)
    return bool(protocols) and speaks and protocol_type == group.protocol_type


def select_protocol(group: Group) -> str:
    """The protocol most members prefer, among those all of them speak."""
    common = group.members.common_protocols()
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


def _subscribed_topics(subscription: bytes, names_max: int) -> tuple[list[str], int]:
    """The topics of a consumer's subscription, and the end of their list.

    Every version begins with the version (int16) and the topics (an array of strings); the rest
    is of no interest here. Raises ValueError. Source: ConsumerProtocolSubscription.
    """
    try:
        _, count = struct.unpack_from(">hi", subscription)
        if count > names_max:
            raise ValueError(f"a subscription has {count} topics, more than {names_max}")
        position, topics = VERSION_BYTES + COUNT_BYTES, []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", subscription, position)
            start, position = position + 2, position + 2 + size
            if size < 0 or position > len(subscription):
                raise ValueError(f"a topic name of {size} bytes does not fit the subscription")
            topics.append(subscription[start:position].decode())
    except struct.error as error:
        raise ValueError(f"a subscription of {len(subscription)} bytes ends early") from error
    return topics, position
