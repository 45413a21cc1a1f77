"""DescribeLogDirs, AlterReplicaLogDirs."""

from collections.abc import Sequence
from typing import NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body


@request_body
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]


@request_body
class DescribeLogDirsRequest:
    """Asks for the sizes of partitions; null asks for all."""

    topics: tuple[DescribableLogDirTopic, ...] | None


class DescribedPartition(NamedTuple):
    """The size of one partition."""

    partition_index: int
    partition_size: int
    offset_lag: int = 0
    is_future_key: bool = False


class SizedTopic(NamedTuple):
    """The sizes of one topic's partitions."""

    name: str
    partitions: Sequence[DescribedPartition]


class DescribedLogDir(NamedTuple):
    """One data directory."""

    error_code: ErrorCode
    log_dir: str
    topics: Sequence[SizedTopic]
    total_bytes: int
    usable_bytes: int


class DescribeLogDirsResponse(NamedTuple):
    """The data directories of the broker."""

    error_code: ErrorCode
    results: Sequence[DescribedLogDir]


@request_body
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str
    partitions: tuple[int, ...] = ()


@request_body
class AlterReplicaLogDir:
    """The partitions that are to be in one directory."""

    path: str
    topics: tuple[AlterReplicaLogDirTopic, ...]


@request_body
class AlterReplicaLogDirsRequest:
    """Moves partitions to other data directories of the broker."""

    dirs: tuple[AlterReplicaLogDir, ...]


class MovedPartition(NamedTuple):
    """The result for one partition."""

    partition_index: int
    error_code: ErrorCode


class MovedTopic(NamedTuple):
    """The results for one topic."""

    topic_name: str
    partitions: Sequence[MovedPartition]


class AlterReplicaLogDirsResponse(NamedTuple):
    """Results by topic."""

    results: Sequence[MovedTopic]
