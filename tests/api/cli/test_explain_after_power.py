"""`txn explain` on the files that a power failure left."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

import txn
from support.at_work import copy_at_work
from support.clients import (
    commit_values,
    create_topic,
    read_all,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from txn import _core
from txn.coordinator.transaction.records import encode_key, encode_value
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState
from txn.explain.directory import DirectorySource
from txn.inspect import segments, texts
from txn.storage.directory import LOCK


def held_by_pay(data: Path) -> dict[str, Any]:
    """The transaction that holds orders-0 back, by the files."""
    code, out, err = run_txn("explain", "orders-0", "--data", data, "--json")
    assert code == 0, err
    held: dict[str, Any] = json.loads(out)[0]["held_by"]
    return held


def newest_record(data: Path, transactional_id: str) -> tuple[Path, Txn]:
    """The file and the content of the newest record of an id."""
    record = DirectorySource(data).history(transactional_id)[-1]
    assert record.txn is not None
    return data / f"__transaction_state-{record.partition}" / f"{0:020}.log", record.txn


def append(path: Path, key: bytes, value: bytes) -> None:
    """Append a record to a log whose broker is gone."""
    batches = list(segments.walk(path))
    assert isinstance(batches[-1], segments.SegmentBatch)
    record = bytearray(_core.encode_batch([(key, value)], 1_000, -1, -1, -1, False))
    struct.pack_into(">q", record, 0, batches[-1].last_offset + 1)
    path.write_bytes(path.read_bytes() + record)


def left_by_power(data: Path, copied: Path) -> Path:
    """A copy that the next start takes for one of a machine that went down."""
    copy_at_work(data, copied)
    (copied / LOCK).write_text("another boot")
    return copied


@pytest.mark.parametrize("lost", [0, 1])
def test_P3_a_prepared_commit_without_its_records_is_told_as_the_abort_that_the_start_makes_of_it(
    tmp_path: Path, lost: int
) -> None:
    """It was told as decided (commit). A start that finds all of its records commits it."""
    data = tmp_path / "data"
    with txn.Broker(data, durability="commit") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        producer = transactional_producer(broker.bootstrap_servers, "pay")
        producer.begin_transaction()
        send(producer, "orders", [b"a", b"b"])
        copied = left_by_power(data, tmp_path / "copied")
    path, opened = newest_record(copied, "pay")
    topic_id = texts.read_topic_id((copied / "orders-0" / "partition.metadata").read_text())
    prepare = opened._replace(
        state=TxnState.PREPARE_COMMIT,
        last_offsets=(LastOffset(topic_id.bytes, 0, 0, 1 + lost),),
    )
    append(path, encode_key("pay"), encode_value(prepare))
    told = held_by_pay(copied)["ended_by"]
    if lost:
        assert told == (
            "the next start: power took records of this commit, which was never answered: it is "
            "aborted"
        )
    else:
        assert told == "the next start: it is decided (commit), and its markers are written then"
    with txn.Broker(copied, durability="commit") as broker:
        shown = read_all(broker.bootstrap_servers, "orders")
    assert shown == ([] if lost else [b"a", b"b"])


def test_P2_a_marker_that_power_took_is_told_as_written_again(tmp_path: Path) -> None:
    """It was told as lost for good."""
    data = tmp_path / "data"
    with txn.Broker(data, durability="commit") as broker:
        create_topic(broker.bootstrap_servers, "orders")
        commit_values(transactional_producer(broker.bootstrap_servers, "pay"), "orders", [b"a"])
        copied = left_by_power(data, tmp_path / "copied")
    path = copied / "orders-0" / f"{0:020}.log"
    *_, marker = segments.walk(path)
    assert isinstance(marker, segments.SegmentBatch)
    assert marker.is_control
    path.write_bytes(path.read_bytes()[: marker.position])
    assert held_by_pay(copied)["ended_by"] == (
        "the next start: it is committed, and power took its marker, which is written again"
    )
    with txn.Broker(copied, durability="commit") as broker:
        assert read_all(broker.bootstrap_servers, "orders") == [b"a"]
