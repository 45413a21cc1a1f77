"""Changes the metadata of a stopped broker: it locks the data directory and serves nothing.

Retention, compaction, timeouts and elections are left to the next start, which has the broker's
settings. So a directory that was not stopped in order is refused, as its recovery is a start's.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from txn.broker.metadata_log import NodeIdentity, recover_metadata, store_snapshot
from txn.clock import now_ms
from txn.config import BrokerSettings
from txn.errors import DirectoryError, StorageError
from txn.metadata.image import Image
from txn.metadata.records import MetadataRecord
from txn.storage.directory import META, NO_BROKER_EPOCH, DataDirectory
from txn.storage.native import NativeStorage

START_IT: Final = "Start the broker on it and stop it; then try again"


def change_metadata(
    path: Path, settings: BrokerSettings, change: Callable[[Image], Sequence[MetadataRecord]]
) -> None:
    """Append records to the metadata log of a stopped broker, durably.

    Args:
        path: The data directory, made if need be.
        settings: The broker's.
        change: Makes the records from the metadata that is stored.

    Raises:
        DirectoryError: the directory is in use, or was not stopped in order by txn.
        CorruptLogError: the metadata log is damaged.
        StorageError: the records cannot be written.
    """
    node_id = settings.given.get("node.id")
    if os.path.lexists(path / META):
        _require_in_order(path, node_id)
    directory = DataDirectory.open(path, node_id=node_id)
    try:
        storage = NativeStorage.load(directory.path, settings, was_clean=directory.was_clean)
        metadata, image = recover_metadata(
            storage,
            settings,
            NodeIdentity(directory.node_id, directory.cluster_id, directory.directory_id),
            now_ms=now_ms,
            begins_epochs=False,
        )
        try:
            records = change(image)
            if records:
                metadata.append(records)
                metadata.sync()
                store_snapshot(storage, metadata, now_ms())
        finally:
            failures = storage.close_all([metadata.partition])
        if failures:
            raise failures[0]
        try:
            storage.upkeep.write_recovery_points()
            storage.upkeep.write_log_starts()
            epoch = image.broker_epochs.get(directory.node_id, NO_BROKER_EPOCH)
            directory.mark_clean(epoch)
        except OSError as error:
            raise StorageError(f"cannot write the checkpoints in {path}: {error}") from error
    finally:
        directory.release()


def _require_in_order(path: Path, node_id: int | None) -> None:
    """Refuse a directory that needs a recovery, before anything in it is changed."""
    directory = DataDirectory.open(path, node_id=node_id, takes_over=False)
    try:
        if not directory.was_clean:
            raise DirectoryError(f"{path} was not stopped in order. {START_IT}", path=str(path))
        if directory.was_left_by_kafka:
            raise DirectoryError(f"{path} was left by Apache Kafka. {START_IT}", path=str(path))
    finally:
        directory.release()
