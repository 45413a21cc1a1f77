"""A directory of records that is gone, with the entries of the checkpoints that knew of it.

A partition that was never written has no directory either. The coordinators' records tell the two
apart.
"""

import logging
import shlex
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import txn
from support.clients import (
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.damaged import KAFKA_STORAGE_ERROR, events, fetch_code
from txn.inspect.layout import CHECKPOINTS
from txn.inspect.verify import verify
from txn.storage.directory import CLEAN

pytestmark = pytest.mark.crash


def commit_offset(servers: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def lose(data: Path, name: str) -> None:
    """Remove a partition's directory, and each entry of a checkpoint that tells of it."""
    shutil.rmtree(data / name)
    topic, _, index = name.rpartition("-")
    for path in (data / each for each in CHECKPOINTS):
        if path.exists():
            version, _, *entries = path.read_text().splitlines()
            left = [each for each in entries if each.split()[:2] != [topic, index]]
            path.write_text("\n".join([version, str(len(left)), *left, ""]))


@pytest.fixture(params=["closed", "killed"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory with committed records of `orders`, and plain ones of `events` with an offset.

    `unwritten` has nothing, `deleted` was deleted, and `emptied` has lost its records in order.
    """
    data = tmp_path / "data"
    with txn.Broker(data, durability="commit") as broker:
        servers = broker.bootstrap_servers
        for topic in ("orders", "events", "unwritten", "deleted", "emptied"):
            create_topic(servers, topic)
        for topic in ("orders", "deleted"):
            commit_values(transactional_producer(servers, f"pay-{topic}"), topic, [b"1", b"2"])
        for topic in ("events", "emptied"):
            send(plain_producer(servers), topic, [b"1", b"2", b"3"])
            commit_offset(servers, topic, 2)
        commit_offset(servers, "deleted", 2)
        assert run_txn("topics", "delete", "deleted", "--yes", "--bootstrap", servers)[0] == 0
    if request.param == "killed":
        (data / CLEAN).unlink()
    return data


def test_P9_a_log_that_a_completed_commit_knows_is_refused_by_name(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was served as one that was never written: its records were gone without a word."""
    lose(data, "orders-0")
    (found,) = verify(data).findings
    assert found.path == data / "orders-0"
    assert "its log is gone, but transactional id 'pay-orders' has committed offset 1" in found.what
    with txn.Broker(data, durability="commit") as broker:
        servers = broker.bootstrap_servers
        assert fetch_code(servers, "orders") == KAFKA_STORAGE_ERROR
        assert read_all(servers, "events") == [b"1", b"2", b"3"]
    (told,) = events(caplog, "log.damaged")
    assert "topic=orders partition=0" in told
    assert "orders-0: its log is gone" in told
    assert f"txn log accept-loss {data} orders-0" in told
    assert not (data / "orders-0").exists()

    words = shlex.split(found.advice.partition("txn log accept-loss ")[2])
    code, out, _ = run_txn("log", "accept-loss", *words)
    assert code == 0, out
    assert "the next record gets offset 2" in out
    caplog.clear()
    with txn.Broker(data, durability="commit") as broker:
        servers = broker.bootstrap_servers
        # The marker of the commit was written again, at offset 2.
        assert send(plain_producer(servers), "orders", [b"new"]) == [3]
    assert not events(caplog, "log.damaged")
    assert not verify(data).findings


def test_P9_a_log_that_a_committed_offset_knows_is_named_and_served(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client may commit any offset, so that nobody's partition is refused for one."""
    lose(data, "events-0")
    (found,) = verify(data).findings
    assert found.path == data / "events-0"
    assert "it has no log, but group 'readers' has committed offset 2" in found.what
    with txn.Broker(data, durability="commit"):
        pass
    (told,) = events(caplog, "log.missing")
    assert "topic=events partition=0" in told
    assert "group 'readers' has committed offset 2 of it" in told
    assert f"txn log accept-loss {data} events-0" in told

    assert run_txn("log", "accept-loss", data, "events-0")[0] == 0
    caplog.clear()
    with txn.Broker(data, durability="commit") as broker:
        assert send(plain_producer(broker.bootstrap_servers), "events", [b"new"]) == [2]
    assert not events(caplog, "log.missing")
    assert not verify(data).findings


def test_topics_that_nobody_wrote_were_deleted_or_emptied_are_passed_over(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert not verify(data).findings
    with txn.Broker(data, durability="commit") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "deleted")  # under the name that offsets were committed for
        code, _, told = run_txn("groups", "list", "--bootstrap", servers)
        assert code == 0, told
    with txn.Broker(data, durability="commit") as broker:
        assert read_all(broker.bootstrap_servers, "deleted") == []
    assert not events(caplog, "log.damaged")
    assert not events(caplog, "log.missing")
    assert not verify(data).findings
