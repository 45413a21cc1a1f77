"""Decided and open transactions of a query: for people and for monitoring."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from txn._core import KafkaError
from txn.access.librdkafka import librdkafka_settings
from txn.spark.driver import driver_id, is_task_id, read_progress
from txn.spark.kafka import code_of, connect
from txn.spark.options import PROGRESS_TOPIC, ClusterAccess, cluster_access, option_texts
from txn.wire.error_codes import ErrorCode

TIMEOUT_S = 60.0


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

    `state` is "done" when the last decided batch is in the output; "decided" while its transactions
    are being committed, or after a crash there. It is "lost" when some of them timed out; None when
    nothing was decided yet.
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

    `options` are those of a connection, as `txn.spark.sink` takes them.

    Raises:
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
        described = client.describe_transactions(names) if names else []
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
            UnfinishedTransaction(name, state, producer_id, epoch, started_ms, timeout_ms)
            for name, code, state, producer_id, epoch, started_ms, timeout_ms in described
            if code == 0
        ),
    )


def offsets(
    bootstrap_servers: str, group: str, topics: Iterable[str] | None = None, **options: object
) -> str:
    """Return the committed offsets of `txn.group`, as JSON for the option `startingOffsets`.

    For a stateless query whose checkpoint is lost: start it with these offsets and a new
    `txn.id`. Partitions that have no committed offset are left out.

    Args:
        bootstrap_servers: HOST:PORT, or several with commas.
        group: The option `txn.group` of the query.
        topics: Only these; None: all of the group.
        options: Those of a connection, as `txn.spark.sink` takes them.

    Raises:
        KafkaException: the cluster did not answer in time.
    """
    security = _access(bootstrap_servers, options).security
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    settings |= librdkafka_settings(security)
    chosen = None if topics is None else _partitions(settings, set(topics))
    admin = AdminClient(settings)
    request = ConsumerGroupTopicPartitions(group, chosen)
    answer = admin.list_consumer_group_offsets([request], request_timeout=TIMEOUT_S)[group].result()
    committed: dict[str, dict[str, int]] = {}
    for place in sorted(answer.topic_partitions, key=lambda place: (place.topic, place.partition)):
        if place.offset >= 0:
            committed.setdefault(place.topic, {})[str(place.partition)] = place.offset
    return json.dumps(committed)


def _access(bootstrap_servers: str, options: Mapping[str, object]) -> ClusterAccess:
    texts = option_texts(options) | {"kafka.bootstrap.servers": bootstrap_servers}
    return cluster_access({"kafka.client.id": "txn-status", **texts})


def _partitions(settings: Mapping[str, object], topics: set[str]) -> list[TopicPartition]:
    consumer = Consumer({**settings, "group.id": "txn-status"})
    try:
        return [
            TopicPartition(name, number)
            for name in sorted(topics)
            for number in consumer.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        ]
    finally:
        consumer.close()
