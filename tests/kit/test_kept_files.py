"""The files of a snapshot come back as they were."""

import os
from pathlib import Path

import pytest

from txn.testing.kept_files import SMALL_BYTES, KeptFiles, empty


def contents(directory: Path) -> dict[str, bytes | None]:
    """Every name below a directory, with the bytes of files."""
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in directory.rglob("*")
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "orders-0" / "below").mkdir(parents=True)
    (source / "empty-0").mkdir()
    (source / ".lock").write_bytes(b"boot")
    (source / "orders-0" / "0.index").write_bytes(b"")
    (source / "orders-0" / "small.log").write_bytes(os.urandom(SMALL_BYTES))
    (source / "orders-0" / "large.log").write_bytes(os.urandom(SMALL_BYTES + 1))
    (source / "orders-0" / "below" / "large.log").write_bytes(os.urandom(3 * SMALL_BYTES))
    return source


def test_files_of_every_size_come_back(tmp_path: Path, source: Path) -> None:
    aside, target = tmp_path / "aside", tmp_path / "target"
    aside.mkdir()
    target.mkdir()
    before = contents(source)
    kept = KeptFiles(source, aside)
    (source / "orders-0" / "large.log").write_bytes(b"changed")
    for _ in range(2):
        kept.put_into(target)
        assert contents(target) == before
        (target / "orders-0" / "large.log").write_bytes(b"changed")
        (target / ".lock").write_bytes(b"changed")
        empty(target)
        assert contents(target) == {}


def test_a_file_of_two_names_becomes_two_files(tmp_path: Path, source: Path) -> None:
    """A checkpoint has two names for a moment. One must not be written through the other."""
    (tmp_path / "aside").mkdir()
    kept = KeptFiles(source, tmp_path / "aside")
    target = tmp_path / "target"
    target.mkdir()
    (target / "other").write_bytes(b"of both names")
    (target / ".lock").hardlink_to(target / "other")
    (tmp_path / "elsewhere").hardlink_to(target / "other")
    empty(target)
    kept.put_into(target)
    assert (target / ".lock").read_bytes() == b"boot"
    assert (tmp_path / "elsewhere").read_bytes() == b"of both names"


def test_emptying_a_directory_follows_no_link(tmp_path: Path, source: Path) -> None:
    before = contents(source)
    target = tmp_path / "target"
    target.mkdir()
    (target / "directory").symlink_to(source)
    (target / "file").symlink_to(source / ".lock")
    empty(target)
    assert contents(target) == {}
    assert contents(source) == before
