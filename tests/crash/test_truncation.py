"""A truncation that is cut short is no damage: no checkpoint tells of more than is left."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from support.at_work import copy_at_work
from txn.config import BrokerSettings
from txn.metadata.image import Topic
from txn.storage.checkpoints import (
    CLEANED_ENDS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_checkpoint,
)
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog

TOPIC = Topic("orders", uuid.UUID(int=7), 1, {"internal.segment.bytes": "300"})
PLACE = ("orders", 0)
BATCHES, RECORDS = 12, 3
END = BATCHES * RECORDS
ALL = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED_ENDS)


def storage_of(data: Path, *, power_failed: bool = False) -> NativeStorage:
    return NativeStorage.load(data, BrokerSettings({}), was_clean=False, power_failed=power_failed)


def follower(data: Path) -> tuple[NativeStorage, NativeLog]:
    """A follower's log of twelve batches, all of it in the checkpoints; its start is 4."""
    data.mkdir(exist_ok=True)
    storage = storage_of(data)
    log = storage.open(TOPIC, 0)
    for number in range(BATCHES):
        log.append([(b"k", b"%d" % number)] * RECORDS, timestamp_ms=number)
    log.delete_records(4)
    log.sync()
    storage.upkeep.write_recovery_points()
    storage.upkeep.write_log_starts()
    storage.past.cleaned_ends.note("orders", 0, log.log, 30)
    log.log.set_role("follower", 1)
    return storage, log


def entries(data: Path) -> list[int | None]:
    return [read_checkpoint(data / name).get(PLACE) for name in ALL]


class CrashCopies:
    """Copies of a data directory, taken in the midst of a truncation."""

    def __init__(self, data: Path, storage: NativeStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copies: list[Path] = []
        self._data = data
        limit = NativeLog._limit_checkpoints

        def limit_and_copy(log: NativeLog, bound: int) -> None:
            self.copy()
            limit(log, bound)
            storage.upkeep.write_recovery_points()  # the background's: it must not raise them again
            storage.upkeep.write_log_starts()
            self.copy()

        monkeypatch.setattr(NativeLog, "_limit_checkpoints", limit_and_copy)

    def copy(self) -> None:
        copied = self._data.with_name(f"crash-{len(self.copies)}")
        copy_at_work(self._data, copied)
        self.copies.append(copied)

    def with_checkpoints_of_the_second(self) -> Path:
        """The files of the end, beside checkpoints that nothing has written since."""
        left = self._data.with_name("left")
        shutil.copytree(self.copies[-1], left)
        for name in ALL:
            shutil.copy(self.copies[1] / name, left / name)
        return left


@pytest.mark.parametrize("power_failed", [False, True])
@pytest.mark.parametrize("offset", [0, 3, 4, 5, 10, 29, 30, 31, 35])
def test_P9_a_crash_in_a_truncation_leaves_a_log_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, power_failed: bool
) -> None:
    storage, log = follower(tmp_path / "data")
    crashes = CrashCopies(tmp_path / "data", storage, monkeypatch)
    end = log.truncate_to(offset)
    crashes.copy()
    before, lowered, _ = crashes.copies
    assert entries(before) == [END, END, 4, 30]
    assert all(entry is None or entry <= end for entry in entries(lowered))
    ends = []
    for left in (*crashes.copies, crashes.with_checkpoints_of_the_second()):
        opened = storage_of(left, power_failed=power_failed).open(TOPIC, 0)
        ends.append(opened.log_end_offset)
    assert ends == [END, END, end, end]


def test_the_checkpoints_tell_of_the_whole_log_again_after_a_truncation(tmp_path: Path) -> None:
    storage, log = follower(tmp_path)
    assert log.truncate_to(20) == 18
    log.sync()
    storage.upkeep.write_recovery_points()
    storage.upkeep.write_log_starts()
    assert entries(tmp_path) == [18, 18, 4, 18]


def test_a_log_that_begins_anew_leaves_no_entry_of_the_old_one(tmp_path: Path) -> None:
    storage, log = follower(tmp_path)
    assert log.truncate_fully_and_start_at(50) == 50
    storage.upkeep.write_recovery_points()
    storage.upkeep.write_log_starts()
    assert all(entry is None or entry <= 50 for entry in entries(tmp_path))
    assert storage_of(tmp_path).open(TOPIC, 0).log_end_offset == 50


def test_a_cleaning_that_ends_after_a_truncation_counts_up_to_the_log_end(tmp_path: Path) -> None:
    storage, log = follower(tmp_path)
    log.truncate_to(12)
    storage.past.cleaned_ends.note("orders", 0, log.log, 30)
    assert storage.past.cleaned_ends.of("orders", 0) == 12


def test_a_truncation_below_the_high_watermark_is_told(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    """An unclean election may ask for it: records go that consumers may have seen."""
    _, log = follower(tmp_path)
    log.truncate_to(20)
    assert warnings() == [
        "log.truncated_below_high_watermark topic=orders partition=0 log_end_offset=36 "
        "truncated_to=18 high_watermark=36"
    ]


def test_a_truncation_above_the_high_watermark_is_not_told(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    data = tmp_path / "data"
    storage, log = follower(data)
    log.truncate_to(20)
    storage.upkeep.write_recovery_points()
    (tmp_path / "leader").mkdir()
    leader = storage_of(tmp_path / "leader").open(TOPIC, 0)
    for number in range(BATCHES):
        leader.append([(b"k", b"%d" % number)] * RECORDS, timestamp_ms=number)
    log.log.append_as_follower(leader.log.read(18, 1 << 20), 1, lambda bound: None)
    assert (log.log_end_offset, log.high_watermark) == (27, 18)
    warnings()
    log.truncate_to(20)
    assert warnings() == []


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The warnings since the last call."""

    def told() -> list[str]:
        found = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        caplog.clear()
        return found

    return told
