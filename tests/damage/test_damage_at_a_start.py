"""P9 at a start: damage that a kill cannot have left is refused by name, and all else is served.

A killed process leaves its page cache, so of all that it wrote only the beginning of one last
batch may be there. A clean stop leaves no such thing.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import txn
from support.brokers import BrokerProcess
from support.clients import WAIT_S, commit_values, create_topic, plain_producer, read_all, send
from support.clients import transactional_producer as opened_producer
from support.command_line import run_txn
from support.compacted import SEGMENT_BYTES, compacted_topic, put
from support.damaged import (
    KAFKA_STORAGE_ERROR,
    VALUES,
    closed_directory,
    events,
    fetch_code,
    flip_bit,
    segment_of,
    write,
)
from txn.errors import CorruptLogError
from txn.inspect.verify import verify
from txn.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from txn.storage.directory import CLEAN, LOCK
from txn.storage.refusals import REFUSED_PARTITIONS

pytestmark = pytest.mark.crash

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was killed."""
    data = tmp_path_factory.mktemp("killed") / "data"
    process = BrokerProcess(data)
    write(process.bootstrap_servers)
    process.kill()
    return data


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was stopped in order."""
    return closed_directory(tmp_path_factory.mktemp("closed") / "data")


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda kept: Path(shutil.copytree(kept, tmp_path / "data"))


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    return iter([None])


def contents(directory: Path) -> dict[str, bytes]:
    paths = directory.rglob("*")
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def require_refused(data: Path, caplog: pytest.LogCaptureFixture, *named: str) -> None:
    """`bad` is refused twice, by name, none of its files is touched, and `good` is served."""
    before = contents(data / "bad-0") if (data / "bad-0").is_dir() else {}
    for _ in range(2):  # it is not found to be sound by a second look
        caplog.clear()
        with txn.Broker(data) as broker:
            assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
            assert read_all(broker.bootstrap_servers, "good") == VALUES
        (line,) = events(caplog, "log.damaged")
        assert "topic=bad partition=0 path=" in line
        for name in named:
            assert name in line
        assert not events(caplog, "log.tail_cut")
        if (data / "bad-0").is_dir():
            assert contents(data / "bad-0") == before


# ---------------------------------------------------------------- after a kill


def test_P2_a_flipped_bit_of_the_last_commit_marker_is_refused_and_the_commit_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The start cut the marker without a word, the transaction was open again, and its producer
    aborted a committed transaction."""
    data = tmp_path / "data"
    process = BrokerProcess(data)
    create_topic(process.bootstrap_servers, "bad")
    commit_values(opened_producer(process.bootstrap_servers, "pay"), "bad", [b"paid"])
    process.kill()
    segment = segment_of(data)
    intact = flip_bit(segment, -3, 8)
    damaged = segment.read_bytes()
    with txn.Broker(data) as broker:
        assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
        opened_producer(broker.bootstrap_servers, "pay")
    assert segment.read_bytes() == damaged
    (line,) = events(caplog, "log.damaged")
    assert f"path={segment}" in line
    segment.write_bytes(intact)  # the operator has a copy
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "bad") == [b"paid"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda intact: b"\xa5" * len(intact),
        lambda intact: intact + b"\xa5" * 500,
        lambda intact: intact + b"\xa5" * 7,
        lambda intact: intact + bytes(4096),
        lambda intact: intact[:-1] + bytes([intact[-1] ^ 1]),
    ],
    ids=["overwritten", "garbage", "a little garbage", "zeros", "a bit"],
)
def test_P9_what_no_killed_process_leaves_is_refused(
    killed: Path,
    copied: Callable[[Path], Path],
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytes], bytes],
) -> None:
    data = copied(killed)
    segment = segment_of(data)
    segment.write_bytes(damage(segment.read_bytes()))
    require_refused(data, caplog, f"path={segment}")


def test_P9_a_torn_write_is_cut_and_told_of(
    killed: Path, copied: Callable[[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    data = copied(killed)
    segment = segment_of(data)
    intact = segment.read_bytes()
    next_batch = (21).to_bytes(8) + intact[8 : len(intact) // 21]
    for torn in (1, 7, 8, 12, 30, 60, 61, len(next_batch) - 1):
        caplog.clear()
        segment.write_bytes(intact + next_batch[:torn])
        with txn.Broker(data) as broker:
            assert read_all(broker.bootstrap_servers, "bad") == VALUES
        (line,) = events(caplog, "log.tail_cut")
        assert f"topic=bad partition=0 path={segment} position={len(intact)}" in line
        assert f"bytes={torn} first_offset=21 why=" in line
        assert "torn write of a killed process" in line
        assert segment.read_bytes() == intact
        (data / CLEAN).unlink()


# ---------------------------------------------------------------- what is missing


def emptied(data: Path) -> None:
    segment_of(data).write_bytes(b"")


def cut(data: Path) -> None:
    intact = segment_of(data).read_bytes()
    segment_of(data).write_bytes(intact[: len(intact) // 21 * 20])


def without_segment(data: Path) -> None:
    segment_of(data).unlink()


def without_files(data: Path) -> None:
    for path in (data / "bad-0").iterdir():
        path.unlink()


def without_directory(data: Path) -> None:
    shutil.rmtree(data / "bad-0")


def file_instead(data: Path) -> None:
    shutil.rmtree(data / "bad-0")
    (data / "bad-0").write_bytes(b"")


def link_to_nothing(data: Path) -> None:
    shutil.rmtree(data / "bad-0")
    (data / "bad-0").symlink_to("nowhere")


def fifo(data: Path) -> None:
    segment_of(data).unlink()
    os.mkfifo(segment_of(data))


def index_fifo(data: Path) -> None:
    path = segment_of(data).with_suffix(".index")
    path.unlink()
    os.mkfifo(path)


def longer(data: Path) -> None:
    """A batch more, whole and in place, but not from this log."""
    intact = segment_of(data).read_bytes()
    batch = intact[: len(intact) // 21]
    segment_of(data).write_bytes(intact + (21).to_bytes(8) + batch[8:])


MISSING = [
    emptied,
    cut,
    without_segment,
    without_files,
    without_directory,
    file_instead,
    link_to_nothing,
    fifo,
    index_fifo,
]


@pytest.mark.parametrize("lose", [*MISSING, longer])
def test_P9_what_is_missing_after_a_clean_stop_is_refused(
    closed: Path,
    copied: Callable[[Path], Path],
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[Path], None],
) -> None:
    """It was served without a word, and offsets were given twice in one leader epoch."""
    data = copied(closed)
    lose(data)
    if lose is longer:
        with txn.Broker(data) as broker:
            assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
        assert "says it was closed at 21" in events(caplog, "log.damaged")[0]
    else:
        require_refused(data, caplog, str(data / "bad-0"))


@pytest.mark.parametrize("lose", MISSING)
def test_P9_what_is_missing_after_a_kill_is_refused_by_what_checkpoints_say(
    closed: Path,
    copied: Callable[[Path], Path],
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[Path], None],
) -> None:
    data = copied(closed)
    (data / CLEAN).unlink()
    lose(data)
    require_refused(data, caplog, str(data / "bad-0"))


@pytest.mark.parametrize("emptied", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_P9_one_emptied_checkpoint_does_not_switch_the_proofs_off(
    closed: Path, copied: Callable[[Path], Path], caplog: pytest.LogCaptureFixture, emptied: str
) -> None:
    data = copied(closed)
    (data / emptied).write_bytes(b"")
    cut(data)
    with txn.Broker(data) as broker:
        assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
    assert any(emptied in line for line in events(caplog, "checkpoint.ignored"))


def test_P9_without_its_metadata_log_a_directory_is_refused_with_a_clear_error(
    closed: Path, copied: Callable[[Path], Path]
) -> None:
    """A new one was begun, and every topic was gone."""
    data = copied(closed)
    shutil.rmtree(data / "__cluster_metadata-0")
    for _ in range(2):
        with pytest.raises(CorruptLogError, match="__cluster_metadata-0 is damaged: it is gone"):
            txn.Broker(data)
    (data / RECOVERY_POINTS).unlink()
    with pytest.raises(CorruptLogError, match="__cluster_metadata-0 is damaged: it is gone"):
        txn.Broker(data)
    assert segment_of(data).stat().st_size > 0


def test_P9_a_refusal_stands_until_the_files_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the clean stop proved that the first segment was not removed by retention. It was
    forgotten by the start that refused it, and the next one served the rest in silence.
    """
    data, aside = tmp_path / "data", tmp_path / "aside"
    with txn.Broker(data) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "bad", internal_segment_bytes="300")
        for value in VALUES:
            send(plain_producer(servers), "bad", [value])
        place = TopicPartition("bad", 0, 1)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.delete_records([place])[place].result(WAIT_S)
    aside.mkdir()
    for path in (data / "bad-0").glob(f"{0:020}.*"):
        shutil.move(path, aside / path.name)
    for _ in range(3):
        caplog.clear()
        with txn.Broker(data) as broker:
            assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
        (line,) = events(caplog, "log.damaged")
        assert "log-start-offset-checkpoint says" in line
        assert any(
            "log-start-offset-checkpoint says" in each.what for each in verify(data).findings
        )
    for path in aside.iterdir():
        shutil.move(path, data / "bad-0" / path.name)
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "bad") == VALUES[1:]
    assert not (data / REFUSED_PARTITIONS).exists()


def first_segment_after_a_kill(data: Path) -> Path:
    """The first log file of a compacted topic, `prices`, that has sealed segments behind it."""
    process = BrokerProcess(data)
    compacted_topic(process, "prices")
    producer = plain_producer(process.bootstrap_servers)
    for value in ("x" * SEGMENT_BYTES, "y" * SEGMENT_BYTES, "1", "z" * SEGMENT_BYTES):
        put(producer, "prices", [("key", value)])
    process.kill()
    return segment_of(data, "prices")


def test_the_cut_that_a_start_makes_of_a_compacted_log_is_announced_by_verify(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Power took a sealed segment and left the next one; `txn log verify` said nothing of it."""
    data = tmp_path / "data"
    segment = first_segment_after_a_kill(data)
    following = sorted(segment.parent.glob("*.log"))[1]
    for suffix in (".log", ".index", ".timeindex"):
        segment.with_suffix(suffix).write_bytes(b"")
    (data / RECOVERY_POINTS).unlink(missing_ok=True)
    (data / LOCK).write_text("another boot")
    end = int(segment.stem)
    code, out, _ = run_txn("log", "verify", data)
    assert code == 0, out
    (line,) = (line for line in out.splitlines() if "cuts the log" in line)
    assert str(following) in line
    assert f"the next start cuts the log at offset {end}" in line
    with txn.Broker(data):
        told = [line for line in events(caplog, "log.tail_cut") if "topic=prices" in line]
    assert f"first_offset={end}" in told[0], told


def test_verify_announces_no_cut_where_the_gap_may_be_of_a_kafka_that_was_there_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The start took the gap for its cleaner's; `txn log verify` announced a cut."""
    data = tmp_path / "data"
    segment = first_segment_after_a_kill(data)
    for suffix in (".log", ".index", ".timeindex"):
        segment.with_suffix(suffix).write_bytes(b"")
    (data / RECOVERY_POINTS).unlink(missing_ok=True)
    (data / LOCK).write_text("another boot\nanother quorum-state\n")
    code, out, _ = run_txn("log", "verify", data)
    assert code == 0, out
    assert "cuts the log" not in out
    with txn.Broker(data) as broker:
        assert len(read_all(broker.bootstrap_servers, "prices")) == 3
    assert not [line for line in events(caplog, "log.tail_cut") if "topic=prices" in line]


@pytest.mark.parametrize("gone", ["__cluster_metadata-0", "bad-0"])
def test_P9_what_was_on_the_disk_is_missed_after_a_power_failure_too(
    gone: str, closed: Path, copied: Callable[[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that recovery points name was made anew, and its stored records forgotten."""
    data = copied(closed)
    (data / CLEAN).unlink()
    (data / LOCK).write_text("another boot")
    shutil.rmtree(data / gone)
    for _ in range(2):
        caplog.clear()
        if gone == "bad-0":
            with txn.Broker(data) as broker:
                assert fetch_code(broker.bootstrap_servers, "bad") == KAFKA_STORAGE_ERROR
                assert read_all(broker.bootstrap_servers, "good") == VALUES
            (line,) = events(caplog, "log.damaged")
            assert "recovery-point-offset-checkpoint" in line
        else:
            with pytest.raises(CorruptLogError, match="__cluster_metadata-0"):
                txn.Broker(data)


def test_a_gap_of_kafkas_cleaner_is_no_loss_of_a_later_power_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka keeps the last batch of a cleaning, not of each segment, and was killed in one.

    After a power failure such a gap counts as a loss above the recovery point, unless the first
    start has had all on the disk.
    """
    data = tmp_path / "data"
    segment = first_segment_after_a_kill(data)
    segment.write_bytes(b"")
    (data / RECOVERY_POINTS).unlink(missing_ok=True)
    (data / LOCK).write_text("")
    expected = [SEGMENT_BYTES, 1, SEGMENT_BYTES]

    def lengths(servers: str) -> list[int]:
        return [len(value or b"") for value in read_all(servers, "prices")]

    for _ in range(2):
        process = BrokerProcess(data)
        assert lengths(process.bootstrap_servers) == expected
        process.kill()
        (data / LOCK).write_text("another boot")
    with txn.Broker(data) as broker:
        assert lengths(broker.bootstrap_servers) == expected
    assert not events(caplog, "log.tail_cut")


def test_P9_a_topic_made_anew_is_not_held_against_its_namesake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries of checkpoints for a deleted topic prove nothing about the next of that name."""
    data = tmp_path / "data"
    with txn.Broker(data) as broker:
        write(broker.bootstrap_servers)
    process = BrokerProcess(data)
    servers = process.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for deleted in admin.delete_topics(["bad", "good"]).values():
        deleted.result(WAIT_S)
    create_topic(servers, "bad")
    create_topic(servers, "good")
    send(plain_producer(servers), "good", [b"new"])
    process.kill()
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "bad") == []
        assert read_all(broker.bootstrap_servers, "good") == [b"new"]
    assert not events(caplog, "log.damaged")
