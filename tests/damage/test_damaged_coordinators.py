"""A start on a coordinator's log that is damaged, or that lost records that a partition still
shows.

The broker serves everything else, decides nothing for keys that it cannot read, and says so.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from typing_extensions import override

import txn
from support.at_work import copy_at_work
from support.clients import commit_values, create_topic, read_all, send, transactional_producer
from support.command_line import run_txn
from support.damaged import KAFKA_STORAGE_ERROR, events, fetch_code, flip_bit
from support.entities import entity_builder
from support.seam import Seam
from support.wire_client import RawConnection, request
from txn import _core
from txn.coordinator.transaction.states import TxnState
from txn.errors import StorageError
from txn.storage.base import StoredBatch
from txn.storage.native_log import NativeLog
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition

FIND_COORDINATOR, INIT_PRODUCER_ID, LIST_TRANSACTIONS = 10, 22, 66
OFFSET_FETCH, HEARTBEAT, DESCRIBE_GROUPS = 9, 12, 15
SHARDS = 50
BROKEN, SOUND = "pay", "loader"
"""Transactional ids and groups of different partitions of either coordinator's topic."""


def shard(topic: str, key: str) -> str:
    return f"{topic}-{coordinator_partition(key, SHARDS)}"


def cut_last_batch(directory: Path) -> None:
    """Remove the newest batch, to the byte, as nothing that crashes does."""
    path = sorted(directory.glob("*.log"))[-1]
    batches, _, _ = _core.SegmentReader(str(path)).batches(0, 1 << 30)
    with path.open("r+b") as file:
        file.truncate(batches[-1][0])


@pytest.fixture
def left(tmp_path: Path) -> Iterator[tuple[Path, txn.Broker]]:
    """A broker, and the directory that a kill of it left: a copy made while it ran.

    With `durability=process` a transaction is completed when its end is answered.
    """
    with txn.Broker(tmp_path / "live", durability="process") as broker:
        yield tmp_path / "left", broker


def kill(broker: txn.Broker, left: Path) -> Path:
    """Leave the directory as SIGKILL would."""
    copy_at_work(broker.path, left)
    return left


def ask(broker: txn.Broker, key: int, version: int, **wanted: Any) -> Any:
    with RawConnection(broker.bootstrap_servers) as connection:
        return connection.call(entity_builder(request(key, version))(wanted))


# ---------------------------------------------------------------- a log of decisions


@pytest.fixture
def unread(left: tuple[Path, txn.Broker]) -> Path:
    """A directory whose record of `BROKEN`, with a transaction open, is damaged."""
    path, broker = left
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    for transactional_id in (BROKEN, SOUND):
        commit_values(transactional_producer(servers, transactional_id), "orders", [b"committed"])
    producer = transactional_producer(servers, BROKEN)
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    kill(broker, path)
    flip_bit(path / shard("__transaction_state", BROKEN) / f"{0:020}.log", 100)
    return path


def test_P9_a_damaged_log_of_decisions_keeps_none_of_the_others_from_being_served(
    unread: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One flipped bit in it ended the start of the whole broker."""
    with txn.Broker(unread) as broker:
        servers = broker.bootstrap_servers
        producer = transactional_producer(servers, SOUND)
        commit_values(producer, "orders", [b"more"])
        assert read_all(servers, "orders") == [b"committed", b"committed"]
        assert read_all(servers, "orders", isolation="read_uncommitted")[-1] == b"more"
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    name = shard("__transaction_state", BROKEN)
    assert any("log.damaged" in line for line in told)
    assert any("txn.ids_not_served" in line and name in line for line in told)
    assert any(
        "txn.left_open" in line and "orders-0" in line and f"waits_for={name}" in line
        for line in told
    )


def test_P9_ids_of_a_damaged_log_have_no_coordinator(unread: Path) -> None:
    with txn.Broker(unread) as broker:
        keys = [BROKEN, SOUND]
        found = ask(broker, FIND_COORDINATOR, 4, key_type=1, coordinator_keys=keys)
        codes = {each.key: each.error_code for each in found.coordinators}
        assert codes == {BROKEN: ErrorCode.COORDINATOR_NOT_AVAILABLE, SOUND: ErrorCode.NONE}
        begun = ask(
            broker, INIT_PRODUCER_ID, 4, transactional_id=BROKEN, transaction_timeout=60_000
        )
        assert begun.error_code == ErrorCode.NOT_COORDINATOR
        listed = ask(broker, LIST_TRANSACTIONS, 1)
        assert [each.transactional_id for each in listed.transaction_states] == [SOUND]


def test_P2_no_record_with_a_wrong_checksum_tells_how_a_transaction_ended(
    left: tuple[Path, txn.Broker],
) -> None:
    """A flipped bit made a completed commit an abort, and the advice was to abort it."""
    path, broker = left
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    commit_values(transactional_producer(servers, BROKEN), "orders", [b"committed"])
    broker.close()  # so that no torn write is expected at the end of a log
    kill(broker, path)
    cut_last_batch(path / "orders-0")  # its marker
    assert explained(path)["standing"] == "completed"
    decisions = path / shard("__transaction_state", BROKEN) / f"{0:020}.log"
    completed = struct.pack(">ib", 60_000, TxnState.COMPLETE_COMMIT)  # behind the time-out
    flip_bit(decisions, decisions.read_bytes().rindex(completed) + 4)
    assert struct.pack(">ib", 60_000, TxnState.COMPLETE_ABORT) in decisions.read_bytes()
    held = explained(path)
    assert (held["standing"], held["command"]) == ("unread", None)
    assert held["advice"].startswith("do not abort it")


def test_a_damaged_partition_is_left_out_and_named(left: tuple[Path, txn.Broker]) -> None:
    """Batches with a wrong checksum were told as sound ones."""
    path, broker = left
    servers = broker.bootstrap_servers
    for topic in ("orders", "refunds"):
        create_topic(servers, topic)
        commit_values(transactional_producer(servers, SOUND), topic, [b"committed"])
    broker.close()
    kill(broker, path)
    flip_bit(path / "orders-0" / f"{0:020}.log", -1)
    code, told, noted = run_txn("transactions", "hanging", "--data", path)
    assert (code, "nothing hangs on" in told) == (2, True)
    assert "note: orders-0 was left out: " in noted
    assert run_txn("explain", "refunds", "--data", path)[0] == 0
    code, told, noted = run_txn("explain", "orders", "--data", path)
    assert (code, told) == (2, "")
    assert "is damaged. Run `txn log verify`" in noted


def test_ids_of_a_damaged_log_of_decisions_are_listed_with_a_note(unread: Path) -> None:
    code, told, noted = run_txn("transactions", "list", "--data", unread)
    assert (code, SOUND in told) == (2, True)
    assert f"note: {shard('__transaction_state', BROKEN)} was left out: " in noted


def explained(path: Path) -> dict[str, Any]:
    """The only open transaction of a directory, as `txn explain orders --json` tells it."""
    _, told, _ = run_txn("explain", "orders", "--data", path, "--json")
    [partition] = json.loads(told)
    held: dict[str, Any] = partition["held_by"]
    return held


def test_P2_what_a_damaged_log_has_decided_is_finished_once_it_is_put_back(
    left: tuple[Path, txn.Broker],
) -> None:
    path, broker = left
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    producer = transactional_producer(servers, BROKEN)
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    kill(broker, path)
    log = path / shard("__transaction_state", BROKEN) / f"{0:020}.log"
    whole = flip_bit(log, 100)
    with txn.Broker(path):
        """It leaves the transaction alone."""
    log.write_bytes(whole)
    with txn.Broker(path) as again:
        fenced = transactional_producer(again.bootstrap_servers, BROKEN)
        commit_values(fenced, "orders", [b"next"])
        assert read_all(again.bootstrap_servers, "orders") == [b"next"]


# ---------------------------------------------------------------- a log of groups


def test_P9_groups_of_a_damaged_log_have_no_coordinator_and_others_go_on(
    left: tuple[Path, txn.Broker],
) -> None:
    """They would have begun again at the beginning, or where `auto.offset.reset` says."""
    path, broker = left
    create_topic(broker.bootstrap_servers, "orders")
    for group in (BROKEN, SOUND, BROKEN):
        commit_offset(broker.bootstrap_servers, group, 7)
    kill(broker, path)
    flip_bit(path / shard("__consumer_offsets", BROKEN) / f"{0:020}.log", 100)
    with txn.Broker(path) as damaged:
        found = ask(damaged, FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[BROKEN, SOUND])
        codes = {each.key: each.error_code for each in found.coordinators}
        assert codes == {BROKEN: ErrorCode.COORDINATOR_NOT_AVAILABLE, SOUND: ErrorCode.NONE}
        topics = [{"name": "orders", "partition_indexes": [0]}]
        groups = [{"group_id": group, "topics": topics} for group in (BROKEN, SOUND)]
        fetched = ask(damaged, OFFSET_FETCH, 8, groups=groups, require_stable=True)
        assert [each.error_code for each in fetched.groups] == [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.NONE,
        ]
        older = ask(damaged, OFFSET_FETCH, 1, group_id=BROKEN, topics=topics)
        assert older.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        described = ask(
            damaged, DESCRIBE_GROUPS, 5, groups=[BROKEN], include_authorized_operations=False
        )
        assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        beat = ask(damaged, HEARTBEAT, 3, group_id=BROKEN, generation_id=1, member_id="m")
        assert beat.error_code == ErrorCode.NOT_COORDINATOR
        commit_offset(damaged.bootstrap_servers, SOUND, 8)
        with pytest.raises(KafkaException, match="COORD"):
            commit_offset(damaged.bootstrap_servers, BROKEN, 8)


def commit_offset(servers: str, group: str, offset: int) -> None:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "session.timeout.ms": 6_000}
    )
    try:
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    finally:
        consumer.close()


# ---------------------------------------------------------------- losses that are accepted


def test_P9_an_operator_gives_up_what_a_log_of_decisions_has_lost(
    unread: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The open transaction is aborted: nobody knows any more what was to become of it."""
    name = shard("__transaction_state", BROKEN)
    code, out, err = run_txn("log", "accept-loss", unread, name)
    assert (code, f"{name}" in out) == (0, True), err

    for _ in range(2):
        with txn.Broker(unread) as broker:
            servers = broker.bootstrap_servers
            assert read_all(servers, "orders")[:2] == [b"committed", b"committed"]
            commit_values(transactional_producer(servers, BROKEN), "orders", [b"next"])
    with txn.Broker(unread) as broker:
        values = read_all(broker.bootstrap_servers, "orders")

    assert values == [b"committed", b"committed", b"next", b"next"]
    assert len(events(caplog, "log.loss_accepted")) == 1
    assert events(caplog, "log.damaged") == []


def test_P9_an_operator_gives_up_what_a_log_of_groups_has_lost(
    left: tuple[Path, txn.Broker],
) -> None:
    path, broker = left
    create_topic(broker.bootstrap_servers, "orders")
    for offset in (7, 8):
        commit_offset(broker.bootstrap_servers, BROKEN, offset)
    commit_offset(broker.bootstrap_servers, SOUND, 5)
    kill(broker, path)
    name = shard("__consumer_offsets", BROKEN)
    flip_bit(path / name / f"{0:020}.log", -3)
    code, _, err = run_txn("log", "accept-loss", path, name)
    assert code == 0, err

    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        assert [committed(servers, group) for group in (BROKEN, SOUND)] == [7, 5]
        commit_offset(servers, BROKEN, 9)
    with txn.Broker(path) as again:
        assert committed(again.bootstrap_servers, BROKEN) == 9


def committed(servers: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        [found] = consumer.committed([TopicPartition("orders", 0)], timeout=10)
    finally:
        consumer.close()
    offset: int = found.offset
    return offset


# ---------------------------------------------------------------- a disk that fails once


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@pytest.mark.parametrize("place", ["open", "read"])
def test_a_coordinators_log_that_a_disk_refuses_once_is_read_again(
    left: tuple[Path, txn.Broker], topic: str, place: str
) -> None:
    """Its ids and groups had no coordinator until the next start."""
    path, broker = left
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    commit_values(transactional_producer(servers, BROKEN), "orders", [b"committed"])
    commit_offset(servers, BROKEN, 7)
    kill(broker, path)
    broker.close()  # its logs were opened before the seam

    with refused_once(topic, place), txn.Broker(path) as again:
        servers = again.bootstrap_servers
        commit_values(transactional_producer(servers, BROKEN), "orders", [b"next"])
        assert read_all(servers, "orders") == [b"committed", b"next"]
        assert committed(servers, BROKEN) == 7


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@pytest.mark.parametrize("place", ["open", "read"])
def test_a_coordinators_log_that_a_disk_refuses_throughout_a_start_is_served_by_the_next(
    left: tuple[Path, txn.Broker],
    caplog: pytest.LogCaptureFixture,
    topic: str,
    place: str,
) -> None:
    """Meanwhile its ids and groups have no coordinator, and a line has the operator's next step."""
    path, broker = left
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    commit_values(transactional_producer(servers, BROKEN), "orders", [b"committed"])
    commit_offset(servers, BROKEN, 7)
    kill(broker, path)
    broker.close()  # its logs were opened before the seam

    kind = int(topic == "__transaction_state")
    with refused(topic, place), txn.Broker(path) as without:
        keys = [BROKEN, SOUND]
        found = ask(without, FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=keys)
        codes = [each.error_code for each in found.coordinators]
        commit_values(transactional_producer(without.bootstrap_servers, SOUND), "orders", [b"x"])
    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        commit_values(transactional_producer(servers, BROKEN), "orders", [b"next"])
        assert read_all(servers, "orders") == [b"committed", b"x", b"next"]
        assert committed(servers, BROKEN) == 7

    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    assert f"{topic}-" in caplog.text
    assert "Restart the broker once the disk can be read" in caplog.text


def refused_once(topic: str, place: str) -> AbstractContextManager[None]:
    """Have the disk refuse the partition of `BROKEN` once: to open it, or to read its batches."""
    return refused(topic, place, iter([StorageError("Input/output error")]))


@contextmanager
def refused(
    topic: str, place: str, refusals: Iterator[StorageError] | None = None
) -> Iterator[None]:
    """Have the disk refuse the partition of `BROKEN`, always or with these refusals."""
    wanted = place, topic, coordinator_partition(BROKEN, SHARDS)
    refusals = refusals or repeat(StorageError("Input/output error"))

    def refuse(*at: object) -> None:
        if at == wanted:
            for error in refusals:
                raise error

    with Seam() as seam:

        @seam.instead_of(NativeLog)
        class Refused(NativeLog):
            __slots__ = ()

            def __init__(self, root: Path, topic: str, index: int, **more: Any) -> None:
                refuse("open", topic, index)
                super().__init__(root, topic, index, **more)

            @override
            def batches(self, start: int = 0) -> Iterator[StoredBatch]:
                yield from super().batches(start)
                refuse("read", self.topic, self.index)

        yield


# ---------------------------------------------------------------- open here, completed there


def test_P2_a_partition_without_the_marker_of_a_completed_transaction_is_refused(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    """The start cut it, `explain` advised to abort a committed transaction, and the producer went
    on.
    """
    path, broker = left
    servers = broker.bootstrap_servers
    for topic in ("orders", "other"):
        create_topic(servers, topic)
    producer = transactional_producer(servers, BROKEN)
    commit_values(producer, "orders", [b"committed"])
    kill(broker, path)
    code, out, _ = run_txn("log", "verify", path)
    assert (code, "has a transaction open" in out) == (0, False)
    cut_last_batch(path / "orders-0")
    code, out, _ = run_txn("log", "verify", path)
    assert (code, "'pay' completed it as COMMIT at 20" in out) == (1, True)
    with txn.Broker(path) as damaged:
        assert fetch_code(damaged.bootstrap_servers, "orders") == KAFKA_STORAGE_ERROR
        commit_values(transactional_producer(damaged.bootstrap_servers, BROKEN), "other", [b"x"])
    (told,) = events(caplog, "log.damaged")
    assert "partition=0" in told
    assert "producer 0 with epoch 0 has a transaction open since offset 0" in told
    assert "'pay' completed it as COMMIT at " in told
    code, out, _ = run_txn("explain", "orders", "--data", path)
    assert (code, "'pay' completed it as COMMIT at 20" in out) == (1, True)
    assert "txn transactions abort" not in out


def test_P2_only_where_an_operator_gave_it_up_is_what_lost_its_marker_aborted(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    path, broker = left
    servers = broker.bootstrap_servers
    for topic in ("orders", "other"):
        create_topic(servers, topic)
    producer = transactional_producer(servers, BROKEN)
    producer.begin_transaction()
    for topic in ("orders", "other"):
        send(producer, topic, [b"committed"])
    producer.commit_transaction()
    kill(broker, path)
    for topic in ("orders", "other"):
        cut_last_batch(path / f"{topic}-0")
    code, out, err = run_txn("log", "accept-loss", path, "orders-0")
    assert (code, "'pay' completed it as COMMIT at 20" in out) == (0, True), err
    with txn.Broker(path) as again:
        servers = again.bootstrap_servers
        commit_values(transactional_producer(servers, SOUND), "orders", [b"after"])
        assert read_all(servers, "orders") == [b"after"]
        assert fetch_code(servers, "other") == KAFKA_STORAGE_ERROR
    (told,) = events(caplog, "log.damaged")
    assert "topic=other" in told


def test_P2_records_of_the_coordinator_that_are_gone_are_found_by_what_partitions_hold_open(
    left: tuple[Path, txn.Broker], caplog: pytest.LogCaptureFixture
) -> None:
    path, broker = left
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    producer = transactional_producer(servers, BROKEN)
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    kill(broker, path)
    cut_last_batch(path / shard("__transaction_state", BROKEN))
    code, out, _ = run_txn("log", "verify", path)
    assert (code, "'pay' is in Empty with producer 0 and epoch 0" in out) == (1, True)
    with txn.Broker(path):
        (told,) = events(caplog, "log.damaged")
    assert "'pay' is in Empty with producer 0 and epoch 0" in told
    assert "without this partition" in told


def test_an_open_transaction_of_a_killed_broker_goes_on(left: tuple[Path, txn.Broker]) -> None:
    path, broker = left
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    producer = transactional_producer(servers, BROKEN)
    producer.begin_transaction()
    send(producer, "orders", [b"open"])
    kill(broker, path)
    with txn.Broker(path) as again:
        commit_values(transactional_producer(again.bootstrap_servers, BROKEN), "orders", [b"x"])
        assert read_all(again.bootstrap_servers, "orders") == [b"x"]
