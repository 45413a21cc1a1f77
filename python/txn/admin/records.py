"""Deletes records from the start of partitions of a running cluster, and measures partitions.

Source: KIP-107 (DeleteRecords), KIP-113 (DescribeLogDirs).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from txn.admin.cluster import RunningCluster, no_partition
from txn.admin.refusals import require
from txn.cluster.source import EARLIEST, LATEST
from txn.errors import ConfigError, RejectedError, RetriableError
from txn.identifiers import TopicPartition
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

HIGH_WATERMARK: Final = -1
"""The offset that stands for the high watermark."""

TIMEOUT_MS: Final = 30_000
"""Time that brokers have for a deletion."""


REASONS: Final[Mapping[int, str]] = {
    ErrorCode.POLICY_VIOLATION: "the topic is compacted alone",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic is internal",
}
"""The answer has a code and no words."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """Records of a partition to be deleted: those below `offset`."""

    partition: TopicPartition
    start_offset: int
    """The first offset now."""
    offset: int
    """The first offset afterwards; that of now where it is further on."""


@dataclass(frozen=True, slots=True)
class LogSize:
    """The bytes that a broker keeps of a partition."""

    partition: TopicPartition
    broker: int
    directory: str
    size_bytes: int


def planned_deletions(
    cluster: RunningCluster, offsets: Mapping[TopicPartition, int]
) -> list[Deletion]:
    """Plan to delete the records below some offsets; `HIGH_WATERMARK` means the current end.

    Raises:
        ConfigError: a topic or partition is not there, or ends before its offset.
        RejectedError: the user may not see a topic.
        RetriableError: a partition has no leader at the moment.
    """
    for topic, index in offsets:
        cluster.require_topics([topic])
        if index not in cluster.topics()[topic]:
            raise ConfigError(no_partition(topic, index, len(cluster.topics()[topic])))
    starts = cluster.offsets(offsets.keys(), EARLIEST)
    ends = cluster.offsets(offsets.keys(), LATEST, is_committed=False)
    plan = []
    for (topic, index), offset in sorted(offsets.items()):
        place = topic, index
        if place not in starts or place not in ends:
            raise RetriableError(
                f"no broker leads {topic}-{index} at the moment. Bring one of its replicas back"
            )
        if offset > ends[place]:
            raise ConfigError(
                f"{topic}-{index} ends at offset {ends[place]}, before {offset}. Give an offset "
                "up to its end, or latest"
            )
        before = ends[place] if offset == HIGH_WATERMARK else offset
        plan.append(Deletion(place, starts[place], max(before, starts[place])))
    return plan


def delete_records(cluster: RunningCluster, deletion: Deletion) -> int:
    """Delete the records of a plan's partition; return the first offset that is left.

    Raises:
        RejectedError: its topic is compacted or internal, or the user may not.
        RetriableError: its leader changes, or does not answer.
    """
    topic, index = deletion.partition
    request = {
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": index, "offset": deletion.offset}],
            }
        ],
        "timeout": TIMEOUT_MS,
    }
    answer = cluster.call_leader(deletion.partition, ApiKey.DELETE_RECORDS, range(3), request)
    (result,) = [each for told in answer.topics for each in told.partitions]
    refused = f"the records of {topic}-{index} are not deleted"
    reason = REASONS.get(result.error_code)
    require(result.error_code, reason, refused, needs="Delete on the topic")
    return int(result.low_watermark)


def log_sizes(cluster: RunningCluster, topics: Iterable[str]) -> list[LogSize]:
    """List the sizes of partitions at each broker, by topic, partition and broker.

    Args:
        cluster: The cluster.
        topics: Topics that are there.

    Raises:
        RejectedError: a directory cannot be read, or the user may not see sizes.
    """
    wanted = [{"topic": name, "partitions": cluster.topics()[name]} for name in topics]
    found: list[LogSize] = []
    for node_id in cluster.node_ids:
        request = {"topics": wanted}
        answer = cluster.ask_node(node_id, ApiKey.DESCRIBE_LOG_DIRS, range(1, 5), request)
        refused = f"broker {node_id} does not tell the sizes"
        needs = "Describe on the cluster"
        require(getattr(answer, "error_code", 0), None, refused, needs=needs)
        if not answer.results:  # before version 3 there is no code
            raise RejectedError(f"{refused}. Its user may need {needs}")
        for each in answer.results:
            unread = f"directory {each.log_dir} of broker {node_id} is not read"
            require(each.error_code, None, unread, needs=needs)
            found += _sizes_in(node_id, each)
    return sorted(found, key=lambda each: (each.partition, each.broker))


def _sizes_in(node_id: int, directory: Any) -> Sequence[LogSize]:
    return [
        LogSize((topic.name, each.partition_index), node_id, directory.log_dir, each.partition_size)
        for topic in directory.topics
        for each in topic.partitions
    ]
