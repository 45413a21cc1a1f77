"""The metadata log of this node, `__cluster_metadata-0`, and its recovery.

Invariant: `recover_metadata` returns an image all of whose records are on the disk. It may write
records itself: features, leader epochs, the offsets topic. One fsync before anything is served
covers them, and records that a process before this one may have left in memory.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from txn.broker.shell import LogStorage
from txn.broker.strays import require_no_strays
from txn.config import SEGMENT_BYTES_MIN, BrokerSettings
from txn.errors import CorruptLogError, DirectoryError, StorageError
from txn.logs import log
from txn.metadata.image import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Image,
    Topic,
    creation_records,
)
from txn.metadata.record_encoding import encode
from txn.metadata.records import (
    EVERY_BROKER,
    AbortTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from txn.metadata.replay import MetadataReplay
from txn.storage.base import PartitionLog

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)
"""The id Kafka reserves for the metadata topic."""

METADATA_SETTINGS: Final = {"cleanup.policy": ""}
"""Nothing of the metadata log may go by age or size."""

SEGMENT_BYTES_SETTING: Final = {
    OFFSETS_TOPIC: "offsets.topic.segment.bytes",
    TRANSACTIONS_TOPIC: "transaction.state.log.segment.bytes",
}
PARTITION_COUNT_SETTING: Final = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
}
_COORDINATOR_COMPRESSION: Final = {OFFSETS_TOPIC: "producer", TRANSACTIONS_TOPIC: "uncompressed"}
"""Kafka's own, so that a default of the broker says nothing untrue of their batches."""

GROUP_FEATURE: Final = "group.version"
"""Level 1 has groups of the consumer protocol."""

FEATURES: Final = {"metadata.version": 25, "transaction.version": 2, GROUP_FEATURE: 1}
"""Features that a new directory finalizes, and all that ApiVersions announces. The metadata version
is the lowest with this transaction version, so that Apache Kafka 4.0 and later take the
directory."""

OLDEST_LEVELS: Final = {"metadata.version": 7, "transaction.version": 0, "group.version": 0}
"""The oldest level of each feature that an Apache Kafka 4 supports."""


class NodeIdentity(NamedTuple):
    """A node's place in its cluster."""

    node_id: int
    cluster_id: str
    directory_id: uuid.UUID


class MetadataLog:
    """The metadata log, to be written by one controller."""

    def __init__(self, partition: PartitionLog, now_ms: Callable[[], int]) -> None:
        self.partition = partition
        self._now_ms = now_ms

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Append records as one batch. Raises StorageError: none of them is in the log."""
        self.partition.append(
            [(None, encode(record)) for record in records], timestamp_ms=self._now_ms()
        )

    def sync(self) -> None:
        """Wait until all records are on the disk, under any `durability`. Raises StorageError.

        Lost records stay lost. But partitions of a topic that nobody knows would be in the way of
        the next one. Producer ids that were given out twice would take one producer's batches for
        retries of another's.
        """
        self.partition.sync()


def store_snapshot(storage: LogStorage, metadata: MetadataLog, now_ms: int) -> None:
    """Write a snapshot of the metadata log, if that can be done; a stop in order needs none.

    Apache Kafka does: see `txn.storage.native_metadata`.
    """
    try:
        storage.store_metadata_snapshot(metadata.partition, now_ms)
    except (CorruptLogError, StorageError) as error:
        log.warning("metadata.snapshot_not_written", reason=error.message)


def recover_metadata(
    storage: LogStorage,
    settings: BrokerSettings,
    identity: NodeIdentity,
    *,
    now_ms: Callable[[], int],
    begins_epochs: bool,
) -> tuple[MetadataLog, Image]:
    """Open the metadata log, replay it, and write the records that a start has to add.

    Args:
        storage: Keeps the log.
        settings: Of the broker; take over the altered values that the log holds.
        identity: Of the node, which has to keep every partition by itself.
        now_ms: Tells the time of day.
        begins_epochs: Lead every partition in an epoch more: offsets are given out again.

    Returns:
        The log, and the image, all of which is on the disk.

    Raises:
        CorruptLogError: the log is damaged.
        DirectoryError: the directory is of a larger cluster, or of a node with more directories.
        StorageError: the log cannot be opened, written or forced.
    """
    topic = Topic(METADATA_TOPIC, METADATA_TOPIC_ID, 1, METADATA_SETTINGS)
    metadata = MetadataLog(storage.open(topic, 0), now_ms)
    image = Image()
    replay = _replayed(storage, metadata.partition, image)
    deleted = require_no_strays(storage, metadata.partition, image, replay.deleted)
    unenforced = set(replay.unenforced)
    if image.acls and not settings["authorizer.class.name"]:
        unenforced.add("AccessControlEntry")
    if unenforced:
        log.warning(
            "metadata.not_enforced",
            records=",".join(sorted(unenforced)),
            reason="this broker lets everyone in; listen on loopback or a trusted network. With "
            "AccessControlEntry: or give authorizer.class.name",
        )
    _require_all_is_here(image, identity)
    if deleted:
        metadata.sync()  # a power failure could bring back a topic whose files are gone
    storage.discard(deleted, image.topics)
    apply_broker_settings(settings, image, identity.node_id)
    missing = [
        [AbortTransactionRecord()] if replay.is_open else [],
        _features(image),
        _next_leader_epochs(image, identity.node_id) if begins_epochs else [],
        _offsets_topic(image, storage, settings, identity),
    ]
    for records in missing:
        if records:
            metadata.append(records)
            for record in records:
                image.apply(record)
    metadata.sync()
    return metadata, image


def coordinator_topic_settings(topic: str, settings: BrokerSettings) -> dict[str, str]:
    """The own settings of a coordinator's topic when it is made."""
    segment_bytes = settings[SEGMENT_BYTES_SETTING[topic]]
    size = "internal.segment.bytes" if segment_bytes < SEGMENT_BYTES_MIN else "segment.bytes"
    return {
        "cleanup.policy": "compact",
        "compression.type": _COORDINATOR_COMPRESSION[topic],
        size: str(segment_bytes),
    }


def apply_broker_settings(settings: BrokerSettings, image: Image, node_id: int) -> None:
    """Apply the altered values of this broker and of every broker."""
    altered = image.broker_settings
    settings.change(here=altered.get(str(node_id), {}), everywhere=altered.get(EVERY_BROKER, {}))


def _replayed(storage: LogStorage, partition: PartitionLog, image: Image) -> MetadataReplay:
    replay = MetadataReplay(image)
    start, values = storage.metadata_snapshot(partition)
    for value in values:
        _read(replay, start, value)
    for batch in partition.batches(start):
        for stored in batch.records:
            if stored.offset >= start:
                _read(replay, stored.offset, stored.value or b"")
    return replay


def _read(replay: MetadataReplay, offset: int, value: bytes) -> None:
    try:
        replay.read(value)
    except ValueError as error:
        raise CorruptLogError(
            f"{METADATA_TOPIC}-0 holds a record that cannot be read, at offset {offset} or in the "
            f"snapshot of what is below it: {error}",
            offset=offset,
        ) from error


def _require_all_is_here(image: Image, identity: NodeIdentity) -> None:
    """Refuse a directory of a cluster with more nodes, or of a node with more directories."""
    for topic in image.topics.values():
        for index, placement in topic.placements.items():
            fault = placement.fault(identity.node_id, identity.directory_id)
            if fault is not None:
                raise DirectoryError(
                    f"partition {topic.name}-{index} cannot be served from this directory: "
                    f"{fault}. Give one of a node that is a cluster of its own, with one "
                    "directory; or, if its meta.properties was changed, put back a copy"
                )


def _features(image: Image) -> Sequence[MetadataRecord]:
    """The features of a new directory; of one from before consumer groups, the level of those."""
    if "metadata.version" not in image.features:
        return [FeatureLevelRecord(name, level) for name, level in FEATURES.items()]
    is_older = image.features["metadata.version"] < FEATURES["metadata.version"]
    if is_older or GROUP_FEATURE in image.features:
        return []
    return [FeatureLevelRecord(GROUP_FEATURE, FEATURES[GROUP_FEATURE])]


def _next_leader_epochs(image: Image, node_id: int) -> Sequence[MetadataRecord]:
    """Lead every partition in an epoch more, after a power failure.

    Offsets that were not on the disk are given out again. A reader that was beyond them would
    pass over the records stored there now; the epoch tells it that its log was cut (KIP-320).
    """
    return [
        PartitionChangeRecord(index, topic.topic_id, leader=node_id)
        for topic in image.topics.values()
        for index in topic.placements
    ]


def _offsets_topic(
    image: Image, storage: LogStorage, settings: BrokerSettings, identity: NodeIdentity
) -> Sequence[MetadataRecord]:
    """Groups are served from the first moment, so their topic is made by the first start."""
    if OFFSETS_TOPIC in image.topics:
        return []
    storage.begin(OFFSETS_TOPIC)
    return creation_records(
        OFFSETS_TOPIC,
        uuid.uuid4(),
        settings[PARTITION_COUNT_SETTING[OFFSETS_TOPIC]],
        coordinator_topic_settings(OFFSETS_TOPIC, settings),
        node_id=identity.node_id,
        directory_id=identity.directory_id,
    )
