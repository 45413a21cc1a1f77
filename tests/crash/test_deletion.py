"""Topics whose deletion is cut short, or fails."""

import shutil
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

import txn
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.python_syncs import sync_each
from txn.broker.replica_manager import REMOVED_AT_ONCE
from txn.errors import StorageError
from txn.server.loop.scheduler import LoopScheduler
from txn.storage.native_log import NativeLog

pytestmark = pytest.mark.crash

HELD_S = 0.3
"""Time that a sync takes where a request has to come before its end."""


def delete_topic(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for deleted in admin.delete_topics([name]).values():
        deleted.result(WAIT_S)


def topics(servers: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=WAIT_S).topics)


def grow(servers: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for grown in admin.create_partitions([NewPartitions(name, partitions)]).values():
        grown.result(WAIT_S)


def refuse(_: NativeLog) -> None:
    raise StorageError("the disk is gone")


def test_a_topic_made_again_after_a_crash_in_its_deletion_is_empty(tmp_path: Path) -> None:
    """It served the records of the deleted one, and its producers' state with them."""
    data, saved = tmp_path / "data", tmp_path / "saved"
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"of the deleted topic"])
        shutil.copytree(data / "orders-0", saved)
        delete_topic(broker.bootstrap_servers, "orders")
    # As if killed once the deletion was recorded, and once while files were removed.
    shutil.copytree(saved, data / "orders-0")
    shutil.copytree(saved, data / "orders-1-delete")

    with txn.Broker(data) as broker:
        left = sorted(path.name for path in data.glob("orders*"))
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"new"])
        found = read_all(broker.bootstrap_servers, "orders")

    assert left == []
    assert found == [b"new"]


def test_a_topic_is_made_anew_while_its_deletion_is_on_its_way_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused as existing. Kafka's controller decides on changes that are not durable."""
    holds, held = threading.Event(), threading.Event()
    sync = NativeLog.sync

    def sync_late(store: NativeLog) -> None:
        if store.topic == "__cluster_metadata" and holds.is_set():
            held.set()
            time.sleep(HELD_S)
        sync(store)

    monkeypatch.setattr(LoopScheduler, "sync_each", sync_each)
    monkeypatch.setattr(NativeLog, "sync", sync_late)
    with txn.Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        send(plain_producer(servers), "orders", [b"of the deleted topic"])
        holds.set()
        admin = AdminClient({"bootstrap.servers": servers})
        deletion = admin.delete_topics(["orders"])["orders"]
        assert held.wait(WAIT_S)
        create_topic(servers, "orders")
        deletion.result(WAIT_S)
        holds.clear()
        send(plain_producer(servers), "orders", [b"new"])
        assert read_all(servers, "orders") == [b"new"]


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_topic_is_made_anew_while_files_of_the_deleted_one_are_removed(
    is_asked_for: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another client's request was refused with KAFKA_STORAGE_ERROR: a directory was in the way."""
    began = threading.Event()
    delete = NativeLog.delete
    count = REMOVED_AT_ONCE + 1

    def delete_late(store: NativeLog) -> None:
        began.set()
        time.sleep(HELD_S / 3)
        delete(store)

    monkeypatch.setattr(NativeLog, "delete", delete_late)
    with txn.Broker(tmp_path / "data", num_partitions=count) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", count)
        for index in range(count):  # it has a directory once it is written
            send(plain_producer(servers), "orders", [b"of the deleted topic"], index)
        admin = AdminClient({"bootstrap.servers": servers})
        deletion = admin.delete_topics(["orders"])["orders"]
        assert began.wait(WAIT_S)
        if is_asked_for:
            create_topic(servers, "orders", count)
        send(plain_producer(servers), "orders", [b"new"])
        deletion.result(WAIT_S)
        assert read_all(servers, "orders") == [b"new"]
    assert "topic.not_created" not in caplog.text


@pytest.mark.parametrize("length", [246, 247, 249])
def test_a_topic_of_the_longest_name_is_deleted_and_made_again(tmp_path: Path, length: int) -> None:
    """Its directory could not be renamed for removal: the name came to more than 255 bytes."""
    data, name = tmp_path / "data", "t" * length
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, name)
        send(plain_producer(broker.bootstrap_servers), name, [b"of the deleted topic"])
        delete_topic(broker.bootstrap_servers, name)
        left = sorted(path.name for path in data.glob("t*"))
        create_topic(broker.bootstrap_servers, name)
        send(plain_producer(broker.bootstrap_servers), name, [b"new"])
        assert left == []
        assert read_all(broker.bootstrap_servers, name) == [b"new"]


def test_a_topic_of_many_partitions_is_gone_once_its_deletion_is_answered(tmp_path: Path) -> None:
    """Its directories were removed on the control loop, one after the other."""
    data, partitions = tmp_path / "data", 2 * REMOVED_AT_ONCE
    with txn.Broker(data) as broker:
        for _ in range(2):
            create_topic(broker.bootstrap_servers, "orders", partitions=partitions)
            producer = plain_producer(broker.bootstrap_servers)
            for partition in range(partitions):
                send(producer, "orders", [b"x"], partition)
            delete_topic(broker.bootstrap_servers, "orders")
            assert list(data.glob("orders*")) == []


def test_what_kafka_and_earlier_versions_were_deleting_is_removed_by_a_start(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    txn.Broker(data).close()
    of_kafka = "t" * 213 + "-0." + "0123456789abcdef" * 2 + "-delete"
    for name in (of_kafka, "orders-1-delete"):
        (data / name).mkdir()
        (data / name / "00000000000000000000.log").write_bytes(b"of a deleted topic")
    txn.Broker(data).close()
    assert list(data.glob("*-delete")) == []


def test_a_partition_of_another_topic_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"of another topic"])
        shutil.copytree(data / "orders-0", data / "invoices-0")
        (data / "orders-1").mkdir()

        with pytest.raises(KafkaException, match="invoices-0 is in the way"):
            create_topic(broker.bootstrap_servers, "invoices")
        assert "invoices" not in topics(broker.bootstrap_servers)
        with pytest.raises(KafkaException, match="orders-1 is in the way"):
            grow(broker.bootstrap_servers, "orders", 2)


def test_a_partition_that_cannot_be_removed_leaves_no_other_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failure cost the client its connection, and left the rest of the topic."""
    data = tmp_path / "data"
    remove = NativeLog.delete
    monkeypatch.setattr(
        NativeLog, "delete", lambda store: (remove if store.index else refuse)(store)
    )
    with txn.Broker(data) as broker:
        create_topic(broker.bootstrap_servers, "orders", partitions=2)
        for partition in range(2):
            send(plain_producer(broker.bootstrap_servers), "orders", [b"x"], partition)
        delete_topic(broker.bootstrap_servers, "orders")
        after_deletion = sorted(path.name for path in data.glob("orders*"))
    with txn.Broker(data):
        after_restart = sorted(path.name for path in data.glob("orders*"))

    assert after_deletion == ["orders-0"]
    assert after_restart == []


def test_a_deletion_that_cannot_be_recorded_is_refused_and_the_topic_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = NativeLog.append

    def append_but_no_metadata(store: NativeLog, *args: object, **kwargs: object) -> int:
        if store.topic == "__cluster_metadata":
            raise StorageError("the disk is full")
        return append(store, *args, **kwargs)  # type: ignore[arg-type]

    with txn.Broker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"kept"])
        monkeypatch.setattr(NativeLog, "append", append_but_no_metadata)
        with pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"):
            delete_topic(broker.bootstrap_servers, "orders")
        assert read_all(broker.bootstrap_servers, "orders") == [b"kept"]
