"""Findings of `verify` in a partition, and things that it lets pass.

The logs are written by hand.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from txn import _core
from txn.errors import DirectoryError
from txn.inspect.layout import StopState
from txn.inspect.outcome import LOG_FIRST, Outcome
from txn.inspect.verify import verify
from txn.partition import ProducerStateManager
from txn.partition.snapshot import decode_snapshot, encode_snapshot
from txn.storage.directory import DataDirectory
from txn.wire.checksums import crc32c


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory stopped cleanly, with one partition of several segments."""
    path = tmp_path_factory.mktemp("sound")
    root = DataDirectory.open(path, node_id=1)
    write_log(path / "orders-0")
    root.mark_clean()
    root.release()
    return path


@pytest.fixture
def orders(sound: Path, tmp_path: Path) -> Path:
    """The partition's directory in a copy of it."""
    shutil.copytree(sound, tmp_path / "data")
    return tmp_path / "data" / "orders-0"


def write_log(directory: Path) -> None:
    settings = {"segment.bytes": 2000, "index.interval.bytes": 100}
    log = _core.PartitionLog(str(directory), ProducerStateManager(), settings)
    for number in range(12):
        timestamp_ms = 1_000 + 10 * number
        log.append(_core.encode_batch([(None, b"x" * 100), (None, b"y")], timestamp_ms))
        log.append(
            _core.encode_batch(
                [(b"key", b"z" * 200)], timestamp_ms, number % 3, 0, is_transactional=True
            )
        )
        if number > 5:
            log.append_marker(number % 3, 0, 1, number % 2 == 1, timestamp_ms)
    log.append(_core.encode_batch([(None, b"open")], 2_000, 3, 0, is_transactional=True))
    log.close()


def write_plain_log(directory: Path) -> None:
    log = _core.PartitionLog(str(directory), ProducerStateManager(), {"segment.bytes": 500})
    for number in range(20):
        log.append(_core.encode_batch([(b"key", b"x" * 100)], 1_000 + number))
    log.close()


def segments(directory: Path, suffix: str = ".log") -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def transaction_indexes(directory: Path) -> list[Path]:
    """Those with entries."""
    return [path for path in segments(directory, ".txnindex") if path.stat().st_size > 0]


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def found(outcome: Outcome) -> list[tuple[str, int | None, str]]:
    return [(each.path.name, each.position, each.what) for each in outcome.findings]


def batch_starts(path: Path) -> list[int]:
    seen, _, _ = _core.SegmentReader(str(path)).batches(0, 1 << 30)
    return [batch[0] for batch in seen]


def test_a_sound_partition_has_no_findings(orders: Path) -> None:
    outcome = verify(orders.parent, is_deep=True)
    assert (found(outcome), outcome.notes) == ([], [])
    assert (outcome.state, outcome.partitions) == (StopState.CLEAN, 1)
    assert (outcome.segments, outcome.batches, outcome.records) == (
        len(segments(orders)),
        12 + 12 + 6 + 1,
        24 + 12 + 6 + 1,
    )


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="holds no log"):
        verify(tmp_path)


# ---------------------------------------------------------------- segments


def test_damaged_records_are_found_at_their_batch_and_the_rest_is_read(orders: Path) -> None:
    log = segments(orders)[1]
    second = batch_starts(log)[1]
    patch(log, second + 70, b"\xff")
    outcome = verify(orders.parent)
    assert found(outcome)[0][:2] == (log.name, second)
    assert "CRC-32C" in found(outcome)[0][2]
    assert outcome.batches == 30


def test_damage_in_a_header_costs_the_bytes_up_to_the_next_batch(orders: Path) -> None:
    log = segments(orders)[0]
    third = batch_starts(log)[2]
    patch(log, third + 8, struct.pack(">i", 1))
    outcome = verify(orders.parent)
    assert [each[:2] for each in found(outcome)] == [(log.name, third)]
    assert outcome.batches == 30


def test_a_batch_whose_offset_moved_on_leaves_a_gap(orders: Path) -> None:
    """The base offset is under no checksum, so only its neighbours tell."""
    log = segments(orders)[-1]
    last = batch_starts(log)[-1]
    (offset,) = struct.unpack(">q", log.read_bytes()[last : last + 8])
    patch(log, last, struct.pack(">q", offset + 5))
    what = f"offsets {offset} to {offset + 4} are missing before this batch"
    assert (log.name, last, what) in found(verify(orders.parent))


def test_a_batch_whose_offset_moved_back_is_found(orders: Path) -> None:
    log = segments(orders)[0]
    second = batch_starts(log)[1]
    patch(log, second, struct.pack(">q", 0))
    assert found(verify(orders.parent))[0] == (
        log.name,
        second,
        "the batch begins at offset 0, 2 is the next",
    )


def test_a_segment_that_is_gone_is_missed(orders: Path) -> None:
    gone, after = segments(orders)[1:3]
    for path in orders.glob(f"{gone.stem}.*"):
        path.unlink()
    first, next_one = int(gone.stem), int(after.stem)
    what = f"offsets {first} to {next_one - 1} are missing before it"
    assert (after.name, None, what) in found(verify(orders.parent))


def test_what_compaction_took_is_not_missed_and_anything_later_is(orders: Path) -> None:
    shutil.rmtree(orders)
    write_plain_log(orders)
    gone, after = segments(orders)[1:3]
    for path in orders.glob(f"{gone.stem}.*"):
        path.unlink()
    checkpoint = orders.parent / "cleaner-offset-checkpoint"
    checkpoint.write_text(f"0\n1\norders 0 {int(after.stem)}\n")
    assert found(verify(orders.parent)) == []
    checkpoint.write_text(f"0\n1\norders 0 {int(gone.stem)}\n")
    assert [each[0] for each in found(verify(orders.parent))] == [after.name]


def test_a_torn_tail_is_a_finding_after_a_clean_stop_and_else_a_note(orders: Path) -> None:
    log = segments(orders)[-1]
    whole = log.read_bytes()
    following = (43).to_bytes(8) + whole[8:50]
    log.write_bytes(whole + following)
    assert [each[:2] for each in found(verify(orders.parent))] == [(log.name, len(whole))]
    (orders.parent / ".kafka_cleanshutdown").unlink()
    outcome = verify(orders.parent)
    assert (outcome.state, found(outcome)) == (StopState.LEFT, [])
    assert f"it ends torn at byte {len(whole)}" in outcome.notes[0].what
    log.write_bytes(whole + following[:7] + b"x" + following[8:])  # no kill leaves that
    ((name, position, what),) = found(verify(orders.parent))
    assert (name, position) == (log.name, len(whole))
    assert "no process that was killed left it so" in what


def test_a_whole_batch_out_of_place_at_the_end_is_no_torn_tail(orders: Path) -> None:
    """No crash leaves one, and a start refuses it."""
    log = segments(orders)[-1]
    first = log.read_bytes()
    log.write_bytes(first + first)
    (orders.parent / ".kafka_cleanshutdown").unlink()
    assert found(verify(orders.parent))[0] == (
        log.name,
        len(first),
        "the batch begins at offset 42, 43 is the next",
    )


def test_a_deep_look_opens_what_a_checksum_covers(orders: Path) -> None:
    """A right checksum says nothing of the bytes that a producer put under it."""
    log = segments(orders)[0]
    batch = bytearray(log.read_bytes()[: batch_starts(log)[1]])
    batch[60] = 1  # one record, where two are
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    patch(log, 0, bytes(batch))
    assert found(verify(orders.parent)) == []
    assert found(verify(orders.parent, is_deep=True))[0] == (
        log.name,
        0,
        "record 1 of the batch: bytes are left over after the last record",
    )


# ---------------------------------------------------------------- indexes


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (4, 3, "points where no batch begins"),
        (0, 0, "the entry says that the batch at byte"),
    ],
)
def test_an_offset_index_entry_has_to_be_that_of_its_batch(
    orders: Path, at: int, value: int, what: str
) -> None:
    index = segments(orders, ".index")[0]
    patch(index, 8 + at, struct.pack(">I", value))
    [(name, position, reason)] = found(verify(orders.parent))
    assert (name, position) == (index.name, 8)
    assert what in reason


def test_a_time_index_entry_has_to_tell_the_largest_timestamp(orders: Path) -> None:
    index = segments(orders, ".timeindex")[0]
    patch(index, 12, struct.pack(">q", 999))
    [(name, position, what)] = found(verify(orders.parent))
    assert (name, position) == (index.name, 12)
    assert "the entry says that the largest timestamp up to offset" in what


def test_a_time_index_entry_has_to_name_a_batch(orders: Path) -> None:
    index = segments(orders, ".timeindex")[0]
    patch(index, 12 + 8, struct.pack(">I", 0))
    [(name, position, what)] = found(verify(orders.parent))
    assert (name, position) == (index.name, 12)
    assert "names no batch that is younger than all before" in what


def test_what_follows_the_last_whole_entry_is_found(orders: Path) -> None:
    paths = [segments(orders, suffix)[0] for suffix in (".index", ".timeindex", ".txnindex")]
    for path in paths:
        path.write_bytes(path.read_bytes() + b"\1")
    findings = found(verify(orders.parent))
    assert sorted(name for name, _, what in findings if "left over" in what) == sorted(
        path.name for path in paths
    )


def test_room_reserved_in_an_index_is_no_fault_while_it_is_written(orders: Path) -> None:
    """Apache Kafka reserves ten megabytes, and cuts them off when it closes the segment."""
    for suffix in (".index", ".timeindex"):
        path = segments(orders, suffix)[-1]
        path.write_bytes(path.read_bytes() + bytes(4096))
    assert len(found(verify(orders.parent))) > 0
    (orders.parent / ".kafka_cleanshutdown").unlink()
    assert found(verify(orders.parent)) == []


def test_an_index_that_is_missing_is_a_note(orders: Path) -> None:
    index = segments(orders, ".index")[0]
    index.unlink()
    outcome = verify(orders.parent)
    assert found(outcome) == []
    assert [note.path.name for note in outcome.notes] == [index.name]


def test_an_index_without_a_segment_is_found(orders: Path) -> None:
    (orders / f"{999:020}.txnindex").touch()
    missing, nameless = found(verify(orders.parent))
    assert nameless == (f"{999:020}.txnindex", None, "it belongs to no segment")
    assert missing[:2] == (f"{999:020}.log", 0)


def test_an_index_that_a_cut_short_swap_left_is_a_note(orders: Path) -> None:
    """A SIGKILL between the files of a segment was told as a fault, though every start mends it."""
    (orders.parent / ".kafka_cleanshutdown").unlink()
    (orders / f"{7:020}.txnindex").touch()
    outcome = verify(orders.parent)
    assert found(outcome) == []
    assert "belongs to no segment; the next start removes it" in outcome.notes[-1].what


# ---------------------------------------------------------------- transactions and producers


def test_an_aborted_transaction_missing_from_the_index_is_found(orders: Path) -> None:
    """Its records would be shown to read_committed readers."""
    index = transaction_indexes(orders)[0]
    index.write_bytes(index.read_bytes()[34:])
    [(name, _, what)] = found(verify(orders.parent))
    assert name == index.name
    assert what.startswith("it lacks the transaction that producer")


def test_an_entry_of_a_transaction_that_was_not_aborted_is_found(orders: Path) -> None:
    """A committed transaction would be hidden."""
    index = transaction_indexes(orders)[-1]
    data = index.read_bytes()
    producer_id, first, last, stable = struct.unpack(">2xqqqq", data[-34:])
    index.write_bytes(data + struct.pack(">hqqqq", 0, producer_id, first, last + 1, stable))
    [(name, position, what)] = found(verify(orders.parent))
    assert (name, position) == (index.name, len(data))
    assert "names no transaction that was aborted" in what


@pytest.mark.parametrize(
    ("fact", "what"),
    [
        ("producer_epoch", "producer epoch"),
        ("coordinator_epoch", "coordinator epoch"),
        ("txn_first_offset", "open transaction"),
        ("last_timestamp_ms", "timestamp"),
    ],
)
def test_a_snapshot_has_to_be_what_a_replay_gives(orders: Path, fact: str, what: str) -> None:
    snapshot = segments(orders, ".snapshot")[-1]
    producers = decode_snapshot(snapshot.read_bytes())
    setattr(producers[1], fact, 77)
    snapshot.write_bytes(encode_snapshot(producers))
    [(name, _, reason)] = found(verify(orders.parent))
    assert name == snapshot.name
    assert f"it has of producer 1 {what} 77, the log says" in reason


def test_a_snapshot_that_names_a_stranger_or_forgets_an_open_transaction_is_found(
    orders: Path,
) -> None:
    snapshot = segments(orders, ".snapshot")[-1]
    producers = decode_snapshot(snapshot.read_bytes())
    is_open = next(each for each in producers if producers[each].txn_first_offset >= 0)
    producers[99] = producers.pop(is_open)
    snapshot.write_bytes(encode_snapshot(producers))
    reasons = [what for _, _, what in found(verify(orders.parent))]
    assert reasons[0] == "it has producer 99, of which no batch is in the log"
    assert f"it lacks producer {is_open}, whose transaction is open since" in reasons[1]


def test_a_producer_that_was_idle_may_be_forgotten(orders: Path) -> None:
    snapshot = segments(orders, ".snapshot")[-1]
    producers = decode_snapshot(snapshot.read_bytes())
    idle = next(each for each in producers if producers[each].txn_first_offset < 0)
    del producers[idle]
    snapshot.write_bytes(encode_snapshot(producers))
    assert found(verify(orders.parent)) == []


def test_a_log_whose_beginning_was_deleted_is_sound(orders: Path) -> None:
    """Records that a replay would need are gone: only the rest is compared."""
    for log in segments(orders)[:2]:
        for path in orders.glob(f"{log.stem}.*"):
            path.unlink()
    assert found(verify(orders.parent)) == []
    for path in segments(orders, ".snapshot")[:-1]:
        path.unlink()
    assert found(verify(orders.parent)) == []


def test_what_a_deleted_beginning_told_of_a_producer_is_not_asked_for(orders: Path) -> None:
    """A snapshot older than the rest of the log is no state to begin with."""
    for log in segments(orders)[:2]:
        for path in orders.glob(f"{log.stem}.*"):
            path.unlink()
    stale = orders / f"{1:020}.snapshot"
    stale.write_bytes(segments(orders, ".snapshot")[-1].read_bytes())
    for path in segments(orders, ".snapshot")[1:-1]:
        path.unlink()
    assert found(verify(orders.parent)) == []


def test_a_snapshot_that_the_log_contradicts_is_found(orders: Path) -> None:
    """An open transaction cannot have begun behind where the snapshot was taken."""
    for path in orders.glob(f"{segments(orders)[0].stem}.*"):
        path.unlink()
    snapshot = orders / f"{segments(orders)[0].stem}.snapshot"
    producers = decode_snapshot(segments(orders, ".snapshot")[-1].read_bytes())
    producers[5] = producers.pop(1)
    producers[5].txn_first_offset = 4_000
    snapshot.write_bytes(encode_snapshot(producers))
    assert any(
        name == snapshot.name and what.startswith("the log does not follow from it")
        for name, _, what in found(verify(orders.parent))
    )


# ---------------------------------------------------------------- beside the segments


def test_leader_epochs_have_to_be_those_of_the_batches(orders: Path) -> None:
    path = orders / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n3 7\n")
    [(name, _, what), *_] = found(verify(orders.parent))
    assert name == path.name
    assert what.startswith("it has [0, 3] as the leader epochs of offsets 0 to ")


def test_leader_epochs_below_the_log_start_are_forgotten(orders: Path) -> None:
    """DeleteRecords moves the start of the first epoch up inside a segment that stays."""
    (orders / "leader-epoch-checkpoint").write_text("0\n1\n0 5\n")
    assert [what for _, _, what in found(verify(orders.parent))] != []
    (orders.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    assert found(verify(orders.parent)) == []


def test_a_leader_epoch_that_goes_back_is_found(orders: Path) -> None:
    """The leader epoch is under no checksum."""
    log = segments(orders)[0]
    (orders / "leader-epoch-checkpoint").unlink()
    patch(log, batch_starts(log)[1] + 12, struct.pack(">i", 4))
    [(name, position, what)] = found(verify(orders.parent))
    assert (name, position) == (log.name, batch_starts(log)[2])
    assert what == "leader epoch 0 follows 4"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0\n1\norders 0 4000\n", "it has offset 4000 of orders-0, whose log ends at 43"),
        ("0\n1\nrefunds 0 0\n", "it names refunds-0, which is not there"),
        ("0\n2\norders 0 4\n", "its 1 lines are not the '2' offsets it promises"),
        ("0\n2\norders 0 4\norders 0 5\n", "it names 1 partitions in 2 lines"),
        ("0\n1\norders 0 4\x0b", "its lines do not end as they should"),
    ],
)
def test_a_checkpoint_has_to_fit_the_logs(orders: Path, text: str, what: str) -> None:
    path = orders.parent / "recovery-point-offset-checkpoint"
    path.write_text(text)
    everything = found(verify(orders.parent))
    assert [each for each in everything if each[0] == path.name] == [(path.name, None, what)]
    # A start refuses a log that ends below its checkpoint.
    assert [each[0] for each in everything if each[0] != path.name] == (
        [f"{42:020}.log"] if "4000" in text else []
    )


def test_a_name_beyond_every_offset_is_nothing_of_kafkas(orders: Path) -> None:
    """It ended the command with an OverflowError."""
    (orders / "99999999999999999999.log").touch()
    assert found(verify(orders.parent)) == []


def test_files_beyond_the_end_of_a_log_are_not_to_be_deleted(orders: Path) -> None:
    """With them the loss of the log's end, which they show, would be gone from every report."""
    segment = sorted(orders.glob("*.log"))[-1]
    segment.write_bytes(b"")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (orders.parent / name).write_text("0\n1\norders 0 43\n")
    findings = verify(orders.parent).findings
    beyond = {finding.path.name for finding in findings if "log ends at" in finding.what}
    assert {"recovery-point-offset-checkpoint", "replication-offset-checkpoint"} < beyond
    assert any(name.endswith(".snapshot") for name in beyond)
    assert not [finding for finding in findings if "delete it" in finding.advice]
    assert all("accept-loss" in f.advice or f.advice == LOG_FIRST for f in findings), findings


def test_a_checkpoint_that_was_never_written_is_empty(orders: Path) -> None:
    (orders.parent / "cleaner-offset-checkpoint").touch()
    assert found(verify(orders.parent)) == []


# ---------------------------------------------------------------- parts of a directory


def test_a_partition_or_a_file_can_be_looked_at_alone(orders: Path, tmp_path: Path) -> None:
    log = segments(orders)[1]
    patch(log, 70, b"\xff")
    assert {each[0] for each in found(verify(orders))} >= {log.name}
    assert {each[0] for each in found(verify(log))} == {log.name}
    assert found(verify(segments(orders)[0])) == []


def test_a_partition_copied_out_of_its_directory_can_be_looked_at(
    orders: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("copies") / "orders-0"
    shutil.copytree(orders, copy)
    outcome = verify(copy)
    assert (found(outcome), outcome.batches) == ([], 31)


# ---------------------------------------------------------------- producers that expired


DAY_MS = 86_400_000


def forget_idle_producers(producer_state: ProducerStateManager) -> None:
    for now_ms in (0, DAY_MS):
        producer_state.expire(now_ms)
        producer_state.snapshot()
    assert producer_state.describe() == []


def test_P8_a_producer_that_expired_and_came_back_is_no_damage(tmp_path: Path) -> None:
    """A sound directory was called damaged: the snapshot had coordinator epoch -1, the log 1."""
    root = DataDirectory.open(tmp_path, node_id=1)
    producer_state = ProducerStateManager()
    log = _core.PartitionLog(str(tmp_path / "orders-0"), producer_state, {"segment.bytes": 700})
    records = [(None, b"x" * 300)]
    log.append(_core.encode_batch(records, 1_000, 7, 0, is_transactional=True))
    log.append_marker(7, 0, 1, True, 1_000)
    forget_idle_producers(producer_state)
    for _ in range(4):
        log.append(_core.encode_batch(records, 2_000, 7, 0, is_transactional=True))
    log.close()
    root.mark_clean()
    root.release()
    snapshots = sorted((tmp_path / "orders-0").glob("*.snapshot"))
    assert decode_snapshot(snapshots[-1].read_bytes())[7].coordinator_epoch == -1
    assert found(verify(tmp_path)) == []


def test_P8_a_producer_that_came_back_with_a_marker_alone_is_no_damage(tmp_path: Path) -> None:
    root = DataDirectory.open(tmp_path, node_id=1)
    producer_state = ProducerStateManager()
    log = _core.PartitionLog(str(tmp_path / "orders-0"), producer_state, {})
    log.append(_core.encode_batch([(None, b"x")], 1_000, 7, 0, is_transactional=True))
    log.append_marker(7, 0, 1, True, 1_000)
    forget_idle_producers(producer_state)
    log.append_marker(7, 0, 1, False, 2_000)
    log.close()
    root.mark_clean()
    root.release()
    assert found(verify(tmp_path)) == []


@pytest.mark.parametrize("fault", ["coordinator_epoch", "txn_first_offset", "producer_epoch"])
def test_a_snapshot_may_lack_only_facts_from_before_the_expiry(orders: Path, fault: str) -> None:
    """Producer 0 has ended its newest transaction by a marker, and wrote nothing since."""
    newest = sorted(orders.glob("*.snapshot"))[-1]
    producers = decode_snapshot(newest.read_bytes())
    setattr(producers[0], fault, 9)
    newest.write_bytes(encode_snapshot(producers))
    assert [path for path, _, _ in found(verify(orders.parent))] == [newest.name]


def test_a_snapshot_that_lacks_the_newest_markers_coordinator_epoch_is_found(orders: Path) -> None:
    newest = sorted(orders.glob("*.snapshot"))[-1]
    producers = decode_snapshot(newest.read_bytes())
    producers[0].coordinator_epoch = -1
    newest.write_bytes(encode_snapshot(producers))
    assert [path for path, _, _ in found(verify(orders.parent))] == [newest.name]
