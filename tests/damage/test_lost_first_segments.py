"""P9: a log that begins behind its log start has lost its first segments, however the broker ended.

Every removal notes the log start durably before it takes a segment. So a directory that was left in
the midst of one opens, and one that nothing but a fault of the disk has shortened is refused.
"""

import logging
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from support.at_work import copy_at_work
from support.brokers import BrokerProcess
from support.clients import WAIT_S, create_topic, plain_producer, read_all, send
from support.damaged import KAFKA_STORAGE_ERROR, VALUES, events, fetch_code
from txn.cli.accepting import accept
from txn.config import BrokerSettings
from txn.errors import CorruptLogError, StorageError
from txn.inspect.verify import verify
from txn.metadata.image import Topic
from txn.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_checkpoint,
    write_checkpoint,
)
from txn.storage.directory import LOCK
from txn.storage.log_offsets import LogStart, LogStarts
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog

pytestmark = pytest.mark.crash

BAD, GOOD = ("bad", 0), ("good", 0)
NOTED_S = 30
"""Time in which a log that was just written is in the checkpoints; on an idle machine it is 1 s."""
TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was killed soon after the first records of its topics."""
    data = tmp_path_factory.mktemp("killed") / "data"
    process = BrokerProcess(data)
    servers = process.bootstrap_servers
    for topic in ("bad", "good"):
        create_topic(servers, topic, internal_segment_bytes="300")
        for value in VALUES:
            send(plain_producer(servers), topic, [value])
    until = time.monotonic() + NOTED_S
    while not (
        read_checkpoint(data / LOG_STARTS).get(BAD) == 0
        and all(read_checkpoint(data / RECOVERY_POINTS).get(place, 0) > 0 for place in (BAD, GOOD))
        and GOOD in read_checkpoint(data / HIGH_WATERMARKS)
    ):
        assert time.monotonic() < until, "the log start was not noted"
        time.sleep(0.1)
    process.kill()
    return data


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    return iter([None])


def without_first_segment(data: Path) -> Path:
    """Remove the first segment of `bad`; return the log file of the next."""
    for path in (data / "bad-0").glob(f"{0:020}.*"):
        path.unlink()
    return min((data / "bad-0").glob("*.log"))


def in_another_boot(data: Path) -> None:
    (data / LOCK).write_text("another boot")


@pytest.mark.parametrize("ended", [lambda data: None, in_another_boot], ids=["kill", "power"])
def test_P9_a_first_segment_that_is_gone_is_missed_until_its_loss_is_accepted(
    killed: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    ended: Callable[[Path], None],
) -> None:
    data = Path(shutil.copytree(killed, tmp_path / "data"))
    ended(data)
    first_left = without_first_segment(data)
    (finding,) = [each for each in verify(data).findings if "the first segment" in each.what]
    assert finding.path == first_left
    for _ in range(2):
        caplog.clear()
        with txn.Broker(data) as broker:
            assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
            assert read_all(broker.bootstrap_servers, "good") == VALUES
        (line,) = events(caplog, "log.damaged")
        assert "topic=bad partition=0" in line
        assert f"path={first_left}" in line
        assert "log-start-offset-checkpoint says that the log begins at offset 0" in line

    (loss,) = accept(data, ["bad-0"], is_dry_run=False)
    last = len(VALUES) - 1
    assert loss.kept == f"kept are the records from offset {int(first_left.stem)} to {last}"

    for _ in range(2):
        caplog.clear()
        with txn.Broker(data) as broker:
            left = read_all(broker.bootstrap_servers, "bad")
            assert left == VALUES[int(first_left.stem) :]
        assert not events(caplog, "log.damaged")
    assert verify(data).findings == []


def test_P9_an_accepted_loss_of_a_first_segment_stays_accepted_after_a_kill(
    killed: Path, tmp_path: Path
) -> None:
    """Once carried out, the entry in the checkpoint proves nothing about the lost part."""
    data = Path(shutil.copytree(killed, tmp_path / "data"))
    first_left = without_first_segment(data)
    accept(data, ["bad-0"], is_dry_run=False)
    process = BrokerProcess(data)
    process.kill()
    assert read_checkpoint(data / LOG_STARTS)[BAD] == int(first_left.stem)
    process.restart()
    left = read_all(process.bootstrap_servers, "bad")
    assert left == VALUES[int(first_left.stem) :]
    process.stop()


# ---------------------------------------------------------------- removals


def small_segments(data: Path, *, power_failed: bool = False) -> tuple[NativeStorage, Topic]:
    topic = Topic("bad", TOPIC_ID, 1, {"internal.segment.bytes": "300", "retention.ms": "1000"})
    data.mkdir(exist_ok=True)
    storage = NativeStorage.load(
        data, BrokerSettings({}), was_clean=False, power_failed=power_failed
    )
    return storage, topic


def retention(storage: NativeStorage, _log: NativeLog) -> None:
    storage.upkeep.retain(now_ms=1 << 50)


def deletion(_storage: NativeStorage, log: NativeLog) -> None:
    log.delete_records(9)


class Crashes:
    """Copies of a data directory, taken beside each note of a log start and after the removal."""

    def __init__(
        self, data: Path, monkeypatch: pytest.MonkeyPatch, *, notes_late: bool = False
    ) -> None:
        self.copies: list[Path] = []
        self._data = data
        note = LogStarts.note

        def copying(starts: LogStarts, noted: Mapping[tuple[str, int], LogStart]) -> None:
            self.copy()
            if not notes_late:
                note(starts, noted)
                self.copy()

        monkeypatch.setattr(LogStarts, "note", copying)

    def copy(self) -> None:
        crashed = self._data.with_name(f"crash-{len(self.copies)}")
        self.copies.append(copy_at_work(self._data, crashed))


def log_of_many_segments(data: Path) -> tuple[NativeStorage, NativeLog]:
    """A log that is in all checkpoints."""
    storage, topic = small_segments(data)
    log = storage.open(topic, 0)
    for number in range(20):
        log.append([(b"k", b"%d" % number * 40)], timestamp_ms=number)
    log.sync()
    storage.upkeep.write_log_starts()
    storage.upkeep.write_recovery_points()
    return storage, log


def opened_in(data: Path, *, power_failed: bool) -> NativeLog:
    storage, topic = small_segments(data, power_failed=power_failed)
    return storage.open(topic, 0)


@pytest.mark.parametrize("power_failed", [False, True])
@pytest.mark.parametrize("remove", [retention, deletion])
def test_P9_a_crash_between_the_note_of_a_log_start_and_the_removal_is_no_damage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    remove: Callable[[NativeStorage, NativeLog], None],
    power_failed: bool,
) -> None:
    data = tmp_path / "data"
    storage, log = log_of_many_segments(data)
    crashes = Crashes(data, monkeypatch)

    remove(storage, log)
    crashes.copy()

    begins = [
        opened_in(crashed, power_failed=power_failed).log_start_offset for crashed in crashes.copies
    ]
    assert begins[0] == 0
    assert set(begins[1:]) == {log.log_start_offset}
    assert log.log_start_offset >= 9


@pytest.mark.parametrize("power_failed", [False, True])
@pytest.mark.parametrize("remove", [retention, deletion])
def test_a_removal_before_its_note_is_found_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    remove: Callable[[NativeStorage, NativeLog], None],
    power_failed: bool,
) -> None:
    """The negative control: a crash leaves the entry of an earlier start."""
    data = tmp_path / "data"
    storage, log = log_of_many_segments(data)
    crashes = Crashes(data, monkeypatch, notes_late=True)

    remove(storage, log)
    crashes.copy()

    with pytest.raises(CorruptLogError, match="it is the first segment, but"):
        opened_in(crashes.copies[-1], power_failed=power_failed)


def test_a_disk_that_takes_no_note_loses_no_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage, log = log_of_many_segments(tmp_path)
    before = sorted((tmp_path / "bad-0").glob("*.log"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LogStarts, "note", full)
        with pytest.raises(StorageError, match="No space left"):
            log.delete_records(9)
        storage.upkeep.retain(now_ms=1 << 50)
    assert log.log_start_offset == 0
    assert set(before) <= set((tmp_path / "bad-0").glob("*.log"))
    assert any("log-start-offset-checkpoint" in line for line in caplog.messages)
    assert log.delete_records(9) == 9


def test_a_kill_soon_after_a_power_failure_takes_its_losses_for_no_damage(
    killed: Path, tmp_path: Path
) -> None:
    """The checkpoints told for a minute of the unsynced records that the failure had taken."""
    data = Path(shutil.copytree(killed, tmp_path / "data"))
    in_another_boot(data)
    last = max((data / "bad-0").glob("*.log"))
    last.write_bytes(b"")
    for path, end in ((RECOVERY_POINTS, int(last.stem)), (HIGH_WATERMARKS, len(VALUES))):
        write_checkpoint(data / path, read_checkpoint(data / path) | {BAD: end})
    shutil.rmtree(data / "good-0")
    for path in (RECOVERY_POINTS, HIGH_WATERMARKS):
        noted = read_checkpoint(data / path)
        del noted[GOOD]
        write_checkpoint(data / path, noted)
    process = BrokerProcess(data)
    process.kill()
    process.restart()
    assert read_all(process.bootstrap_servers, "bad") == VALUES[: int(last.stem)]
    assert read_all(process.bootstrap_servers, "good") == []
    process.stop()


def test_records_are_deleted_on_the_broker_too(killed: Path, tmp_path: Path) -> None:
    """The note of a running broker is on the disk when DeleteRecords is answered."""
    data = Path(shutil.copytree(killed, tmp_path / "data"))
    process = BrokerProcess(data)
    place = TopicPartition("bad", 0, 2)
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.delete_records([place])[place].result(WAIT_S)
    process.kill()
    assert read_checkpoint(data / LOG_STARTS)[BAD] == 2
    process.restart()
    assert read_all(process.bootstrap_servers, "bad") == VALUES[2:]
    process.stop()
