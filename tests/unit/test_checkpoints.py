"""Offset checkpoints: Kafka's text, and the refusal of any other."""

import os
from pathlib import Path

import pytest

from txn.storage.checkpoints import (
    LOG_STARTS,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from txn.storage.log_offsets import LogStarts

OFFSETS = {("orders", 1): 4, ("orders", 0): 17}
TEXT = "0\n2\norders 0 17\norders 1 4\n"


def test_a_checkpoint_is_kafkas_text() -> None:
    assert encode_checkpoint(OFFSETS) == TEXT
    assert decode_checkpoint(TEXT) == OFFSETS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "1\n0\n",
        "0\n",
        "0\n1\n",
        "0\n3\norders 0 17\norders 1 4\n",
        "0\n1\norders 0 17 2\n",
        "0\n1\norders 0 -1\n",
        "0\n1\norders zero 17\n",
        "0\n1\norders 0 9223372036854775808\n",
        "0\n1\norders 2147483648 17\n",
        "0\n2\norders 0 17\norders 1",
        "\0\0\0\0",
    ],
)
def test_what_is_no_checkpoint_reads_as_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    assert read_checkpoint(path) == {}


def test_a_missing_checkpoint_reads_as_empty(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "checkpoint") == {}


def test_bytes_that_are_no_text_read_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"\xff\xfe0\n0\n")
    assert read_checkpoint(path) == {}


def test_a_write_replaces_the_whole_file_and_leaves_no_other(tmp_path: Path) -> None:
    offsets = dict(OFFSETS)
    checkpoint = Checkpoint(tmp_path / "checkpoint", offsets.copy, stored={})
    checkpoint.write()
    offsets["orders", 1] = 5
    checkpoint.write()
    assert read_checkpoint(tmp_path / "checkpoint") == offsets
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_that_keeps_room_is_written_again_into_blocks_that_it_has(
    tmp_path: Path,
) -> None:
    """A full disk could else take no note, and without one no records are removed."""
    path = tmp_path / "checkpoint"
    offsets = {("orders", 0): 5000, ("orders", 1): 4}
    checkpoint = Checkpoint(path, offsets.copy, stored={}, keeps_room=True)
    for offset in (6000, 7000, 80):
        checkpoint.write()
        room = (tmp_path / "checkpoint.tmp").stat()
        offsets["orders", 0] = offset
        checkpoint.write()
        assert path.stat().st_ino == room.st_ino
        assert read_checkpoint(path) == offsets
        assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint", "checkpoint.tmp"]


def test_a_deleted_partition_leaves_no_log_start_for_a_namesake(tmp_path: Path) -> None:
    """A topic made again after a restart hid the records below its namesake's log start."""
    noted = {("orders", 0): 5, ("orders", 1): 6, ("invoices", 0): 7}
    write_checkpoint(tmp_path / LOG_STARTS, noted)
    starts = LogStarts.read(tmp_path)

    starts.forget("orders", 0)
    starts.write()
    LogStarts.read(tmp_path).keep_only(lambda place: place[0] == "invoices")

    again = LogStarts.read(tmp_path)
    found = [again.of("orders", 0), again.of("orders", 1), again.of("invoices", 0)]
    assert found == [None, None, 7]


def test_a_fifo_in_the_place_of_a_checkpoint_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "checkpoint"
    os.mkfifo(path)
    assert read_checkpoint(path) == {}
    assert "it is a FIFO, not a file" in caplog.text
