"""The data directory knows whether the machine went down under it."""

import errno
import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

import txn
from support.own_process import in_own_process
from txn.broker.unfinished import Unfinished
from txn.errors import DirectoryError
from txn.storage import directory
from txn.storage.checkpoints import Checkpoint
from txn.storage.directory import DataDirectory


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("first")
    monkeypatch.setattr(directory, "BOOT_ID", path)
    return path


def use(path: Path, *, is_recovered: bool = True, is_clean: bool = False) -> bool:
    """Open and leave a directory; say whether it took the power for failed."""
    opened = DataDirectory.open(path, node_id=1)
    if is_recovered:
        opened.note_boot()
    if is_clean:
        opened.mark_clean()
    opened.release()
    return opened.power_failed


def test_a_new_directory_has_seen_no_power_failure(tmp_path: Path, boot: Path) -> None:
    assert not use(tmp_path / "data")


def test_a_crash_of_the_process_is_no_power_failure(tmp_path: Path, boot: Path) -> None:
    use(tmp_path / "data")
    assert not use(tmp_path / "data")


def test_P2_another_boot_without_a_clean_stop_is_a_power_failure(
    tmp_path: Path, boot: Path
) -> None:
    use(tmp_path / "data")
    boot.write_text("second")
    assert use(tmp_path / "data")


def test_P2_a_lost_cache_counts_as_a_power_failure_until_a_recovery_comes_to_its_end(
    tmp_path: Path, boot: Path
) -> None:
    use(tmp_path / "data", is_clean=True)
    lock = DataDirectory.open(tmp_path / "data", takes_over=False)
    lock.note_lost_cache()
    lock.note_lost_cache()
    lock.release()
    assert not lock.was_clean
    assert use(tmp_path / "data", is_recovered=False)
    assert use(tmp_path / "data")
    assert not use(tmp_path / "data")


def test_P2_a_lost_cache_that_a_start_finds_is_over_with_that_start(
    tmp_path: Path, boot: Path
) -> None:
    use(tmp_path / "data")
    start = DataDirectory.open(tmp_path / "data")
    assert not start.power_failed
    start.note_lost_cache()
    assert start.power_failed
    start.note_boot()
    start.release()
    assert not use(tmp_path / "data")


@pytest.mark.parametrize("is_used_by_txn", [False, True])
def test_a_lost_cache_hides_no_use_by_apache_kafka(
    tmp_path: Path, boot: Path, is_used_by_txn: bool
) -> None:
    if is_used_by_txn:
        use(tmp_path / "data")
    else:
        DataDirectory.open(tmp_path / "data", node_id=1).release()
    (tmp_path / "data" / directory.QUORUM_STATE).parent.mkdir(exist_ok=True)
    (tmp_path / "data" / directory.QUORUM_STATE).write_text("of Kafka")
    lock = DataDirectory.open(tmp_path / "data", takes_over=False)
    assert lock.was_left_by_kafka
    lock.note_lost_cache()
    lock.release()
    again = DataDirectory.open(tmp_path / "data")
    assert (again.was_left_by_kafka, again.power_failed) == (True, True)
    again.release()


def test_another_boot_after_a_clean_stop_is_none(tmp_path: Path, boot: Path) -> None:
    use(tmp_path / "data", is_clean=True)
    boot.write_text("second")
    assert not use(tmp_path / "data")


def test_P2_a_recovery_that_is_cut_short_finds_the_power_failure_again(
    tmp_path: Path, boot: Path
) -> None:
    """The boot was noted before recovery: killed in the middle, nobody was fenced."""
    use(tmp_path / "data")
    boot.write_text("second")
    use(tmp_path / "data", is_recovered=False)
    assert use(tmp_path / "data")


def test_a_start_that_fails_after_a_clean_stop_is_no_power_failure(
    tmp_path: Path, boot: Path
) -> None:
    """After a reboot, a first start on a port that was taken made the second fence everybody."""
    use(tmp_path / "data", is_clean=True)
    boot.write_text("second")
    use(tmp_path / "data", is_recovered=False)
    assert not use(tmp_path / "data")


def test_a_directory_keeps_the_node_it_was_made_for(tmp_path: Path, boot: Path) -> None:
    DataDirectory.open(tmp_path / "data", node_id=7).release()
    again = DataDirectory.open(tmp_path / "data")
    again.release()
    assert again.node_id == 7


def test_P1_a_new_directory_is_on_the_disk_with_all_that_were_made_for_it(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure could take the directory, and what was promised in it with it."""
    forced: set[int] = set()

    def force(descriptor: int) -> None:
        forced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", force)
    DataDirectory.open(tmp_path / "of" / "mine" / "data").release()
    made = [tmp_path, tmp_path / "of", tmp_path / "of" / "mine", tmp_path / "of" / "mine" / "data"]
    assert forced >= {each.stat().st_ino for each in made}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.EROFS])
def test_a_directory_is_made_in_one_that_cannot_be_forced(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It may be written and not read, or stands on a file system without such a call."""
    above = tmp_path.stat().st_ino

    def refuse(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == above:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    DataDirectory.open(tmp_path / "data").release()
    assert (tmp_path / "data" / "meta.properties").is_file()


def test_a_disk_that_fails_to_keep_a_new_directory_is_told_of(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DirectoryError, match="error"):
        DataDirectory.open(tmp_path / "data")


def test_the_clean_mark_carries_the_broker_epoch(tmp_path: Path, boot: Path) -> None:
    opened = DataDirectory.open(tmp_path / "data")
    opened.mark_clean(13)
    opened.release()
    mark = json.loads((tmp_path / "data" / ".kafka_cleanshutdown").read_text())
    assert mark == {"version": 0, "brokerEpoch": 13}


def test_a_directory_that_java_has_locked_is_refused(tmp_path: Path, boot: Path) -> None:
    """Java's locks are those of `lockf`; a lock of the kind of `flock` did not see them."""
    DataDirectory.open(tmp_path / "data").release()
    lock_as_java = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", lock_as_java, str(tmp_path / "data" / ".lock")]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryError, match="in use by another broker"):
            DataDirectory.open(tmp_path / "data")
        other.communicate()


def test_P5_while_a_disk_refuses_to_end_orphans_no_start_forgets_the_power_failure(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with txn.Broker(data):
        pass
    (data / directory.CLEAN).unlink()
    boot.write_text("second")
    with monkeypatch.context() as patched:
        patched.setattr(Unfinished, "is_empty", False)
        with txn.Broker(data):
            pass
    assert not (data / directory.CLEAN).exists()
    assert use(data)
    with txn.Broker(data):
        pass
    assert not use(data)


def test_a_directory_that_kafka_used_since_is_told_by_its_quorum_state(
    tmp_path: Path, boot: Path
) -> None:
    """Kafka notes nothing in `.lock`: the boot of an earlier use by txn stood for Kafka's."""
    data = tmp_path / "data"
    use(data, is_clean=True)
    quorum_state = data / directory.QUORUM_STATE
    quorum_state.parent.mkdir()
    for epoch in ("1", "2"):
        quorum_state.write_text(epoch)
        assert left_by_kafka(data)
        use(data)
        assert not left_by_kafka(data)


def test_a_use_that_an_earlier_version_noted_is_the_last_one(tmp_path: Path, boot: Path) -> None:
    data = tmp_path / "data"
    use(data)
    (data / directory.LOCK).write_text("first\n")
    assert not left_by_kafka(data)
    assert not use(data)


def left_by_kafka(data: Path) -> bool:
    """Look at a directory, without a word on its use."""
    looked = DataDirectory.open(data, takes_over=False)
    looked.release()
    return looked.was_left_by_kafka


def test_no_checkpoint_is_written_into_a_copy_that_took_the_place_of_a_directory(
    tmp_path: Path,
) -> None:
    root = tmp_path / "data"
    opened = DataDirectory.open(root)
    path = root / "recovery-point-offset-checkpoint"
    checkpoint = Checkpoint(path, lambda: {("orders", 0): 7}, stored={})
    root.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", root)
    with pytest.raises(OSError, match="moved, removed or replaced"):
        checkpoint.write()
    assert not path.exists()
    shutil.rmtree(root)
    (tmp_path / "moved").rename(root)
    checkpoint.write()
    assert path.exists()
    opened.release()


def test_cleaners_of_temporary_files_find_a_temporary_directory_locked(tmp_path: Path) -> None:
    opened = DataDirectory.open(tmp_path / "data", is_temporary=True)
    looks = os.open(tmp_path / "data", os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(looks, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened.release()
        fcntl.flock(looks, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(looks)


def test_a_new_directory_on_a_full_disk_is_named(tmp_path: Path) -> None:
    """It was an OSError without a path, which `txn serve` took for one of its output."""
    in_own_process(open_on_a_full_disk, str(tmp_path / "data"))


def open_on_a_full_disk(path: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no byte can be written
    with pytest.raises(DirectoryError, match=f"^cannot use {path} as data directory: .*meta.prop"):
        DataDirectory.open(Path(path))
