"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch."""

from collections.abc import Sequence
from typing import NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

NO_LEADER_EPOCH = -1
CONSUMER_REPLICA = -1
DEBUGGING_REPLICA = -2


@request_body
class ListOffsetsPartition:
    """A partition and a time, or one of the special timestamps."""

    partition_index: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    timestamp: int


@request_body
class ListOffsetsTopic:
    """Partitions of one topic."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]


@request_body
class ListOffsetsRequest:
    """Asks for offsets at both ends of partitions, or by time."""

    replica_id: int = CONSUMER_REPLICA
    isolation_level: int = 0
    topics: tuple[ListOffsetsTopic, ...]
    timeout_ms: int = 0


class ListedOffset(NamedTuple):
    """The offset of one partition."""

    partition_index: int
    error_code: ErrorCode
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = NO_LEADER_EPOCH


class ListedOffsets(NamedTuple):
    """The offsets of one topic."""

    name: str
    partitions: Sequence[ListedOffset]


class ListOffsetsResponse(NamedTuple):
    """Offsets by topic."""

    topics: Sequence[ListedOffsets]


@request_body
class DeleteRecordsPartition:
    """A partition and its wanted log start offset."""

    partition_index: int
    offset: int


@request_body
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@request_body
class DeleteRecordsRequest:
    """Moves log start offsets up."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int = 0


class DeletedRecords(NamedTuple):
    """The log start offset of one partition."""

    partition_index: int
    error_code: ErrorCode
    low_watermark: int = -1


class DeletedRecordsOfTopic(NamedTuple):
    """The log start offsets of one topic."""

    name: str
    partitions: Sequence[DeletedRecords]


class DeleteRecordsResponse(NamedTuple):
    """Log start offsets by topic."""

    topics: Sequence[DeletedRecordsOfTopic]


@request_body
class OffsetForLeaderPartition:
    """A partition and the leader epoch whose end is wanted."""

    partition: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    leader_epoch: int


@request_body
class OffsetForLeaderTopic:
    """Partitions of one topic."""

    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


@request_body
class OffsetForLeaderEpochRequest:
    """Asks where leader epochs end."""

    replica_id: int = DEBUGGING_REPLICA
    topics: tuple[OffsetForLeaderTopic, ...]


class EpochEndOffset(NamedTuple):
    """The end of a leader epoch in one partition."""

    partition: int
    error_code: ErrorCode
    leader_epoch: int = NO_LEADER_EPOCH
    end_offset: int = -1


class EpochEndOffsets(NamedTuple):
    """The ends of leader epochs in one topic."""

    topic: str
    partitions: Sequence[EpochEndOffset]


class OffsetForLeaderEpochResponse(NamedTuple):
    """Ends of leader epochs by topic."""

    topics: Sequence[EpochEndOffsets]
