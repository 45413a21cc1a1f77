"""A compacted log of ours, read by Apache Kafka's DumpLogSegments and by `txn log verify`."""

import re
from pathlib import Path

import pytest

import txn
from harnesses.peers.dump_log_segments import fields, kafka_dump
from support.clients import plain_producer
from support.compacted import ON_CALL, compact, fill, roll
from txn.inspect.dump import dump
from txn.inspect.verify import verify

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cleaned once, so that there are empty batches, delete horizons and idle markers."""
    path = tmp_path_factory.mktemp("compacted") / "data"
    with txn.Broker(path, properties=ON_CALL | {"log.cleaner.delete.retention.ms": 1}) as broker:
        fill(broker, "prices")
        compact(broker)
        roll(plain_producer(broker.bootstrap_servers), "prices")
        compact(broker)
    return path


def test_verify_finds_nothing_wrong_with_a_compacted_log(data: Path) -> None:
    assert verify(data, is_deep=True).findings == []


def test_kafka_reads_compacted_batches_as_we_do(data: Path) -> None:
    files = sorted(data.glob("prices-0/*.log"))
    told = kafka_dump(files, "--deep-iteration")
    batches = [fields(line) for line in told.of(files, "baseOffset")]
    every = [each for file in files for each in dump(file, is_deep=False)]
    ours = [each for each in every if each["entry"] == "batch"]

    # The gaps are the purpose of compaction; the tool tells of them in any compacted log.
    gap = re.compile(r"Non-consecutive offsets in .*|\s*\d+ is followed by \d+")
    assert [line for line in told.complaints.splitlines() if not gap.fullmatch(line)] == []
    assert {batch["isvalid"] for batch in batches} == {"true"}
    assert [(int(b["baseOffset"]), int(b["lastOffset"]), int(b["count"])) for b in batches] == [
        (each["first_offset"], each["last_offset"], each["records"]) for each in ours
    ]
    assert "0" in {batch["count"] for batch in batches}
    assert any("deleteHorizonMs: OptionalLong[" in line for line in told.of(files, "baseOffset"))


def test_kafka_finds_the_indexes_of_a_cleaned_segment_sane(data: Path) -> None:
    indexes = sorted(data.glob("prices-0/*.index")) + sorted(data.glob("prices-0/*.timeindex"))
    told = kafka_dump(indexes, "--verify-index-only")
    assert told.complaints == ""
