"""Classic groups and committed offsets."""

from collections.abc import Sequence
from dataclasses import field
from typing import Final, NamedTuple
from uuid import UUID

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import called, request_body

NO_GENERATION: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_OFFSET: Final = -1

OPERATIONS_NOT_ASKED: Final = -(2**31)


# ---------------------------------------------------------------- members


@request_body
class JoinGroupProtocol:
    """An assignor and the member's metadata for it."""

    name: str
    metadata: bytes


@request_body
class JoinGroupRequest:
    """Joins a group. Version 0 has no rebalance timeout: the session's counts."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str
    protocols: tuple[JoinGroupProtocol, ...]
    reason: str | None = None


class JoinGroupMember(NamedTuple):
    """A member, as the leader gets it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResponse(NamedTuple):
    """The member's generation; for the leader all members."""

    error_code: ErrorCode
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: Sequence[JoinGroupMember]


@request_body
class SyncGroupAssignment:
    """The assignment of one member."""

    member_id: str
    assignment: bytes


@request_body
class SyncGroupRequest:
    """Asks for the member's assignment; the leader's gives all assignments."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupAssignment, ...]


class SyncGroupResponse(NamedTuple):
    """The member's assignment."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@request_body
class HeartbeatRequest:
    """Prolongs a member's session."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatResponse(NamedTuple):
    """The result."""

    error_code: ErrorCode


@request_body
class LeavingMember:
    """A member that leaves."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@request_body
class LeaveGroupRequest:
    """Removes `members` from a group; before version 3 the one of `member_id`."""

    group_id: str
    member_id: str = ""
    members: tuple[LeavingMember, ...] = ()


class LeftMember(NamedTuple):
    """The result for one member."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class LeaveGroupResponse(NamedTuple):
    """Results by member; before version 3 the one member's result is `error_code`."""

    error_code: ErrorCode
    members: Sequence[LeftMember] = ()


# ---------------------------------------------------------------- offsets


@request_body
class OffsetCommitPartition:
    """An offset to commit."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = NO_LEADER_EPOCH
    committed_metadata: str | None


@request_body
class OffsetCommitTopic:
    """Offsets of one topic: its name before version 10, its id from then on."""

    name: str | None = None
    topic_id: UUID | None = None
    partitions: tuple[OffsetCommitPartition, ...]


@request_body
class OffsetCommitRequest:
    """Commits offsets of a group."""

    group_id: str
    generation_id: int = field(
        default=NO_GENERATION, metadata=called("generation_id_or_member_epoch")
    )
    member_id: str
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: tuple[OffsetCommitTopic, ...]


@request_body
class TxnOffsetCommitTopic:
    """Offsets of one topic, by its name before version 6 and by its id from then on."""

    name: str | None = None
    topic_id: UUID | None = None
    partitions: tuple[OffsetCommitPartition, ...]


@request_body
class TxnOffsetCommitRequest:
    """Commits offsets of a group as part of a transaction."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
    topics: tuple[TxnOffsetCommitTopic, ...]


class CommittedPartition(NamedTuple):
    """The result for one partition."""

    partition_index: int
    error_code: ErrorCode


class CommittedTopic(NamedTuple):
    """The results for one topic, by its name or id as the request has it."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[CommittedPartition]


class OffsetCommitResponse(NamedTuple):
    """Results by topic, of OffsetCommit and of TxnOffsetCommit."""

    topics: Sequence[CommittedTopic]


@request_body
class OffsetFetchTopic:
    """Partitions of one topic: its name before version 10, its id from then on."""

    name: str | None = None
    topic_id: UUID | None = None
    partition_indexes: tuple[int, ...]


@request_body
class OffsetFetchGroup:
    """A group and the topics of wanted offsets; null: all."""

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[OffsetFetchTopic, ...] | None


@request_body
class OffsetFetchRequest:
    """Asks for the committed offsets of `groups`; before version 8 of the one `group_id`."""

    group_id: str = ""
    topics: tuple[OffsetFetchTopic, ...] | None = None
    groups: tuple[OffsetFetchGroup, ...] = ()
    require_stable: bool = False


class FetchedOffset(NamedTuple):
    """The committed offset of one partition."""

    partition_index: int
    error_code: ErrorCode
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class FetchedTopic(NamedTuple):
    """The committed offsets of one topic."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[FetchedOffset]


class FetchedGroup(NamedTuple):
    """The committed offsets of one group."""

    group_id: str
    error_code: ErrorCode
    topics: Sequence[FetchedTopic]


class OffsetFetchResponse(NamedTuple):
    """Committed offsets by group; before version 8 those of one group."""

    error_code: ErrorCode = ErrorCode.NONE
    topics: Sequence[FetchedTopic] = ()
    groups: Sequence[FetchedGroup] = ()


@request_body
class OffsetDeletePartition:
    """A partition whose offset is to be deleted."""

    partition_index: int


@request_body
class OffsetDeleteTopic:
    """Partitions of one topic."""

    name: str
    partitions: tuple[OffsetDeletePartition, ...]


@request_body
class OffsetDeleteRequest:
    """Deletes committed offsets of a group."""

    group_id: str
    topics: tuple[OffsetDeleteTopic, ...]


class DeletedOffset(NamedTuple):
    """The result for one partition."""

    partition_index: int
    error_code: ErrorCode


class DeletedOffsets(NamedTuple):
    """The results for one topic."""

    name: str
    partitions: Sequence[DeletedOffset]


class OffsetDeleteResponse(NamedTuple):
    """Results by topic, or the group's error."""

    error_code: ErrorCode
    topics: Sequence[DeletedOffsets] = ()


# ---------------------------------------------------------------- groups


@request_body
class DescribeGroupsRequest:
    """Asks for the state and members of groups."""

    groups: tuple[str, ...]
    include_authorized_operations: bool = False


class DescribedMember(NamedTuple):
    """One member of a group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(NamedTuple):
    """The state and members of one group."""

    error_code: ErrorCode
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedMember] = ()
    authorized_operations: int = OPERATIONS_NOT_ASKED


class DescribeGroupsResponse(NamedTuple):
    """The groups."""

    groups: Sequence[DescribedGroup]


@request_body
class ListGroupsRequest:
    """Asks for the groups that pass both filters."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    """One group."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class ListGroupsResponse(NamedTuple):
    """The groups."""

    error_code: ErrorCode
    groups: Sequence[ListedGroup]


@request_body
class DeleteGroupsRequest:
    """Deletes groups."""

    group_ids: tuple[str, ...] = field(metadata=called("groups_names"))


class DeletedGroup(NamedTuple):
    """The result for one group."""

    group_id: str
    error_code: ErrorCode
    error_message: str | None = None


class DeleteGroupsResponse(NamedTuple):
    """Results by group."""

    results: Sequence[DeletedGroup]
