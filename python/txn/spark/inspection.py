"""Reports the decided and the open transactions of a query, for people and for monitoring."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from txn._core import KafkaError
from txn.cluster.brokers import Brokers
from txn.errors import RejectedError, RetriableError
from txn.spark.first_contact import await_cluster
from txn.spark.kafka import code_of, connect, described_transactions
from txn.spark.options import PROGRESS_TOPIC, ClusterAccess, cluster_access, option_texts
from txn.spark.progress_topic import read_progress
from txn.spark.tokens import registered
from txn.spark.transactional_ids import driver_id, is_task_id
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.2

GROUP_KEY: Final = 0
"""A FindCoordinator key type: the key is a group."""

COMING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Answers of a coordinator that is on its way."""


@dataclass(frozen=True, slots=True)
class UnfinishedTransaction:
    """A transaction of a task, or the driver's, that has not ended."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """Progress of a query's output.

    `state` is "done" if the last decided batch is in the output. It is "decided" while the batch's
    transactions are being committed, or after a crash there, and "lost" if some of these
    transactions timed out. It is None if nothing was decided yet.
    """

    id: str
    state: str | None
    query: str | None
    batch: int | None
    rows: int | None
    written_ms: int | None
    open: tuple[UnfinishedTransaction, ...]


def status(
    bootstrap_servers: str, id: str, *, progress_topic: str = PROGRESS_TOPIC, **options: object
) -> Status:
    """Return the last decision under a `txn.id` and its open transactions. Changes nothing.

    `options` are the options of a connection, as for `txn.spark.sink`.

    Raises:
        UnreachableError: no broker can be reached.
        KafkaError: the cluster did not answer in time.
    """
    client = connect(_access(bootstrap_servers, options))
    try:
        try:
            client.partition_count(progress_topic)
            end = client.list_offsets(progress_topic, [0], -1)[0]
            progress = read_progress(client, progress_topic, id, end)
        except KafkaError as error:
            if code_of(error) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            progress = None
        listed = client.list_transactions(["Ongoing"], f"{id}.")
        names = [n for n, _, _ in listed if is_task_id(id, n) or n == driver_id(id)]
        described = described_transactions(client, names) if names else []
    finally:
        client.close()
    return Status(
        id=id,
        state=progress.state.value if progress else None,
        query=progress.query if progress else None,
        batch=progress.batch if progress else None,
        rows=progress.rows if progress else None,
        written_ms=progress.written_ms if progress else None,
        open=tuple(
            UnfinishedTransaction(
                one.transactional_id,
                one.state,
                one.producer_id,
                one.producer_epoch,
                one.started_ms,
                one.timeout_ms,
            )
            for one in described
            if one.error_code == 0
        ),
    )


def offsets(
    bootstrap_servers: str, group: str, topics: Iterable[str] | None = None, **options: object
) -> str:
    """Return the committed offsets of `txn.group`, as JSON for the option `startingOffsets`.

    For a stateless query whose checkpoint is lost: start it with these offsets and a new
    `txn.id`. Partitions without a committed offset are left out.

    Args:
        bootstrap_servers: HOST:PORT, or several with commas.
        group: The option `txn.group` of the query.
        topics: Only these topics. None means all topics of the group.
        options: The options of a connection, as for `txn.spark.sink`.

    Raises:
        UnreachableError: no broker can be reached.
        RetriableError: the cluster did not answer in time.
        RejectedError: the cluster refuses the request, or the log-in failed.
    """
    chosen = None if topics is None else set(topics)
    access = _access(bootstrap_servers, options)
    brokers = Brokers(bootstrap_servers, security=access.security, timeout_s=TIMEOUT_S)
    try:
        found = sorted(_committed(brokers, group))
    finally:
        brokers.close()
    committed: dict[str, dict[str, int]] = {}
    for topic, partition, offset in found:
        if offset >= 0 and (chosen is None or topic in chosen):
            committed.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(committed)


def _committed(brokers: Brokers, group: str) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of each partition for which a group has an offset.

    librdkafka's admin client (2.16) is not asked. On a cluster that has no `__consumer_offsets` yet
    it timed out, and twice it ended the process by SIGSEGV.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        request = {"key": group, "key_type": GROUP_KEY}
        node = brokers.any().call(ApiKey.FIND_COORDINATOR, range(1, 4), request)
        code = ErrorCode(node.error_code)
        if code is ErrorCode.NONE:
            asked = {"group_id": group, "topics": None}
            coordinator = brokers.at(node.host, node.port)
            answer = coordinator.call(ApiKey.OFFSET_FETCH, range(2, 8), asked)
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return [
                    (topic.name, each.partition_index, each.committed_offset)
                    for topic in answer.topics
                    for each in topic.partitions
                ]
        if code not in COMING or time.monotonic() > deadline:
            kind = RetriableError if code in COMING else RejectedError
            raise kind(f"the offsets of group {group!r} are not told: {code.name}", code=code)
        time.sleep(PAUSE_S)


def _access(bootstrap_servers: str, options: Mapping[str, object]) -> ClusterAccess:
    texts = option_texts(options) | {"kafka.bootstrap.servers": bootstrap_servers}
    access = cluster_access({"kafka.client.id": "txn-status", **texts}, registered)
    await_cluster(access)
    return access
