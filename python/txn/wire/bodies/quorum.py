"""DescribeQuorum, UpdateFeatures, UnregisterBroker."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


@request_body
class QuorumPartition:
    """One partition."""

    partition_index: int


@request_body
class QuorumTopic:
    """Partitions of one topic."""

    topic_name: str
    partitions: tuple[QuorumPartition, ...]


@request_body
class DescribeQuorumRequest:
    """Asks for the voters of the metadata log."""

    topics: tuple[QuorumTopic, ...]


class QuorumReplica(NamedTuple):
    """One voter, and the end of its log."""

    replica_id: int
    replica_directory_id: UUID | None
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribedQuorumPartition(NamedTuple):
    """The quorum of one partition."""

    partition_index: int
    error_code: ErrorCode
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: Sequence[QuorumReplica] = ()
    observers: Sequence[QuorumReplica] = ()


class DescribedQuorumTopic(NamedTuple):
    """The quorums of one topic."""

    topic_name: str
    partitions: Sequence[DescribedQuorumPartition]


class QuorumListener(NamedTuple):
    """An address of a controller."""

    name: str
    host: str
    port: int


class QuorumNode(NamedTuple):
    """One controller."""

    node_id: int
    listeners: Sequence[QuorumListener]


class DescribeQuorumResponse(NamedTuple):
    """Quorums by topic."""

    error_code: ErrorCode
    error_message: str | None
    topics: Sequence[DescribedQuorumTopic]
    nodes: Sequence[QuorumNode] = ()


@request_body
class FeatureUpdate:
    """The level that a feature is to have. `allow_downgrade` is version 0's."""

    feature: str
    max_version_level: int
    allow_downgrade: bool = False
    upgrade_type: int = UPGRADE


@request_body
class UpdateFeaturesRequest:
    """Changes features, or checks if they could be changed."""

    timeout_ms: int = 60_000
    feature_updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class UpdatedFeature(NamedTuple):
    """The result for one feature."""

    feature: str
    error_code: ErrorCode
    error_message: str | None


class UpdateFeaturesResponse(NamedTuple):
    """Results by feature; none if one of them could not be changed."""

    error_code: ErrorCode
    error_message: str | None
    results: Sequence[UpdatedFeature] = ()


@request_body
class UnregisterBrokerRequest:
    """Removes a broker that is gone."""

    broker_id: int


class UnregisterBrokerResponse(NamedTuple):
    """The result."""

    error_code: ErrorCode
    error_message: str | None
