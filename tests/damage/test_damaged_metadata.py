"""P9 for `__cluster_metadata-0`: its part that was on the disk is never cut, only a torn tail.

The metadata log was left out of the recovery points, so a flipped byte in its last batch was taken
for a torn tail. The batch was cut without a word, and with it a topic or a block of producer ids
that had been promised. After a power failure everything behind the byte went. How much of it was on
the disk is noted within a second.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

import txn
from support.at_work import copy_at_work
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
from txn.errors import CorruptLogError
from txn.inspect import segments
from txn.inspect.verify import verify
from txn.server.lifecycle.broker import service_of
from txn.storage.checkpoints import RECOVERY_POINTS
from txn.storage.directory import LOCK
from txn.storage.ids import encode_id
from txn.storage.strays import METADATA_FILE

pytestmark = pytest.mark.crash

LOG = Path("__cluster_metadata-0") / f"{0:020}.log"
TOPICS = ("orders", "payments")
LENGTH, MAGIC, CHECKSUM, ATTRIBUTES, RECORD_COUNT, RECORDS = 8, 16, 17, 21, 57, 61


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that a SIGKILL would leave of a broker that had promised topics and producer
    ids.
    """
    data = tmp_path_factory.mktemp("metadata") / "data"
    with txn.Broker(data, durability="commit") as broker:
        for topic in TOPICS:
            create_topic(broker.bootstrap_servers, topic)
        send(plain_producer(broker.bootstrap_servers), "orders", [b"kept"])
        transactional_producer(broker.bootstrap_servers, "t1")  # takes a block of producer ids
        service_of(broker).storage.upkeep.tick()  # as once a second
        copy_at_work(data, left := data.with_name("left"))
    return left


@pytest.fixture
def left(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "data"))


def batches_of(data: Path) -> list[segments.SegmentBatch]:
    return [
        found for found in segments.walk(data / LOG) if isinstance(found, segments.SegmentBatch)
    ]


def flip(data: Path, position: int) -> bytes:
    stored = bytearray((data / LOG).read_bytes())
    stored[position] ^= 4
    (data / LOG).write_bytes(stored)
    return bytes(stored)


def let_the_power_fail(data: Path) -> None:
    """Say that the directory was last used in another boot of the machine."""
    (data / LOCK).write_text("another boot")


def flip_first(data: Path) -> None:
    flip(data, RECORDS)
    let_the_power_fail(data)


def fill_with_zeros(data: Path) -> None:
    (data / LOG).write_bytes(bytes((data / LOG).stat().st_size))
    let_the_power_fail(data)


def tear_the_first_batch(data: Path) -> None:
    os.truncate(data / LOG, batches_of(data)[0].size_bytes - 1)


def empty(data: Path) -> None:
    os.truncate(data / LOG, 0)


def remove(data: Path) -> None:
    (data / LOG).unlink()
    let_the_power_fail(data)


@pytest.fixture(params=[fill_with_zeros, flip_first, tear_the_first_batch, empty, remove])
def lose(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """A loss of the metadata log's records."""
    loss: Callable[[Path], None] = request.param
    return loss


@pytest.mark.parametrize("has_power_failed", [False, True])
@pytest.mark.parametrize("at", [LENGTH, MAGIC, CHECKSUM, ATTRIBUTES, RECORD_COUNT, RECORDS, -1])
def test_P9_a_damaged_byte_in_the_metadata_log_stops_the_start_and_is_named(
    left: Path, at: int, has_power_failed: bool
) -> None:
    stored = (left / LOG).read_bytes()
    whole = batches_of(left)
    for batch in (whole[0], whole[len(whole) // 2], whole[-1]):
        (left / LOG).write_bytes(stored)
        damaged = flip(left, batch.position + at % batch.size_bytes)
        if has_power_failed:
            let_the_power_fail(left)

        with pytest.raises(CorruptLogError, match="Nothing was cut") as found:
            txn.Broker(left)

        assert vars(found.value)["path"] == str(left / LOG)
        assert vars(found.value)["position"] == batch.position
        assert (left / LOG).read_bytes() == damaged


@pytest.mark.parametrize("has_power_failed", [False, True])
@pytest.mark.parametrize("arrived", [1, 40, 61, -1])
def test_a_torn_tail_of_the_metadata_log_is_cut_and_all_else_is_there(
    left: Path, arrived: int, has_power_failed: bool
) -> None:
    stored = (left / LOG).read_bytes()
    last = batches_of(left)[-1]
    following = (last.last_offset + 1).to_bytes(8) + stored[last.position + 8 :]
    torn = following[:arrived]
    (left / LOG).write_bytes(stored + torn)
    if has_power_failed:
        let_the_power_fail(left)

    with txn.Broker(left) as broker:
        found = read_all(broker.bootstrap_servers, "orders")

    assert found == [b"kept"]
    assert (left / LOG).read_bytes().startswith(stored)
    assert verify(left).findings == []


def test_P9_after_a_clean_stop_a_damaged_byte_is_found_by_reading(left: Path) -> None:
    """It was reported without file and position. A start that has the snapshot of the stop does not
    read the byte.
    """
    txn.Broker(left).close()
    for snapshot in left.glob("__cluster_metadata-0/*.checkpoint"):
        snapshot.unlink()
    last = batches_of(left)[-1]
    flip(left, last.position + last.size_bytes - 1)

    findings = [(finding.path, finding.position) for finding in verify(left).findings]
    with pytest.raises(CorruptLogError, match="__cluster_metadata-0") as found:
        txn.Broker(left)

    assert vars(found.value)["path"] == str(left / LOG)
    assert vars(found.value)["position"] == last.position
    assert (left / LOG, last.position) in findings


def test_P9_a_server_says_which_byte_keeps_it_from_starting(left: Path) -> None:
    last = batches_of(left)[-1]
    flip(left, last.position + RECORDS)

    with pytest.raises(AssertionError, match=f"{LOG} is damaged at byte {last.position}"):
        BrokerProcess(left)


def test_P2_a_coordinators_topic_is_on_the_disk_before_what_is_written_to_it(
    tmp_path: Path,
) -> None:
    """Its creation was synced by the next sync, perhaps none. A power failure then took the topic,
    and a start knew of no decision and of no offset in its partitions."""
    data = tmp_path / "data"
    with txn.Broker(data, durability="commit") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "orders")
        producer = transactional_producer(servers, "t1")
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        producer.begin_transaction()
        send(producer, "orders", [b"committed"])
        read = [TopicPartition("orders", 0, 1)]
        producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
        consumer.close()
        end = service_of(broker).node.metadata.partition.synced_end
        copy_at_work(data, lost := tmp_path / "lost")
    unsynced = [batch.position for batch in batches_of(lost) if batch.base_offset >= end]
    os.truncate(lost / LOG, min(unsynced, default=(lost / LOG).stat().st_size))
    let_the_power_fail(lost)

    with txn.Broker(lost) as broker:
        servers = broker.bootstrap_servers
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        topics = consumer.list_topics(timeout=WAIT_S).topics
        committed = consumer.committed(read, timeout=WAIT_S)
        consumer.close()
        commit_values(transactional_producer(servers, "t1"), "orders", [b"later"])
        found = read_all(servers, "orders")

    assert "__transaction_state" in topics
    assert found == [b"committed", b"later"]
    assert [partition.offset for partition in committed] == [1]


def test_what_a_disk_never_had_of_the_metadata_log_may_go_with_the_power(left: Path) -> None:
    """Nothing was promised of a batch beyond the recovery point."""
    promised, recovery_points = (left / LOG).read_bytes(), (left / RECOVERY_POINTS).read_bytes()
    with txn.Broker(left, durability="process") as broker:
        create_topic(broker.bootstrap_servers, "unsynced")
        create_topic(broker.bootstrap_servers, "synced-by-luck")
        shutil.copytree(left, lost := left.with_name("lost"))
    (lost / RECOVERY_POINTS).write_bytes(recovery_points)  # a slow machine has synced meanwhile
    flip(lost, len(promised) + RECORDS)
    let_the_power_fail(lost)

    with txn.Broker(lost) as broker:
        topics = service_of(broker).node.image.topics.keys()

    assert set(TOPICS) <= topics
    assert not {"unsynced", "synced-by-luck"} & topics


# ---------------------------------------------------------------- topics that it has lost


def test_P9_a_metadata_log_that_has_lost_topics_with_records_stops_the_start(
    left: Path, lose: Callable[[Path], None]
) -> None:
    """Kafka keeps no recovery point for it. It was cut, or was empty, and every topic was gone,
    although their directories were there with all their records.
    """
    metadata = LOG.parent
    shutil.copytree(left / metadata, kept := left.with_name("kept"))
    (left / RECOVERY_POINTS).unlink()
    lose(left)

    for _ in range(2):  # the second finds a log without damage
        assert any(each.path == left / "orders-0" for each in verify(left).findings)
        with pytest.raises(CorruptLogError, match=r"topics of .*orders-0.*put back a copy"):
            txn.Broker(left)
    shutil.rmtree(left / metadata)
    shutil.copytree(kept, left / metadata)

    with txn.Broker(left) as broker:
        assert read_all(broker.bootstrap_servers, "orders") == [b"kept"]


def test_an_operator_gives_up_the_records_of_lost_topics_by_moving_them_away(left: Path) -> None:
    (left / RECOVERY_POINTS).unlink()
    os.truncate(left / LOG, 0)
    for directory in (left / "orders-0", *left.glob("__transaction_state-*")):
        directory.rename(left.with_name(directory.name))

    with txn.Broker(left) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"anew"])
        found = read_all(broker.bootstrap_servers, "orders")

    assert found == [b"anew"]
    assert verify(left).findings == []


def test_a_directory_that_a_failed_creation_left_without_records_keeps_no_start(
    left: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The power may fail when a directory of a new topic is on the disk and its record is not."""
    shutil.copytree(left / "orders-0", left / "fresh-0")
    os.truncate(left / "fresh-0" / LOG.name, 0)
    (left / "fresh-0" / METADATA_FILE).write_text(f"version: 0\ntopic_id: {encode_id(uuid4())}\n")

    assert verify(left).findings == []
    txn.Broker(left).close()

    (told,) = (line for line in caplog.messages if line.startswith("partition.stray"))
    assert str(left / "fresh-0") in told
