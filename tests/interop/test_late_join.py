"""Requests that let offsets into a transaction, arriving when their client has gone on.

Under transaction version 1 nothing in a TxnOffsetCommit says which transaction it was meant for.
One that comes late puts a group back to the offset of the transaction before, and the next records
are copied twice. txn tells by the connection it comes over; with that rule broken the judge of the
black box has to find it.
"""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from harnesses.black_box.client import Copier, TransactionalWriter
from harnesses.black_box.events import Notebook, read_notes
from harnesses.black_box.history import copy_of
from harnesses.black_box.judge import judge
from harnesses.black_box.observer import Observer
from harnesses.black_box.proxy import Proxy
from harnesses.black_box.targets import TxnTarget
from harnesses.black_box.topics import PARTITIONS, SOURCE, STAGES, TOPICS
from support.clients import create_topic

HELD_S = 30.0
"""Longer than the test: a held request is released."""
STAGE = STAGES[0]
VALUES = ("first", "second")


def _commit_offsets_late(proxy: Proxy, directory: Path) -> set[str]:
    """Copy two records, a transaction each, the first TxnOffsetCommit late; name the anomalies."""
    servers = proxy.bootstrap_servers
    for topic in TOPICS:
        create_topic(servers, topic, PARTITIONS)
    notes = [directory / "writer.notes", directory / "copier.notes"]
    writer = TransactionalWriter("writer", servers, Notebook(notes[0]), seed=1)
    written = writer.begin(*writer.instance())
    for value in VALUES:
        written.send((SOURCE, 0), "k0", value)
    assert written.commit()

    copier = Copier("copier", servers, Notebook(notes[1]), seed=1)
    producer, instance = copier.instance()
    consumer = copier.consumer(STAGE.group)
    consumer.assign([TopicPartition(SOURCE, 0, 0)])
    held = iter([HELD_S])
    proxy.hold(lambda api, _: next(held, 0.0) if api == "TxnOffsetCommit" else 0.0)
    for offset, value in enumerate(VALUES):
        attempt = copier.begin(producer, instance)
        attempt.send((STAGE.sink, 0), "k0", copy_of(value, attempt.name))
        position = TopicPartition(SOURCE, 0, offset + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), HELD_S)
        if offset == 1:
            proxy.release()
        assert attempt.commit()
    consumer.close()

    assert [late.api for late in proxy.late_joins] == ["TxnOffsetCommit"]
    history, _ = read_notes(notes)
    observer = Observer(servers, Notebook(directory / "observer.notes"))
    for topic in TOPICS:
        history.stuck |= observer.await_stable(topic)
    observer.conclude(history, [STAGE])
    return {anomaly.name for anomaly in judge(history)}


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        pytest.param([], set(), id="P3_late_offsets_join_no_later_transaction"),
        pytest.param(
            ["late-requests"],
            {"offset-split", "group-stuck"},
            id="offsets_that_join_another_transaction_are_caught",
        ),
    ],
)
def test_offsets_that_come_late(rules: list[str], found: set[str], tmp_path: Path) -> None:
    proxy = Proxy()
    target = TxnTarget(tmp_path / "data", proxy.port, "process", rules)
    proxy.upstream_port = target.port
    try:
        assert _commit_offsets_late(proxy, tmp_path) == found
    finally:
        proxy.close()
        target.stop()
