"""Rules of the APIs for topics: Metadata, creation and deletion, offsets, records."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from txn.broker.apis.access import Access, Proceed, Rule
from txn.broker.apis.metadata import (
    asks_by_id_too_early,
    asks_for_all,
    described_topics,
    each_topic_once,
    encoded_metadata,
    name_asked_for,
    refused_metadata,
    with_operations,
)
from txn.broker.apis.rules.cluster import MESSAGES, cluster_operations
from txn.broker.apis.topics import NOT_HOSTED, created_topics, deletions_once_and_others
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.metadata.image import INTERNAL_TOPICS, RESERVED_TOPICS
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.metadata import (
    NO_OPERATIONS,
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    GrownTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from txn.wire.bodies.offsets import (
    DeletedRecords,
    DeletedRecordsOfTopic,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    EpochEndOffset,
    EpochEndOffsets,
    ListedOffset,
    ListedOffsets,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, join_entries
from txn.wire.requests import changed

TOPIC: Final = ResourceType.TOPIC
FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPICS_BY_ID_FROM: Final = 6
"""The first version of DeleteTopics that names topics by id."""


async def _metadata(
    access: Access,
    node: Node,
    request: MetadataRequest,
    context: Context,
    proceed: Proceed[MetadataRequest, MetadataResponse],
) -> bytes:
    """DESCRIBE on the topic; CREATE on it or on the cluster, to make one that is not there.

    A list of all topics leaves out those that may not be seen.
    """
    if asks_by_id_too_early(request, context):
        return refused_metadata(request, context)
    request = each_topic_once(request)
    refused: list[MetadataTopic] = []
    if asks_for_all(request, context):
        found, _ = await described_topics(node, request, context)
        names = [topic.name or "" for topic in found]
        seen = await access.among(Operation.DESCRIBE, TOPIC, names, is_told=False)
        topics = [topic for topic in found if topic.name in seen]
    else:
        allowed, refused = await _named_topics(access, node, request, context)
        topics = []
        if allowed:  # none would stand for all in version 0
            reduced = changed(request, topics=tuple(allowed))
            topics, _ = await described_topics(node, reduced, context)
    if request.include_topic_authorized_operations:
        topics = with_operations(topics, partial(access.operations, TOPIC))
    wants_cluster = request.include_cluster_authorized_operations
    operations = cluster_operations(access) if wants_cluster else NO_OPERATIONS
    return await encoded_metadata(node, context, [*topics, *refused], operations)


async def _named_topics(
    access: Access, node: Node, request: MetadataRequest, context: Context
) -> tuple[list[MetadataRequestTopic], list[MetadataTopic]]:
    """The named topics that may be described, and made if need be; the results of the others."""
    turns = Turns()
    may_create_all = (
        not request.allow_auto_topic_creation
        or not node.settings["auto.create.topics.enable"]
        or access.may_in_cluster(Operation.CREATE, is_told=False)
    )
    allowed, unseen, not_made = [], [], []
    for entry in request.topics or ():
        await turns.next()
        name = name_asked_for(node, entry)
        if name is None:  # an unknown id: the handler says so
            allowed.append(entry)
        elif not access.may(Operation.DESCRIBE, TOPIC, name):
            told = name if entry.topic_id is None else None
            unseen.append(MetadataTopic(FAILED, told, entry.topic_id))
        elif (
            may_create_all or name in node.image.topics or access.may(Operation.CREATE, TOPIC, name)
        ):
            allowed.append(entry)
        else:
            not_made.append(MetadataTopic(FAILED, name, None, name in INTERNAL_TOPICS))
    return allowed, [*not_made, *unseen]


async def _create_topics(
    access: Access,
    node: Node,
    request: CreateTopicsRequest,
    context: Context,
    proceed: Proceed[CreateTopicsRequest, CreateTopicsResponse],
) -> bytes:
    """CREATE on the topic or on the cluster; its settings are told with DESCRIBE_CONFIGS."""
    times = Counter(topic.name for topic in request.topics)
    creatable = set(times)
    if not access.may_in_cluster(Operation.CREATE, is_told=False):
        creatable = await access.among(Operation.CREATE, TOPIC, times)
    told = await access.among(Operation.DESCRIBE_CONFIGS, TOPIC, times, is_told=False)
    allowed, refused = [], []
    for topic in request.topics:
        is_refused_anyhow = times[topic.name] > 1 or topic.name in RESERVED_TOPICS
        if topic.name in creatable or is_refused_anyhow:  # by the handler
            allowed.append(topic)
        else:
            refused.append(CreatedTopic(topic.name, None, FAILED, "Authorization failed."))
    reduced = changed(request, topics=tuple(allowed))
    hidden = times.keys() - told
    entries = await created_topics(node, reduced, context, hidden=hidden)
    key, version = context.api_key, context.api_version
    entries += [encode_entry(key, version, "topics", one) for one in refused]
    return join_entries(key, version, entries)


async def _delete_topics(
    access: Access,
    node: Node,
    request: DeleteTopicsRequest,
    context: Context,
    proceed: Proceed[DeleteTopicsRequest, DeleteTopicsResponse],
) -> DeleteTopicsResponse:
    """DELETE on the topic or on the cluster.

    Whether there is such a topic, and the name of one given by its id, is told with DESCRIBE.
    """
    if access.may_in_cluster(Operation.DELETE, is_told=False):
        return await proceed(request)
    turns = Turns()
    once, others = await deletions_once_and_others(request, turns)
    allowed, refused = [], []
    for entry in once:
        await turns.next()
        deleted = _not_deleted(access, node, entry)
        if deleted is None:
            allowed.append(entry)
        else:
            refused.append(deleted)
    allowed += others.elements()  # the handler refuses them
    if context.api_version < TOPICS_BY_ID_FROM:
        names = tuple(entry.name for entry in allowed if entry.name is not None)
        reduced = changed(request, topic_names=names)
    else:
        reduced = changed(request, topics=tuple(allowed))
    return DeleteTopicsResponse([*(await proceed(reduced)).responses, *refused])


def _not_deleted(access: Access, node: Node, entry: DeleteTopicState) -> DeletedTopic | None:
    """The refusal to delete a topic, None if the handler is to answer."""
    image = node.controller.image
    name, topic_id = entry.name, entry.topic_id
    if name is None:
        name = None if topic_id is None else image.names.get(topic_id)
        if name is None or access.may(Operation.DELETE, TOPIC, name):
            return None
        is_seen = access.may(Operation.DESCRIBE, TOPIC, name, is_told=False)
        return DeletedTopic(name if is_seen else None, topic_id, FAILED, MESSAGES[FAILED])
    if not access.may(Operation.DESCRIBE, TOPIC, name):
        return DeletedTopic(name, None, FAILED, MESSAGES[FAILED])
    if name not in image.topics:  # it may be made before the handler looks, and nobody asked then
        return DeletedTopic(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if access.may(Operation.DELETE, TOPIC, name):
        return None
    return DeletedTopic(name, None, FAILED, MESSAGES[FAILED])


async def _create_partitions(
    access: Access,
    node: Node,
    request: CreatePartitionsRequest,
    context: Context,
    proceed: Proceed[CreatePartitionsRequest, CreatePartitionsResponse],
) -> CreatePartitionsResponse:
    """ALTER on the topic."""
    times = Counter(topic.name for topic in request.topics)
    allowed = await access.among(Operation.ALTER, TOPIC, times)
    allowed |= {name for name in times if times[name] > 1}  # the handler refuses duplicates
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    refused = [GrownTopic(name, FAILED, None) for name in times if name not in allowed]
    response = await proceed(changed(request, topics=kept))
    return CreatePartitionsResponse([*response.results, *refused])


async def _list_offsets(
    access: Access,
    node: Node,
    request: ListOffsetsRequest,
    context: Context,
    proceed: Proceed[ListOffsetsRequest, ListOffsetsResponse],
) -> ListOffsetsResponse:
    """DESCRIBE on the topic."""
    names = (topic.name for topic in request.topics)
    allowed = await access.among(Operation.DESCRIBE, TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    response = await proceed(changed(request, topics=kept))
    refused = [
        ListedOffsets(
            topic.name,
            [ListedOffset(entry.partition_index, FAILED) for entry in topic.partitions],
        )
        for topic in request.topics
        if topic.name not in allowed
    ]
    return ListOffsetsResponse([*response.topics, *refused])


async def _delete_records(
    access: Access,
    node: Node,
    request: DeleteRecordsRequest,
    context: Context,
    proceed: Proceed[DeleteRecordsRequest, DeleteRecordsResponse],
) -> DeleteRecordsResponse:
    """DELETE on the topic."""
    names = (topic.name for topic in request.topics)
    allowed = await access.among(Operation.DELETE, TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    response = await proceed(changed(request, topics=kept))
    refused: Mapping[str, dict[int, DeletedRecords]] = {
        topic.name: {} for topic in request.topics if topic.name not in allowed
    }
    for topic in request.topics:
        if topic.name not in allowed:
            for entry in topic.partitions:
                index = entry.partition_index
                refused[topic.name][index] = DeletedRecords(index, FAILED)
    results = [DeletedRecordsOfTopic(name, [*of.values()]) for name, of in refused.items()]
    return DeleteRecordsResponse([*response.topics, *results])


async def _offset_for_leader_epoch(
    access: Access,
    node: Node,
    request: OffsetForLeaderEpochRequest,
    context: Context,
    proceed: Proceed[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse],
) -> OffsetForLeaderEpochResponse:
    """DESCRIBE on the topic, or CLUSTER_ACTION on the cluster."""
    if access.may_in_cluster(Operation.CLUSTER_ACTION, is_told=False):
        return await proceed(request)
    names = (topic.topic for topic in request.topics)
    allowed = await access.among(Operation.DESCRIBE, TOPIC, names)
    kept = tuple(topic for topic in request.topics if topic.topic in allowed)
    response = await proceed(changed(request, topics=kept))
    refused = [
        EpochEndOffsets(
            topic.topic, [EpochEndOffset(entry.partition, FAILED) for entry in topic.partitions]
        )
        for topic in request.topics
        if topic.topic not in allowed
    ]
    return OffsetForLeaderEpochResponse([*response.topics, *refused])


RULES: Final[tuple[Rule[Node], ...]] = (
    Rule(ApiKey.METADATA, MetadataRequest, MetadataResponse, _metadata),
    Rule(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, _create_topics),
    Rule(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, _delete_topics),
    Rule(
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        _create_partitions,
    ),
    Rule(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, _list_offsets),
    Rule(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse, _delete_records),
    Rule(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        _offset_for_leader_epoch,
    ),
)
