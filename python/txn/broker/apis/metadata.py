"""Metadata, DescribeCluster, FindCoordinator.

A Metadata request makes the topics that it asks for by name, if that is allowed, but at most
10,000 partitions.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from txn.broker.apis.access import Access
from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    GROUP_FAILED,
    ID_FAILED,
    MESSAGES,
    TOPIC_FAILED,
    cluster_operations,
)
from txn.broker.client_quotas import Mutations
from txn.broker.host import Context, counted_in
from txn.broker.metadata_log import PARTITION_COUNT_SETTING, coordinator_topic_settings
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.errors import StorageError
from txn.logs import log
from txn.metadata.image import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Topic,
    name_fault,
)
from txn.security.acls import OPERATIONS_OF, Operation, ResourceType, operation_bits
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.metadata import (
    BROKERS_ENDPOINT,
    CONTROLLERS_ENDPOINT,
    GROUP_KEY,
    NO_OPERATIONS,
    ClusterBroker,
    Coordinator,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_response
from txn.wire.requests import changed

TRANSACTION_KEY = 1
PARTITIONS_PER_REQUEST = 10_000
"""The most partitions that one request makes."""

KEPT_TOPICS_MAX = 1_000
"""The answer to a request that names more topics is not kept."""

TOPICS_BY_ID_FROM = 12
"""The first version of Metadata that answers for topics by their id."""

BATCHED_COORDINATORS_FROM: Final = 4
"""The first version of FindCoordinator that asks for several."""

LARGE_ANSWER = 500
"""Topics and partitions from which on a worker thread encodes the answer."""

TOPIC_OPERATIONS: Final = operation_bits(OPERATIONS_OF[ResourceType.TOPIC])
CLUSTER_OPERATIONS: Final = operation_bits(OPERATIONS_OF[ResourceType.CLUSTER])
"""Told where nobody is refused."""

CREATION_ITEMS = 40
"""Cost of a created topic, in the items of `Turns`."""


async def metadata(node: Node, request: MetadataRequest, context: Context) -> bytes:
    """Answer with brokers and topics; makes topics asked for by name if that is allowed."""
    if asks_by_id_too_early(request, context):
        return refused_metadata(request, context)
    request = each_topic_once(request)
    requested = request.topics
    is_kept = requested is None or len(requested) <= KEPT_TOPICS_MAX
    key = (context.api_version, context.session.listener.name, request)
    kept = node.response_cache.get(key) if is_kept else None
    if kept is not None:
        return kept
    topics, version = await described_topics(node, request, context)
    if request.include_topic_authorized_operations:
        topics = with_operations(topics, lambda _: TOPIC_OPERATIONS)
    wants_cluster = request.include_cluster_authorized_operations
    operations = CLUSTER_OPERATIONS if wants_cluster else NO_OPERATIONS
    answer = await encoded_metadata(node, context, topics, operations)
    if is_kept and all(topic.error_code is ErrorCode.NONE for topic in topics):
        node.response_cache.keep(key, answer, version=version)
    return answer


def asks_by_id_too_early(request: MetadataRequest, context: Context) -> bool:
    """Say whether a request has an id, or no name, in a version that has the fields and no use."""
    return context.api_version < TOPICS_BY_ID_FROM and any(
        entry.topic_id is not None or entry.name is None for entry in request.topics or ()
    )


def refused_metadata(request: MetadataRequest, context: Context) -> bytes:
    """The answer to a request that asks by id too early, Kafka's: it tells of no broker."""
    topics = [
        MetadataTopic(ErrorCode.INVALID_REQUEST, entry.name or "", entry.topic_id)
        for entry in request.topics or ()
    ]
    response = MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=topics)
    return encode_response(context.api_key, context.api_version, response)


def each_topic_once(request: MetadataRequest) -> MetadataRequest:
    """The request with each of its topics once, as Kafka makes a set of them.

    If any is asked for by its id, those that are asked for by name are passed over, as in Kafka.
    6 KB that named a topic of 1,000 partitions 2,000 times were answered with 50 MiB.
    """
    if request.topics is None:
        return request
    once: dict[str | UUID | None, MetadataRequestTopic] = {
        entry.topic_id: entry for entry in request.topics if entry.topic_id is not None
    }
    once = once or {entry.name: entry for entry in request.topics}
    if len(once) == len(request.topics):
        return request
    return changed(request, topics=tuple(once.values()))


def with_operations(
    topics: list[MetadataTopic], operations_on: Callable[[str], int]
) -> list[MetadataTopic]:
    """The topics with the allowed operations on each; an unknown id has none to tell."""
    return [
        topic._replace(topic_authorized_operations=operations_on(topic.name))
        if topic.name
        else topic
        for topic in topics
    ]


def asks_for_all(request: MetadataRequest, context: Context) -> bool:
    """Whether a request asks for all topics."""
    return request.topics is None or (context.api_version == 0 and not request.topics)


async def described_topics(
    node: Node, request: MetadataRequest, context: Context
) -> tuple[list[MetadataTopic], int]:
    """The topics asked for, made if need be, and the version of the image that they are from."""
    requested = request.topics
    turns = Turns()
    topics = []
    if requested is None or asks_for_all(request, context):
        version = node.image.version
        for topic in tuple(node.image.topics.values()):
            await turns.next(1 + topic.partition_count)
            if topic.name in node.partitions:  # or it was deleted meanwhile
                topics.append(_topic(node, topic))
        return topics, version
    mutations = node.quotas.mutations(context, strict_from=0)
    creation = _Creation(node, mutations, request.allow_auto_topic_creation)
    codes = await creation.make_missing(requested, turns)
    version = node.image.version
    for entry in requested:
        described = _wanted_topic(node, entry, codes)
        topics.append(described)
        await turns.next(1 + len(described.partitions))
    return topics, version


async def encoded_metadata(
    node: Node, context: Context, topics: list[MetadataTopic], cluster_operations: int
) -> bytes:
    """The answer with these topics; a worker thread encodes a large one."""
    listener = context.session.listener
    response = MetadataResponse(
        brokers=[MetadataBroker(node.node_id, *listener.advertised)],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )
    if len(topics) + sum(len(topic.partitions) for topic in topics) < LARGE_ANSWER:
        return encode_response(ApiKey.METADATA, context.api_version, response)
    encode = partial(encode_response, ApiKey.METADATA, context.api_version, response)
    return await node.in_worker(partial(counted_in, context.toll, encode))


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

    def __init__(self, node: Node, mutations: Mutations, is_asked_for: bool) -> None:
        self._node = node
        self._mutations = mutations
        self._is_allowed = is_asked_for and node.settings["auto.create.topics.enable"]
        self._left = PARTITIONS_PER_REQUEST if self._is_allowed else 0

    async def make_missing(
        self, entries: Iterable[MetadataRequestTopic], turns: Turns
    ) -> dict[str, ErrorCode]:
        """Make topics that do not exist, where that is allowed.

        The files of a deleted topic of the name are removed first.

        Returns:
            Name → code of each that could not be made; the others are durable and published.
        """
        image = self._node.image
        codes: dict[str, ErrorCode] = {}
        made: dict[str, Awaitable[object]] = {}
        for entry in entries:
            name = entry.name
            if name is None or entry.topic_id is not None:
                continue
            if name in made or name in codes or name in image.topics:
                continue
            await self._node.replicas.removed(name)
            code = self._refusal(name)
            if code is not ErrorCode.NONE:
                codes[name] = code
                continue
            made[name] = self._make(name)
            await turns.next(CREATION_ITEMS)
        for name, change in made.items():
            try:
                await change
            except StorageError as error:
                log.error("topic.not_created", topic=name, reason=error.message)
                codes[name] = ErrorCode(error.code)
        return codes

    def _refusal(self, name: str) -> ErrorCode:
        """Why a topic may not be made; NONE: it may, and counts as made."""
        node = self._node
        if name in node.controller.image.topics:
            return ErrorCode.NONE
        if name in PARTITION_COUNT_SETTING:
            return ErrorCode.NONE if self._is_allowed else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name in INTERNAL_TOPICS:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # its coordinator is not here
        alike = node.controller.image.alike(name) if self._is_allowed else None
        if name_fault(name, alike) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        self._left -= node.settings["num.partitions"]
        if self._left < 0 or room(node) < node.settings["num.partitions"]:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self._mutations.accept(node.settings["num.partitions"]):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the client asks again
        return ErrorCode.NONE

    def _make(self, name: str) -> Awaitable[object]:
        controller, settings = self._node.controller, self._node.settings
        if name in controller.image.topics:  # of another request, on its way to the disk
            return controller.caught_up()
        if name in PARTITION_COUNT_SETTING:
            count = settings[PARTITION_COUNT_SETTING[name]]
            return controller.create_topic(name, count, coordinator_topic_settings(name, settings))
        return controller.create_topic(name, settings["num.partitions"], {})


def room(node: Node) -> int:
    """Number of partitions that the node still takes."""
    most: int = node.settings["max.partitions"]
    return most - node.controller.image.partition_count


def name_asked_for(node: Node, entry: MetadataRequestTopic) -> str | None:
    """The name of a topic that is asked for, None if there is no such id.

    An id counts, and a name beside it does not, as in Kafka.
    """
    return entry.name if entry.topic_id is None else node.image.names.get(entry.topic_id)


def _wanted_topic(
    node: Node, entry: MetadataRequestTopic, codes: Mapping[str, ErrorCode]
) -> MetadataTopic:
    topic_id, name = entry.topic_id, name_asked_for(node, entry)
    if name is None:
        return MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    topic = node.image.topics.get(name)
    if topic is None:  # not made, or deleted meanwhile
        code = codes.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataTopic(code, name, None, name in INTERNAL_TOPICS)
    return _topic(node, topic)


async def describe_cluster(
    node: Node, request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    """Answer with the one broker there is."""
    if request.endpoint_type != BROKERS_ENDPOINT:
        is_controllers = request.endpoint_type == CONTROLLERS_ENDPOINT
        return DescribeClusterResponse(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if is_controllers
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "",
            [],
            error_message="this endpoint serves brokers (type 1), not controllers"
            if is_controllers
            else f"there are no endpoints of type {request.endpoint_type}",
        )
    return DescribeClusterResponse(
        ErrorCode.NONE,
        node.cluster_id,
        [ClusterBroker(node.node_id, *context.session.listener.advertised)],
        controller_id=node.node_id,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


async def find_coordinator(
    node: Node, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    """Answer with this node, which coordinates every group and transaction."""
    kind, address = request.key_type, context.session.listener.advertised
    if context.api_version < BATCHED_COORDINATORS_FROM:
        coordinator = _coordinator(node, address, kind, request.key)
        return FindCoordinatorResponse(*coordinator[1:])
    turns = Turns()
    coordinators = []
    for key in request.coordinator_keys:
        await turns.next()
        coordinators.append(_coordinator(node, address, kind, key))
    return FindCoordinatorResponse(coordinators=coordinators)


def _coordinator(node: Node, address: tuple[str, int], kind: int, key: str) -> Coordinator:
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
    return Coordinator(key, node.node_id, *address, ErrorCode.NONE, None)


# ---------------------------------------------------------------- access


async def _guard_metadata(call: Call[Node, MetadataRequest, MetadataResponse]) -> bytes:
    """DESCRIBE on the topic; CREATE on it or on the cluster, to make one that is not there.

    A list of all topics leaves out those that may not be seen.
    """
    access, node, request, context = call.access, call.service, call.request, call.context
    if asks_by_id_too_early(request, context):
        return refused_metadata(request, context)
    request = each_topic_once(request)
    refused: list[MetadataTopic] = []
    if asks_for_all(request, context):
        found, _ = await described_topics(node, request, context)
        names = [topic.name or "" for topic in found]
        seen = await access.among(Operation.DESCRIBE, ResourceType.TOPIC, names, is_logged=False)
        topics = [topic for topic in found if topic.name in seen]
    else:
        allowed, refused = await _named_topics(access, node, request, context)
        topics = []
        if allowed:  # none would stand for all in version 0
            reduced = changed(request, topics=tuple(allowed))
            topics, _ = await described_topics(node, reduced, context)
    if request.include_topic_authorized_operations:
        topics = with_operations(topics, partial(access.operations, ResourceType.TOPIC))
    wants_cluster = request.include_cluster_authorized_operations
    operations = cluster_operations(access) if wants_cluster else NO_OPERATIONS
    return await encoded_metadata(node, context, [*topics, *refused], operations)


async def _guard_find_coordinator(
    call: Call[Node, FindCoordinatorRequest, FindCoordinatorResponse],
) -> FindCoordinatorResponse | bytes:
    """DESCRIBE on the group or the transactional id."""
    request = call.request
    kinds = {
        GROUP_KEY: (ResourceType.GROUP, GROUP_FAILED),
        TRANSACTION_KEY: (ResourceType.TRANSACTIONAL_ID, ID_FAILED),
    }
    if request.key_type not in kinds:
        return await call.proceed()
    kind, code = kinds[request.key_type]
    if call.context.api_version < BATCHED_COORDINATORS_FROM:
        if call.access.may(Operation.DESCRIBE, kind, request.key):
            return await call.proceed()
        return FindCoordinatorResponse(error_code=code, error_message=MESSAGES[code])
    allowed = await call.access.among(Operation.DESCRIBE, kind, request.coordinator_keys)
    keys = tuple(key for key in request.coordinator_keys if key in allowed)
    found = iter((await call.proceed_with(changed(request, coordinator_keys=keys))).coordinators)
    refused = Coordinator("", -1, "", -1, code, None)
    return FindCoordinatorResponse(
        coordinators=[
            next(found) if key in allowed else refused._replace(key=key)
            for key in request.coordinator_keys
        ]
    )


async def _guard_describe_cluster(
    call: Call[Node, DescribeClusterRequest, DescribeClusterResponse],
) -> DescribeClusterResponse:
    """Everybody gets an answer. The allowed operations need DESCRIBE on the cluster."""
    response = await call.proceed_with(call.request)
    if response.cluster_authorized_operations == NO_OPERATIONS:
        return response
    return response._replace(cluster_authorized_operations=cluster_operations(call.access))


async def _named_topics(
    access: Access, node: Node, request: MetadataRequest, context: Context
) -> tuple[list[MetadataRequestTopic], list[MetadataTopic]]:
    """The named topics that may be described, and made if need be; the results of the others."""
    turns = Turns()
    may_create_all = (
        not request.allow_auto_topic_creation
        or not node.settings["auto.create.topics.enable"]
        or access.may_in_cluster(Operation.CREATE, is_logged=False)
    )
    allowed, unseen, not_made = [], [], []
    for entry in request.topics or ():
        await turns.next()
        name = name_asked_for(node, entry)
        if name is None:  # an unknown id: the handler says so
            allowed.append(entry)
        elif not access.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            shown_name = name if entry.topic_id is None else None
            unseen.append(MetadataTopic(TOPIC_FAILED, shown_name, entry.topic_id))
        elif (
            may_create_all
            or name in node.image.topics
            or access.may(Operation.CREATE, ResourceType.TOPIC, name)
        ):
            allowed.append(entry)
        else:
            not_made.append(MetadataTopic(TOPIC_FAILED, name, None, name in INTERNAL_TOPICS))
    return allowed, [*not_made, *unseen]


APIS: Final = Area(
    lambda node: node,
    Api(ApiKey.METADATA, (0, 13), MetadataRequest, MetadataResponse, _guard_metadata, metadata),
    Api(
        ApiKey.FIND_COORDINATOR,
        (0, 6),
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        _guard_find_coordinator,
        find_coordinator,
    ),
    Api(
        ApiKey.DESCRIBE_CLUSTER,
        (0, 2),
        DescribeClusterRequest,
        DescribeClusterResponse,
        _guard_describe_cluster,
        describe_cluster,
    ),
)
