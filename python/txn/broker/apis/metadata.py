"""Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeCluster, FindCoordinator.

As in Kafka, one request makes at most 10,000 partitions, of all its topics together; a request
for more is POLICY_VIOLATION as a whole.

Deviations from Kafka: replication factors of -1 and 1 are taken, higher ones refused with
INVALID_REPLICATION_FACTOR; a manual assignment has to name this node alone. The node has at most
`max.partitions` in all.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeVar
from uuid import UUID

from txn.broker.apis.api import Api
from txn.broker.host import Context
from txn.broker.node import PARTITION_COUNT_SETTING, Node, is_reserved
from txn.broker.turns import Turns
from txn.config import parse_topic_settings
from txn.errors import ConfigError, StorageError
from txn.logs import log
from txn.metadata.configs import Described, describe_topic
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic, name_fault
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.configs import AlteredResource
from txn.wire.bodies.metadata import (
    BROKERS_ENDPOINT,
    GROUP_KEY,
    ClusterBroker,
    Coordinator,
    CreatableTopic,
    CreatedTopic,
    CreatedTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GrownTopic,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, encode_response, join_entries

TRANSACTION_KEY = 1
PARTITIONS_MAX = 100_000
"""Limit of one topic."""

PARTITIONS_PER_REQUEST = 10_000
PARTITIONS_PER_ITEM = 20
"""Partitions created at the cost of one item of `Turns`."""

KEPT_TOPICS_MAX = 1_000
"""The answer to a request that names more topics is not kept."""

LARGE_ANSWER = 500
"""Topics and partitions from which on a worker thread encodes the answer."""

CREATION_ITEMS = 40
CREATED_ENTRY_ITEMS = 50
DELETION_ITEMS = 100
"""Costs of a created topic, of its settings in the answer, and of a deletion, in `Turns` items."""


async def metadata(node: Node, request: MetadataRequest, context: Context) -> bytes:
    """Answer with brokers and topics; makes topics asked for by name if that is allowed."""
    wanted = request.topics
    is_kept = wanted is None or len(wanted) <= KEPT_TOPICS_MAX
    key = (context.api_version, request)
    kept = node.response_cache.get(key) if is_kept else None
    if kept is not None:
        return kept
    turns = Turns()
    if wanted is None or (context.api_version == 0 and not wanted):
        version = node.image.version
        topics = []
        for topic in tuple(node.image.topics.values()):
            await turns.next(1 + topic.partition_count)
            if topic.name in node.partitions:  # or it was deleted meanwhile
                topics.append(_topic(node, topic))
    else:
        creation = _Creation(node, request.allow_auto_topic_creation)
        version = known = node.image.version
        topics = []
        for entry in wanted:
            described = _wanted_topic(node, entry, creation)
            topics.append(described)
            is_new = node.image.version != known
            known = node.image.version
            await turns.next(1 + len(described.partitions) + CREATION_ITEMS * is_new)
        if node.image.version != version:
            fault = await _sync_fault(node)
            if fault is not None:
                topics = [
                    topic if topic.error_code else topic._replace(error_code=fault.code)
                    for topic in topics
                ]
            version = node.image.version
    host, port = node.advertised
    response = MetadataResponse(
        brokers=[MetadataBroker(node.node_id, host, port)],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
    )
    if len(topics) + sum(len(topic.partitions) for topic in topics) < LARGE_ANSWER:
        answer = encode_response(ApiKey.METADATA, context.api_version, response)
    else:
        answer = await node.in_worker(
            lambda: encode_response(ApiKey.METADATA, context.api_version, response)
        )
    if is_kept and all(topic.error_code is ErrorCode.NONE for topic in topics):
        node.response_cache.keep(key, answer, version=version)
    return answer


def _topic(node: Node, topic: Topic) -> MetadataTopic:
    replicas = [node.node_id]
    partitions = node.partitions[topic.name]
    return MetadataTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        topic.is_internal,
        [
            MetadataPartition(
                ErrorCode.NONE,
                index,
                node.node_id,
                partitions.leader_epoch(index),
                replicas,
                replicas,
            )
            for index in range(len(partitions))
        ],
    )


class _Creation:
    """Counts the partitions that a Metadata request may still create."""

    def __init__(self, node: Node, is_asked_for: bool) -> None:
        self._node = node
        is_allowed = is_asked_for and node.settings["auto.create.topics.enable"]
        self._left = PARTITIONS_PER_REQUEST if is_allowed else 0

    def takes(self) -> bool:
        """Say whether one more topic may be made; it counts as made."""
        self._left -= self._node.settings["num.partitions"]
        return self._left >= 0 and _room(self._node) >= self._node.settings["num.partitions"]


def _room(node: Node) -> int:
    """Number of partitions that the node still takes."""
    most: int = node.settings["max.partitions"]
    return most - node.image.partition_count


def _wanted_topic(node: Node, entry: MetadataRequestTopic, creation: _Creation) -> MetadataTopic:
    topic_id, name = entry.topic_id, entry.name
    if name is None:
        found = None if topic_id is None else node.topic_name(topic_id)
        if found is None:
            return _no_topic(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        name = found
    if name in node.image.topics:
        return _topic(node, node.image.topics[name])
    is_internal = name in PARTITION_COUNT_SETTING
    if not is_internal and name_fault(name, node.image.alike(name)) is not None:
        return _no_topic(name, None, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not is_internal and not creation.takes():
        return _no_topic(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        if is_internal:
            node.coordinator_partitions(name)
        else:
            node.create_topic(name, node.settings["num.partitions"], {})
    except StorageError as error:
        log.error("topic.not_created", topic=name, reason=error.message)
        return _no_topic(name, None, ErrorCode(error.code))
    return _topic(node, node.image.topics[name])


def _no_topic(name: str | None, topic_id: UUID | None, code: ErrorCode) -> MetadataTopic:
    return MetadataTopic(code, name or "", topic_id)


async def describe_cluster(
    node: Node, request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    """Answer with the one broker there is."""
    if request.endpoint_type != BROKERS_ENDPOINT:
        return DescribeClusterResponse(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            node.cluster_id,
            [],
            error_message="this endpoint serves brokers (type 1), not controllers",
        )
    return DescribeClusterResponse(
        ErrorCode.NONE,
        node.cluster_id,
        [ClusterBroker(node.node_id, *node.advertised)],
        controller_id=node.node_id,
    )


async def find_coordinator(
    node: Node, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    """Answer with this node, which coordinates every group and transaction."""
    kind = request.key_type
    if context.api_version < 4:
        found = _coordinator(node, kind, request.key)
        return FindCoordinatorResponse(*found[1:])
    turns = Turns()
    coordinators = []
    for key in request.coordinator_keys:
        await turns.next()
        coordinators.append(_coordinator(node, kind, key))
    return FindCoordinatorResponse(coordinators=coordinators)


def _coordinator(node: Node, kind: int, key: str) -> Coordinator:
    topic = None
    if kind not in (GROUP_KEY, TRANSACTION_KEY):
        code = ErrorCode.INVALID_REQUEST
        message = f"coordinators of type {kind} are not there; known are 0 (group), 1 (transaction)"
        return Coordinator(key, -1, "", -1, code, message)
    if kind == GROUP_KEY and node.groups.refusal(key) is not ErrorCode.NONE:
        topic = OFFSETS_TOPIC
    elif kind == TRANSACTION_KEY and node.transactions.refusal(key) is not ErrorCode.NONE:
        topic = TRANSACTIONS_TOPIC
    if topic is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        message = f"The partition of {topic} that keeps {key!r} is out of service."
        return Coordinator(key, -1, "", -1, code, message)
    return Coordinator(key, node.node_id, *node.advertised, ErrorCode.NONE, None)


async def create_topics(node: Node, request: CreateTopicsRequest, context: Context) -> bytes:
    """Make topics; each is writable the moment the answer names it."""
    times = Counter(topic.name for topic in request.topics)
    excess = _excess(sum(_partitions_asked_for(node, topic) for topic in request.topics))
    turns = Turns()
    results = []
    settings: list[Mapping[str, str] | None] = []
    for topic in request.topics:
        fault = excess
        if fault is None and times[topic.name] > 1:
            fault = _Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        fault = fault or _creation_fault(node, topic)
        result, own = _create(node, topic, fault, is_trial=request.validate_only)
        results.append(result)
        settings.append(own)
        partitions = max(result.num_partitions, 0)
        await turns.next(CREATION_ITEMS + partitions // PARTITIONS_PER_ITEM)
    results = await promised(node, results)
    entries = []
    for result, own in zip(results, settings, strict=True):
        await turns.next(CREATED_ENTRY_ITEMS)
        configs = None if own is None else _told_settings(node, own)
        entry = result._replace(configs=configs)
        entries.append(encode_entry(context.api_key, context.api_version, "topics", entry))
    return join_entries(context.api_key, context.api_version, entries)


def _partitions_asked_for(node: Node, topic: CreatableTopic) -> int:
    count = len(topic.assignments) or topic.num_partitions
    default: int = node.settings["num.partitions"]
    return default if count == -1 else max(count, 0)


def _excess(partitions: int) -> "_Fault | None":
    """The refusal of a request for so many partitions, Kafka's; None if it may pass."""
    if partitions <= PARTITIONS_PER_REQUEST:
        return None
    return _Fault(
        ErrorCode.POLICY_VIOLATION,
        f"Excessively large number of partitions per request. It asks for {partitions}, and one "
        f"request makes at most {PARTITIONS_PER_REQUEST}; send several",
    )


def _full(node: Node, partitions: int) -> "_Fault | None":
    """The refusal of so many more partitions; None if the node takes them."""
    if partitions <= _room(node):
        return None
    return _Fault(
        ErrorCode.POLICY_VIOLATION,
        f"the broker has {node.image.partition_count} partitions and takes at most "
        f"{node.settings['max.partitions']}; {partitions} more were asked for. Delete topics, or "
        "raise max.partitions",
    )


Result = TypeVar("Result", CreatedTopic, DeletedTopic, GrownTopic, AlteredResource)


async def promised(node: Node, results: list[Result]) -> list[Result]:
    """Results of changes to the metadata log, once the log is on the disk.

    If the sync fails, each success becomes an error, although its change may survive.
    """
    fault = await _sync_fault(node)
    if fault is None:
        return results
    return [
        result
        if result.error_code
        else result._replace(error_code=fault.code, error_message=fault.message)
        for result in results
    ]


async def _sync_fault(node: Node) -> "_Fault | None":
    """Sync the metadata log; return why it could not be synced."""
    try:
        await node.sync_metadata()
    except StorageError as error:
        return _Fault(ErrorCode(error.code), error.message)
    return None


NOT_HOSTED = "This server does not host this topic-partition."


class _Fault(Exception):
    """Why a topic request is refused."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def _creation_fault(node: Node, topic: CreatableTopic) -> _Fault | None:
    if topic.name in node.image.topics:
        return _Fault(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    fault = name_fault(topic.name, node.image.alike(topic.name))
    if fault is not None or is_reserved(topic.name):
        return _Fault(
            ErrorCode.INVALID_TOPIC_EXCEPTION, fault or f"topic {topic.name!r} is internal"
        )
    if topic.assignments:
        return _assignment_fault(node, topic)
    if topic.num_partitions != -1 and not 1 <= topic.num_partitions <= PARTITIONS_MAX:
        return _Fault(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value."
            if topic.num_partitions < 1
            else f"a topic has at most {PARTITIONS_MAX} partitions, not {topic.num_partitions}",
        )
    if topic.replication_factor not in (-1, 1):
        return _Fault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value."
            if topic.replication_factor < 1
            else f"Unable to replicate the partition {topic.replication_factor} time(s): The "
            f"target replication factor of {topic.replication_factor} cannot be reached because "
            "only 1 broker(s) are registered.",
        )
    return None


def _assignment_fault(node: Node, topic: CreatableTopic) -> _Fault | None:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        return _Fault(
            ErrorCode.INVALID_REQUEST,
            "with an assignment, partitions and replication factor have to be -1",
        )
    partitions = sorted(entry.partition_index for entry in topic.assignments)
    nodes = {broker for entry in topic.assignments for broker in entry.broker_ids}
    if partitions != list(range(len(partitions))) or nodes != {node.node_id}:
        return _Fault(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"an assignment has to number partitions from 0 and name node {node.node_id} alone",
        )
    return None


def _create(
    node: Node, topic: CreatableTopic, fault: _Fault | None, *, is_trial: bool
) -> tuple[CreatedTopic, Mapping[str, str] | None]:
    """The result, and the topic's own settings unless it was refused."""
    topic_id = None
    try:
        if fault is not None:
            raise fault
        settings = _checked_settings({entry.name: entry.value for entry in topic.configs})
        count = _partitions_asked_for(node, topic)
        fault = _full(node, count)
        if fault is not None:
            raise fault
        if not is_trial:
            topic_id = node.create_topic(topic.name, count, settings).topic_id
    except _Fault as refused:
        return CreatedTopic(topic.name, None, refused.code, refused.message), None
    except StorageError as error:
        return CreatedTopic(topic.name, None, ErrorCode(error.code), str(error)), None
    return CreatedTopic(topic.name, topic_id, ErrorCode.NONE, None, count, 1), settings


def _told_settings(node: Node, settings: Mapping[str, str]) -> list[CreatedTopicConfig]:
    return [_told(setting) for setting in describe_topic(settings, node.settings)]


def _told(setting: Described) -> CreatedTopicConfig:
    return CreatedTopicConfig(
        setting.name, setting.value, setting.is_read_only, setting.source, is_sensitive=False
    )


def _checked_settings(given: Mapping[str, str | None]) -> dict[str, str]:
    try:
        return parse_topic_settings(given)
    except ConfigError as error:
        raise _Fault(ErrorCode.INVALID_CONFIG, str(error)) from error


async def delete_topics(
    node: Node, request: DeleteTopicsRequest, context: Context
) -> DeleteTopicsResponse:
    """Delete topics by name or, from version 6, by id."""
    wanted: list[tuple[str | None, UUID | None]] = [
        *((name, None) for name in request.topic_names),
        *((entry.name, entry.topic_id) for entry in request.topics),
    ]
    turns = Turns()
    responses = []
    for name, topic_id in wanted:
        responses.append(await _delete(node, name, topic_id))
        await turns.next(DELETION_ITEMS)
    return DeleteTopicsResponse(await promised(node, responses))


async def _delete(node: Node, name: str | None, topic_id: UUID | None) -> DeletedTopic:
    if name is None:
        name = node.topic_name(topic_id) if topic_id is not None else None
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            return DeletedTopic(None, topic_id, code, "This server does not host this topic ID.")
    topic_id = node.topic_id(name)
    if name not in node.image.topics:
        return DeletedTopic(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if is_reserved(name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DeletedTopic(name, topic_id, code, f"topic {name!r} is internal")
    try:
        await node.delete_topic(name)
    except StorageError as error:
        return DeletedTopic(name, topic_id, ErrorCode(error.code), error.message)
    return DeletedTopic(name, topic_id, ErrorCode.NONE, None)


async def create_partitions(
    node: Node, request: CreatePartitionsRequest, context: Context
) -> CreatePartitionsResponse:
    """Grow topics."""
    times = Counter(entry.name for entry in request.topics)
    excess = _excess(sum(_growth(node, entry) for entry in request.topics))
    turns = Turns()
    results = []
    for entry in request.topics:
        await turns.next(1 + _growth(node, entry) // PARTITIONS_PER_ITEM)
        fault = excess
        if fault is None and times[entry.name] > 1:
            fault = _Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if fault is None:
            code, message = _grow(node, entry, is_trial=request.validate_only)
        else:
            code, message = fault.code, fault.message
        results.append(GrownTopic(entry.name, code, message))
    return CreatePartitionsResponse(await promised(node, results))


def _growth(node: Node, entry: CreatePartitionsTopic) -> int:
    """Number of partitions that an entry adds if it is allowed."""
    topic = node.image.topics.get(entry.name)
    return 0 if topic is None else max(min(entry.count, PARTITIONS_MAX) - topic.partition_count, 0)


def _grow(
    node: Node, entry: CreatePartitionsTopic, *, is_trial: bool
) -> tuple[ErrorCode, str | None]:
    topic = node.image.topics.get(entry.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED
    if is_reserved(entry.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {entry.name!r} is internal"
    if entry.count == topic.partition_count:
        message = f"Topic already has {entry.count} partition(s)."
        return ErrorCode.INVALID_PARTITIONS, message
    if entry.count < topic.partition_count:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {entry.name} currently has {topic.partition_count} partition(s); "
            f"{entry.count} would not be an increase.",
        )
    if entry.count > PARTITIONS_MAX:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has at most {PARTITIONS_MAX} partitions, not {entry.count}",
        )
    if entry.assignments is not None and any(
        list(assigned.broker_ids) != [node.node_id] for assigned in entry.assignments
    ):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"an assignment has to name node {node.node_id} alone",
        )
    full = _full(node, _growth(node, entry))
    if full is not None:
        return full.code, full.message
    try:
        if not is_trial:
            node.add_partitions(topic, entry.count)
    except StorageError as error:
        return ErrorCode(error.code), error.message
    return ErrorCode.NONE, None


APIS: Final[tuple[Api[Node], ...]] = (
    Api(ApiKey.METADATA, (0, 13), MetadataRequest, MetadataResponse, metadata),
    Api(
        ApiKey.FIND_COORDINATOR,
        (0, 6),
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        find_coordinator,
    ),
    Api(ApiKey.CREATE_TOPICS, (2, 7), CreateTopicsRequest, CreateTopicsResponse, create_topics),
    Api(ApiKey.DELETE_TOPICS, (1, 6), DeleteTopicsRequest, DeleteTopicsResponse, delete_topics),
    Api(
        ApiKey.CREATE_PARTITIONS,
        (0, 3),
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        create_partitions,
    ),
    Api(
        ApiKey.DESCRIBE_CLUSTER,
        (0, 2),
        DescribeClusterRequest,
        DescribeClusterResponse,
        describe_cluster,
    ),
)
