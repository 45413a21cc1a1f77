"""Metadata, FindCoordinator, DescribeCluster; CreateTopics, DeleteTopics, CreatePartitions."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

GROUP_KEY: Final = 0
BROKERS_ENDPOINT: Final = 1
CONTROLLERS_ENDPOINT: Final = 2

NO_OPERATIONS: Final = -(2**31)
"""Authorized operations were not asked for, or are not known."""


@request_body
class MetadataRequestTopic:
    """A topic by its name or by its id."""

    topic_id: UUID | None = None
    name: str | None


@request_body
class MetadataRequest:
    """Asks for the brokers and for topics; null asks for all topics."""

    topics: tuple[MetadataRequestTopic, ...] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataBroker(NamedTuple):
    """One broker and its advertised address."""

    node_id: int
    host: str
    port: int


class MetadataPartition(NamedTuple):
    """One partition, its leader and its replicas."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]


class MetadataTopic(NamedTuple):
    """One topic."""

    error_code: ErrorCode
    name: str | None
    topic_id: UUID | None
    is_internal: bool = False
    partitions: Sequence[MetadataPartition] = ()
    topic_authorized_operations: int = NO_OPERATIONS


class MetadataResponse(NamedTuple):
    """The brokers and topics."""

    brokers: Sequence[MetadataBroker]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataTopic]
    error_code: ErrorCode = ErrorCode.NONE
    cluster_authorized_operations: int = NO_OPERATIONS


@request_body
class FindCoordinatorRequest:
    """Asks for the coordinators of keys: one key before version 4."""

    key: str = ""
    key_type: int = GROUP_KEY
    coordinator_keys: tuple[str, ...] = ()


class Coordinator(NamedTuple):
    """The coordinator of one key."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: ErrorCode
    error_message: str | None


class FindCoordinatorResponse(NamedTuple):
    """Coordinators by key. Versions before 4 have the fields of one coordinator instead."""

    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    coordinators: Sequence[Coordinator] = ()


@request_body
class DescribeClusterRequest:
    """Asks for the brokers."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = BROKERS_ENDPOINT
    include_fenced_brokers: bool = False


class ClusterBroker(NamedTuple):
    """One broker and its advertised address."""

    broker_id: int
    host: str
    port: int
    is_fenced: bool = False


class DescribeClusterResponse(NamedTuple):
    """The brokers."""

    error_code: ErrorCode
    cluster_id: str
    brokers: Sequence[ClusterBroker]
    error_message: str | None = None
    endpoint_type: int = BROKERS_ENDPOINT
    controller_id: int = -1
    cluster_authorized_operations: int = NO_OPERATIONS


@request_body
class CreatableReplicaAssignment:
    """The brokers of one partition."""

    partition_index: int
    broker_ids: tuple[int, ...]


@request_body
class CreatableTopicConfig:
    """One setting of a topic."""

    name: str
    value: str | None


@request_body
class CreatableTopic:
    """A topic to create; -1 stands for the default number of partitions or replicas."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


@request_body
class CreateTopicsRequest:
    """Creates topics, or checks if they could be created."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: int = 60_000
    validate_only: bool = False


class CreatedTopicConfig(NamedTuple):
    """One setting of a new topic."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreatedTopic(NamedTuple):
    """The result for one topic."""

    name: str
    topic_id: UUID | None
    error_code: ErrorCode
    error_message: str | None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreatedTopicConfig] = ()
    topic_config_error_code: ErrorCode = ErrorCode.NONE


class CreateTopicsResponse(NamedTuple):
    """Results by topic."""

    topics: Sequence[CreatedTopic]


@request_body
class DeleteTopicState:
    """A topic by its name or by its id."""

    name: str | None = None
    topic_id: UUID | None


@request_body
class DeleteTopicsRequest:
    """Deletes topics: `topic_names` before version 6, `topics` from then on."""

    topic_names: tuple[str, ...] = ()
    topics: tuple[DeleteTopicState, ...] = ()
    timeout_ms: int = 0


class DeletedTopic(NamedTuple):
    """The result for one topic."""

    name: str | None
    topic_id: UUID | None
    error_code: ErrorCode
    error_message: str | None


class DeleteTopicsResponse(NamedTuple):
    """Results by topic."""

    responses: Sequence[DeletedTopic]


@request_body
class CreatePartitionsAssignment:
    """The brokers of one new partition."""

    broker_ids: tuple[int, ...]


@request_body
class CreatePartitionsTopic:
    """A topic and the number of partitions that it is to have."""

    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None


@request_body
class CreatePartitionsRequest:
    """Adds partitions to topics, or checks if they could be added."""

    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: int = 0
    validate_only: bool = False


class GrownTopic(NamedTuple):
    """The result for one topic."""

    name: str
    error_code: ErrorCode
    error_message: str | None


class CreatePartitionsResponse(NamedTuple):
    """Results by topic."""

    results: Sequence[GrownTopic]
