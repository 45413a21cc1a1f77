"""DescribeLogDirs and AlterReplicaLogDirs: the one data directory, its partitions and their sizes.

A partition cannot move, as there is no other directory. Only the directory that it is in can be
asked for.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from txn.broker.apis.api import Api, Area
from txn.broker.apis.guards import (
    ALTER_CLUSTER,
    CLUSTER_FAILED,
    DESCRIBE_CLUSTER,
)
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.errors import StorageError
from txn.logs import log
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribedLogDir,
    DescribedPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    MovedPartition,
    MovedTopic,
    SizedTopic,
)
from txn.wire.error_codes import ErrorCode


async def describe_log_dirs(
    node: Node, request: DescribeLogDirsRequest, context: Context
) -> DescribeLogDirsResponse:
    """Answer with the sizes of the partitions asked for, or of all; unknown ones are left out.

    A partition that is named several times is described once, as in Kafka.
    """
    if request.topics is None:
        requested: dict[str, Iterable[int]] = {
            name: range(len(logs)) for name, logs in node.partitions.items()
        }
    else:
        named: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            named.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
        requested = {**named}
    try:
        space = node.space()
    except StorageError as error:
        log.error("directory.unreadable", reason=error.message)
        return DescribeLogDirsResponse(ErrorCode(error.code), [])
    turns = Turns()
    topics = []
    for name, indexes in requested.items():
        sizes = await _sizes(node, name, indexes, turns)
        if sizes:
            topics.append(SizedTopic(name, sizes))
    directory = DescribedLogDir(
        ErrorCode.NONE, space.directory, topics, space.total_bytes, space.usable_bytes
    )
    return DescribeLogDirsResponse(ErrorCode.NONE, [directory])


async def _sizes(
    node: Node, topic: str, indexes: Iterable[int], turns: Turns
) -> list[DescribedPartition]:
    sizes = []
    for index in indexes:
        await turns.next()
        if node.replicas.has(topic, index):
            sizes.append(DescribedPartition(index, _size(node, topic, index)))
    return sizes


def _size(node: Node, topic: str, index: int) -> int:
    """The size of a partition's segments; one that is not open, or cannot be, has none."""
    try:
        store = (
            None if node.replicas.is_untouched(topic, index) else node.replicas.get(topic, index)
        )
    except StorageError:
        return 0
    return 0 if store is None else store.size_bytes


async def alter_replica_log_dirs(
    node: Node, request: AlterReplicaLogDirsRequest, context: Context
) -> AlterReplicaLogDirsResponse:
    """Accept the directory that a partition is in, and refuse any other."""
    try:
        own = node.space().directory
    except StorageError as error:
        log.error("directory.unreadable", reason=error.message)
        return _all_alike(request, ErrorCode(error.code))
    turns = Turns()
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            of_topic = codes.setdefault(topic.name, {})
            await turns.next(1 + len(topic.partitions))
            for index in topic.partitions:
                is_there = node.host.has_partition(topic.name, index)
                code = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                of_topic[index] = code if directory.path == own else ErrorCode.LOG_DIR_NOT_FOUND
    return _moved(codes)


def _moved(codes: Mapping[str, Mapping[int, ErrorCode]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        [MovedTopic(name, [*map(MovedPartition, of, of.values())]) for name, of in codes.items()]
    )


def _all_alike(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            refused = dict.fromkeys(topic.partitions, code)
            codes.setdefault(topic.name, {}).update(refused)
    return _moved(codes)


APIS: Final = Area(
    lambda node: node,
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        (1, 5),
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DESCRIBE_CLUSTER.or_else(DescribeLogDirsResponse(CLUSTER_FAILED, [])),
        describe_log_dirs,
    ),
    Api(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        (1, 2),
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        ALTER_CLUSTER.or_by(lambda request, _: _all_alike(request, CLUSTER_FAILED)),
        alter_replica_log_dirs,
    ),
)
