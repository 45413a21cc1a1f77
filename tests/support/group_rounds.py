"""One group under test: requests go in, time passes, answers and records come out."""

import itertools
from collections.abc import Mapping

from txn.coordinator.group.classic.group import Group, Limits, restore
from txn.coordinator.group.classic.joining import join
from txn.coordinator.group.classic.membership import expire, heartbeat, leave, next_deadline, sync
from txn.coordinator.group.classic.requests import (
    GroupTransition,
    Join,
    JoinAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from txn.coordinator.group.members import Protocols
from txn.coordinator.group.records import GroupValue
from txn.wire.error_codes import ErrorCode

RANGE: Protocols = (("range", b"range of it"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Rounds:
    """A group and its answers. Time begins at 0; tickets count from 1."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(initial_rebalance_delay_ms=0)
        self.now_ms = 0
        self.found: Group | None = None
        self.joins: dict[int, JoinAnswer] = {}
        self.syncs: dict[int, SyncAnswer] = {}
        self.asked: set[int] = set()
        self.records: list[GroupValue] = []
        self._ids = 0
        self._tickets = itertools.count(1)

    @property
    def group(self) -> Group:
        assert self.found is not None, "there is no group yet"
        return self.found

    @property
    def waiting(self) -> set[int]:
        """The tickets that are not answered yet."""
        return self.asked - self.joins.keys() - self.syncs.keys()

    def take(self, outcome: GroupTransition) -> None:
        self.found = outcome.group
        if outcome.record is not None:
            self.records.append(outcome.record)
        for ticket, answer in outcome.answers:
            assert ticket in self.waiting, f"ticket {ticket} was answered before"
            if isinstance(answer, JoinAnswer):
                self.joins[ticket] = answer
            else:
                self.syncs[ticket] = answer

    def ticket(self) -> int:
        ticket = next(self._tickets)
        self.asked.add(ticket)
        return ticket

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        version: int = 9,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> int:
        """Send a JoinGroup; return its ticket."""
        self._ids += 1
        ticket = self.ticket()
        request = Join(
            ticket=ticket,
            api_version=version,
            member_id=member_id,
            fresh_member_id=f"m{self._ids}",
            instance_id=instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            protocol_type=protocol_type,
            protocols=protocols,
        )
        outcome = join(self.found, request, group_id="g", now_ms=self.now_ms, limits=self.limits)
        self.take(outcome)
        return ticket

    def enter(
        self,
        *,
        protocols: Protocols = RANGE,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> tuple[str, int]:
        """Join as a new dynamic member does: once for an id, once with it; (id, ticket)."""
        asked = self.join(protocols=protocols, session_ms=session_ms)
        member_id = self.joins[asked].member_id
        ticket = self.join(
            member_id, protocols=protocols, session_ms=session_ms, rebalance_ms=rebalance_ms
        )
        return member_id, ticket

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol: str | None = None,
    ) -> int:
        """Send a SyncGroup, of the current generation if none is given; return its ticket."""
        ticket = self.ticket()
        current = self.found.generation if self.found is not None else 0
        request = Sync(
            ticket=ticket,
            generation=current if generation is None else generation,
            member_id=member_id,
            instance_id=instance_id,
            protocol=protocol,
            assignments=assignments or {},
        )
        self.take(sync(self.found, request, now_ms=self.now_ms))
        return ticket

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        current = self.group.generation if generation is None else generation
        self.found, error = heartbeat(
            self.found, member_id, instance_id, current, now_ms=self.now_ms
        )
        return error

    def leave(self, *leavers: Leaver) -> tuple[ErrorCode, ...]:
        outcome, codes = leave(self.found, leavers, now_ms=self.now_ms)
        self.take(outcome)
        return codes

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; every deadline on the way is met at its minute."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self._next_deadline()) is not None and deadline_ms <= end_ms:
            assert deadline_ms > self.now_ms or self.found != self._expired(), "time stands still"
            self.now_ms = max(deadline_ms, self.now_ms)
            self.take(expire(self.group, now_ms=self.now_ms))
        self.now_ms = end_ms

    def _next_deadline(self) -> int | None:
        return None if self.found is None else next_deadline(self.found)

    def _expired(self) -> Group | None:
        return expire(self.group, now_ms=self.now_ms).group

    def restart(self) -> None:
        """Forget everything that is not in the records."""
        last = self.records[-1] if self.records else None
        self.found = None if last is None else restore("g", last, now_ms=self.now_ms)
        self.asked -= self.waiting

    # ---- whole stories

    def form(self, count: int, *, session_ms: int = SESSION_MS) -> list[str]:
        """Make a Stable group of new members, each assigned its own id; return their ids."""
        tickets = dict(self.enter(session_ms=session_ms) for _ in range(count))
        self.pass_time(0)
        self.settle()
        return list(tickets)

    def settle(self) -> None:
        """Let every member of the new generation sync; the leader assigns each its own id."""
        members = list(self.group.members)
        for member_id in members:
            is_leader = member_id == self.group.leader
            self.sync(member_id, {m: m.encode() for m in members} if is_leader else None)
