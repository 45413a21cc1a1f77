"""A test's broker: topics, records, groups, restarts, snapshots and its clock."""

import fcntl
import gc
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients import WAIT_S, commit_values, transactional_producer
from support.own_process import in_own_process
from txn.errors import ConfigError, ForkedError, RejectedError
from txn.testing import TestBroker, WaitError, places
from txn.testing.client import KitClient


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


def values(broker: TestBroker, topic: str, **options: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic, **options)]


def consumer_of(broker: TestBroker, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def test_a_record_for_an_empty_broker_is_refused_with_the_call_that_makes_its_topic() -> None:
    with TestBroker() as broker, pytest.raises(RejectedError) as told:
        broker.produce("auto", "x")
    assert str(told.value) == "topic 'auto' is not there: call create_topic('auto') first"


def test_records_come_with_key_headers_and_place(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=2)
    broker.produce(topic, ("k", "v"), (None, None), partition=1)
    producer = transactional_producer(broker.bootstrap_servers, "headers")
    producer.begin_transaction()
    producer.produce(topic, b"w", partition=0, headers={"h": b"1", "none": None})
    producer.commit_transaction(WAIT_S)

    first, second, third = broker.records(topic)
    assert (first.partition, first.value, first.headers) == (0, b"w", (("h", b"1"), ("none", None)))
    assert (second.partition, second.offset, second.key, second.value) == (1, 0, b"k", b"v")
    assert (third.key, third.value, third.topic) == (None, None, topic)


def test_an_open_transaction_is_seen_by_uncommitted_readers_alone(broker: TestBroker) -> None:
    topic = broker.create_topic()
    producer = transactional_producer(broker.bootstrap_servers, "open")
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(WAIT_S)

    assert values(broker, topic) == []
    assert values(broker, topic, isolation="read_uncommitted") == [b"open"]
    with pytest.raises(WaitError, match=r"0 of 1 records.*Open transactions: open"):
        broker.wait_for_records(topic, 1, timeout=0.01)
    producer.commit_transaction(WAIT_S)
    assert [record.value for record in broker.wait_for_records(topic, 1)] == [b"open"]


def test_an_unknown_topic_is_told_with_the_nearest_one(broker: TestBroker) -> None:
    broker.create_topic("payments")
    with pytest.raises(RejectedError, match=r"'paymnets' is not there; did you mean payments\?"):
        broker.records("paymnets")
    with pytest.raises(RejectedError, match="isolation is read_committed or read_uncommitted"):
        broker.records("payments", isolation="committed")
    with pytest.raises(RejectedError, match="topic 'payments' exists"):
        broker.create_topic("payments")
    with pytest.raises(RejectedError, match="has partitions 0 to 0, not 3"):
        broker.produce("payments", "x", partition=3)


def test_a_group_has_consumed_all_when_only_a_marker_is_behind_its_offset(
    broker: TestBroker,
) -> None:
    topic = broker.create_topic()
    commit_values(transactional_producer(broker.bootstrap_servers, "fill"), topic, [b"a", b"b"])
    consumer = consumer_of(broker, "readers", topic)
    try:
        [first] = consumer.consume(1, WAIT_S)
        consumer.commit(message=first, asynchronous=False)
        with pytest.raises(WaitError, match=rf"{topic}-0 lags by 1 from offset 1"):
            broker.wait_until_consumed("readers", timeout=0.01)

        [second] = consumer.consume(1, WAIT_S)
        consumer.commit(message=second, asynchronous=False)
        broker.wait_until_consumed("readers")
        broker.wait_until_consumed("readers", topic)
        assert broker.committed("readers") == {(topic, 0): 2}
    finally:
        consumer.close()
    with pytest.raises(WaitError, match=r"'raeders' .*it is not known; did you mean readers"):
        broker.wait_until_consumed("raeders", timeout=0.01)


def test_deleted_records_are_none_that_a_group_has_to_consume(broker: TestBroker) -> None:
    """It asked for them, and the wait ended with OFFSET_OUT_OF_RANGE."""
    topic = broker.create_topic(partitions=2)
    broker.produce(topic, "a", "b", "c", partition=0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        deleted.result()
    with pytest.raises(WaitError, match=rf"{topic}-0 lags by 1 from offset 2"):
        broker.wait_until_consumed("nobody", topic, timeout=0.01)
    member = consumer_of(broker, "late", topic)
    member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    member.close()
    with pytest.raises(WaitError, match=rf"{topic}-0 lags by 1 from offset 2"):
        broker.wait_until_consumed("late", topic, timeout=0.01)


def test_a_group_beyond_the_end_has_not_consumed_everything(broker: TestBroker) -> None:
    """Its topic was made anew; its consumers begin where auto.offset.reset says."""
    topic = broker.create_topic()
    broker.produce(topic, "a")
    member = consumer_of(broker, "early", topic)
    member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    member.close()
    with pytest.raises(WaitError, match=rf"{topic}-0 ends at offset 1, below offset 5"):
        broker.wait_until_consumed("early", topic, timeout=0.01)


def test_aborted_records_are_there_for_uncommitted_readers_alone(broker: TestBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, "aborted", aborted=True)
    broker.produce(topic, "aborted too", aborted=True)
    broker.produce(topic, "stored")
    assert values(broker, topic) == [b"stored"]
    found = values(broker, topic, isolation="read_uncommitted")
    assert found == [b"aborted", b"aborted too", b"stored"]


def test_a_broker_of_short_transactions_aborts_and_fences_for_a_test() -> None:
    """The kit asked for a minute, and was refused."""
    with TestBroker(transaction_max_timeout_ms=10_000) as broker:
        topic = broker.create_topic()
        broker.produce(topic, "aborted", aborted=True)
        found = values(broker, topic), values(broker, topic, isolation="read_uncommitted")
        producer = transactional_producer(
            broker.bootstrap_servers, "shop", transaction_timeout_ms=1000
        )
        broker.fence("shop")
        producer.begin_transaction()
        producer.produce(topic, b"of a zombie")
        with pytest.raises(KafkaException, match="fenced"):
            producer.commit_transaction(WAIT_S)
    assert found == ([], [b"aborted"])


@pytest.mark.parametrize("record", [7, {"id": 7}, ("key", "value", "more"), ("key", 7)])
def test_a_record_of_another_form_is_told(broker: TestBroker, record: Any) -> None:
    with pytest.raises(RejectedError, match=r"a record is bytes, text, or a tuple .* not "):
        broker.produce(broker.create_topic(), record)


def test_a_broker_closed_twice_stays_closed() -> None:
    broker = TestBroker()
    broker.close()
    broker.close()
    with pytest.raises(RejectedError, match="is closed; open another one"):
        broker.create_topic()


def test_a_listener_of_its_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"takes no listeners.*open a txn\.Broker"):
        TestBroker(listeners="PLAINTEXT://127.0.0.1:0")


def test_a_lost_broker_warns_and_stops() -> None:
    broker = TestBroker()
    proxy = broker.proxy
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del broker
        gc.collect()
    assert any("call close()" in str(each.message) for each in told)
    proxy.await_close(WAIT_S)


@pytest.mark.parametrize("own_process", [False, True])
def test_a_broker_that_is_open_at_the_end_leaves_nothing(tmp_path: Path, own_process: bool) -> None:
    text = (
        "import pathlib, txn.testing.broker as kit, txn.testing.places; "
        f"txn.testing.places.SHARED_MEMORY = pathlib.Path({str(tmp_path)!r}); "
        f"broker = kit.TestBroker(own_process={own_process}); broker.create_topic()"
    )
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", text]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0
    assert "ResourceWarning: unclosed <TestBroker" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_that_the_broker_is_the_parents(broker: TestBroker) -> None:
    topic = broker.create_topic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            broker.create_topic()
        except ForkedError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert f"runs in process {os.getpid()}" in told
    broker.produce(topic, "still served")
    assert values(broker, topic) == [b"still served"]


@pytest.mark.parametrize("own_process", [False, True])
def test_a_restart_keeps_everything_at_the_same_address(own_process: bool) -> None:
    with TestBroker(own_process=own_process) as broker:
        servers = broker.bootstrap_servers
        producer = transactional_producer(servers, "writer")
        broker.create_topic("out")
        commit_values(producer, "out", [b"before"])
        broker.restart()
        commit_values(producer, "out", [b"after"])
        assert broker.bootstrap_servers == servers
        assert values(broker, "out") == [b"before", b"after"]


def test_P1_a_killed_process_keeps_acknowledged_records() -> None:
    with TestBroker(own_process=True) as broker:
        broker.create_topic("out")
        commit_values(transactional_producer(broker.bootstrap_servers, "w"), "out", [b"kept"])
        broker.kill()
        assert not broker.is_running
        with pytest.raises(RejectedError, match=r"was killed; call restart\(\) first"):
            broker.records("out")
        broker.restart()
        assert values(broker, "out") == [b"kept"]


def test_a_broker_inside_the_tests_process_cannot_be_killed(broker: TestBroker) -> None:
    with pytest.raises(RejectedError, match=r"TestBroker\(own_process=True\)"):
        broker.kill()


@pytest.mark.parametrize("own_process", [False, True])
def test_time_that_passes_expires_a_transaction(own_process: bool) -> None:
    with TestBroker(own_process=own_process) as broker:
        broker.create_topic("out")
        settings = {"transaction_timeout_ms": 60_000}
        producer = transactional_producer(broker.bootstrap_servers, "slow", **settings)
        producer.begin_transaction()
        producer.produce("out", b"late")
        producer.flush(WAIT_S)

        broker.clock.advance(59)
        assert broker.transactions() == {"slow": "Ongoing"}
        broker.clock.advance(1.5)
        assert broker.transactions() == {"slow": "CompleteAbort"}
        broker.produce("out", "next")
        assert values(broker, "out") == [b"next"]


def test_time_that_passed_stays_past_over_a_restart() -> None:
    with TestBroker() as broker:
        broker.create_topic("out")
        broker.clock.advance(3600)
        producer = transactional_producer(broker.bootstrap_servers, "w")
        producer.begin_transaction()
        producer.produce("out", b"open")
        producer.flush(WAIT_S)
        broker.restart()
        broker.clock.advance(61)
        assert broker.transactions() == {"w": "CompleteAbort"}


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_clock_moves_forward_alone(broker: TestBroker, seconds: float) -> None:
    with pytest.raises(RejectedError, match="a clock moves forward"):
        broker.clock.advance(seconds)


def test_a_reset_goes_back_to_the_snapshot_and_a_branch_begins_with_it() -> None:
    with TestBroker() as broker:
        broker.create_topic("out")
        broker.produce("out", "kept")
        with broker.snapshot() as snapshot:
            broker.produce("out", "gone")
            broker.create_topic("other")
            with snapshot.branch() as branch:
                branch.produce("out", "of the branch")
                assert values(branch, "out") == [b"kept", b"of the branch"]
            broker.reset(snapshot)
            assert (broker.topics(), values(broker, "out")) == (["out"], [b"kept"])
        broker.reset()
        assert broker.topics() == []
        with pytest.raises(RejectedError, match="this snapshot is closed"):
            broker.reset(snapshot)


def test_a_topic_without_a_name_gets_one_that_nobody_has() -> None:
    """Each broker counts from 1, and a branch refused the name that it had chosen itself."""
    with TestBroker() as broker:
        broker.create_topic("topic-2")
        names = [broker.create_topic(), broker.create_topic()]
        with broker.snapshot() as snapshot, snapshot.branch() as branch:
            names.append(branch.create_topic())
    assert names == ["topic-1", "topic-3", "topic-4"]


def test_questions_of_another_thread_wait_while_the_broker_is_away(broker: TestBroker) -> None:
    """They held the kit's connection until their own time-out, and a reset took 10 s."""
    order = []
    kit = KitClient(broker.bootstrap_servers, lambda: 0)
    asking = threading.Thread(target=lambda: order.append(kit.topics() is not None))
    with kit.resting():
        asking.start()
        asking.join(0.2)
        order.append(False)
    asking.join()
    kit.close()
    assert order == [False, True]


def test_questions_end_when_another_thread_closes_the_broker(broker: TestBroker) -> None:
    kit = KitClient(broker.bootstrap_servers, lambda: 0)
    kit.close()
    with pytest.raises(RejectedError, match="another thread closed this test broker"):
        kit.topics()


def test_data_of_a_killed_session_is_removed_by_the_next_one(tmp_path: Path) -> None:
    text = (
        "import os, pathlib, signal, txn.testing.broker as kit, txn.testing.places as places; "
        f"places.SHARED_MEMORY = pathlib.Path({str(tmp_path)!r}); "
        "broker = kit.TestBroker(); broker.snapshot(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", text], check=False, timeout=120)
    [left] = tmp_path.iterdir()
    used = tmp_path / f"{places.PREFIX}used"
    used.mkdir()
    descriptor = os.open(used, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        places.sweep(tmp_path)
        assert left.is_dir(), "it may be just made"
        places.sweep(tmp_path, young_s=0)
        assert list(tmp_path.iterdir()) == [used]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("own_process", [False, True])
def test_P8_a_reset_brings_back_groups_and_open_transactions(own_process: bool) -> None:
    with TestBroker(own_process=own_process) as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("in")
        broker.produce("in", "a", ("k", "b"), aborted=True)
        broker.produce("in", "c")
        consumer = consumer_of(broker, "readers", "in")
        assert [message.value() for message in consumer.consume(1, WAIT_S)] == [b"c"]
        consumer.commit(asynchronous=False)
        consumer.close()
        open_one = transactional_producer(servers, "open")
        open_one.begin_transaction()
        open_one.produce("in", b"open")
        open_one.flush(WAIT_S)

        def state() -> tuple[Any, ...]:
            return (
                broker.records("in"),
                broker.records("in", isolation="read_uncommitted"),
                broker.committed("readers"),
                broker.groups(),
                broker.transactions(),
            )

        with broker.snapshot() as snapshot:
            kept = state()
            assert kept[4]["open"] == "Ongoing"
            for _ in range(3):
                commit_values(transactional_producer(servers, "open"), "in", [b"gone"])
                broker.create_topic("more", partitions=3)
                broker.produce("more", "x" * 100_000)
                broker.reset(snapshot)
                assert (state(), broker.topics()) == (kept, ["in"])
                assert broker.bootstrap_servers == servers
            broker.clock.advance(61)
            assert broker.transactions()["open"] == "CompleteAbort"


def test_a_reset_cuts_connections_and_heals() -> None:
    with TestBroker() as broker:
        broker.create_topic("in")
        with broker.snapshot() as snapshot:
            held = broker.hold("Produce")
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 20_000}
            )
            outcomes: list[Any] = []
            producer.produce("in", b"v", on_delivery=lambda error, _: outcomes.append(error))
            held.wait(WAIT_S)
            client = socket.create_connection(("127.0.0.1", broker.proxy.port), WAIT_S)
            broker.pause()
            broker.reset(snapshot)
            client.settimeout(WAIT_S)
            assert client.recv(1) == b""
            client.close()
            # The held request went with its connection; its client sends it again.
            assert producer.flush(WAIT_S) == 0
            assert outcomes == [None]
            assert values(broker, "in") == [b"v"]


def test_resets_leave_no_thread_no_descriptor_and_no_file(tmp_path: Path) -> None:
    in_own_process(reset_six_times, str(tmp_path))


def reset_six_times(directory: str) -> None:
    shared = Path(directory)
    with patch.object(places, "SHARED_MEMORY", shared):
        before = threading.active_count()
        with TestBroker() as broker:
            broker.create_topic("in")
            broker.produce("in", "v" * 200_000)
            with broker.snapshot() as snapshot:
                broker.reset(snapshot)
                names = sorted(path.relative_to(shared) for path in shared.rglob("*"))
                threads = threading.active_count()
                descriptors = len(os.listdir("/proc/self/fd"))
                for _ in range(5):
                    broker.reset(snapshot)
                assert sorted(path.relative_to(shared) for path in shared.rglob("*")) == names
                assert threading.active_count() == threads
                assert len(os.listdir("/proc/self/fd")) <= descriptors
                assert values(broker, "in") == [b"v" * 200_000]
        assert list(shared.iterdir()) == []
        assert threading.active_count() == before


def test_records_are_produced_after_a_reset_as_before_it() -> None:
    """The kit's client met the producer ids of before again, and refused to write."""
    with TestBroker() as broker:
        for _ in range(2):
            broker.create_topic("out")
            broker.produce("out", "v")
            assert values(broker, "out") == [b"v"]
            broker.reset()


def test_a_topic_that_cannot_be_made_is_told_with_the_reason(broker: TestBroker) -> None:
    with pytest.raises(RejectedError, match=r"topic 'a/b' is not made: .*"):
        broker.create_topic("a/b")
    with pytest.raises(RejectedError, match=r"is not made: .*retention"):
        broker.create_topic(retention_ms="soon")


def test_a_snapshot_has_transactions_that_are_open() -> None:
    with TestBroker() as broker:
        broker.create_topic("out")
        producer = transactional_producer(broker.bootstrap_servers, "w")
        producer.begin_transaction()
        producer.produce("out", b"open")
        producer.flush(WAIT_S)
        with broker.snapshot() as snapshot:
            producer.commit_transaction(WAIT_S)
            with snapshot.branch() as branch:
                assert branch.transactions() == {"w": "Ongoing"}
                branch.clock.advance(61)
                assert values(branch, "out", isolation="read_uncommitted") == [b"open"]
                assert branch.transactions() == {"w": "CompleteAbort"}
            assert values(broker, "out") == [b"open"]
