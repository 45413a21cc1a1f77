"""Groups of the consumer protocol (KIP-848)."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from txn.wire.bodies.groups import OPERATIONS_NOT_ASKED
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

NOT_SAID: Final = -1


@request_body
class OwnedTopicPartitions:
    """Partitions of a topic that a member owns."""

    topic_id: UUID | None
    partitions: tuple[int, ...]


@request_body
class ConsumerGroupHeartbeatRequest:
    """Joins a group, reports, or leaves. Null, or -1: the member's data did not change."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[OwnedTopicPartitions, ...] | None = None


class AssignedTopicPartitions(NamedTuple):
    """Partitions of a topic that a member may read."""

    topic_id: UUID
    partitions: Sequence[int]


class AssignedPartitions(NamedTuple):
    """The partitions that a member may read."""

    topic_partitions: Sequence[AssignedTopicPartitions]


class ConsumerGroupHeartbeatResponse(NamedTuple):
    """The member's epoch; its assignment if it changed."""

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: AssignedPartitions | None = None


@request_body
class ConsumerGroupDescribeRequest:
    """Asks for the state and members of groups."""

    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


class DescribedTopicPartitions(NamedTuple):
    """Partitions of a topic."""

    topic_id: UUID
    topic_name: str
    partitions: Sequence[int]


class DescribedAssignment(NamedTuple):
    """The partitions of a member."""

    topic_partitions: Sequence[DescribedTopicPartitions]


class DescribedConsumer(NamedTuple):
    """One member of a group."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: int


class DescribedConsumerGroup(NamedTuple):
    """The state and members of one group."""

    error_code: ErrorCode
    error_message: str | None
    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[DescribedConsumer] = ()
    authorized_operations: int = OPERATIONS_NOT_ASKED


class ConsumerGroupDescribeResponse(NamedTuple):
    """The groups."""

    groups: Sequence[DescribedConsumerGroup]
