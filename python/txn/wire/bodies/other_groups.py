"""Share groups (KIP-932) and streams groups (KIP-1071), as far as a refusal needs them."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from txn.wire.bodies.groups import OPERATIONS_NOT_ASKED
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body

# ---------------------------------------------------------------- share groups


@request_body
class ShareGroupHeartbeatRequest:
    """Joins a share group, reports, or leaves."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None


class ShareGroupHeartbeatResponse(NamedTuple):
    """The error; there is no member."""

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: None = None


@request_body
class GroupsDescribeRequest:
    """ShareGroupDescribe and StreamsGroupDescribe."""

    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False
    include_topology_description: bool = False


class DescribedShareGroup(NamedTuple):
    """The error of a group."""

    error_code: ErrorCode
    group_id: str
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[NamedTuple] = ()
    authorized_operations: int = OPERATIONS_NOT_ASKED


class ShareGroupDescribeResponse(NamedTuple):
    """The groups."""

    groups: Sequence[DescribedShareGroup]


@request_body
class AcknowledgementBatch:
    """Records of a partition, and what became of them."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...] = ()


@request_body
class SharePartition:
    """A partition to fetch or to acknowledge."""

    partition_index: int
    acknowledgement_batches: tuple[AcknowledgementBatch, ...]


@request_body
class ShareTopic:
    """Partitions of a topic."""

    topic_id: UUID | None
    partitions: tuple[SharePartition, ...]


@request_body
class ShareForgottenTopic:
    """Partitions that leave a session."""

    topic_id: UUID | None
    partitions: tuple[int, ...] = ()


@request_body
class ShareFetchRequest:
    """Fetches records for a member of a share group."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    topics: tuple[ShareTopic, ...]
    forgotten_topics_data: tuple[ShareForgottenTopic, ...]
    share_acquire_mode: int = 0
    is_renew_ack: bool = False


class ShareSessionResponse(NamedTuple):
    """The error of ShareFetch or ShareAcknowledge."""

    error_code: ErrorCode
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: Sequence[NamedTuple] = ()
    node_endpoints: Sequence[NamedTuple] = ()


@request_body
class ShareAcknowledgeRequest:
    """Acknowledges records for a member of a share group."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    topics: tuple[ShareTopic, ...]
    is_renew_ack: bool = False


@request_body
class ShareOffsetsTopic:
    """Partitions of a topic."""

    topic_name: str
    partitions: tuple[int, ...] = ()


@request_body
class ShareOffsetsGroup:
    """A group, and its topics; null: all."""

    group_id: str
    topics: tuple[ShareOffsetsTopic, ...] | None = None


@request_body
class DescribeShareGroupOffsetsRequest:
    """Asks for the offsets of share groups."""

    groups: tuple[ShareOffsetsGroup, ...]


class DescribedShareOffsets(NamedTuple):
    """The error of a group."""

    group_id: str
    error_code: ErrorCode
    error_message: str | None = None
    topics: Sequence[NamedTuple] = ()


class DescribeShareGroupOffsetsResponse(NamedTuple):
    """The groups."""

    groups: Sequence[DescribedShareOffsets]


@request_body
class AlteredShareOffset:
    """A partition's new start."""

    partition_index: int
    start_offset: int


@request_body
class AlteredShareTopic:
    """Partitions of a topic."""

    topic_name: str
    partitions: tuple[AlteredShareOffset, ...]


@request_body
class AlterShareGroupOffsetsRequest:
    """Alters the offsets of a share group."""

    group_id: str
    topics: tuple[AlteredShareTopic, ...]


@request_body
class DeletedShareTopic:
    """A topic whose offsets go."""

    topic_name: str


@request_body
class DeleteShareGroupOffsetsRequest:
    """Deletes offsets of a share group."""

    group_id: str
    topics: tuple[DeletedShareTopic, ...]


class ShareGroupOffsetsResponse(NamedTuple):
    """The error of AlterShareGroupOffsets and of DeleteShareGroupOffsets."""

    error_code: ErrorCode
    error_message: str | None = None
    responses: Sequence[NamedTuple] = ()


# ---------------------------------------------------------------- streams groups


@request_body
class TagOrSetting:
    """A name and its value."""

    key: str
    value: str


@request_body
class StreamsTopic:
    """An internal topic of a topology."""

    name: str
    partitions: int
    replication_factor: int
    topic_configs: tuple[TagOrSetting, ...]


@request_body
class CopartitionGroup:
    """Topics that are partitioned alike."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@request_body
class Subtopology:
    """A part of a topology."""

    subtopology_id: str
    state_changelog_topics: tuple[StreamsTopic, ...]
    repartition_source_topics: tuple[StreamsTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()


@request_body
class Topology:
    """What an application computes."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]


@request_body
class TaskIds:
    """Tasks of a subtopology."""

    subtopology_id: str
    partitions: tuple[int, ...] = ()


@request_body
class StreamsEndpoint:
    """Where a client answers queries."""

    host: str
    port: int


@request_body
class TaskOffset:
    """How far a task is."""

    subtopology_id: str
    partition: int
    offset: int


@request_body
class StreamsGroupHeartbeatRequest:
    """Joins a streams group, reports, or leaves."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    process_id: str | None = None
    user_endpoint: StreamsEndpoint | None = None
    client_tags: tuple[TagOrSetting, ...] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown_application: bool = False


class StreamsGroupHeartbeatResponse(NamedTuple):
    """The error; there is no member."""

    error_code: ErrorCode
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: Sequence[NamedTuple] | None = ()
    active_tasks: None = None
    standby_tasks: None = None
    warmup_tasks: None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: None = None
    recovery_lag: int = -1
    topology_description_required: bool = False


class DescribedStreamsGroup(NamedTuple):
    """The error of a group."""

    error_code: ErrorCode
    group_id: str
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: None = None
    members: Sequence[NamedTuple] = ()
    authorized_operations: int = OPERATIONS_NOT_ASKED
    topology_description: None = None
    topology_description_status: int = 0
    assignor_name: str | None = None


class StreamsGroupDescribeResponse(NamedTuple):
    """The groups."""

    groups: Sequence[DescribedStreamsGroup]


@request_body
class TopologyNode:
    """A source, a processor or a sink."""

    name: str
    node_type: int
    source_topics: tuple[str, ...] = ()
    sink_topic: str | None = None
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()


@request_body
class DescribedSubtopology:
    """A part of a topology, with its nodes."""

    subtopology_id: str
    nodes: tuple[TopologyNode, ...]


@request_body
class GlobalStore:
    """A state store that every client has."""

    source: TopologyNode
    processor: TopologyNode


@request_body
class TopologyDescription:
    """The parts and the global stores of an application."""

    subtopologies: tuple[DescribedSubtopology, ...]
    global_stores: tuple[GlobalStore, ...]


@request_body
class TopologyDescriptionUpdateRequest:
    """Describes one epoch of the topology of a streams group."""

    group_id: str
    member_id: str
    topology_epoch: int
    topology_description: TopologyDescription


class TopologyDescriptionUpdateResponse(NamedTuple):
    """The error."""

    error_code: ErrorCode
    error_message: str | None = None
