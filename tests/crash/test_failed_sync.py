"""A disk that refuses to force a partition: it is final there, and everything else goes on.

The data that the kernel dropped after a failed fdatasync is unknown, and it does not report that
twice. So the partition takes no more batches, and no commit with it succeeds, until the broker
starts again and reads its files. The descriptor of the partition's file is exchanged for one that
no disk is behind; fdatasync(2) then fails with EINVAL.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

import txn
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
from txn.errors import StorageError

pytestmark = pytest.mark.crash


@contextmanager
def no_disk_behind(path: Path) -> Iterator[None]:
    """Exchange this process's descriptors of a file; bytes written meanwhile are lost."""
    opened = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == str(path):
                opened.append(int(name))
    assert opened, f"{path} is not open"
    kept = {descriptor: os.dup(descriptor) for descriptor in opened}
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        for descriptor in opened:
            os.dup2(nothing, descriptor, inheritable=False)
        yield
    finally:
        for descriptor, real in kept.items():
            os.dup2(real, descriptor, inheritable=False)
            os.close(real)
        os.close(nothing)


def log_of(data: Path, topic: str) -> Path:
    return data / f"{topic}-0" / f"{0:020}.log"


def test_P2_a_commit_that_cannot_be_forced_is_undone_and_other_partitions_go_on(
    tmp_path: Path,
) -> None:
    """Its producer was fenced by that, and of no use any more; now it aborts and goes on."""
    data = tmp_path / "data"
    broker = txn.Broker(data, durability="commit")
    servers = broker.bootstrap_servers
    for topic in ("bad", "good"):
        create_topic(servers, topic)
    doomed = transactional_producer(servers, "t1")
    other = transactional_producer(servers, "t2")
    doomed.begin_transaction()
    for topic in ("bad", "good"):
        send(doomed, topic, [b"doomed"])

    with no_disk_behind(log_of(data, "bad")), pytest.raises(KafkaException) as refused:
        doomed.commit_transaction(WAIT_S)
    commit_values(other, "good", [b"other"])
    with pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"):
        send(plain_producer(servers, retries=0), "bad", [b"refused"])
    doomed.abort_transaction(WAIT_S)
    held = ends(servers, "bad")
    shown = read_all(servers, "bad"), read_all(servers, "good")
    with pytest.raises(StorageError, match="a sync failed"):
        broker.close()

    assert refused.value.args[0].txn_requires_abort()
    assert held == (0, 1)
    assert shown == ([], [b"other"])
    with txn.Broker(data, port=int(servers.rpartition(":")[2])):
        commit_values(doomed, "bad", [b"later"])
        assert read_all(servers, "bad") == [b"later"]
        assert read_all(servers, "good") == [b"other"]


def test_P3_a_decision_that_the_disk_lost_is_taken_again_after_a_restart(tmp_path: Path) -> None:
    """Until then it is no success; the client may wait for the restart, or give up."""
    data = tmp_path / "data"
    broker = txn.Broker(data, durability="commit")
    servers = broker.bootstrap_servers
    create_topic(servers, "orders")
    undecided = transactional_producer(servers, "t1")
    [state] = data.glob("__transaction_state-*")
    other = transactional_producer(servers, "t2")
    undecided.begin_transaction()
    send(undecided, "orders", [b"undecided"])

    with no_disk_behind(state / f"{0:020}.log"), pytest.raises(KafkaException) as refused:
        undecided.commit_transaction(1.0)
    commit_values(other, "orders", [b"other"])
    stable, _ = ends(servers, "orders")
    with pytest.raises(StorageError, match="a sync failed"):
        broker.close()

    assert refused.value.args[0].retriable()
    assert stable == 0
    with txn.Broker(data, port=int(servers.rpartition(":")[2])):
        undecided.commit_transaction(WAIT_S)
        assert read_all(servers, "orders") == [b"undecided", b"other"]


def test_an_answer_that_waits_for_the_disk_is_an_error_if_it_refuses(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with suppress(StorageError), txn.Broker(data, durability="always") as broker:
        servers = broker.bootstrap_servers
        for topic in ("bad", "good"):
            create_topic(servers, topic)
            send(plain_producer(servers), topic, [b"kept"])
        with (
            no_disk_behind(log_of(data, "bad")),
            pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"),
        ):
            send(plain_producer(servers, retries=0), "bad", [b"lost"])
        send(plain_producer(servers), "good", [b"more"])
        assert read_all(servers, "good") == [b"kept", b"more"]


def test_a_topic_that_cannot_be_forced_is_refused(tmp_path: Path) -> None:
    """The client lost its connection and tried again, to hear that the topic was there."""
    data = tmp_path / "data"
    with suppress(StorageError), txn.Broker(data, durability="commit") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "before")
        with (
            no_disk_behind(log_of(data, "__cluster_metadata")),
            pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"),
        ):
            create_topic(servers, "unforced")
        with pytest.raises(KafkaException, match="restart the broker"):
            create_topic(servers, "later")
        send(plain_producer(servers), "before", [b"goes on"])
        assert read_all(servers, "before") == [b"goes on"]
