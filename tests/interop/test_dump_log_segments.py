"""Apache Kafka's DumpLogSegments over our files, and our tools over Apache Kafka's.

Both tools read the same two directories, one filled through txn and one through a real
node, by the same clients. Neither may find anything wrong, and where both tell of the same
thing they have to tell the same.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import txn
from harnesses.peers.dump_log_segments import fields, kafka_dump
from harnesses.peers.kafka import FEW_PARTITIONS, KafkaNode
from support.log_directories import CODECS, fill
from txn.inspect.dump import dump
from txn.inspect.verify import verify

pytestmark = [pytest.mark.peer, pytest.mark.timeout(240)]

TOPICS = (*CODECS, "orders")
INTERNAL = ("__transaction_state", "__consumer_offsets", "__cluster_metadata")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that txn wrote and left cleanly."""
    path = tmp_path_factory.mktemp("ours") / "data"
    with txn.Broker(path) as broker:
        fill(broker.bootstrap_servers)
    return path


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that Apache Kafka wrote and left cleanly."""
    with KafkaNode(tmp_path_factory.mktemp("theirs"), FEW_PARTITIONS) as node:
        fill(node.bootstrap_servers)
    return node.data


@pytest.fixture(params=["ours", pytest.param("theirs", id="kafka's")], scope="module")
def data(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


# ---------------------------------------------------------------- DumpLogSegments


def logs(data: Path, *topics: str) -> list[Path]:
    return sorted(path for topic in topics for path in data.glob(f"{topic}-*/*.log"))


def entries(files: Iterable[Path], kind: str) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from (each for each in dump(file, is_deep=True) if each["entry"] == kind)


# ---------------------------------------------------------------- the tests


def test_we_find_nothing_wrong(data: Path) -> None:
    outcome = verify(data, is_deep=True)
    assert outcome.findings == []
    assert outcome.segments > len(TOPICS)


def test_both_tools_see_the_same_batches_and_records(data: Path) -> None:
    files = logs(data, *TOPICS)
    told = kafka_dump(files, "--deep-iteration")
    assert told.complaints == ""
    assert [batch_of(line) for line in told.of(files, "baseOffset")] == [
        {
            "baseOffset": each["first_offset"],
            "lastOffset": each["last_offset"],
            "count": each["records"],
            "baseSequence": or_none(each["first_sequence"]),
            "lastSequence": or_none(each["last_sequence"]),
            "producerId": or_none(each["producer_id"]),
            "producerEpoch": or_none(each["producer_epoch"]),
            "partitionLeaderEpoch": each["leader_epoch"],
            "position": each["position"],
            "CreateTime": each["max_timestamp_ms"],
            "size": each["bytes"],
            "crc": each["crc"],
            "isTransactional": "transactional" in each["flags"],
            "isControl": "control" in each["flags"],
            "compresscodec": each["codec"],
            "isvalid": each["fault"] is None,
        }
        for each in entries(files, "batch")
    ]
    assert [record_of(line) for line in told.of(files, "|")] == [
        (
            each["offset"],
            each["timestamp_ms"],
            size_of(each.get("key")),
            size_of(each.get("value")),
            [key.decode() for key, _ in each.get("headers", [])],
            each.get("control"),
        )
        for each in entries(files, "record")
    ]


NUMBERS = (
    "baseOffset lastOffset count baseSequence lastSequence producerId producerEpoch "
    "partitionLeaderEpoch position CreateTime size crc"
).split()
FLAGS = ("isTransactional", "isControl", "isvalid")


def batch_of(line: str) -> dict[str, Any]:
    told = fields(line)
    return (
        {name: int(told[name]) for name in NUMBERS}
        | {name: told[name] == "true" for name in FLAGS}
        | {"compresscodec": told["compresscodec"]}
    )


def record_of(line: str) -> tuple[Any, ...]:
    told = fields(line)
    control = told.get("endTxnMarker")
    sizes = (-1, -1) if control else (int(told["keySize"]), int(told["valueSize"]))
    keys = [key for key in re.findall(r"headerKeys: \[([^]]*)]", line)[0].split(",") if key]
    return (
        int(told["offset"]),
        int(told["CreateTime"]),
        *sizes,
        keys,
        control.lower() if control else None,
    )


def or_none(value: int | None) -> int:
    return -1 if value is None else value


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def test_every_index_passes_kafkas_sanity_check(ours: Path) -> None:
    """The check that decides at a start whether an index is rebuilt."""
    files = sorted([*ours.glob("*/*.index"), *ours.glob("*/*.timeindex")])
    told = kafka_dump(files, "--index-sanity-check")
    assert told.complaints == ""
    verdicts = {line.split(" ", 1)[1] for file in files for line in told.lines[file]}
    assert verdicts <= {"passed sanity check.", "is empty."}
    assert "passed sanity check." in verdicts


def test_every_index_entry_snapshot_and_aborted_transaction_is_read_alike(data: Path) -> None:
    suffixes = ("index", "timeindex", "txnindex", "snapshot")
    files = sorted(
        path for topic in (*TOPICS, *INTERNAL) for suffix in suffixes
        for path in data.glob(f"{topic}-*/*.{suffix}")
    )  # fmt: skip
    told = kafka_dump(files)
    assert told.complaints == ""
    assert [
        (int(each["offset"]), int(each["position"]))
        for each in map(fields, told.of(files, "offset: "))
    ] == [(each["last_offset"], each["batch_position"]) for each in entries(files, "index")]
    assert [
        (int(each["timestamp"]), int(each["offset"]))
        for each in map(fields, told.of(files, "timestamp: "))
    ] == [(each["timestamp_ms"], each["offset"]) for each in entries(files, "timeindex")]
    aborted = [
        tuple(int(each[name]) for name in "producerId firstOffset lastOffset".split())
        for each in map(fields, told.of(files, "version: "))
    ]
    assert aborted == [
        (each["producer_id"], each["first_offset"], each["last_offset"])
        for each in entries(files, "aborted")
    ]
    assert len(aborted) == 10
    assert [producer_of(line) for line in told.of(files, "producerId: ")] == [
        (
            each["producer_id"],
            each["producer_epoch"],
            each["coordinator_epoch"],
            each["last_timestamp_ms"],
            or_none(each["txn_first_offset"]),
            or_none(each["first_sequence"]),
            or_none(each["last_sequence"]),
            or_none(each["last_offset"]),
        )
        for each in entries(files, "producer")
    ]


def producer_of(line: str) -> tuple[int, ...]:
    told = fields(line)
    names = "producerId producerEpoch coordinatorEpoch lastTimestamp".split()
    still_open = re.findall(r"OptionalLong\[(\d+)]", told["currentTxnFirstOffset"])
    first, last, offset = (
        int(told.get(name, -1)) for name in ("firstSequence", "lastSequence", "lastOffset")
    )
    # A coordinator's batch has no sequences; Kafka counts back from -1 all the same.
    first = first if last >= 0 else -1
    return (*(int(told[name]) for name in names), int(*still_open or [-1]), first, last, offset)


def test_the_records_of_the_transaction_coordinator_are_read_alike(data: Path) -> None:
    files = logs(data, "__transaction_state")
    told = kafka_dump(files, "--transaction-log-decoder")
    assert told.complaints == ""
    decoded = [decoded_of(line) for line in told.of(files, "|") if "key: " in line]
    assert [
        (
            key["transactionalId"],
            value["producerId"],
            value["producerEpoch"],
            state_of(value["transactionStatus"]),
            value["transactionLastUpdateTimestampMs"],
            sorted(
                f"{topic['topic']}-{index}"
                for topic in value["transactionPartitions"] or []
                for index in topic["partitionIds"]
            ),
        )
        for key, value in decoded
    ] == [
        (
            each["transactional_id"],
            each["producer_id"],
            each["producer_epoch"],
            each["state"],
            each["updated_ms"],
            sorted(each["partitions"]),
        )
        for each in entries(files, "record")
    ]
    assert {key["transactionalId"] for key, _ in decoded} == {"loader", "hanging", "copier"}


STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def state_of(status: int | str) -> str:
    """A state of a transaction, which Kafka 4.2 tells by its number and 4.4 by its name."""
    return STATES[status] if isinstance(status, int) else status


def decoded_of(line: str) -> tuple[dict[str, Any], dict[str, Any]]:
    key, payload = re.findall(r"key: (\{.*\}) payload: (.*)$", line)[0]
    return json.loads(key)["data"], json.loads(payload)["data"]


def test_the_records_of_the_group_coordinator_are_read_alike(data: Path) -> None:
    files = logs(data, "__consumer_offsets")
    told = kafka_dump(files, "--offsets-decoder")
    assert told.complaints == ""
    decoded = [decoded_of(line) for line in told.of(files, "|") if "key: " in line]
    seen = [each for each in entries(files, "record") if "group_id" in each]
    assert [
        tuple(key[name] for name in ("group", "topic", "partition"))
        + tuple(value[name] for name in ("offset", "commitTimestamp"))
        for key, value in decoded
        if "topic" in key
    ] == [
        tuple(
            each[name]
            for name in (
                "group_id",
                "topic",
                "partition",
                "committed_offset",
                "commit_timestamp_ms",
            )
        )
        for each in seen
        if "topic" in each
    ]
    assert [
        (key["group"], value["generation"], [member["memberId"] for member in value["members"]])
        for key, value in decoded
        if "topic" not in key
    ] == [
        (each["group_id"], each["generation"], [member["member_id"] for member in each["members"]])
        for each in seen
        if "topic" not in each
    ]


def test_the_metadata_log_is_read_alike(data: Path) -> None:
    files = logs(data, "__cluster_metadata")
    told = kafka_dump(files, "--cluster-metadata-decoder")
    assert told.complaints == ""
    payloads = (line.partition(" payload: ")[2] for line in told.of(files, "|"))
    types = [json.loads(payload)["type"] for payload in payloads if payload]
    seen = [each for each in entries(files, "record") if "control" not in each]
    assert [kind.removesuffix("_RECORD").replace("_", "") for kind in types] == [
        each["type"].upper() for each in seen
    ]
    assert {"orders", *CODECS} <= {each["name"] for each in seen if each["type"] == "Topic"}
