"""What members ask of a classic group, and what they are answered. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from txn.coordinator.group.classic.group import Group
from txn.coordinator.group.members import Protocols, member_bytes, protocols_bytes
from txn.coordinator.group.records import GroupValue
from txn.wire.error_codes import ErrorCode

NO_GENERATION: Final = -1

MEMBER_ID_REQUIRED_FROM: Final = 4

SKIP_ASSIGNMENT_FROM: Final = 9

GROUP_NOT_FOUND_FROM: Final = 9
"""First versions of JoinGroup, JoinGroup and OffsetCommit that know these."""


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
