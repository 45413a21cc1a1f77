"""DeleteTopics, by name or by id."""

from collections import Counter
from collections.abc import Awaitable
from typing import Final
from uuid import UUID

from txn.broker.apis.access import Access
from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import (
    MESSAGES,
    TOPIC_FAILED,
)
from txn.broker.apis.topics import DUPLICATE, NOT_HOSTED, over_quota, published
from txn.broker.audit import audit
from txn.broker.client_quotas import Mutations
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.metadata.image import (
    COORDINATOR_TOPICS,
)
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.metadata import (
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import changed

DELETIONS_REFUSED_FROM = 5
"""The version from which on a client over its quota of mutations is refused (KIP-599)."""
TOPICS_BY_ID_FROM: Final = 6
"""The first version that names topics by id."""
DELETION_ITEMS = 100
"""Cost of a deletion, in the items of `Turns`."""

DUPLICATE_ID: Final = "Duplicate topic id."
NAME_OF_ID: Final = "The provided topic name maps to an ID that was already supplied."
NAME_AND_ID: Final = "You may not specify both topic name and topic id."
NO_NAME_NOR_ID: Final = "Neither topic name nor id were specified."


async def delete_topics(
    node: Node, request: DeleteTopicsRequest, context: Context
) -> DeleteTopicsResponse:
    """Delete topics by name or, from version 6, by id.

    A topic that is named twice is refused, as in Kafka. If it is named by its name and by its id,
    one refusal answers both.
    """
    turns = Turns()
    once, others = await deletions_once_and_others(request, turns)
    ids = {entry.topic_id for entry in (*once, *others) if entry.name is None}
    names = {entry.name for entry in once if entry.name is not None}
    mutations = node.quotas.mutations(context, strict_from=DELETIONS_REFUSED_FROM)
    deletions = []
    for entry in once:
        image = node.controller.image
        if entry.name is None:
            name = image.names.get(entry.topic_id) if entry.topic_id is not None else None
            if name is None or name not in names:
                deletions.append(_delete(node, name, entry.topic_id, mutations))
        else:
            topic = image.topics.get(entry.name)
            if topic is not None and topic.topic_id in ids:
                refused = _invalid(entry.name, topic.topic_id, NAME_OF_ID)
                deletions.append((refused, None))
            else:
                deletions.append(_delete(node, entry.name, None, mutations))
        await turns.next(DELETION_ITEMS)
    responses = []
    for deletion, change in deletions:
        response = await published(deletion, change)
        is_done = change is not None and response.error_code is ErrorCode.NONE
        if is_done and response.name is not None:
            audit.acted(context, "topic.deleted", "TOPIC", response.name)
        if response.name is not None:
            await node.replicas.removed(response.name)
        responses.append(response)
    return DeleteTopicsResponse([*responses, *_refused_deletions(others)])


async def deletions_once_and_others(
    request: DeleteTopicsRequest, turns: Turns
) -> tuple[list[DeleteTopicState], Counter[DeleteTopicState]]:
    """The topics that a request names once by a name or an id, and the others with their number.

    The others are refused, as in Kafka, without a look at them: nobody has asked whether their
    client may know of them.
    """
    others = Counter[DeleteTopicState]()
    for name in request.topic_names:
        others[DeleteTopicState(name=name, topic_id=None)] += 1
        await turns.next()
    for entry in request.topics:
        others[entry] += 1
        await turns.next()
    once = []
    for entry in list(others):
        if others[entry] == 1 and _is_named(entry):
            del others[entry]
            once.append(entry)
        await turns.next()
    return once, others


def _is_named(entry: DeleteTopicState) -> bool:
    """Say whether a topic is named by either its name or its id."""
    return (entry.name is None) != (entry.topic_id is None)


def _refused_deletions(others: Counter[DeleteTopicState]) -> list[DeletedTopic]:
    refused = []
    for entry, count in others.items():
        if entry.name is not None and entry.topic_id is not None:
            refused += [_invalid(entry.name, entry.topic_id, NAME_AND_ID)] * count
        elif entry.name is not None:
            refused.append(_invalid(entry.name, None, DUPLICATE))
        elif entry.topic_id is not None:
            refused.append(_invalid(None, entry.topic_id, DUPLICATE_ID))
        else:
            refused += [_invalid(None, None, NO_NAME_NOR_ID)] * count
    return refused


def _invalid(name: str | None, topic_id: UUID | None, reason: str) -> DeletedTopic:
    return DeletedTopic(name, topic_id, ErrorCode.INVALID_REQUEST, reason)


def _delete(
    node: Node, name: str | None, topic_id: UUID | None, mutations: Mutations
) -> tuple[DeletedTopic, Awaitable[None] | None]:
    """Delete a topic of this name; one that is named by an unknown id has none."""
    if name is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID
        reason = "This server does not host this topic ID."
        return DeletedTopic(None, topic_id, code, reason), None
    topic = node.controller.image.topics.get(name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeletedTopic(name, None, code, NOT_HOSTED), None
    if name in COORDINATOR_TOPICS:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DeletedTopic(name, topic.topic_id, code, f"topic {name!r} is internal"), None
    over = over_quota(mutations, topic.partition_count)
    if over is not None:
        return DeletedTopic(name, topic.topic_id, over.code, over.message), None
    deleted = DeletedTopic(name, topic.topic_id, ErrorCode.NONE, None)
    return deleted, node.controller.delete_topic(name)


async def _guard_delete_topics(
    call: Call[Node, DeleteTopicsRequest, DeleteTopicsResponse],
) -> DeleteTopicsResponse | bytes:
    """DELETE on the topic or on the cluster.

    A client learns with DESCRIBE whether there is such a topic, and the name behind an id.
    """
    request = call.request
    if call.access.may_in_cluster(Operation.DELETE, is_logged=False):
        return await call.proceed()
    turns = Turns()
    once, others = await deletions_once_and_others(request, turns)
    allowed, refused = [], []
    for entry in once:
        await turns.next()
        deleted = _not_deleted(call.access, call.service, entry)
        if deleted is None:
            allowed.append(entry)
        else:
            refused.append(deleted)
    allowed += others.elements()  # the handler refuses them
    if call.context.api_version < TOPICS_BY_ID_FROM:
        names = tuple(entry.name for entry in allowed if entry.name is not None)
        reduced = changed(request, topic_names=names)
    else:
        reduced = changed(request, topics=tuple(allowed))
    return DeleteTopicsResponse([*(await call.proceed_with(reduced)).responses, *refused])


def _not_deleted(access: Access, node: Node, entry: DeleteTopicState) -> DeletedTopic | None:
    """The refusal to delete a topic, None if the handler is to answer."""
    image = node.controller.image
    name, topic_id = entry.name, entry.topic_id
    if name is None:
        name = None if topic_id is None else image.names.get(topic_id)
        if name is None or access.may(Operation.DELETE, ResourceType.TOPIC, name):
            return None
        is_seen = access.may(Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged=False)
        return DeletedTopic(
            name if is_seen else None, topic_id, TOPIC_FAILED, MESSAGES[TOPIC_FAILED]
        )
    if not access.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return DeletedTopic(name, None, TOPIC_FAILED, MESSAGES[TOPIC_FAILED])
    if name not in image.topics:  # it may be made before the handler looks, and nobody asked then
        return DeletedTopic(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if access.may(Operation.DELETE, ResourceType.TOPIC, name):
        return None
    return DeletedTopic(name, None, TOPIC_FAILED, MESSAGES[TOPIC_FAILED])


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.DELETE_TOPICS,
        (1, 6),
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        _guard_delete_topics,
        delete_topics,
    ),
)
