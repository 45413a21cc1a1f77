"""The start of the metadata log: the order of its acts on the disk."""

import uuid
from pathlib import Path
from unittest.mock import patch

import pytest

from txn.broker.metadata_log import MetadataLog, NodeIdentity, recover_metadata
from txn.config import BrokerSettings
from txn.metadata.image import Image, Topic, creation_records
from txn.metadata.records import RemoveTopicRecord
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog

TOPIC_ID = uuid.UUID(int=7)
IDENTITY = NodeIdentity(1, "cluster", uuid.UUID(int=8))
ORDERS = Topic("orders", TOPIC_ID, 1, {})


def recovered(
    root: Path, *, power_failed: bool = False
) -> tuple[NativeStorage, MetadataLog, Image]:
    settings = BrokerSettings({})
    storage = NativeStorage.load(root, settings, was_clean=False, power_failed=power_failed)
    metadata, image = recover_metadata(
        storage, settings, IDENTITY, now_ms=lambda: 1, begins_epochs=power_failed
    )
    return storage, metadata, image


def with_orders(root: Path) -> tuple[NativeStorage, MetadataLog, NativeLog]:
    """A start that makes a topic and writes a record to it."""
    storage, metadata, _ = recovered(root)
    directory_id = IDENTITY.directory_id
    made = creation_records("orders", TOPIC_ID, 1, {}, node_id=1, directory_id=directory_id)
    metadata.append(made)
    log = storage.open(ORDERS, 0)
    log.append([(b"k", b"promised")], timestamp_ms=1)
    return storage, metadata, log


class PowerFailure(Exception):
    """Nothing that comes later is done."""


def test_P1_a_start_removes_no_files_of_a_topic_before_its_deletion_is_on_the_disk(
    tmp_path: Path,
) -> None:
    """The broker was killed before the deletion was. Power took the record, and the files were gone
    already: the topic was there, and empty.
    """
    storage, metadata, log = with_orders(tmp_path)
    metadata.sync()
    log.sync()
    storage.upkeep.write_recovery_points()
    segment = max(tmp_path.glob("__cluster_metadata-0/*.log"))
    synced_bytes = segment.stat().st_size
    metadata.append([RemoveTopicRecord(TOPIC_ID)])

    with (
        patch.object(MetadataLog, "sync", side_effect=PowerFailure),
        pytest.raises(PowerFailure),
    ):
        recovered(tmp_path)
    with segment.open("r+b") as file:
        file.truncate(synced_bytes)

    storage, _, image = recovered(tmp_path, power_failed=True)
    assert "orders" in image.topics
    (reopened,) = storage.open_all([(image.topics["orders"], 0)])
    assert isinstance(reopened, NativeLog)
    assert [record.value for batch in reopened.batches() for record in batch.records] == [
        b"promised"
    ]


def test_a_kill_while_a_start_removes_a_topic_leaves_its_name_free(tmp_path: Path) -> None:
    """`partition.metadata` was gone and other files were not: nobody knew whose they were."""
    _, metadata, _ = with_orders(tmp_path)
    metadata.append([RemoveTopicRecord(TOPIC_ID)])

    def remove_a_part(directory: Path) -> None:
        (directory / "partition.metadata").unlink()
        raise PowerFailure

    with patch("shutil.rmtree", remove_a_part), pytest.raises(PowerFailure):
        recovered(tmp_path)
    assert not (tmp_path / "orders-0").exists()
    recovered(tmp_path)
    assert [path.name for path in tmp_path.glob("*-delete")] == []


def test_a_start_removes_the_files_of_a_topic_whose_deletion_was_cut_short(tmp_path: Path) -> None:
    _, metadata, _ = with_orders(tmp_path)
    metadata.append([RemoveTopicRecord(TOPIC_ID)])
    _, _, image = recovered(tmp_path)
    assert "orders" not in image.topics
    assert not (tmp_path / "orders-0").exists()
