"""The storage loses its cache, and the machine goes on: the boot is the same as after a kill.

A volume is detached and attached, or a file system fails and is mounted again. Here the files of a
running broker are copied, and lose the ends that no sync had to keep.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn
from support.at_work import copy_at_work
from support.clients import (
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.damaged import KAFKA_STORAGE_ERROR, events, fetch_code, flip_bit
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn import _core
from txn.wire.hashing import coordinator_partition

pytestmark = pytest.mark.crash

SHARDS = 50
LIST_TRANSACTIONS = 66
ID = "pay"
DECISIONS = f"__transaction_state-{coordinator_partition(ID, SHARDS)}"


def lose(directory: Path, batches: int) -> None:
    """Take the newest batches of a log, as none of them was synced."""
    path = sorted(directory.glob("*.log"))[-1]
    stored, _, _ = _core.SegmentReader(str(path)).batches(0, 1 << 30)
    with path.open("r+b") as file:
        file.truncate(stored[-batches][0])


@pytest.fixture
def left(tmp_path: Path) -> Iterator[tuple[Path, txn.Broker]]:
    """A broker with two topics, and a place for a copy of its files."""
    with txn.Broker(tmp_path / "live", durability="commit") as broker:
        for topic in ("orders", "seats"):
            create_topic(broker.bootstrap_servers, topic)
        yield tmp_path / "left", broker


def commit(broker: txn.Broker, *records: tuple[str, bytes]) -> None:
    """Commit records, and wait until nothing is left to do for their transaction."""
    producer = transactional_producer(broker.bootstrap_servers, ID)
    producer.begin_transaction()
    for topic, value in records:
        send(producer, topic, [value])
    producer.commit_transaction()
    with RawConnection(broker.bootstrap_servers) as connection:
        ask = entity_builder(request(LIST_TRANSACTIONS, 1))({})
        while True:
            (listed,) = connection.call(ask).transaction_states
            if listed.transaction_state == "CompleteCommit":
                return


def test_P3_an_unanswered_commit_that_lost_records_is_aborted_everywhere(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """The start after a supposed kill finished it: half of a transaction was shown, unlogged."""
    path, broker = left
    commit(broker, ("orders", b"committed"), ("seats", b"committed"))
    copy_at_work(broker.path, path)
    lose(path / DECISIONS, 1)  # Complete
    lose(path / "orders-0", 1)  # the marker
    lose(path / "seats-0", 2)  # marker and record
    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        commit_values(transactional_producer(servers, ID), "seats", [b"next"])
        assert read_all(servers, "orders") == []
        assert read_all(servers, "seats") == [b"next"]
    (told,) = events(caplog, "storage.cache_lost")
    assert f"transactional id '{ID}' names offset 0 of seats-0, whose log ends at 0" in told
    with txn.Broker(path) as again:
        assert read_all(again.bootstrap_servers, "orders") == []
    assert len(events(caplog, "storage.cache_lost")) == 1


def test_P3_a_commit_whose_partition_has_lost_its_directory_is_aborted_everywhere(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """The verification was silent about it: it took the partition for one never written."""
    path, broker = left
    commit(broker, ("orders", b"committed"), ("seats", b"committed"))
    copy_at_work(broker.path, path)
    for name in (DECISIONS, "orders-0"):
        lose(path / name, 1)  # Complete and the marker
    shutil.rmtree(path / "seats-0")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (path / name).unlink(missing_ok=True)
    (path / "log-start-offset-checkpoint").unlink(missing_ok=True)
    _, out, _ = run_txn("log", "verify", path)
    named = "names offset 0 of"
    assert named in out
    with txn.Broker(path) as again:
        assert read_all(again.bootstrap_servers, "orders") == []
    (told,) = events(caplog, "storage.cache_lost")
    assert f"{named} seats-0, whose log ends at 0" in told


def test_P3_a_commit_waits_for_the_records_of_a_refused_partition_and_is_aborted_everywhere(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """The start finished it in the other partition. Then the operator told of the lost cache."""
    path, broker = left
    commit(broker, ("seats", b"committed"), ("orders", b"torn"), ("orders", b"behind"))
    copy_at_work(broker.path, path)
    for name in (DECISIONS, "orders-0", "seats-0"):
        lose(path / name, 1)  # Complete and the markers
    flip_bit(path / "orders-0" / f"{0:020}.log", 70)
    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        assert fetch_code(servers, "orders") == KAFKA_STORAGE_ERROR
        assert read_all(servers, "seats") == []
    assert len(events(caplog, "txn.left_prepared")) == 1
    assert run_txn("log", "lost-cache", path)[0] == 0
    with txn.Broker(path) as again:
        for topic in ("orders", "seats"):
            assert read_all(again.bootstrap_servers, topic) == []


def test_P2_an_answered_commit_that_lost_a_marker_alone_is_shown_whole(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """Its partition was refused, and to accept the loss hid the commit for good."""
    path, broker = left
    commit(broker, ("orders", b"committed"), ("seats", b"committed"))
    copy_at_work(broker.path, path)
    lose(path / "seats-0", 1)
    code, out, _ = run_txn("log", "verify", path)
    assert (code, "the storage lost its cache" in out) == (0, True)
    with txn.Broker(path) as again:
        for topic in ("orders", "seats"):
            assert read_all(again.bootstrap_servers, topic) == [b"committed"]
    (told,) = events(caplog, "storage.cache_lost")
    assert f"transactional id '{ID}' names offset 1 of seats-0, whose log ends at 1" in told


def test_P2_a_marker_that_is_lost_before_a_later_transaction_of_its_id_ends_the_right_one(
    left: tuple[Path, txn.Broker],
) -> None:
    """Under version 1 the later transaction explained the open one, and its abort took both."""
    path, broker = left
    producer = transactional_producer(broker.bootstrap_servers, ID)
    commit_values(producer, "orders", [b"committed"])
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    copy_at_work(broker.path, path)
    lose(path / "orders-0", 2)
    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        transactional_producer(servers, ID)
        assert read_all(servers, "orders") == [b"committed"]


def test_P9_a_log_that_lost_synced_records_behind_a_kill_is_refused_and_proves_no_lost_cache(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    path, broker = left
    commit(broker, ("orders", b"first"), ("orders", b"second"))
    copy_at_work(broker.path, path)
    lose(path / "orders-0", 2)
    with txn.Broker(path) as again:
        assert fetch_code(again.bootstrap_servers, "orders") == KAFKA_STORAGE_ERROR
    assert not events(caplog, "storage.cache_lost")


def test_an_operator_says_what_no_file_proves(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator lost the record that an open transaction had begun."""
    path, broker = left
    producer = transactional_producer(broker.bootstrap_servers, ID)
    commit_values(producer, "orders", [b"committed"])
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    copy_at_work(broker.path, path)
    lose(path / DECISIONS, 1)
    with txn.Broker(path) as again:
        assert fetch_code(again.bootstrap_servers, "orders") == KAFKA_STORAGE_ERROR
        code, _, err = run_txn("log", "lost-cache", path)
        assert (code, "in use" in err) == (2, True)
    (told,) = events(caplog, "log.damaged")
    assert 0 < told.index(f"txn log lost-cache {path}") < told.index("txn log accept-loss")

    code, out, _ = run_txn("log", "lost-cache", path)
    assert code == 0
    assert "judged anew: 1" in out
    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        commit_values(transactional_producer(servers, ID), "orders", [b"next"])
        assert read_all(servers, "orders") == [b"committed", b"next"]


def test_a_log_that_was_refused_after_a_kill_is_cut_once_an_operator_tells_of_the_lost_cache(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    path, broker = left
    servers = broker.bootstrap_servers
    commit_values(transactional_producer(servers, ID), "orders", [b"committed"])
    for value in (b"torn", b"behind"):
        send(plain_producer(servers), "orders", [value])
    copy_at_work(broker.path, path)
    log = path / "orders-0" / f"{0:020}.log"
    stored, _, _ = _core.SegmentReader(str(log)).batches(0, 1 << 30)
    flip_bit(log, stored[-2][0] + 70)
    with txn.Broker(path) as again:
        assert fetch_code(again.bootstrap_servers, "orders") == KAFKA_STORAGE_ERROR
    assert run_txn("log", "lost-cache", path)[0] == 0
    with txn.Broker(path) as again:
        assert read_all(again.bootstrap_servers, "orders") == [b"committed"]
    (told,) = events(caplog, "log.tail_cut")
    assert "topic=orders" in told


def test_an_operator_may_tell_of_a_lost_cache_after_a_stop_in_order(
    left: tuple[Path, txn.Broker],
) -> None:
    """The broker went on for a while before anybody knew."""
    path, broker = left
    producer = transactional_producer(broker.bootstrap_servers, ID)
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    copy_at_work(broker.path, path)
    with txn.Broker(path):
        pass
    assert run_txn("log", "lost-cache", path)[0] == 0
    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        send(plain_producer(servers), "orders", [b"plain"])
        assert read_all(servers, "orders") == [b"plain"]  # nothing open holds it back
