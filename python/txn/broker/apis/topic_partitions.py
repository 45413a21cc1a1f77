"""DescribeTopicPartitions: topics by name, bit by bit (KIP-966).

An answer has at most as many partitions as the request and `max.request.partition.size.limit`
allow. Its cursor tells where the next request begins, so topics come in the order of their names.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from txn.broker.apis.api import Api, Area, Call
from txn.broker.apis.guards import TOPIC_FAILED
from txn.broker.apis.metadata import TOPIC_OPERATIONS
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.metadata.image import INTERNAL_TOPICS, Topic, name_fault
from txn.security.acls import Operation, ResourceType
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    NextPartition,
    PartitionDescription,
    TopicDescription,
)
from txn.wire.error_codes import ErrorCode

Seen = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Tells which of some topics a client may see."""


async def describe_topic_partitions(
    node: Node, request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    """Answer with the next partitions of the topics asked for, or of all."""

    async def everything(names: Collection[str]) -> Collection[str]:
        return names

    return await _described(node, request, everything, lambda _: TOPIC_OPERATIONS)


async def _described(
    node: Node,
    request: DescribeTopicPartitionsRequest,
    seen: Seen,
    operations_on: Callable[[str], int],
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    asks_for_all = not request.topics
    wanted = set(node.image.topics) if asks_for_all else {topic.name for topic in request.topics}
    if cursor is not None:
        is_known = asks_for_all or cursor.topic_name in wanted
        if cursor.partition_index < 0 or not is_known:
            return _refused(request)
        wanted = {name for name in wanted if name >= cursor.topic_name}
    allowed = await seen(wanted)
    left = max(
        min(node.settings["max.request.partition.size.limit"], request.response_partition_limit), 1
    )
    turns = Turns()
    topics: list[TopicDescription] = []
    following: NextPartition | None = None
    for name in sorted(allowed):
        await turns.next()
        if left <= 0:
            following = NextPartition(name, 0)
            break
        topic = node.image.topics.get(name)
        if topic is None or name not in node.partitions:
            if not asks_for_all:
                topics.append(_absent(name, operations_on(name)))
            continue
        is_at_cursor = cursor is not None and cursor.topic_name == name
        start = cursor.partition_index if cursor is not None and is_at_cursor else 0
        count = len(node.partitions[name])  # the topic may go while others have their turn
        described, end = _topic(node, topic, start, left, operations_on(name))
        topics.append(described)
        await turns.next(len(described.partitions))
        if end < count:
            following = NextPartition(name, end)
            break
        left -= len(described.partitions)
    if not asks_for_all:
        topics += [
            TopicDescription(TOPIC_FAILED, name, None) for name in wanted if name not in allowed
        ]
    return DescribeTopicPartitionsResponse(topics, following)


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    code = ErrorCode.INVALID_REQUEST
    return DescribeTopicPartitionsResponse(
        [TopicDescription(code, topic.name, None) for topic in request.topics]
    )


def _absent(name: str, operations: int) -> TopicDescription:
    is_name = name_fault(name) is None or name in INTERNAL_TOPICS
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_name else ErrorCode.INVALID_TOPIC_EXCEPTION
    return TopicDescription(
        code, name, None, name in INTERNAL_TOPICS, topic_authorized_operations=operations
    )


def _topic(
    node: Node, topic: Topic, start: int, count_max: int, operations: int
) -> tuple[TopicDescription, int]:
    """The topic with its partitions from `start` on, and the end of those."""
    partitions = node.partitions[topic.name]
    end = min(start + count_max, len(partitions))
    replicas = [node.node_id]
    described = [
        PartitionDescription(
            ErrorCode.NONE, index, node.node_id, partitions.leader_epoch(index), replicas, replicas
        )
        for index in range(start, end)
    ]
    description = TopicDescription(
        ErrorCode.NONE, topic.name, topic.topic_id, topic.is_internal, described, operations
    )
    return description, end


async def _guard(
    call: Call[Node, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse],
) -> DescribeTopicPartitionsResponse:
    """DESCRIBE on the topic; an answer with all topics leaves out those that may not be seen."""
    access, is_logged = call.access, bool(call.request.topics)

    async def seen(names: Collection[str]) -> Collection[str]:
        return await access.among(
            Operation.DESCRIBE, ResourceType.TOPIC, names, is_logged=is_logged
        )

    def operations_on(name: str) -> int:
        return access.operations(ResourceType.TOPIC, name)

    return await _described(call.service, call.request, seen, operations_on)


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (0, 0),
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        _guard,
        describe_topic_partitions,
    ),
)
