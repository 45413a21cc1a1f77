"""Brokers that are stopped while something is under way, or that cannot stop in order."""

import ctypes
import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

import txn
from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.python_syncs import sync_each
from txn.errors import StorageError
from txn.server.loop.scheduler import LoopScheduler
from txn.storage.native_log import NativeLog

pytestmark = pytest.mark.crash

CLEAN_MARK = ".kafka_cleanshutdown"


def test_a_log_that_cannot_be_closed_leaves_no_clean_mark_and_the_others_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs behind it were left open, and their snapshots unwritten."""
    data = tmp_path / "data"
    close = NativeLog.close

    def close_some(store: NativeLog) -> None:
        if store.topic == "bad":
            raise StorageError("the disk is gone")
        close(store)

    broker = txn.Broker(data)
    for topic in ("bad", "good"):
        create_topic(broker.bootstrap_servers, topic)
        send(plain_producer(broker.bootstrap_servers), topic, [b"x"])
    monkeypatch.setattr(NativeLog, "close", close_some)
    with pytest.raises(StorageError, match="the disk is gone"):
        broker.close()
    monkeypatch.undo()

    snapshots = {topic: list((data / f"{topic}-0").glob("*.snapshot")) for topic in ("bad", "good")}
    assert not (data / CLEAN_MARK).exists()
    assert snapshots["bad"] == []
    assert len(snapshots["good"]) == 1
    with txn.Broker(data) as broker:
        assert read_all(broker.bootstrap_servers, "bad") == [b"x"]


def test_P3_a_stop_while_a_commit_waits_for_the_disk_leaves_it_whole_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    sync = NativeLog.sync
    is_syncing, may_sync = threading.Event(), threading.Event()

    def sync_later(store: NativeLog) -> None:
        if store.topic == "orders":
            is_syncing.set()
            assert may_sync.wait(WAIT_S)
        sync(store)

    monkeypatch.setattr(LoopScheduler, "sync_each", sync_each)
    broker = txn.Broker(data, durability="commit")
    create_topic(broker.bootstrap_servers, "orders", partitions=2)
    producer = transactional_producer(broker.bootstrap_servers, "t1")
    producer.begin_transaction()
    for partition in range(2):
        send(producer, "orders", [b"%d" % partition], partition)
    monkeypatch.setattr(NativeLog, "sync", sync_later)
    committing = threading.Thread(target=_try_to_commit, args=(producer,))
    committing.start()
    assert is_syncing.wait(WAIT_S)
    closing = threading.Thread(target=broker.close)
    closing.start()
    may_sync.set()
    closing.join(WAIT_S)

    assert not closing.is_alive()
    assert (data / CLEAN_MARK).exists()
    committing.join()
    with txn.Broker(data) as broker:
        transactional_producer(broker.bootstrap_servers, "t1")  # ends the open transaction
        assert set(read_all(broker.bootstrap_servers, "orders")) in (set(), {b"0", b"1"})


def _try_to_commit(producer: object) -> None:
    try:
        producer.commit_transaction(5.0)  # type: ignore[attr-defined]
    except KafkaException:
        return


def test_a_stop_does_not_wait_for_a_reader_that_waits_for_records(tmp_path: Path) -> None:
    broker = txn.Broker(tmp_path / "data")
    create_topic(broker.bootstrap_servers, "orders")
    send(plain_producer(broker.bootstrap_servers), "orders", [b"x"])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 60_000,
            "socket.timeout.ms": 70_000,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(WAIT_S) is not None  # the next fetch is on its way, and waits

    before = time.monotonic()
    broker.close()

    assert time.monotonic() - before < 10
    consumer.close()


def test_brokers_of_one_process_keep_to_themselves(tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(txn.Broker(tmp_path / f"data-{n}")) for n in range(3)]
        for number, broker in enumerate(brokers):
            create_topic(broker.bootstrap_servers, "orders")
            producer = transactional_producer(broker.bootstrap_servers, "t1")
            commit_values(producer, "orders", [b"%d" % number])
        brokers[0].close()
        found = [read_all(broker.bootstrap_servers, "orders") for broker in brokers[1:]]
    assert found == [[b"1"], [b"2"]]


def test_a_stop_signal_that_the_kernel_hands_to_another_thread_stops_a_broker(
    tmp_path: Path,
) -> None:
    """The main thread slept on in its lock, and only a second signal ended the process."""
    broker = BrokerProcess(tmp_path / "data")
    _, *others = sorted(int(thread.name) for thread in Path(f"/proc/{broker.pid}/task").iterdir())
    send_to_thread(broker.pid, others[-1], signal.SIGTERM)
    try:
        assert broker.wait() == 0
    finally:
        broker.kill()


def test_a_signal_that_somebody_else_handles_stops_no_broker(tmp_path: Path) -> None:
    """Python reports each on the same wire, and any signal stopped the broker."""
    handling = (
        "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "from txn.cli import main; main()"
    )
    broker = BrokerProcess(tmp_path / "data", program=("-c", handling))
    try:
        os.kill(broker.pid, signal.SIGUSR1)
        create_topic(broker.bootstrap_servers, "orders")
        commit_values(transactional_producer(broker.bootstrap_servers, "t"), "orders", [b"a"])
        assert read_all(broker.bootstrap_servers, "orders") == [b"a"]
    finally:
        assert broker.stop() == 0


def send_to_thread(process: int, thread: int, number: signal.Signals) -> None:
    """tgkill(2), which Python has for its own threads only."""
    assert ctypes.CDLL(None).tgkill(process, thread, number) == 0
