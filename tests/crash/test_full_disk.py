"""A disk without space under a running broker, and space that comes back.

The broker is a process whose files may not grow beyond a size. A write behind it arrives in part
and fails, as on a disk that is full. The last tests fill a real file system, where the machine lets
them mount one.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.brokers import BrokerProcess
from support.clients import (
    WAIT_S,
    commit_values,
    create_topic,
    ends,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn.inspect.verify import verify
from txn.storage.checkpoints import LOG_STARTS, read_checkpoint

pytestmark = pytest.mark.crash

ONE_PARTITION = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
DESCRIBE_PRODUCERS = 61
TRIES_S = 1.0
"""Time that a client tries before it reports a failure."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", *ONE_PARTITION, durability="commit")
    create_topic(process.bootstrap_servers, "orders")
    yield process
    process.stop()


def size_of(broker: BrokerProcess, topic: str) -> int:
    return (broker.data / f"{topic}-0" / f"{0:020}.log").stat().st_size


def fill(broker: BrokerProcess, topic: str, size: int = 100_000) -> None:
    """Make a topic's file larger than the others, so that a limit at its size is its alone."""
    create_topic(broker.bootstrap_servers, topic)
    send(plain_producer(broker.bootstrap_servers), topic, [b"x" * size])


def refusal(producer: Producer, topic: str, value: bytes) -> str | None:
    """The name of the error that a record is refused with; None if it is stored."""
    try:
        send(producer, topic, [value])
    except KafkaException as error:
        return str(error.args[0].name())
    return None


def refusal_to_commit(producer: Producer) -> KafkaError | None:
    try:
        producer.commit_transaction(TRIES_S / 2)
    except KafkaException as error:
        refused: KafkaError = error.args[0]
        return refused
    return None


def restarted_after_sigkill(broker: BrokerProcess) -> str:
    broker.kill()
    broker.restart()
    return broker.bootstrap_servers


def test_P1_a_full_disk_refuses_records_shows_the_others_and_heals(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    fill(broker, "full")
    producer = plain_producer(servers, retries=0)

    broker.limit_files(size_of(broker, "full") + 500)
    refused = [refusal(producer, "full", b"y" * 1000) for _ in range(3)]
    small = refusal(producer, "full", b"fits")
    elsewhere = refusal(producer, "orders", b"z" * 1000)
    read = read_all(servers, "full")
    broker.limit_files()
    healed = refusal(producer, "full", b"y" * 1000)

    assert refused == ["KAFKA_STORAGE_ERROR"] * 3
    assert (small, elsewhere, healed) == (None, None, None)
    assert read == [b"x" * 100_000, b"fits"]
    assert read_all(restarted_after_sigkill(broker), "full") == [*read, b"y" * 1000]
    assert broker.stop() == 0
    assert verify(broker.data).findings == []


def test_an_operator_is_told_once_that_a_log_takes_no_batches_and_once_that_it_does_again(
    broker: BrokerProcess,
) -> None:
    """Clients alone heard of a full disk; and where the broker logged one, as "27"."""
    fill(broker, "full")
    producer = plain_producer(broker.bootstrap_servers, retries=0)
    told = broker.data.with_suffix(".log")
    words = {}
    for event, size in (("refuses", size_of(broker, "full")), ("takes", None)):
        broker.limit_files(*([] if size is None else [size]))
        while f"log.{event}_batches" not in told.read_text():
            refusal(producer, "full", b"y" * 10)
        words[event] = [line for line in told.read_text().splitlines() if " log." in line]

    assert len(words["refuses"]) == 1
    assert "ERROR log.refuses_batches" in words["refuses"][0]
    assert f"directory={broker.data}/full-0" in words["refuses"][0]
    assert "File too large" in words["refuses"][0]
    assert len(words["takes"]) == 2
    assert "WARNING log.takes_batches_again" in words["takes"][1]


@pytest.mark.parametrize("room", [0, 1, 60, 500])
def test_P6_a_producer_that_tries_on_stores_each_record_once(
    broker: BrokerProcess, room: int
) -> None:
    """The batch was admitted before it could not be written; its retry is no duplicate."""
    servers = broker.bootstrap_servers
    fill(broker, "full")
    producer = plain_producer(servers, enable_idempotence=True, retry_backoff_ms=20)
    values = [b"%d" % number * 100 for number in range(20)]
    send(producer, "full", values[:5])

    broker.limit_files(size_of(broker, "full") + room)
    for value in values[5:]:
        producer.produce("full", value=value, partition=0)
    while_full = producer.flush(TRIES_S / 2)
    broker.limit_files()
    left = producer.flush(WAIT_S)

    assert while_full > 0
    assert left == 0
    assert read_all(servers, "full")[1:] == values
    assert read_all(restarted_after_sigkill(broker), "full")[1:] == values


def test_P3_a_commit_that_cannot_be_recorded_is_no_success_and_a_retry_finishes_it(
    broker: BrokerProcess,
) -> None:
    """Wherever the disk becomes full: before the decision, within it, behind it."""
    servers = broker.bootstrap_servers
    producer = transactional_producer(servers, "t1", retry_backoff_ms=20)
    for _ in range(60):  # the transaction log outgrows the topic
        commit_values(producer, "orders", [b"."])
    assert size_of(broker, "__transaction_state") > 2 * size_of(broker, "orders")
    outcomes = []
    for room in range(0, 320, 40):
        producer.begin_transaction()
        send(producer, "orders", [b"%d" % room])
        broker.limit_files(size_of(broker, "__transaction_state") + room)
        refused = refusal_to_commit(producer)
        stable, end = ends(servers, "orders")
        broker.limit_files()
        outcomes.append("committed" if refused is None else "put off")
        if refused is not None:
            assert refused.retriable(), refused
            assert stable < end, "nothing of it is shown"
            producer.commit_transaction(WAIT_S)

    found = read_all(restarted_after_sigkill(broker), "orders")

    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"put off", "committed"}
    assert found[60:] == [b"%d" % room for room in range(0, 320, 40)]


def test_producers_are_described_as_they_are_stored_whatever_a_full_disk_refused(
    broker: BrokerProcess,
) -> None:
    """A batch that was refused counted until the next one came: a transaction nobody had."""
    servers = broker.bootstrap_servers
    fill(broker, "full")
    stored, *refused = (
        transactional_producer(servers, transactional_id, retries=1)
        for transactional_id in ("stored", "refused", "refused too")
    )
    for producer in (stored, *refused):
        producer.begin_transaction()
    send(stored, "full", [b"z"])
    before = producers_of(servers, "full")

    broker.limit_files(size_of(broker, "full") + 10)
    described = []
    for producer in refused:
        assert refusal(producer, "full", b"y" * 1000) is not None
        described.append(producers_of(servers, "full"))
    broker.limit_files()

    assert described == [before] * 2
    assert [open_from >= 0 for _, _, open_from in before] == [True]


def producers_of(servers: str, topic: str) -> list[tuple[int, int, int]]:
    """State of each producer of partition 0: its id, its last sequence, the begin of its
    transaction.
    """
    wanted = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    with RawConnection(servers) as connection:
        answer = connection.call(entity_builder(request(DESCRIBE_PRODUCERS, 0))(wanted))
    [partition] = answer.topics[0].partitions
    assert partition.error_code == 0
    return [
        (active.producer_id, active.last_sequence, active.current_txn_start_offset)
        for active in partition.active_producers
    ]


def test_P5_a_marker_that_has_no_room_is_written_once_there_is(broker: BrokerProcess) -> None:
    """The decision stands, and the answer with it: the marker follows it as soon as it can."""
    servers = broker.bootstrap_servers
    fill(broker, "full")
    producers = [transactional_producer(servers, f"t{number}") for number in range(2)]
    for producer in producers:
        producer.begin_transaction()
        send(producer, "full", [b"decided"])
    end = ends(servers, "full")[1]

    broker.limit_files(size_of(broker, "full"))
    producers[0].commit_transaction(WAIT_S)
    producers[1].abort_transaction(WAIT_S)
    while_full = ends(servers, "full")
    broker.limit_files()
    commit_values(producers[1], "full", [b"next"])  # waits for the markers of the one before
    commit_values(producers[0], "full", [b"after next"])

    assert while_full == (end - 2, end)
    assert read_all(servers, "full")[1:] == [b"decided", b"next", b"after next"]


def test_P3_offsets_that_have_no_room_abort_their_transaction_or_follow_its_decision(
    broker: BrokerProcess,
) -> None:
    servers = broker.bootstrap_servers
    settings = {"bootstrap.servers": servers, "group.id": "g"}
    consumer = Consumer(settings)
    where = TopicPartition("orders", 0)
    for offset in range(200):  # the offsets' log outgrows the others
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    group = consumer.consumer_group_metadata()
    producer = transactional_producer(servers, "t1", retry_backoff_ms=20)

    # No room for the offsets: the transaction can only abort.
    producer.begin_transaction()
    send(producer, "orders", [b"aborted"])
    broker.limit_files(size_of(broker, "__consumer_offsets"))
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1000)], group, TRIES_S)
    with pytest.raises(KafkaException, match="COORD"):
        consumer.commit(offsets=[TopicPartition("orders", 0, 1001)], asynchronous=False)
    producer.abort_transaction(WAIT_S)
    broker.limit_files()
    after_abort = consumer.committed([where], timeout=WAIT_S)[0].offset

    # No room for their marker: they are pending until it is there.
    producer.begin_transaction()
    send(producer, "orders", [b"committed"])
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1002)], group, WAIT_S)
    broker.limit_files(size_of(broker, "__consumer_offsets"))
    producer.commit_transaction(WAIT_S)
    reader = Consumer(settings)
    with pytest.raises(KafkaException) as pending:
        reader.committed([where], timeout=TRIES_S / 2)
    reader.close()
    broker.limit_files()
    after_commit = consumer.committed([where], timeout=WAIT_S)[0].offset
    consumer.close()

    assert refused.value.args[0].txn_requires_abort()
    assert pending.value.args[0].code() == KafkaError._TIMED_OUT
    assert (after_abort, after_commit) == (199, 1002)
    assert read_all(servers, "orders") == [b"committed"]


def test_what_needs_the_metadata_log_is_refused_until_there_is_room(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    broker.limit_files(size_of(broker, "__cluster_metadata"))
    with pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR") as refused:
        create_topic(servers, "more")
    broker.limit_files()
    create_topic(servers, "more")

    assert "File too large" in str(refused.value)
    assert read_all(restarted_after_sigkill(broker), "more") == []


def test_a_stop_on_a_full_disk_is_no_clean_one_and_loses_nothing(broker: BrokerProcess) -> None:
    send(plain_producer(broker.bootstrap_servers), "orders", [b"kept"])
    broker.limit_files(10)
    code = broker.stop()
    is_clean = (broker.data / ".kafka_cleanshutdown").exists()
    broker.restart()

    assert (code, is_clean) == (1, False)
    assert read_all(broker.bootstrap_servers, "orders") == [b"kept"]


# ---------------------------------------------------------------- a real file system

FILE_SYSTEM_KB = 2048
SERVE = 'mount -t tmpfs -o size={size}k none "$1" && shift && exec "$@"'


def may_mount() -> bool:
    """True if this user may mount a file system of its own."""
    tried = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(tried, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class BrokerOnSmallDisk(BrokerProcess):
    """`txn serve` on a file system of `FILE_SYSTEM_KB` that is its alone."""

    def _command(self) -> list[str]:
        self.data.mkdir(exist_ok=True)
        mounting = SERVE.format(size=FILE_SYSTEM_KB)
        unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounting]
        return [*unshare, "sh", str(self.data), *super()._command()]

    @property
    def disk(self) -> Path:
        """The file system, as seen from outside."""
        return Path(f"/proc/{self.pid}/root") / self.data.relative_to("/")


@pytest.mark.skipif(not may_mount(), reason="mounting is not allowed here")
def test_P6_a_file_system_without_space_loses_nothing_and_heals(tmp_path: Path) -> None:
    broker = BrokerOnSmallDisk(tmp_path / "data", *ONE_PARTITION)
    try:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", segment_bytes="1048576")
        producer = plain_producer(servers, enable_idempotence=True, retry_backoff_ms=20)
        transactions = transactional_producer(servers, "t1", retry_backoff_ms=20)
        transactions.begin_transaction()
        send(transactions, "orders", [b"open"])
        values = [b"%d" % number * 50 for number in range(200)]
        send(producer, "orders", values[:100])
        ballast = broker.disk / "ballast"
        filled = _fill_up(ballast)
        for value in values[100:]:
            producer.produce("orders", value=value, partition=0)
        while_full = producer.flush(TRIES_S)
        seen = read_all(servers, "orders", isolation="read_uncommitted")
        ballast.unlink()
        left = producer.flush(WAIT_S)
        transactions.commit_transaction(WAIT_S)
        found = read_all(servers, "orders")
    finally:
        broker.stop()

    assert filled > 0
    assert while_full > 0
    assert seen[:101] == [b"open", *values[:100]]
    assert left == 0
    assert found == [b"open", *values]


@pytest.mark.skipif(not may_mount(), reason="mounting is not allowed here")
def test_records_are_deleted_where_no_space_is_left_for_a_note_of_it(tmp_path: Path) -> None:
    """That is what makes room; the note goes into the blocks of an earlier one."""
    broker = BrokerOnSmallDisk(tmp_path / "data", *ONE_PARTITION)
    try:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders", internal_segment_bytes="1000")
        send(plain_producer(servers), "orders", [b"%d" % number * 50 for number in range(100)])
        noted = broker.disk / LOG_STARTS
        until = time.monotonic() + WAIT_S
        while not noted.exists() and time.monotonic() < until:
            time.sleep(0.1)
        filled = _fill_up(broker.disk / "ballast")
        place = TopicPartition("orders", 0, 90)
        admin = AdminClient({"bootstrap.servers": servers})
        start = admin.delete_records([place])[place].result(WAIT_S).low_watermark
        told = read_checkpoint(noted)["orders", 0]
    finally:
        broker.stop()

    assert filled > 0
    assert (start, told) == (90, 90)


def _fill_up(path: Path) -> int:
    """Write until nothing more fits; return how much it was."""
    size = 0
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                size += file.write(b"x" * 4096)
        except OSError:
            return size
