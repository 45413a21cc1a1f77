"""A data directory that is moved away, removed or replaced under a running broker.

Its open files went with the directory, and commits went on to be acknowledged. A topic that was
made afterwards had its files at the old path, in a directory that was made anew for it. At the next
start its records were missing, and nothing said so.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import txn
from support.brokers import BrokerProcess
from support.clients import create_topic, plain_producer, read_all, send
from txn.errors import BrokerFailedError, StorageError

WAIT_S = 60.0
NOTICED_S = 60.0


def files_in(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def impatient_transactional(servers: str) -> Producer:
    producer = plain_producer(
        servers, transactional_id="mover", transaction_timeout_ms=10_000, message_timeout_ms=5_000
    )
    producer.init_transactions(WAIT_S)
    return producer


def commit_until_refused(producer: Producer, topic: str) -> list[bytes]:
    """Commit a record at a time until that fails; return those whose commit was acknowledged."""
    acknowledged: list[bytes] = []
    for number in count():
        value = b"%d" % number
        try:
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.commit_transaction(5)
        except KafkaException:
            return acknowledged
        acknowledged.append(value)
    raise AssertionError


def move_away(root: Path) -> Path:
    return root.rename(root.with_name("moved"))


def replace_by_a_copy(root: Path) -> Path:
    moved = move_away(root)
    shutil.copytree(moved, root)
    return moved


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("lose", [move_away, replace_by_a_copy])
def test_P2_what_is_acknowledged_is_in_the_directory_that_was_moved(
    tmp_path: Path, lose: Callable[[Path], Path], durability: str
) -> None:
    root = tmp_path / "data"
    noticed = threading.Event()
    broker = txn.Broker(root, durability=durability)
    broker.call_when_failed(noticed.set)
    servers = broker.bootstrap_servers
    create_topic(servers, "orders", segment_bytes="1048576")
    create_topic(servers, "unwritten")
    producer = impatient_transactional(servers)

    moved = lose(root)
    left = files_in(root)
    acknowledged = commit_until_refused(producer, "orders")

    assert noticed.wait(NOTICED_S)
    assert isinstance(broker.failure, BrokerFailedError)
    assert "was moved away, removed or replaced" in broker.failure.message
    with pytest.raises(StorageError, match="was moved away, removed or replaced"):
        broker.close()
    assert files_in(root) == left
    with txn.Broker(moved) as again:
        kept = read_all(again.bootstrap_servers, "orders")
    assert kept[: len(acknowledged)] == acknowledged


def test_no_file_is_made_at_the_path_of_a_directory_that_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "data"
    broker = txn.Broker(root)
    create_topic(broker.bootstrap_servers, "unwritten")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    moved = move_away(root)
    made = admin.create_topics([NewTopic("later", 1, 1)], request_timeout=2)
    producer = plain_producer(broker.bootstrap_servers, message_timeout_ms=2_000)
    with pytest.raises(KafkaException, match="timed out"):
        send(producer, "unwritten", [b"one"])
    with pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"):
        made["later"].result(WAIT_S)
    with pytest.raises(StorageError, match="was moved away, removed or replaced"):
        broker.close()
    assert not root.exists()
    with txn.Broker(moved) as again:
        assert read_all(again.bootstrap_servers, "unwritten") == []


def test_no_commit_is_acknowledged_of_a_partition_whose_directory_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with txn.Broker(root, durability="commit") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        create_topic(broker.bootstrap_servers, "others")
        send(plain_producer(broker.bootstrap_servers), "orders", [b"one"])
        producer = impatient_transactional(broker.bootstrap_servers)
        moved = (root / "orders-0").rename(tmp_path / "orders-0")
        assert commit_until_refused(producer, "orders") == []
        send(plain_producer(broker.bootstrap_servers), "others", [b"one"])
        moved.rename(root / "orders-0")
        with pytest.raises(StorageError, match="removed or replaced it"):
            broker.close()
    with txn.Broker(root) as again:
        assert read_all(again.bootstrap_servers, "others") == [b"one"]
        assert read_all(again.bootstrap_servers, "orders") == [b"one"]


def test_a_server_whose_directory_is_removed_says_so_and_ends(tmp_path: Path) -> None:
    root = tmp_path / "data"
    broker = BrokerProcess(root)
    try:
        create_topic(broker.bootstrap_servers, "orders")
        shutil.rmtree(root)
        assert broker.wait() == 1
    finally:
        broker.kill()
    assert not root.exists()
    log = root.with_suffix(".log").read_text()
    assert f'broker.failed reason="{root} was moved away, removed or replaced' in log
    assert f"txn: {root} was moved away, removed or replaced under the broker" in log


@pytest.mark.parametrize("name", [".lock", "."])
def test_a_temporary_broker_notices_that_its_files_were_cleaned_away(name: str) -> None:
    noticed = threading.Event()
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders")
        broker.call_when_failed(noticed.set)
        if name == ".":
            shutil.rmtree(broker.path)
        else:
            (broker.path / name).unlink()
        assert noticed.wait(NOTICED_S)
    shutil.rmtree(broker.path, ignore_errors=True)


def test_a_program_may_change_its_working_directory(tmp_path: Path) -> None:
    """New files of a broker on a relative path were made below the new working directory."""
    program = """if True:
        import os, sys
        import txn
        from support.clients import create_topic, plain_producer, read_all, send
        with txn.Broker("data") as broker:
            os.mkdir("elsewhere")
            os.chdir("elsewhere")
            create_topic(broker.bootstrap_servers, "orders")
            send(plain_producer(broker.bootstrap_servers), "orders", [b"one"])
        with txn.Broker("../data") as broker:
            assert read_all(broker.bootstrap_servers, "orders") == [b"one"]
            assert os.listdir(".") == []
    """
    tests = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": tests}
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, timeout=WAIT_S, check=True
    )
