"""Snapshots of the metadata log are written at a stop in order, whole, and read at a start."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import txn
from support.clients import WAIT_S, create_topic
from support.damaged import events
from txn.config import BrokerSettings
from txn.errors import StorageError
from txn.inspect.layout import METADATA_TOPIC_ID
from txn.inspect.metadata_log import read_metadata
from txn.inspect.verify import verify
from txn.metadata.image import Image, Topic
from txn.metadata.replay import MetadataReplay
from txn.storage import native_log, native_metadata, private
from txn.storage.native import NativeStorage

METADATA = "__cluster_metadata-0"


def snapshots(data: Path) -> list[str]:
    """Names of the snapshots, and of parts of them."""
    return sorted(path.name for path in (data / METADATA).glob("*.checkpoint*"))


def topics(servers: str) -> set[str]:
    return {*AdminClient({"bootstrap.servers": servers}).list_topics(timeout=WAIT_S).topics}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a topic, whose broker was stopped in order."""
    with txn.Broker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "first")
    return tmp_path / "data"


def test_a_stop_in_order_leaves_one_snapshot_of_the_whole_log(data: Path) -> None:
    (first,) = snapshots(data)
    assert verify(data).findings == []
    with txn.Broker(data) as broker:
        assert "first" in topics(broker.bootstrap_servers)
    assert snapshots(data) == [first]
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "second")
    (second,) = snapshots(data)
    assert second > first
    with txn.Broker(data) as broker:
        assert topics(broker.bootstrap_servers) >= {"first", "second"}
    assert verify(data).findings == []


def test_the_metadata_is_that_of_the_log(data: Path, tmp_path: Path) -> None:
    with txn.Broker(data) as broker:
        servers = broker.bootstrap_servers
        for number in range(40):
            create_topic(servers, f"topic-{number}", partitions=number % 3 + 1, retention_ms="9")
        admin = AdminClient({"bootstrap.servers": servers})
        gone = [f"topic-{number}" for number in range(0, 40, 3)]
        for deleted in admin.delete_topics(gone).values():
            deleted.result(WAIT_S)
    directory = data / METADATA
    storage = NativeStorage.load(data, BrokerSettings(), was_clean=True)
    log = storage.open(Topic("__cluster_metadata", METADATA_TOPIC_ID), 0)
    end, values = storage.metadata_snapshot(log)
    assert end == log.log_end_offset
    replay = MetadataReplay(Image())
    for value in values:
        replay.read(value)
    assert _known(replay.image) == _known(read_metadata(directory))
    assert len(replay.image.topics) > len(gone)


def _known(image: Image) -> dict[str, object]:
    return {name: value for name, value in vars(image).items() if name != "version"}


@pytest.mark.parametrize("keep", [0, 1, 40, -1])
def test_a_damaged_snapshot_is_passed_over_while_the_log_has_everything(
    data: Path, caplog: pytest.LogCaptureFixture, keep: int
) -> None:
    (name,) = snapshots(data)
    path = data / METADATA / name
    path.write_bytes(path.read_bytes()[:keep])
    assert verify(data).findings
    with txn.Broker(data) as broker:
        assert "first" in topics(broker.bootstrap_servers)
    assert events(caplog, "metadata.snapshot_passed_over")
    assert snapshots(data) == [name]
    assert verify(data).findings == []  # the stop has written another


def test_a_part_of_a_snapshot_is_no_snapshot(data: Path) -> None:
    (name,) = snapshots(data)
    directory = data / METADATA
    (directory / f"{9:020}-{0:010}.checkpoint.part").write_bytes(b"torn")
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "second")
    (second,) = snapshots(data)
    assert second > name


@pytest.mark.parametrize("step", ["replace_file", "sync_directory"])
def test_a_snapshot_that_no_disk_takes_leaves_the_one_before(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    before = snapshots(data)

    def refuse(*_given: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as full:
        full.setattr(native_metadata, step, refuse)
        with txn.Broker(data) as broker:
            create_topic(broker.bootstrap_servers, "second")
    assert snapshots(data)[:1] == before
    assert events(caplog, "metadata.snapshot_not_written")
    with txn.Broker(data) as broker:
        assert topics(broker.bootstrap_servers) >= {"first", "second"}
    assert len(snapshots(data)) == 1


def test_a_log_whose_sync_fails_gets_no_snapshot(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot ahead of the log on the disk would tell of records that a power failure takes."""
    before = snapshots(data)
    written: list[object] = []

    def note(call: Callable[..., None]) -> Callable[..., None]:
        def noted(*given: object) -> None:
            written.append(given)
            call(*given)

        return noted

    with monkeypatch.context() as failing:
        failing.setattr(native_metadata, "replace_file", note(private.replace_file))
        broker = txn.Broker(data)
        create_topic(broker.bootstrap_servers, "second")

        def refuse(log: native_log.NativeLog) -> None:
            raise StorageError("no sync", topic=log.topic, partition=log.index)

        failing.setattr(native_log.NativeLog, "sync", refuse)
        broker.close()
    assert written == []
    assert snapshots(data) == before
