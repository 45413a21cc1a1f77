"""Small files of a data directory are read whole, and replaced whole."""

import os
from pathlib import Path

import pytest

from txn.storage import plain_files
from txn.storage.plain_files import read_plain
from txn.storage.private import replace_file


@pytest.mark.parametrize("size", [0, 1, plain_files.CHUNK_BYTES, 3 * plain_files.CHUNK_BYTES + 1])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    assert read_plain(path, size) == path.read_bytes()
    assert read_plain(path) == path.read_bytes()


def test_a_file_above_the_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with pytest.raises(OSError, match="it has 5 bytes; 4 are the most that are read"):
        read_plain(path, 4)


def test_a_file_that_grows_meanwhile_is_read_up_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab")
    real_read = os.read

    def read(descriptor: int, count: int) -> bytes:
        found = real_read(descriptor, count)
        with path.open("ab") as file:
            file.write(b"cdefgh")
        return found

    monkeypatch.setattr(os, "read", read)
    assert read_plain(path, 5) == b"abcde"


def test_reading_leaves_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    before = os.listdir("/proc/self/fd")
    read_plain(path)
    refused = {
        path: "it has 5 bytes",
        tmp_path: "it is a directory",
        tmp_path / "x": "No such file",
    }
    for other, reason in refused.items():
        with pytest.raises(OSError, match=reason):
            read_plain(other, 4)
    assert os.listdir("/proc/self/fd") == before


def test_a_file_is_replaced_whole_though_the_disk_takes_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, temporary = tmp_path / "file", tmp_path / "file.tmp"
    temporary.write_bytes(b"longer than the text that follows, as a kill may leave it")
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, content: real_write(fd, content[:3]))
    forced: list[int] = []
    replace_file(path, temporary, "0\n1\norders 0 17\n", forced.append)
    assert path.read_bytes() == b"0\n1\norders 0 17\n"
    assert len(forced) == 1
    assert not temporary.exists()
