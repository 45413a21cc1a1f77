"""`txn explain` and `txn transactions` on a real Apache Kafka, and on its directory.

The node does not verify partitions at Produce, as Apache Kafka before 3.6 did not. So a transaction
can be made to hang: a batch comes in that its coordinator knows nothing of.
"""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import txn
from harnesses.peers.kafka import KafkaNode
from support.at_work import copy_at_work
from support.clients import (
    commit_values,
    create_topic,
    plain_producer,
    read_all,
    send,
    transactional_producer,
)
from support.command_line import run_txn
from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn import _core
from txn.errors import StorageError
from txn.server.lifecycle.broker import service_of

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

PROPERTIES = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "3",
}
INIT_PRODUCER_ID, PRODUCE = 22, 0

Ran = tuple[int, str, str]
"""Exit code, output, errors."""


@dataclass(frozen=True)
class ExplainedNode:
    """Output for a node at work, in this order, and the place of its directory."""

    explained: Ran
    described: Ran
    hanging: Ran
    aborted_by_id: Ran
    aborted_by_offset: Ran
    explained_after: Ran
    committed_after: list[bytes | None]
    left: Path
    """The directory before the aborts."""
    stopped: Path
    described_when_stopped: Ran


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedNode]:
    directory = tmp_path_factory.mktemp("explain-kafka")
    left = directory / "left"
    with KafkaNode(directory / "kafka", PROPERTIES) as node:
        servers = node.bootstrap_servers
        bootstrap = ("--bootstrap", servers)
        create_topic(servers, "orders", 2)
        # Its timeout is beyond the run of these tests.
        pay = transactional_producer(servers, "pay-3", transaction_timeout_ms=600_000)
        pay.begin_transaction()
        send(pay, "orders", [b"a", b"b"])
        plain = plain_producer(servers)
        send(plain, "orders", [b"x", b"y", b"z"])
        commit_values(transactional_producer(servers, "pay-4"), "orders", [b"1"])
        while "CompleteCommit" not in run_txn("transactions", "describe", "pay-4", *bootstrap)[1]:
            continue  # Kafka answers before the markers are there
        let_hang(servers, "orders", 1)
        send(plain, "orders", [b"behind"], partition=1)
        explained = run_txn("explain", "orders", "--json", *bootstrap)
        described = run_txn("transactions", "describe", "pay-4", "--json", *bootstrap)
        hanging = run_txn("transactions", "hanging", "--json", *bootstrap)
        copy_at_work(node.data, left)
        abort = ("transactions", "abort", "--yes", *bootstrap)
        by_id = run_txn(*abort, "--transactional-id", "pay-3")
        by_offset = run_txn(*abort, "--topic-partition", "orders-1", "--start-offset", 0)
        after = run_txn("explain", "orders", *bootstrap)
        committed = sorted(read_all(servers, "orders"), key=str)
        node.stop()
        stopped = run_txn("transactions", "describe", "pay-4", "--json", "--data", node.data)
        yield ExplainedNode(
            explained,
            described,
            hanging,
            by_id,
            by_offset,
            after,
            committed,
            left,
            node.data,
            stopped,
        )


def let_hang(servers: str, topic: str, index: int) -> None:
    """Produce a transactional batch that was never announced to its coordinator."""
    with RawConnection(servers) as connection:
        identity = call(
            connection,
            INIT_PRODUCER_ID,
            4,
            {
                "transactional_id": "ghost",
                "transaction_timeout": 60_000,
                "producer_id": -1,
                "producer_epoch": -1,
            },
        )
        batch = _core.encode_batch(
            [(None, b"late")],
            time.time_ns() // 1_000_000,
            identity.producer_id,
            identity.producer_epoch,
            0,
            is_transactional=True,
        )
        answer = call(
            connection,
            PRODUCE,
            9,
            {
                "transactional_id": "ghost",
                "acks": -1,
                "timeout": 10_000,
                "topic_data": [
                    {"name": topic, "partition_data": [{"index": index, "records": batch}]}
                ],
            },
        )
    ((stored,),) = [each.partition_responses for each in answer.responses]
    assert stored.error_code == 0


def call(connection: RawConnection, api_key: int, version: int, fields: dict[str, Any]) -> Any:
    return connection.call(entity_builder(request(api_key, version))(fields))


def test_who_holds_readers_back_is_told_of_apache_kafka(story: ExplainedNode) -> None:
    code, out, _ = story.explained
    first, second = json.loads(out)
    held, hangs = first["held_by"], second["held_by"]
    assert code == 1
    assert (held["standing"], held["owner"]["transactional_id"]) == ("running", "pay-3")
    assert held["ends_ms"] == held["owner"]["start_ms"] + 600_000
    assert (held["owner"]["client"], held["owner"]["tells_client"]) == (None, False)
    assert (first["waiting"]["own"], first["waiting"]["plain"], first["waiting"]["decided"]) == (
        2,
        3,
        1,
    )
    # In time order; the records' time is their client's, before "open".
    assert [each["kind"] for each in first["timeline"]["events"]] == ["producer", "records", "open"]
    assert (hangs["standing"], hangs["owner"]["transactional_id"]) == ("hanging", "ghost")
    assert second["waiting"]["plain"] == 1


def test_the_life_of_a_transaction_is_told_of_apache_kafka_and_of_its_files(
    story: ExplainedNode,
) -> None:
    code, out, _ = story.described
    timeline = json.loads(out)["timeline"]
    assert (code, [each["kind"] for each in timeline["events"]]) == (
        0,
        ["producer", "records", "open", "decision", "marker", "end"],
    )
    code, out, err = story.described_when_stopped
    assert (code, json.loads(out)["timeline"], err) == (0, timeline, "")


def test_what_hangs_in_apache_kafka_is_found_and_named_with_its_offset(
    story: ExplainedNode,
) -> None:
    code, out, _ = story.hanging
    (found,) = json.loads(out)
    assert code == 1
    assert (found["topic"], found["partition"], found["first_offset"]) == ("orders", 1, 0)
    assert "--topic-partition orders-1 --start-offset 0" in found["command"]


def test_both_aborts_end_what_they_name_in_apache_kafka(story: ExplainedNode) -> None:
    assert (story.aborted_by_id[0], story.aborted_by_offset[0]) == (0, 0)
    assert "aborted. 'pay-3' now has producer" in story.aborted_by_id[1]
    assert "aborted. The marker is in orders-1" in story.aborted_by_offset[1]
    assert (story.explained_after[0], story.committed_after) == (
        0,
        [b"1", b"behind", b"x", b"y", b"z"],
    )


def test_the_directory_that_apache_kafka_left_tells_the_same(story: ExplainedNode) -> None:
    code, out, _ = run_txn("explain", "orders", "--data", story.left, "--json")
    told, alive = json.loads(out), json.loads(story.explained[1])
    assert code == 1
    for mine, theirs in zip(told, alive, strict=True):
        assert mine["held_by"]["standing"] == theirs["held_by"]["standing"]
        for name in ("last_stable_offset", "end_offset", "waiting", "timeline"):
            assert mine[name] == theirs[name]


def test_txn_refuses_what_hangs_in_a_directory_it_takes_over_until_it_is_given_up(
    story: ExplainedNode, tmp_path: Path
) -> None:
    """It may be a late write, or a commit whose marker is lost: that is for an operator to say."""
    moved = tmp_path / "moved"
    shutil.copytree(story.left, moved)
    refused = pytest.raises(StorageError, match="has a transaction open since offset")
    with txn.Broker(moved) as broker, refused:
        service_of(broker).node.replicas.get("orders", 1)
    code, out, err = run_txn("log", "accept-loss", str(moved), "orders-1")
    assert code == 0, (out, err)
    with txn.Broker(moved) as broker:
        code, _, _ = run_txn("transactions", "hanging", "--bootstrap", broker.bootstrap_servers)
        assert code == 0
