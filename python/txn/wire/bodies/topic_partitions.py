"""DescribeTopicPartitions."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from txn.wire.bodies.metadata import NO_OPERATIONS
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body


@request_body
class DescribableTopic:
    """A topic by its name."""

    name: str


@request_body
class PartitionCursor:
    """The partition to begin at: the next one of an earlier answer."""

    topic_name: str
    partition_index: int


@request_body
class DescribeTopicPartitionsRequest:
    """Asks for the partitions of topics, of all if none is named, so many in one answer."""

    topics: tuple[DescribableTopic, ...]
    response_partition_limit: int = 2000
    cursor: PartitionCursor | None = None


class PartitionDescription(NamedTuple):
    """One partition, its leader and its replicas."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None = ()
    last_known_elr: Sequence[int] | None = ()


class TopicDescription(NamedTuple):
    """One topic, and those of its partitions that the answer has."""

    error_code: ErrorCode
    name: str | None
    topic_id: UUID | None
    is_internal: bool = False
    partitions: Sequence[PartitionDescription] = ()
    topic_authorized_operations: int = NO_OPERATIONS


class NextPartition(NamedTuple):
    """The partition behind the last one of an answer."""

    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(NamedTuple):
    """Topics by their names in order; `next_cursor` tells where the next answer begins."""

    topics: Sequence[TopicDescription]
    next_cursor: NextPartition | None = None
