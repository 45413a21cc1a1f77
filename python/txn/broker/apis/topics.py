"""CreateTopics and CreatePartitions.

As in Kafka, one request makes at most 10,000 partitions, of all its topics together; a request
for more is POLICY_VIOLATION as a whole. A topic that is named several times is answered once.

Deviations from Kafka: replication factors of -1 and 1 are taken, higher ones refused with
INVALID_REPLICATION_FACTOR; a manual assignment has to name this node alone. The node has at most
`max.partitions` in all.
"""

from collections import Counter
from collections.abc import Awaitable, Container, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    TOPIC_FAILED,
)
from txn.broker.apis.metadata import (
    CREATION_ITEMS,
    PARTITIONS_PER_REQUEST,
    room,
)
from txn.broker.apis.replicas import assignment_fault
from txn.broker.audit import audit
from txn.broker.client_quotas import Mutations
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.config import parse_topic_settings
from txn.errors import ConfigError, StorageError
from txn.metadata.configs import Described, describe_topic
from txn.metadata.image import (
    COORDINATOR_TOPICS,
    RESERVED_TOPICS,
    is_reserved,
    name_fault,
)
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.configs import AlteredResource
from txn.wire.bodies.metadata import (
    CreatableTopic,
    CreatedTopic,
    CreatedTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    GrownTopic,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.messages import encode_entry, join_entries
from txn.wire.requests import changed

PARTITIONS_MAX = 100_000
"""Limit of one topic."""

CREATIONS_REFUSED_FROM, GROWTHS_REFUSED_FROM = 6, 3
"""The versions of CreateTopics and CreatePartitions from which on a client over its quota of
mutations is refused (KIP-599)."""
PARTITIONS_PER_ITEM = 20
"""Partitions created at the cost of one item of `Turns`."""

CREATED_ENTRY_ITEMS = 50
"""Cost of the settings of a created topic in the answer, in the items of `Turns`."""


async def create_topics(node: Node, request: CreateTopicsRequest, context: Context) -> bytes:
    """Make topics; each is writable the moment the answer names it."""
    entries = await created_topics(node, request, context, hidden=())
    return join_entries(context.api_key, context.api_version, entries)


async def created_topics(
    node: Node, request: CreateTopicsRequest, context: Context, *, hidden: Container[str]
) -> list[bytes]:
    """Make topics; return the encoded results. Settings of hidden topics are not described.

    A topic that is being deleted makes room first, as Kafka's controller decides on the deletion
    although it is not durable yet.
    """
    asked, duplicates = _once_and_twice(request.topics)
    if any(_is_being_deleted(node, topic.name) for topic in asked):
        with suppress(StorageError):  # then the topic is still there, and in the way
            await node.controller.caught_up()
    turns = Turns()
    partitions_asked_for = 0
    for topic in asked:
        await turns.next()
        await node.replicas.removed(topic.name)
        partitions_asked_for += _partitions_asked_for(node, topic)
    excess = _excess(partitions_asked_for)
    if excess is not None:
        return await _not_created((topic.name for topic in request.topics), excess, context, turns)
    mutations = node.quotas.mutations(context, strict_from=CREATIONS_REFUSED_FROM)
    creations = []
    for topic in asked:
        creation = _create(node, topic, mutations, is_trial=request.validate_only)
        creations.append(creation)
        partitions = max(creation.result.num_partitions, 0)
        await turns.next(CREATION_ITEMS + partitions // PARTITIONS_PER_ITEM)
    entries = []
    for result, own, change in creations:
        entry = await published(result, change)
        if change is not None and entry.error_code is ErrorCode.NONE:
            entry = entry._replace(topic_id=await change)
            partitions = entry.num_partitions
            audit.acted(context, "topic.created", "TOPIC", entry.name, partitions=partitions)
        await turns.next(CREATED_ENTRY_ITEMS)
        if own is not None and entry.name in hidden:
            entry = entry._replace(
                num_partitions=-1,
                replication_factor=-1,
                topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                configs=(),
            )
        elif own is not None:
            entry = entry._replace(configs=_created_configs(node, own))
        entries.append(encode_entry(context.api_key, context.api_version, "topics", entry))
    twice = _Fault(ErrorCode.INVALID_REQUEST, DUPLICATE)
    return entries + await _not_created(duplicates, twice, context, turns)


async def _not_created(
    names: Iterable[str], fault: "_Fault", context: Context, turns: Turns
) -> list[bytes]:
    """The encoded results of topics that are refused for the same fault."""
    entries = []
    for name in names:
        await turns.next()
        refused = CreatedTopic(name, None, fault.code, fault.message)
        entries.append(encode_entry(context.api_key, context.api_version, "topics", refused))
    return entries


Named = TypeVar("Named", CreatableTopic, CreatePartitionsTopic)


def _once_and_twice(topics: Iterable[Named]) -> tuple[list[Named], list[str]]:
    """The topics that a request names once, and the names of the others, each once.

    The others are refused, as in Kafka, without a look at them. Nobody has asked whether their
    client may know of them, so they count in no sum either.
    """
    topics = list(topics)
    times = Counter(topic.name for topic in topics)
    once = [topic for topic in topics if times[topic.name] == 1]
    return once, [name for name, count in times.items() if count > 1]


def _is_being_deleted(node: Node, topic: str) -> bool:
    """Whether a topic is served until its deletion is on the disk."""
    return topic in node.image.topics and topic not in node.controller.image.topics


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
    if partitions <= room(node):
        return None
    return _Fault(
        ErrorCode.POLICY_VIOLATION,
        f"the broker has {node.controller.image.partition_count} partitions and takes at most "
        f"{node.settings['max.partitions']}; {partitions} more were asked for. Delete topics, or "
        "raise max.partitions",
    )


def over_quota(mutations: Mutations, partitions: int) -> "_Fault | None":
    """The refusal of so many partitions to a client over its quota; None if it may go on."""
    if mutations.accept(partitions):
        return None
    return _Fault(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


Result = TypeVar("Result", CreatedTopic, DeletedTopic, GrownTopic, AlteredResource)


async def published(result: Result, change: Awaitable[object] | None) -> Result:
    """The result of a change once it is published, or its failure.

    A change that could not be made durable may count later. None: nothing was changed.
    """
    if change is None:
        return result
    try:
        await change
    except StorageError as error:
        return result._replace(error_code=ErrorCode(error.code), error_message=error.message)
    return result


DUPLICATE: Final = "Duplicate topic name."
NOT_HOSTED = "This server does not host this topic-partition."


class _Fault(Exception):
    """Why a topic request is refused."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def _name_fault(node: Node, topic: CreatableTopic) -> _Fault | None:
    """The fault in the name of a topic to be made."""
    image = node.controller.image
    if topic.name in image.topics or topic.name in node.image.topics:
        return _Fault(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    fault = name_fault(topic.name, image.alike(topic.name))
    if fault is None and is_reserved(topic.name):
        fault = f"topic {topic.name!r} is internal"
    if fault is None:
        return None
    is_of_controller = topic.name in RESERVED_TOPICS
    code = ErrorCode.INVALID_REQUEST if is_of_controller else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _Fault(code, fault)


def _size_fault(node: Node, topic: CreatableTopic) -> _Fault | None:
    """The fault in the replicas and partitions of a topic to be made, in Kafka's order."""
    if topic.assignments:
        return _assignment_fault(node, topic)
    if topic.replication_factor < 1 and topic.replication_factor != -1:
        return _Fault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < 1 and topic.num_partitions != -1:
        return _Fault(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if topic.num_partitions > PARTITIONS_MAX:
        return _Fault(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has at most {PARTITIONS_MAX} partitions, not {topic.num_partitions}",
        )
    if topic.replication_factor > 1:
        return _Fault(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {topic.replication_factor} time(s): The "
            f"target replication factor of {topic.replication_factor} cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        )
    return None


def _assignment_fault(node: Node, topic: CreatableTopic) -> _Fault | None:
    for given, field in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if given != -1:
            text = f"A manual partition assignment was specified, but {field} was not set to -1."
            return _Fault(ErrorCode.INVALID_REQUEST, text)
    seen: set[int] = set()
    for entry in topic.assignments:
        if entry.partition_index in seen:
            fault = (
                f"Found multiple manual partition assignments for partition {entry.partition_index}"
            )
            return _Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)
        seen.add(entry.partition_index)
        unfit = assignment_fault(entry.broker_ids, node.node_id)
        if unfit is not None:
            return _Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, unfit)
    if seen != set(range(len(seen))):
        text = "partitions should be a consecutive 0-based integer sequence"
        return _Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return None


class _Creating(NamedTuple):
    """A topic's creation under way: its result so far, and its own settings unless refused."""

    result: CreatedTopic
    settings: Mapping[str, str] | None = None
    change: Awaitable[UUID] | None = None


def _create(
    node: Node,
    topic: CreatableTopic,
    mutations: Mutations,
    *,
    is_trial: bool,
) -> _Creating:
    """Make a topic, or refuse it for its first fault in Kafka's order."""
    change = None
    try:
        _require(_name_fault(node, topic))
        settings = _checked_settings(topic)
        _require(_size_fault(node, topic))
        count = _partitions_asked_for(node, topic)
        _require(_full(node, count) or over_quota(mutations, count))
        if not is_trial:
            change = node.controller.create_topic(topic.name, count, settings)
    except _Fault as refused:
        return _Creating(CreatedTopic(topic.name, None, refused.code, refused.message))
    result = CreatedTopic(topic.name, None, ErrorCode.NONE, None, count, 1)
    return _Creating(result, settings, change)


def _created_configs(node: Node, settings: Mapping[str, str]) -> list[CreatedTopicConfig]:
    return [_created_config(setting) for setting in describe_topic(settings, node.settings)]


def _created_config(setting: Described) -> CreatedTopicConfig:
    return CreatedTopicConfig(
        setting.name, setting.value, setting.is_read_only, setting.source, is_sensitive=False
    )


def _require(fault: _Fault | None) -> None:
    """Raise a fault, if it is one."""
    if fault is not None:
        raise fault


def _checked_settings(topic: CreatableTopic) -> dict[str, str]:
    """The settings of a topic to be made. Of several of one name a null counts, or the last."""
    settings = {entry.name: entry.value for entry in topic.configs}
    settings |= {entry.name: None for entry in topic.configs if entry.value is None}
    try:
        return parse_topic_settings(settings)
    except ConfigError as error:
        raise _Fault(ErrorCode.INVALID_CONFIG, str(error)) from error


async def create_partitions(
    node: Node, request: CreatePartitionsRequest, context: Context
) -> CreatePartitionsResponse:
    """Grow topics."""
    asked, duplicates = _once_and_twice(request.topics)
    excess = _excess(sum(_growth(node, entry) for entry in asked))
    turns = Turns()
    mutations = node.quotas.mutations(context, strict_from=GROWTHS_REFUSED_FROM)
    growths: list[tuple[GrownTopic, Awaitable[None] | None, int]] = []
    for entry in asked:
        await turns.next(1 + _growth(node, entry) // PARTITIONS_PER_ITEM)
        fault = excess or _growth_fault(node, entry)
        fault = fault or over_quota(mutations, _growth(node, entry))
        change = None
        if fault is not None:
            result = GrownTopic(entry.name, fault.code, fault.message)
        else:
            result = GrownTopic(entry.name, ErrorCode.NONE, None)
            if not request.validate_only:
                topic = node.controller.image.topics[entry.name]
                change = node.controller.create_partitions(topic, entry.count)
        growths.append((result, change, entry.count))
    results = []
    for result, change, count in growths:
        grown = await published(result, change)
        if change is not None and grown.error_code is ErrorCode.NONE:
            audit.acted(context, "topic.grown", "TOPIC", grown.name, partitions=count)
        results.append(grown)
    refused = [GrownTopic(name, ErrorCode.INVALID_REQUEST, DUPLICATE) for name in duplicates]
    return CreatePartitionsResponse([*results, *refused])


def _growth(node: Node, entry: CreatePartitionsTopic) -> int:
    """Number of partitions that an entry adds if it is allowed."""
    topic = node.controller.image.topics.get(entry.name)
    return 0 if topic is None else max(min(entry.count, PARTITIONS_MAX) - topic.partition_count, 0)


def _growth_fault(node: Node, entry: CreatePartitionsTopic) -> _Fault | None:
    topic = node.controller.image.topics.get(entry.name)
    if topic is None:
        return _Fault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if entry.name in COORDINATOR_TOPICS:
        return _Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {entry.name!r} is internal")
    if entry.count == topic.partition_count:
        message = f"Topic already has {entry.count} partition(s)."
        return _Fault(ErrorCode.INVALID_PARTITIONS, message)
    if entry.count < topic.partition_count:
        return _Fault(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {entry.name} currently has {topic.partition_count} partition(s); "
            f"{entry.count} would not be an increase.",
        )
    if entry.count > PARTITIONS_MAX:
        return _Fault(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has at most {PARTITIONS_MAX} partitions, not {entry.count}",
        )
    if entry.assignments is not None:
        added, assigned = entry.count - topic.partition_count, len(entry.assignments)
        if assigned != added:
            return _Fault(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {assigned} "
                "assignment(s) were specified.",
            )
        for partition in entry.assignments:
            unfit = assignment_fault(partition.broker_ids, node.node_id)
            if unfit is not None:
                return _Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, unfit)
    return _full(node, _growth(node, entry))


# ---------------------------------------------------------------- access


async def _guard_create_topics(
    call: Call[Node, CreateTopicsRequest, CreateTopicsResponse],
) -> bytes:
    """CREATE on the topic or on the cluster; its settings are described with DESCRIBE_CONFIGS."""
    access, request, context = call.access, call.request, call.context
    times = Counter(topic.name for topic in request.topics)
    creatable = set(times)
    if not access.may_in_cluster(Operation.CREATE, is_logged=False):
        creatable = await access.among(Operation.CREATE, ResourceType.TOPIC, times)
    described = await access.among(
        Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, times, is_logged=False
    )
    allowed, refused = [], []
    for topic in request.topics:
        is_refused_anyhow = times[topic.name] > 1 or topic.name in RESERVED_TOPICS
        if topic.name in creatable or is_refused_anyhow:  # by the handler
            allowed.append(topic)
        else:
            refused.append(CreatedTopic(topic.name, None, TOPIC_FAILED, "Authorization failed."))
    reduced = changed(request, topics=tuple(allowed))
    hidden = times.keys() - described
    entries = await created_topics(call.service, reduced, context, hidden=hidden)
    key, version = context.api_key, context.api_version
    entries += [encode_entry(key, version, "topics", one) for one in refused]
    return join_entries(key, version, entries)


async def _guard_create_partitions(
    call: Call[Node, CreatePartitionsRequest, CreatePartitionsResponse],
) -> CreatePartitionsResponse:
    """ALTER on the topic."""
    request = call.request
    times = Counter(topic.name for topic in request.topics)
    allowed = await call.access.among(Operation.ALTER, ResourceType.TOPIC, times)
    allowed |= {name for name in times if times[name] > 1}  # the handler refuses duplicates
    kept = tuple(topic for topic in request.topics if topic.name in allowed)
    refused = [GrownTopic(name, TOPIC_FAILED, None) for name in times if name not in allowed]
    response = await call.proceed_with(changed(request, topics=kept))
    return CreatePartitionsResponse([*response.results, *refused])


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.CREATE_TOPICS,
        (2, 7),
        CreateTopicsRequest,
        CreateTopicsResponse,
        _guard_create_topics,
        create_topics,
    ),
    Api(
        ApiKey.CREATE_PARTITIONS,
        (0, 3),
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        _guard_create_partitions,
        create_partitions,
    ),
)
