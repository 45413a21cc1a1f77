"""The Rust log under the real rules: guarantees that Python code relies on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from txn import _core
from txn.partition import AbortedTxn, AdmitResult, ProducerStateManager


def open_log(
    directory: Path, producer_state: _core.ProducerStateManager, *, was_clean: bool = False
) -> _core.PartitionLog:
    """A log of segments of a few batches, with an index entry every few batches."""
    return _core.PartitionLog(
        str(directory),
        producer_state,
        {"segment.bytes": 2000, "index.interval.bytes": 300},
        was_clean=was_clean,
    )


def plain(*values: bytes) -> bytes:
    return _core.encode_batch([(None, value) for value in values], 1000)


def transactional(producer_id: int, *values: bytes) -> bytes:
    records = [(b"key", value) for value in values]
    return _core.encode_batch(records, 1000, producer_id, 0, is_transactional=True)


def write_history(log: _core.PartitionLog) -> None:
    for number in range(20):
        log.append(plain(b"x" * 100))
        log.append(transactional(number % 3, b"a", b"b"))
        if number % 2:
            log.append_marker(number % 3, 0, 1, number % 4 == 1, 2000)


def observed(log: _core.PartitionLog, producer_state: ProducerStateManager) -> tuple[object, ...]:
    ends = (log.log_start_offset, log.log_end_offset, log.last_stable_offset)
    return (
        *ends,
        producer_state.describe(),
        producer_state.aborted_in(0, log.log_end_offset),
        producer_state.snapshot(),
    )


def test_nothing_is_on_disk_before_the_first_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, 0, 0)
    assert log.read(0, 100) == b""
    log.sync()
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_records_come_back_with_their_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    assert log.append(_core.encode_batch([(b"k", b"v"), (None, None)], 1000)) == 0
    assert log.append(transactional(7, b"w")) == 2
    assert log.append_marker(7, 0, 3, True, 2000) == 3
    assert _core.decode_batches(log.read(0, 10_000)) == [
        (0, 1, -1, -1, -1, [(0, 1000, b"k", b"v"), (1, 1000, None, None)]),
        (2, 2, 7, 0, 1, [(2, 1000, b"key", b"w")]),
        (3, 3, 7, 0, 3, [(3, 2000, b"\0\0\0\1", b"\0\0\0\0\0\3")]),
    ]


def test_a_read_starts_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    log.append(plain(b"a", b"b", b"c"))
    log.append(plain(b"d"))
    assert [batch[0] for batch in _core.decode_batches(log.read(2, 1))] == [0]
    assert log.read(4, 1) == b""
    with pytest.raises(IndexError, match=r"offset 5 is out of range: the log holds \[0, 4\)"):
        log.read(5, 1)


def test_a_killed_log_and_its_rules_come_back_as_they_were(tmp_path: Path) -> None:
    producer_state = ProducerStateManager()
    log = open_log(tmp_path / "orders-0", producer_state)
    write_history(log)
    assert len(list((tmp_path / "orders-0").glob("*.log"))) > 2
    again = ProducerStateManager()
    reopened = open_log(tmp_path / "orders-0", again)
    assert observed(reopened, again) == observed(log, producer_state)
    assert reopened.append(plain(b"next")) == log.log_end_offset


def test_a_closed_log_and_its_rules_come_back_as_they_were(tmp_path: Path) -> None:
    producer_state = ProducerStateManager()
    log = open_log(tmp_path / "orders-0", producer_state)
    write_history(log)
    before = observed(log, producer_state)
    log.close()
    again = ProducerStateManager()
    assert observed(open_log(tmp_path / "orders-0", again, was_clean=True), again) == before


@pytest.mark.parametrize("was_clean", [True, False])
def test_the_last_five_batches_of_a_producer_are_known_after_a_restart(
    tmp_path: Path, was_clean: bool
) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    for number in range(8):
        log.append(_core.encode_batch([(None, b"x")], 0, 7, 0, number))
    log.close()
    producer_state = ProducerStateManager()
    open_log(tmp_path / "orders-0", producer_state, was_clean=was_clean)

    def retried(sequence: int) -> AdmitResult:
        return producer_state.admit(1, 8, 7, 0, sequence, 1, 0, False)

    assert [retried(sequence) for sequence in range(3, 8)] == [(1, n, None) for n in range(3, 8)]
    assert retried(2)[0] == 3


def test_a_batch_the_rules_refuse_carries_their_code(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    log.append(_core.encode_batch([(None, b"x")], 0, 7, 5, 0))
    with pytest.raises(_core.LogRefusedError, match="producer 7 epoch 4") as refused:
        log.append(_core.encode_batch([(None, b"x")], 0, 7, 4, 1))
    assert refused.value.args[1] == 47
    assert log.log_end_offset == 1


def test_bytes_that_are_no_batch_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    with pytest.raises(_core.LogRefusedError, match="ends early") as refused:
        log.append(plain(b"x")[:-1])
    assert refused.value.args[1] == 2
    assert not (tmp_path / "orders-0").exists()


class Raising(ProducerStateManager):
    """Rules with a bug in every question."""

    def admit(self, *_: object) -> AdmitResult:
        raise RuntimeError("a bug in admit")

    def admit_marker(self, *_: object) -> AdmitResult:
        raise RuntimeError("a bug in admit_marker")

    def snapshot(self) -> bytes:
        raise RuntimeError("a bug in snapshot")


def test_rules_that_raise_refuse_and_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_value))
    log = open_log(tmp_path / "orders-0", Raising())
    with pytest.raises(_core.LogRefusedError) as refused:
        log.append(transactional(7, b"x"))
    assert refused.value.args[1] == -1
    with pytest.raises(_core.LogRefusedError, match="refused with error -1"):
        log.append_marker(7, 0, 1, True, 0)
    assert [str(error) for error in reported] == ["a bug in admit", "a bug in admit_marker"]
    assert log.append(plain(b"still works")) == 0
    log.close()
    assert str(reported[2]) == "a bug in snapshot"
    assert (
        open_log(tmp_path / "orders-0", ProducerStateManager(), was_clean=True).log_end_offset == 1
    )


class Forgetful(ProducerStateManager):
    """Rules that cannot take in a log."""

    def replay(self, batches: Sequence[_core.ReplayedBatch]) -> list[AbortedTxn]:
        raise RuntimeError("a bug in replay")


def test_a_log_whose_rules_cannot_replay_does_not_open(tmp_path: Path) -> None:
    open_log(tmp_path / "orders-0", ProducerStateManager()).append(transactional(7, b"x"))
    with pytest.raises(ValueError, match="a bug in replay"):
        open_log(tmp_path / "orders-0", Forgetful())


def test_damage_is_named_by_file_and_position(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    log.append(plain(b"first"))
    position = log.size_bytes
    log.append(plain(b"second"))
    log.append(plain(b"third"))
    path = next((tmp_path / "orders-0").glob("*.log"))
    stored = bytearray(path.read_bytes())
    stored[position + 65] ^= 1
    path.write_bytes(stored)
    with pytest.raises(_core.CorruptLogError, match="a valid batch follows") as damage:
        open_log(tmp_path / "orders-0", ProducerStateManager())
    assert damage.value.args[1:] == (str(path), position)
    assert path.read_bytes() == stored


def test_settings_change_for_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    log.append(plain(b"x"))
    log.configure({"segment.bytes": 100, "message.timestamp.type": "LogAppendTime"})
    log.append(plain(b"x"))
    assert len(list((tmp_path / "orders-0").glob("*.log"))) == 2
    (_, _, _, _, _, [(_, timestamp_ms, _, _)]) = _core.decode_batches(log.read(1, 1))[0]
    assert timestamp_ms > 1_600_000_000_000


def test_times_are_found_to_the_record(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    for timestamp_ms in (1000, 3000, 2000):
        log.append(_core.encode_batch([(None, b"a"), (None, b"b")], timestamp_ms))
    assert log.offset_for_timestamp(1001, 6) == (2, 3000)
    assert log.offset_for_timestamp(1001, 2) is None
    assert log.offset_for_timestamp(3001, 6) is None
    assert log.offset_of_max_timestamp(6) == (2, 3000)
    assert log.offset_of_max_timestamp(2) == (0, 1000)
    assert log.offset_of_max_timestamp(0) is None


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    log.append(plain(b"x"))
    log.close()
    for call in (lambda: log.append(plain(b"x")), lambda: log.read(0, 1), log.sync, log.close):
        with pytest.raises(_core.LogRefusedError, match="the log is closed"):
            call()


def test_a_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", ProducerStateManager())
    log.append(plain(b"x"))
    log.delete()
    assert list(tmp_path.iterdir()) == []
    log.delete()


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    from txn import _core
    from txn.partition import ProducerStateManager

    directory = Path(sys.argv[1])
    log = _core.PartitionLog(str(directory), ProducerStateManager())
    log.append(_core.encode_batch([(None, b"x" * 500)], 0))
    size = log.size_bytes
    # A disk that takes 300 bytes more: the next batch is half written.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, resource.RLIM_INFINITY))
    batch = _core.encode_batch([(None, b"y" * 500)], 0, 7, 0, is_transactional=True)
    try:
        log.append(batch)
    except OSError as error:
        print("first:", error.errno)
    print("end:", log.log_end_offset, log.last_stable_offset)
    print("file:", (directory / f"{0:020}.log").stat().st_size - size)
    print("read:", len(log.read(0, 10_000)) - size)
    print("second:", log.append(_core.encode_batch([(None, b"z")], 0)))
    print("end:", log.log_end_offset, log.last_stable_offset)
    log.close()
"""


def test_a_half_written_batch_is_cut_off_and_the_log_goes_on(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path / "orders-0")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stderr == ""
    lines = ["first: 27", "end: 1 1", "file: 0", "read: 0", "second: 1", "end: 2 2"]
    assert ran.stdout.splitlines() == lines
    producer_state = ProducerStateManager()
    log = open_log(tmp_path / "orders-0", producer_state, was_clean=True)
    assert (log.log_end_offset, producer_state.first_unstable_offset()) == (2, -1)


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        _core.encode_batch([], 0)


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    two = plain(b"a") + plain(b"b")
    assert len(_core.decode_batches(two[:-1])) == 1
    assert _core.decode_batches(b"") == []


def test_a_damaged_batch_is_not_decoded() -> None:
    damaged = bytearray(plain(b"a") + plain(b"b"))
    damaged[-1] ^= 1
    with pytest.raises(_core.CorruptLogError, match="CRC-32C") as damage:
        _core.decode_batches(bytes(damaged))
    assert damage.value.args[2] == len(plain(b"a"))
