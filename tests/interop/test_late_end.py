"""An EndTxn that arrives when its client has gone on, over a connection that is long gone.

librdkafka asks again over a new connection when the old one breaks. The first request may still
be on its way. Under transaction version 1 nothing in it names its transaction, so it decides
whichever is open. Jepsen found that in Apache Kafka (KAFKA-17754), and KIP-890 closes it for
clients of version 2 by another epoch for each transaction. txn tells by the connection it comes
over.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harnesses.black_box.client import TransactionalWriter
from harnesses.black_box.events import Notebook, read_notes
from harnesses.black_box.judge import judge
from harnesses.black_box.observer import Observer
from harnesses.black_box.proxy import END_TXN, Proxy
from harnesses.black_box.targets import KafkaTarget, TxnTarget
from harnesses.black_box.topics import PARTITIONS, SOURCE, TOPICS
from support.clients import create_topic

HELD_S = 30.0
"""Longer than the test: a held request is released."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture
def txn_behind(proxy: Proxy, tmp_path: Path) -> Iterator[None]:
    target = TxnTarget(tmp_path / "data", proxy.port, "process")
    proxy.upstream_port = target.port
    yield
    target.stop()


@pytest.fixture
def kafka_behind(proxy: Proxy, tmp_path: Path) -> Iterator[None]:
    target = KafkaTarget(tmp_path / "kafka", proxy.port)
    proxy.upstream_port = target.port
    yield
    target.stop()


def _end_late(proxy: Proxy, directory: Path) -> list[str]:
    """Commit one transaction, its first EndTxn late, and abort the next; name the anomalies."""
    servers = proxy.bootstrap_servers
    for topic in TOPICS:
        create_topic(servers, topic, PARTITIONS)
    notes = directory / "writer.notes"
    writer = TransactionalWriter("writer", servers, Notebook(notes), seed=1)
    producer, instance = writer.instance()
    held = iter([HELD_S])
    proxy.hold(lambda api, _: next(held, 0.0) if api == END_TXN else 0.0)

    first = writer.begin(producer, instance)
    first.send((SOURCE, 0), "k0", "first")
    assert first.commit(), "the second EndTxn is answered"
    second = writer.begin(producer, instance)
    second.send((SOURCE, 0), "k0", "second")
    producer.flush(HELD_S)
    proxy.release()
    second.abort()

    assert len(proxy.late) == 1, "one EndTxn came late"
    history, _ = read_notes([notes])
    history.late = proxy.late
    observer = Observer(servers, Notebook(directory / "observer.notes"))
    history.stuck = observer.await_stable(SOURCE)
    observer.conclude(history, [])
    return [anomaly.name for anomaly in judge(history)]


@pytest.mark.usefixtures("txn_behind")
def test_P7_a_late_end_of_a_version_1_client_decides_nothing(proxy: Proxy, tmp_path: Path) -> None:
    assert _end_late(proxy, tmp_path) == []


@pytest.mark.peer
@pytest.mark.usefixtures("kafka_behind")
def test_a_late_end_is_caught_where_it_decides_the_next_transaction(
    proxy: Proxy, tmp_path: Path
) -> None:
    assert _end_late(proxy, tmp_path) == ["late-end"]
