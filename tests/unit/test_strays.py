"""Directories of topics that the metadata log does not know, and those that only look like it."""

from collections.abc import Collection
from pathlib import Path
from uuid import UUID

import pytest

from txn.broker.strays import require_no_strays
from txn.errors import CorruptLogError
from txn.metadata.image import Image, creation_records
from txn.metadata.record_encoding import encode
from txn.metadata.records import RemoveTopicRecord
from txn.storage.ids import encode_id
from txn.storage.strays import METADATA_FILE, Stray, strays_in
from txn.testing import MemoryLog

KNOWN, UNKNOWN, GONE = UUID(int=101), UUID(int=102), UUID(int=103)
DIRECTORY = UUID(int=201)


@pytest.fixture
def image() -> Image:
    """Knows the topic `orders`, with one partition."""
    image = Image()
    for record in creation_records("orders", KNOWN, 1, {}, node_id=1, directory_id=DIRECTORY):
        image.apply(record)
    return image


def make(root: Path, name: str, topic_id: UUID | None, *, base: int = 0, log: bytes = b"x") -> Path:
    directory = root / name
    directory.mkdir()
    (directory / f"{base:020}.log").write_bytes(log)
    if topic_id is not None:
        text = f"version: 0\ntopic_id: {encode_id(topic_id)}\n"
        (directory / METADATA_FILE).write_text(text)
    return directory


def test_a_directory_of_an_unknown_topic_is_stray(tmp_path: Path, image: Image) -> None:
    directory = make(tmp_path, "payments-0", UNKNOWN)

    assert strays_in(tmp_path, image, ()) == [Stray(directory, UNKNOWN, has_records=True)]


def test_a_partition_beyond_those_of_its_topic_is_stray(tmp_path: Path, image: Image) -> None:
    """The record of its creation is among the lost ones."""
    directory = make(tmp_path, "orders-1", KNOWN)

    assert strays_in(tmp_path, image, ()) == [Stray(directory, KNOWN, has_records=True)]


@pytest.mark.parametrize(
    ("name", "topic_id"),
    [
        ("orders-0", KNOWN),
        ("orders-0", UNKNOWN),  # opening it says so
        ("returns-0", GONE),
        ("copy-0", KNOWN),
        ("unmarked-0", None),
        ("payments-0.0123456789abcdef0123456789abcdef-delete", UNKNOWN),
        ("payments-0.0123456789abcdef0123456789abcdef-stray", UNKNOWN),
        ("__cluster_metadata-0", UUID(int=1)),
    ],
)
def test_other_directories_are_not_stray(
    tmp_path: Path, image: Image, name: str, topic_id: UUID | None
) -> None:
    make(tmp_path, name, topic_id)

    assert strays_in(tmp_path, image, {GONE}) == []


@pytest.mark.parametrize(("base", "log", "has_records"), [(0, b"", False), (7, b"", True)])
def test_a_log_that_begins_beyond_0_had_records(
    tmp_path: Path, image: Image, base: int, log: bytes, *, has_records: bool
) -> None:
    make(tmp_path, "payments-0", UNKNOWN, base=base, log=log)

    assert [stray.has_records for stray in strays_in(tmp_path, image, ())] == [has_records]


class Storage:
    """One stray partition, of the topic `GONE`."""

    def strays(self, image: Image, deleted: Collection[UUID]) -> list[Stray]:
        return [] if GONE in deleted else [Stray(Path("returns-0"), GONE, has_records=True)]


@pytest.fixture
def metadata() -> MemoryLog:
    return MemoryLog("__cluster_metadata", 0)


def test_a_deletion_before_the_newest_snapshot_explains_a_directory(
    metadata: MemoryLog, image: Image
) -> None:
    metadata.append([(None, b"unreadable")], timestamp_ms=0)
    metadata.append([(None, encode(RemoveTopicRecord(GONE)))], timestamp_ms=0)

    require_no_strays(Storage(), metadata, image, deleted=set())


def test_a_stray_partition_with_records_refuses_the_start(
    metadata: MemoryLog, image: Image
) -> None:
    with pytest.raises(CorruptLogError, match="does not know the topics of returns-0"):
        require_no_strays(Storage(), metadata, image, deleted=set())
