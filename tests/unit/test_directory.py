"""The data directory knows whether the machine went down under it."""

from pathlib import Path

import pytest

from txn.storage import directory
from txn.storage.directory import DataDirectory


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("first")
    monkeypatch.setattr(directory, "BOOT_ID", path)
    return path


def use(path: Path, *, is_recovered: bool = True, is_clean: bool = False) -> bool:
    """Open and leave a directory; say whether it took the power for failed."""
    opened = DataDirectory(path, node_id=1)
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
