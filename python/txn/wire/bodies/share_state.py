"""The state of share groups, as far as a refusal needs it (KIP-932).

The five APIs have requests and answers of one shape; each of them lacks some of the fields.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body


@request_body
class StateBatch:
    """Records of a partition in one state of delivery."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@request_body
class PartitionState:
    """A partition, and the state to store."""

    partition: int
    state_epoch: int = -1
    leader_epoch: int = -1
    start_offset: int = -1
    delivery_complete_count: int = -1
    state_batches: tuple[StateBatch, ...] = ()


@request_body
class TopicState:
    """Partitions of a topic."""

    topic_id: UUID | None
    partitions: tuple[PartitionState, ...]


@request_body
class ShareStateRequest:
    """Initializes, reads, writes or deletes the state of partitions of a share group."""

    group_id: str
    topics: tuple[TopicState, ...]


class PartitionStateResult(NamedTuple):
    """The error of a partition; there is no state."""

    partition: int
    error_code: ErrorCode
    error_message: str
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: Sequence[NamedTuple] = ()


class TopicStateResult(NamedTuple):
    """The partitions of a topic."""

    topic_id: UUID | None
    partitions: Sequence[PartitionStateResult]


class ShareStateResponse(NamedTuple):
    """The topics."""

    results: Sequence[TopicStateResult]
