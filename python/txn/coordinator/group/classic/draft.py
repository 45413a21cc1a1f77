"""One transition of a classic group in the making: members, rounds, assignments. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from txn.coordinator.group.classic.group import (
    MOVES,
    Group,
    GroupState,
    InitialWait,
    S,
    group_value,
    joined_leader,
    select_protocol,
)
from txn.coordinator.group.classic.requests import (
    Answer,
    GroupTransition,
    Join,
    JoinAnswer,
    SyncAnswer,
)
from txn.coordinator.group.members import Member, Members
from txn.coordinator.group.records import GroupValue
from txn.wire.error_codes import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Time that a member may wait in its first JoinGroup. It has no id yet and cannot send heartbeats,
so a client that went away would hold the group for ever. Source: Kafka."""

EMPTY_REBALANCE_RETRY_MS: Final = 1_000

GENERATION_MAX: Final = 2**31 - 1
"""The last generation; the first one follows. A member of a former generation 1 that is still there
is told of the new one before it could use its own."""


class Draft:
    """A group on its way to the next one, with the answers and the record that came up.

    Only the functions of this package see one; groups and members stay immutable.
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
        self.put(new_member(request, member_id, now_ms))

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
        fresh = new_member(request, request.fresh_member_id, now_ms)
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
        leader = joined_leader(self.group)
        if leader is None and self.group.members:
            wait_ms = max(self.group.rebalance_timeout_ms, EMPTY_REBALANCE_RETRY_MS)
            self._wait_for_joins(now_ms + wait_ms)
            return
        self.group = self.group._replace(
            generation=self.group.generation % GENERATION_MAX + 1,
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
                self.answer(member.awaiting_join, generation_answer(group, member.member_id))
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
                self.answer(member.awaiting_sync, assignment_answer(group, member.member_id))
                answered = member._replace(
                    awaiting_sync=None,
                    session_deadline_ms=now_ms + member.session_timeout_ms,
                )
            members.append(answered)
        self.group = group._replace(members=Members(members))


def new_member(request: Join, member_id: str, now_ms: int) -> Member:
    """A member that waits for the answer of its first JoinGroup."""
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


def generation_answer(group: Group, member_id: str) -> JoinAnswer:
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


def assignment_answer(group: Group, member_id: str) -> SyncAnswer:
    """A member's assignment; before it is known, the news that there will be none."""
    if group.state is not S.STABLE:
        return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncAnswer(
        ErrorCode.NONE, group.protocol_type, group.protocol, group.members[member_id].assignment
    )
