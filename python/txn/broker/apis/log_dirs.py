"""DescribeLogDirs: the one data directory, its partitions and their sizes."""

from collections.abc import Iterable
from typing import Any

from txn.broker.host import Answer, Context
from txn.broker.node import Node
from txn.broker.turns import Turns
from txn.errors import StorageError
from txn.logs import log
from txn.wire.error_codes import ErrorCode

DESCRIBE_LOG_DIRS = 35


async def describe_log_dirs(node: Node, request: Any, context: Context) -> Answer:
    """Answer with the sizes of the partitions asked for, or of all; unknown ones are left out."""
    if request.topics is None:
        wanted = {name: range(len(found)) for name, found in node.partitions.items()}
    else:
        wanted = {topic.topic: topic.partitions for topic in request.topics}
    try:
        space = node.space()
    except StorageError as error:
        log.error("directory.unreadable", reason=error.message)
        return {"error_code": error.code, "results": ()}
    turns = Turns()
    topics = [(name, await _sizes(node, name, indexes, turns)) for name, indexes in wanted.items()]
    return {
        "error_code": ErrorCode.none,
        "results": [
            {
                "error_code": ErrorCode.none,
                "log_dir": space.directory,
                "topics": [{"name": name, "partitions": sizes} for name, sizes in topics if sizes],
                "total_bytes": space.total_bytes,
                "usable_bytes": space.usable_bytes,
            }
        ],
    }


async def _sizes(
    node: Node, topic: str, indexes: Iterable[int], turns: Turns
) -> list[dict[str, Any]]:
    sizes = []
    for index in indexes:
        await turns.next()
        if node.has_partition(topic, index):
            sizes.append(
                {
                    "partition_index": index,
                    "partition_size": _size(node, topic, index),
                    "offset_lag": 0,
                    "is_future_key": False,
                }
            )
    return sizes


def _size(node: Node, topic: str, index: int) -> int:
    """The size of a partition's segments; one that is not open, or cannot be, has none."""
    try:
        store = None if node.is_untouched(topic, index) else node.partition(topic, index)
    except StorageError:
        return 0
    return 0 if store is None else store.size_bytes


VERSIONS = {DESCRIBE_LOG_DIRS: (1, 4)}
HANDLERS = {DESCRIBE_LOG_DIRS: describe_log_dirs}
