"""Partitions of one data directory: how each is opened, and the files of an earlier run."""

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from txn.config import BrokerSettings
from txn.errors import CorruptLogError, StorageError
from txn.identifiers import ProducerIdAndEpoch
from txn.metadata.image import Topic
from txn.partition import ProducerStateManager
from txn.partition.admission import AdmitResult
from txn.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_checkpoint,
    write_checkpoint,
)
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog
from txn.storage.refusals import REFUSED_PARTITIONS
from txn.storage.strays import METADATA_FILE

METADATA = Topic("__cluster_metadata", uuid.UUID(int=1), 1)
ORDERS = Topic("orders", uuid.UUID(int=7), 3, {"internal.segment.bytes": "300"})


def storage_in(root: Path, **settings: object) -> NativeStorage:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return NativeStorage.load(root, BrokerSettings(given), was_clean=False)


def fill(store: NativeLog, count: int) -> None:
    for _ in range(count):
        store.append([(None, b"x" * 100)], timestamp_ms=1000)


def test_partitions_are_opened_in_order_however_many_threads_recover(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    for index in range(3):
        fill(storage.open(ORDERS, index), index + 1)
    again = storage_in(tmp_path, num_recovery_threads_per_data_dir=4)
    stores = again.open_all([(ORDERS, index) for index in range(4)])
    opened = [store for store in stores[:3] if isinstance(store, NativeLog)]
    assert [(store.index, store.log_end_offset) for store in opened] == [(0, 1), (1, 2), (2, 3)]
    assert stores[3] is None


def test_P9_a_damaged_partition_keeps_no_other_from_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_in(tmp_path)
    for index in range(3):
        fill(storage.open(ORDERS, index), 3)
    segment = tmp_path / "orders-1" / f"{0:020}.log"
    stored = bytearray(segment.read_bytes())
    stored[100] ^= 1
    segment.write_bytes(stored)
    for threads in (1, 4):
        again = storage_in(tmp_path, num_recovery_threads_per_data_dir=threads)
        first, damage, last, none = again.open_all([(ORDERS, index) for index in range(4)])
        assert isinstance(first, NativeLog)
        assert isinstance(last, NativeLog)
        assert none is None
        assert isinstance(damage, CorruptLogError)
        assert (vars(damage)["path"], vars(damage)["position"]) == (str(segment), 0)
    assert segment.read_bytes() == stored


def test_a_start_that_fails_leaves_nobody_at_work_on_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads went on recovering, beside the next owner of the directory."""
    storage = storage_in(tmp_path)
    for index in range(4):
        storage.open(ORDERS, index).append([(None, b"x")], timestamp_ms=0)
    again = NativeStorage.load(
        tmp_path, BrokerSettings({"num.recovery.threads.per.data.dir": "4"}), was_clean=False
    )
    has_begun, ended = threading.Event(), []

    def opened(topic: Topic, index: int) -> NativeLog:
        if index == 0:
            has_begun.wait()
            raise RuntimeError("a bug")
        has_begun.set()
        time.sleep(0.2)  # recovering takes a while
        ended.append(index)
        return storage.open(topic, index)

    monkeypatch.setattr(again, "_open", opened)
    begun = threading.active_count()
    with pytest.raises(RuntimeError, match="a bug"):
        again.open_all([(ORDERS, index) for index in range(4)])
    assert ended
    assert threading.active_count() == begun


def test_a_tick_moves_the_recovery_points_that_are_written_next(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    fill(storage.open(ORDERS, 0), 5)
    storage.upkeep.write_recovery_points()
    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {}
    storage.upkeep.tick()
    storage.upkeep.write_recovery_points()
    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {("orders", 0): 4}


@pytest.mark.parametrize(
    ("is_synced", "power_failed"), [(False, False), (True, False), (True, True)]
)
def test_P9_a_log_that_vanishes_a_tick_after_its_first_record_is_missed(
    tmp_path: Path, *, is_synced: bool, power_failed: bool
) -> None:
    """Checkpoints named it after 5 s, and after 60 s for a power failure; until then a start served
    the partition as one that was never written.
    """
    storage = storage_in(tmp_path)
    store = storage.open(ORDERS, 0)
    store.append([(None, b"x")], timestamp_ms=0)
    if is_synced:
        store.sync()
    storage.upkeep.tick()
    shutil.rmtree(tmp_path / "orders-0")

    again = NativeStorage.load(
        tmp_path, BrokerSettings({}), was_clean=False, power_failed=power_failed
    )
    with pytest.raises(CorruptLogError, match="orders-0 is damaged: it is gone"):
        again.open(ORDERS, 0)


def test_a_tick_writes_the_checkpoints_once_for_a_new_log(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    store = storage.open(ORDERS, 0)
    store.append([(None, b"x")], timestamp_ms=0)
    store.sync()
    storage.upkeep.tick()
    store.append([(None, b"x")], timestamp_ms=0)
    store.sync()
    storage.upkeep.tick()
    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {("orders", 0): 1}


def test_a_tick_notes_how_much_of_the_metadata_log_was_synced_and_what_was_not_changes_nothing(
    tmp_path: Path,
) -> None:
    storage = storage_in(tmp_path)
    metadata, orders = storage.open(METADATA, 0), storage.open(ORDERS, 0)
    fill(metadata, 2)
    fill(orders, 1)
    storage.upkeep.tick()
    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {}

    metadata.sync()
    storage.upkeep.tick()

    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {("__cluster_metadata", 0): 2}


def test_a_checkpoint_that_cannot_be_written_is_told_of_once_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = storage_in(tmp_path)
    metadata = storage.open(METADATA, 0)
    fill(metadata, 1)
    metadata.sync()
    (tmp_path / RECOVERY_POINTS).mkdir()
    storage.upkeep.tick()
    storage.upkeep.tick()
    (tmp_path / RECOVERY_POINTS).rmdir()

    storage.upkeep.tick()

    assert caplog.text.count("checkpoint.not_written") == 1
    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {("__cluster_metadata", 0): 1}


def test_checkpoints_of_partitions_that_are_not_there_are_dropped(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    fill(storage.open(ORDERS, 0), 5)
    for name in (RECOVERY_POINTS, LOG_STARTS):
        write_checkpoint(tmp_path / name, {("orders", 0): 2, ("gone", 9): 17})
    storage = storage_in(tmp_path)
    storage.discard((), {"orders": ORDERS})
    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {("orders", 0): 2}
    assert read_checkpoint(tmp_path / LOG_STARTS) == {("orders", 0): 2}
    store = storage.open(ORDERS, 0)
    storage.upkeep.write_recovery_points()
    assert store.log_start_offset == 2
    assert read_checkpoint(tmp_path / RECOVERY_POINTS) == {("orders", 0): 2}
    assert read_checkpoint(tmp_path / LOG_STARTS) == {("orders", 0): 2}


def test_what_a_deletion_left_is_removed_and_the_files_beside_it_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every start after a deletion warned of partition.metadata files below plain files."""
    store = storage_in(tmp_path).open(ORDERS, 0)
    fill(store, 1)
    store.close()
    (tmp_path / "meta.properties").write_text("version=1\n")
    storage_in(tmp_path).discard({ORDERS.topic_id}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meta.properties"]
    assert "partition.metadata_ignored" not in caplog.text


def test_a_partition_made_anew_inherits_nothing(tmp_path: Path) -> None:
    """A deleted topic's recovery point was believed of the topic that took its name."""
    storage = storage_in(tmp_path)
    store = storage.open(ORDERS, 0)
    fill(store, 5)
    store.sync()
    storage.upkeep.write_recovery_points()
    storage.upkeep.write_log_starts()
    store.delete()
    storage.begin("orders")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        assert read_checkpoint(tmp_path / name) == {}
    (none,) = storage_in(tmp_path).open_all([(ORDERS, 0)])
    assert none is None
    assert storage.open(ORDERS, 0).log_end_offset == 0


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS])
def test_P9_a_log_that_ends_below_what_a_checkpoint_says_is_refused(
    tmp_path: Path, name: str
) -> None:
    """The checkpoint counted as none, and the log was served from its end on."""
    storage = storage_in(tmp_path)
    fill(storage.open(ORDERS, 0), 2)
    write_checkpoint(tmp_path / name, {("orders", 0): 3, ("orders", 1): 4})
    for was_clean in (False, True):
        again = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=was_clean)
        ends_early, is_gone, unwritten = again.open_all([(ORDERS, index) for index in range(3)])
        assert isinstance(ends_early, CorruptLogError)
        assert isinstance(is_gone, CorruptLogError)
        assert unwritten is None
        assert f"the log ends at offset 2, but {name} says" in ends_early.message
        assert f"orders-1 is damaged: it is gone, but {name} says" in is_gone.message
        with pytest.raises(CorruptLogError, match="it is gone"):
            again.open(ORDERS, 1)
        assert not (tmp_path / "orders-1").exists()
        assert read_checkpoint(tmp_path / name)["orders", 1] == 4
        (tmp_path / REFUSED_PARTITIONS).unlink()  # each is judged for itself
    after = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=False, power_failed=True)
    store, is_gone = after.open_all([(ORDERS, 0), (ORDERS, 1)])
    was_on_the_disk = name == RECOVERY_POINTS
    assert isinstance(store, CorruptLogError) == was_on_the_disk
    assert isinstance(is_gone, CorruptLogError) == was_on_the_disk


def test_P9_a_directory_that_is_gone_is_missed_if_only_its_log_start_was_noted(
    tmp_path: Path,
) -> None:
    """A kill between two checkpoints left `__consumer_offsets 0 0` alone; it began anew."""
    storage_in(tmp_path)
    write_checkpoint(tmp_path / LOG_STARTS, {("orders", 0): 0})
    again = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=False)

    is_gone, unwritten = again.open_all([(ORDERS, 0), (ORDERS, 1)])

    assert isinstance(is_gone, CorruptLogError)
    assert unwritten is None


def test_a_topic_made_anew_is_not_taken_for_one_whose_log_start_alone_was_noted(
    tmp_path: Path,
) -> None:
    storage_in(tmp_path)
    write_checkpoint(tmp_path / LOG_STARTS, {("orders", 0): 0})
    again = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=False)

    again.begin("orders")

    (unwritten,) = again.open_all([(ORDERS, 0)])
    assert unwritten is None


def test_P9_what_no_checkpoint_vouches_for_after_a_clean_stop_is_read_through(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An emptied checkpoint switched the checks of a clean stop off, without a word."""
    storage = storage_in(tmp_path)
    store = storage.open(ORDERS, 0)
    fill(store, 1)
    store.close()
    segment = tmp_path / "orders-0" / f"{0:020}.log"
    stored = bytearray(segment.read_bytes())
    stored[-1] ^= 1
    segment.write_bytes(stored)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        (tmp_path / name).write_text("")
    again = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=True)
    assert caplog.text.count("checkpoint.ignored") >= 2
    with pytest.raises(CorruptLogError, match="its full length is there"):
        again.open(ORDERS, 0)


@pytest.mark.parametrize("text", ["", "rubbish", "0\n1\norders 7 3\n"])
def test_P8_senseless_checkpoints_cost_time_and_nothing_else(tmp_path: Path, text: str) -> None:
    storage = storage_in(tmp_path)
    fill(storage.open(ORDERS, 0), 5)
    for name in (RECOVERY_POINTS, LOG_STARTS):
        (tmp_path / name).write_text(text)
    (store,) = storage_in(tmp_path).open_all([(ORDERS, 0)])
    assert isinstance(store, NativeLog)
    assert (store.log_start_offset, store.log_end_offset) == (0, 5)
    assert sum(len(batch.records) for batch in store.batches()) == 5


def test_old_segments_are_removed_by_the_settings_in_force(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    store = storage.open(ORDERS, 0)
    fill(store, 5)
    storage.upkeep.retain(now_ms=604_801_000)
    assert store.log_start_offset == 0
    storage.upkeep.retain(now_ms=604_801_001)
    assert store.log_start_offset == 5


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
@pytest.mark.parametrize(
    "name",
    [
        f"{RECOVERY_POINTS}.tmp",
        f"{HIGH_WATERMARKS}.tmp",
        f"{LOG_STARTS}.tmp",
        "orders-0/leader-epoch-checkpoint.tmp",
        "orders-0/partition.metadata.tmp",
    ],
)
def test_something_else_in_the_place_of_an_unfinished_file_is_moved_aside(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    """A FIFO held its writer for ever, a directory kept the partition from being opened."""
    fill(storage_in(tmp_path).open(ORDERS, 0), 5)
    for of_the_log in (METADATA_FILE, "leader-epoch-checkpoint"):
        (tmp_path / "orders-0" / of_the_log).unlink()
    make(tmp_path / name)

    storage = storage_in(tmp_path)
    store = storage.open(ORDERS, 0)
    fill(store, 2)
    store.close()
    storage.upkeep.write_recovery_points()
    storage.upkeep.write_log_starts()

    again = storage_in(tmp_path).open(ORDERS, 0)
    assert (again.log_start_offset, again.log_end_offset) == (0, 7)
    assert (tmp_path / name.removesuffix(".tmp")).is_file()
    assert (tmp_path / f"{name}.given-up").exists()


@pytest.mark.parametrize("name", ["txnindex-checkpoint.tmp", f"{5:020}.snapshot.tmp"])
def test_a_fifo_in_the_place_of_an_unfinished_file_keeps_no_partition_from_being_opened(
    tmp_path: Path, name: str
) -> None:
    fill(storage_in(tmp_path).open(ORDERS, 0), 5)
    os.mkfifo(tmp_path / "orders-0" / name)

    store = storage_in(tmp_path).open(ORDERS, 0)
    fill(store, 2)
    store.close()

    assert storage_in(tmp_path).open(ORDERS, 0).log_end_offset == 7


class WaitingLog:
    """A log whose sync waits for another one's, as a disk that takes its time."""

    def __init__(self, met: threading.Barrier, error: StorageError | None = None) -> None:
        self.met = met
        self.error = error
        self.is_synced = False

    def sync(self) -> None:
        self.met.wait(timeout=30)
        self.is_synced = True
        if self.error is not None:
            raise self.error


def test_many_partitions_are_synced_side_by_side(tmp_path: Path) -> None:
    """A start after a kill in a commit over 3,000 partitions synced one after the other, 43 s."""
    met, error = threading.Barrier(2), StorageError("Input/output error")
    logs = [WaitingLog(met) for _ in range(31)]
    logs.insert(3, WaitingLog(met, error))

    failure = storage_in(tmp_path).sync_all(logs)  # type: ignore[arg-type]

    assert failure is error
    assert all(log.is_synced for log in logs)


def test_a_partition_metadata_that_a_crash_left_empty_is_written_again(tmp_path: Path) -> None:
    """It stayed empty, and Apache Kafka does not start on such a directory."""
    fill(storage_in(tmp_path).open(ORDERS, 0), 1)
    path = tmp_path / "orders-0" / "partition.metadata"
    text = path.read_text()
    path.write_bytes(b"")
    storage_in(tmp_path).open(ORDERS, 0)
    assert path.read_text() == text


def test_snapshots_that_a_power_failure_has_torn_are_removed(tmp_path: Path) -> None:
    """They stayed, and `txn log verify` called the directory damaged."""
    fill(storage_in(tmp_path).open(ORDERS, 0), 5)
    first, *others = sorted((tmp_path / "orders-0").glob("*.snapshot"))
    first.write_bytes(b"")
    storage = NativeStorage.load(tmp_path, BrokerSettings({}), was_clean=False, power_failed=True)
    storage.open(ORDERS, 0)
    assert not first.exists()
    assert others
    assert all(path.exists() for path in others)


def test_P3_a_block_waits_for_the_batch_that_was_admitted_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records have to be on the disk before the marker, so they have to be counted."""
    is_admitted, may_be_written = threading.Event(), threading.Event()
    admit = ProducerStateManager.admit

    def admit_slowly(*arguments: Any) -> AdmitResult:
        verdict = admit(*arguments)
        is_admitted.set()
        assert may_be_written.wait(10)
        return verdict

    monkeypatch.setattr(ProducerStateManager, "admit", admit_slowly)
    store = storage_in(tmp_path).open(ORDERS, 0)
    records = [(None, b"a"), (None, b"b")]
    producer = ProducerIdAndEpoch(7, 0)
    with ThreadPoolExecutor() as threads:
        appended = threads.submit(store.append, records, timestamp_ms=0, producer=producer)
        assert is_admitted.wait(10)
        blocked = threads.submit(store.block_txn, 7)
        with pytest.raises(TimeoutError):
            blocked.result(0.1)
        may_be_written.set()
        assert blocked.result(10) == appended.result(10) + len(records) == store.log_end_offset
    with pytest.raises(StorageError, match="refused with error 47"):
        store.append(records, timestamp_ms=0, producer=producer)


@pytest.mark.parametrize("is_inside", [True, False])
def test_P9_a_link_to_the_directory_of_another_partition_is_refused_by_name(
    tmp_path: Path, is_inside: bool
) -> None:
    """Both logs wrote to the same files, and each found damage there later."""
    data = tmp_path / "data"
    data.mkdir()
    fill(storage_in(data).open(ORDERS, 0), 3)
    first, link = data / "orders-0", data / "orders-1"
    real = first if is_inside else first.rename(tmp_path / "elsewhere")
    if not is_inside:
        first.symlink_to(real)
    link.symlink_to(real)

    storage = storage_in(data, num_recovery_threads_per_data_dir=1)
    opened, refused, _ = storage.open_all([(ORDERS, index) for index in range(3)])

    assert isinstance(opened, NativeLog)
    assert opened.log_end_offset == 3
    assert isinstance(refused, StorageError)
    assert f"{link} is a symbolic link to {real}, the directory of orders-0" in str(refused)
