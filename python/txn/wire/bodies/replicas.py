"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

ELECTION_TYPES: Final = (0, 1)
"""Of the preferred replica, and of any replica."""


@request_body
class ElectableTopic:
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...] = ()


@request_body
class ElectLeadersRequest:
    """Asks for elections of leaders; null stands for all partitions."""

    election_type: int = 0
    topic_partitions: tuple[ElectableTopic, ...] | None
    timeout_ms: int = 60_000


class PartitionElection(NamedTuple):
    """The result for one partition."""

    partition_id: int
    error_code: ErrorCode
    error_message: str | None


class TopicElection(NamedTuple):
    """The results for one topic."""

    topic: str
    partition_result: Sequence[PartitionElection] = ()


class ElectLeadersResponse(NamedTuple):
    """Results by topic."""

    error_code: ErrorCode
    replica_election_results: Sequence[TopicElection]


@request_body
class ReassignablePartition:
    """The brokers that one partition is to have; null cancels its reassignment."""

    partition_index: int
    replicas: tuple[int, ...] | None = None


@request_body
class ReassignableTopic:
    """Partitions of one topic."""

    name: str
    partitions: tuple[ReassignablePartition, ...]


@request_body
class AlterPartitionReassignmentsRequest:
    """Asks for other brokers for partitions."""

    timeout_ms: int = 60_000
    allow_replication_factor_change: bool = True
    topics: tuple[ReassignableTopic, ...]


class ReassignedPartition(NamedTuple):
    """The result for one partition."""

    partition_index: int
    error_code: ErrorCode
    error_message: str | None = None


class ReassignedTopic(NamedTuple):
    """The results for one topic."""

    name: str
    partitions: Sequence[ReassignedPartition]


class AlterPartitionReassignmentsResponse(NamedTuple):
    """Results by topic."""

    allow_replication_factor_change: bool
    error_code: ErrorCode
    error_message: str | None
    responses: Sequence[ReassignedTopic]


@request_body
class ListedReassignmentTopic:
    """Partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...] = ()


@request_body
class ListPartitionReassignmentsRequest:
    """Asks for the reassignments under way; null stands for all partitions."""

    timeout_ms: int = 60_000
    topics: tuple[ListedReassignmentTopic, ...] | None


class OngoingPartitionReassignment(NamedTuple):
    """One reassignment."""

    partition_index: int
    replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


class OngoingTopicReassignment(NamedTuple):
    """The reassignments of one topic."""

    name: str
    partitions: Sequence[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(NamedTuple):
    """Reassignments by topic."""

    error_code: ErrorCode
    error_message: str | None
    topics: Sequence[OngoingTopicReassignment]
